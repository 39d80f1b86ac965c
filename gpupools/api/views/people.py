"""Who calls, API tokens, users, grants, the audit log and the queue of pushes."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from gpupools.api.base import IDEMPOTENCY_KEY, Door, get_visible
from gpupools.api.serializers.people import (
    ActiveIn,
    AuditEntryOut,
    GrantIn,
    GrantOut,
    IssuedOut,
    MadeUserOut,
    MeOut,
    NoticeWishOut,
    PushOut,
    TokenIn,
    TokenOut,
    UserIn,
    UserOut,
)
from gpupools.models import ApiToken, AuditEntry, Grant, Push, Role, User
from gpupools.services import notices, tokens, users


class MeView(Door):
    """The caller."""

    queryset = User.objects.none()
    serializer_class = MeOut
    pagination_class = None

    @extend_schema(responses=MeOut)
    def list(self, request: Request) -> Response:
        """Read who calls, and what they are granted."""
        actor = self.actor
        grants = Grant.objects.filter(user=actor.user).select_related("user", "cluster").order_by("pk")
        return Response(MeOut({"username": actor.name, "token": actor.via, "grants": grants}).data)

    @extend_schema(methods=["GET"], responses=NoticeWishOut)
    @extend_schema(methods=["PUT"], request=NoticeWishOut, responses=NoticeWishOut)
    @action(detail=False, methods=["get", "put"])
    def notices(self, request: Request) -> Response:
        """Read or set what the caller wants e-mail about."""
        if request.method == "PUT":
            wish = notices.wish(self.actor, **self.read(NoticeWishOut))
        else:
            wish = notices.wish_of(self.actor)
        return Response(NoticeWishOut(wish).data)


class TokenView(Door):
    """The caller's own API tokens."""

    queryset = ApiToken.objects.none()
    serializer_class = TokenOut
    lookup_value_regex = r"[0-9]+"

    def get_queryset(self) -> QuerySet[ApiToken]:
        """Tokens of the caller."""
        return ApiToken.objects.filter(user=self.actor.user).select_related("user").order_by("-pk")

    def list(self, request: Request) -> Response:
        """List one's own tokens."""
        return self.paged(self.get_queryset(), TokenOut)

    @extend_schema(request=TokenIn, responses={201: IssuedOut})
    def create(self, request: Request) -> Response:
        """Issue a token; its text is shown this once. Not repeatable by key: the text is kept nowhere."""
        token, text = tokens.issue(self.actor, **self.read(TokenIn))
        return Response({**TokenOut(token).data, "token": text}, status=201)

    @extend_schema(request=None, responses=TokenOut)
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """End a token."""
        token = get_visible(self.get_queryset(), pk=pk)
        tokens.revoke(self.actor, token)
        return Response(TokenOut(token).data)


class UserView(Door):
    """Accounts; for administrators of the whole console."""

    queryset = User.objects.none()
    serializer_class = UserOut
    lookup_value_regex = r"[0-9]+"

    def get_queryset(self) -> QuerySet[User]:
        """Every account, for those who may manage them."""
        self.actor.require(Role.ADMIN)
        return User.objects.order_by("-pk")

    def list(self, request: Request) -> Response:
        """List accounts."""
        return self.paged(self.get_queryset(), UserOut)

    @extend_schema(request=UserIn, responses={201: MadeUserOut})
    def create(self, request: Request) -> Response:
        """Make an account without any grant; its password is shown this once."""
        user, password = users.create_user(self.actor, **self.read(UserIn))
        return Response({**UserOut(user).data, "password": password}, status=201)

    @extend_schema(request=ActiveIn, responses=UserOut)
    @action(detail=True, methods=["post"], url_path="set-active")
    def set_active(self, request: Request, pk: str) -> Response:
        """Let an account sign in, or not."""
        user = get_visible(self.get_queryset(), pk=pk)
        users.set_active(self.actor, user, **self.read(ActiveIn))
        return Response(UserOut(user).data)


class GrantView(Door):
    """Roles that were granted; for administrators of the whole console."""

    queryset = Grant.objects.none()
    serializer_class = GrantOut
    lookup_value_regex = r"[0-9]+"
    filterset_fields = {"user__username": ["exact"], "cluster__name": ["exact"], "role": ["exact"]}

    def get_queryset(self) -> QuerySet[Grant]:
        """Every grant, for those who may manage them."""
        self.actor.require(Role.ADMIN)
        return Grant.objects.select_related("user", "cluster").order_by("-pk")

    def list(self, request: Request) -> Response:
        """List grants."""
        return self.paged(self.filter_queryset(self.get_queryset()), GrantOut)

    @extend_schema(request=GrantIn, responses={201: GrantOut}, parameters=[IDEMPOTENCY_KEY])
    def create(self, request: Request) -> Response:
        """Give a role."""
        values = self.read(GrantIn)
        self.actor.require(Role.ADMIN)
        user = User.objects.filter(username=values.pop("user")).first()
        if user is None:
            raise ValidationError({"user": ["There is no such account."]})
        name = values.pop("cluster")
        cluster = self.cluster(name) if name else None
        return self.once(
            lambda: Response(GrantOut(users.grant(self.actor, user, cluster=cluster, **values)).data, status=201)
        )

    @extend_schema(request=None, responses={204: None})
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Take a role away."""
        users.revoke(self.actor, get_visible(self.get_queryset(), pk=pk))
        return Response(status=204)


class AuditEntryView(Door):
    """Who did what."""

    queryset = AuditEntry.objects.none()
    serializer_class = AuditEntryOut
    filterset_fields = {
        "action": ["exact", "startswith"],
        "actor_name": ["exact"],
        "cluster_name": ["exact"],
        "object_type": ["exact"],
        "object_id": ["exact"],
        "at": ["gte", "lte"],
    }

    def get_queryset(self) -> Any:
        """Entries about clusters that the caller may see wholly."""
        return AuditEntry.objects.visible_to(self.actor).order_by("-pk")

    def list(self, request: Request) -> Response:
        """List entries, newest first."""
        return self.paged(self.filter_queryset(self.get_queryset()), AuditEntryOut)


class PushView(Door):
    """The queue of operations on clusters, and what became of them."""

    queryset = Push.objects.none()
    serializer_class = PushOut
    lookup_field = "op_id"
    lookup_value_regex = r"[0-9a-f-]{36}"
    filterset_fields = {"state": ["exact"], "kind": ["exact"], "target": ["exact"], "cluster__name": ["exact"]}

    def get_queryset(self) -> Any:
        """Pushes to clusters that the caller may see wholly."""
        return Push.objects.visible_to(self.actor).select_related("cluster", "requested_by").order_by("-pk")

    def list(self, request: Request) -> Response:
        """List pushes, newest first."""
        return self.paged(self.filter_queryset(self.get_queryset()), PushOut)

    def retrieve(self, request: Request, op_id: str) -> Response:
        """Read one push by its operation id."""
        return Response(PushOut(get_visible(self.get_queryset(), op_id=op_id)).data)
