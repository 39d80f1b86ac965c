"""Mode changes: asked for by an operator, decided by an administrator who is not the requester."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from gpupools.api.base import IDEMPOTENCY_KEY, Door, get_visible
from gpupools.api.serializers.clusters import EndingIn, ReasonIn
from gpupools.api.serializers.flights import FlightOut
from gpupools.api.serializers.people import ModeChangeIn, ModeChangeOut, ModeChangeWish, UndoIn
from gpupools.models import ModeChange, NodePool
from gpupools.services import changes, flights

_NAMED = extend_schema(request=ReasonIn, responses=ModeChangeOut, parameters=[IDEMPOTENCY_KEY])


class ModeChangeView(Door):
    """Requests to change a pool's mode or policy."""

    queryset = ModeChange.objects.none()
    serializer_class = ModeChangeOut
    lookup_value_regex = r"[0-9]+"
    filterset_fields = {"state": ["exact"], "pool": ["exact"], "pool__cluster__name": ["exact"]}

    def get_queryset(self) -> Any:
        """Changes of pools that the caller may see."""
        rows = ModeChange.objects.visible_to(self.actor)
        related = ("pool__cluster", "target_pool__cluster", "requested_by", "decided_by")
        return rows.select_related(*related).prefetch_related("steps__confirmed_by").order_by("-pk")

    def _shown(self, pk: Any, status: int = 200) -> Response:
        row = get_visible(self.get_queryset(), pk=pk)
        return Response(ModeChangeOut(row, context=self.get_serializer_context()).data, status=status)

    def _move(self, pk: str, move: Callable[..., Any], form: type[ReasonIn] = ReasonIn) -> Response:
        change = get_visible(self.get_queryset(), pk=pk)
        values = self.read(form)

        def work() -> Response:
            move(self.actor, change, **values)
            return self._shown(pk)

        return self.once(work)

    def list(self, request: Request) -> Response:
        """List mode changes, newest first."""
        return self.paged(self.filter_queryset(self.get_queryset()), ModeChangeOut)

    def retrieve(self, request: Request, pk: str) -> Response:
        """Read one mode change with its diff, blast radius and steps."""
        return self._shown(pk)

    @extend_schema(request=ModeChangeIn, responses={201: ModeChangeOut}, parameters=[IDEMPOTENCY_KEY])
    def create(self, request: Request) -> Response:
        """Ask for a mode or policy change of a pool."""
        pool, values = self._wish(ModeChangeIn)
        return self.once(lambda: self._shown(changes.request(self.actor, pool, **values).pk, 201))

    @extend_schema(request=ModeChangeWish, responses=FlightOut)
    @action(detail=False, methods=["post"])
    def preview(self, request: Request) -> Response:
        """Say what a change with this body would do, to whom and in which steps; nothing is asked for."""
        pool, values = self._wish(ModeChangeWish)
        flight = flights.plan(self.actor, pool, **values)
        return Response(FlightOut(flight, context=self.get_serializer_context()).data)

    def _wish(self, form: type[ModeChangeWish]) -> tuple[NodePool, dict[str, Any]]:
        values = self.read(form)
        visible = NodePool.objects.visible_to(self.actor).select_related("cluster")
        pool = get_visible(visible, pk=values.pop("pool"))
        if values["target_pool"] is not None:
            values["target_pool"] = get_visible(visible, pk=values["target_pool"])
        return pool, values

    @_NAMED
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Let a change go ahead; its requester may not."""
        return self._move(pk, changes.approve)

    @_NAMED
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: str) -> Response:
        """Refuse a change; its requester may not decide."""
        return self._move(pk, changes.reject)

    @extend_schema(request=None, responses=ModeChangeOut, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """Take one's own request back before it starts."""
        change = get_visible(self.get_queryset(), pk=pk)

        def work() -> Response:
            changes.withdraw(self.actor, change)
            return self._shown(pk)

        return self.once(work)

    @_NAMED
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Stop between two steps."""
        return self._move(pk, changes.pause)

    @_NAMED
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Go on: a failed change from the step that failed, a paused one from where it stopped."""
        return self._move(pk, changes.retry)

    @_NAMED
    @action(detail=True, methods=["post"])
    def abandon(self, request: Request, pk: str) -> Response:
        """Give a paused or failed change up; what it cordoned is uncordoned, auto scaling that it paused goes on."""
        return self._move(pk, changes.abandon)

    @_NAMED
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        """Give back what an ended change still holds, when that failed before: cordons, and auto scaling."""
        return self._move(pk, changes.release)

    @extend_schema(request=EndingIn, responses=ModeChangeOut, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"], url_path="roll-back")
    def roll_back(self, request: Request, pk: str) -> Response:
        """Bring the nodes of a paused or failed change back; pods that nobody had seen are waited for unless named."""
        return self._move(pk, changes.roll_back, EndingIn)

    @_NAMED
    @action(detail=True, methods=["post"])
    def confirm(self, request: Request, pk: str) -> Response:
        """Say that the step which waits for a person is done; the reason says what was done."""
        return self._move(pk, changes.confirm)

    @extend_schema(request=UndoIn, responses={201: ModeChangeOut}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: str) -> Response:
        """Ask for the way back of an applied change: a change of its own, which somebody decides on."""
        change = get_visible(self.get_queryset(), pk=pk)
        values = self.read(UndoIn)
        return self.once(lambda: self._shown(changes.undo(self.actor, change, **values).pk, 201))
