"""What every view of the REST API shares: the actor, pages of a list, versions of an object, repeated POSTs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import viewsets
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from gpupools.api.authentication import actor_of
from gpupools.api.errors import StaleVersion, VersionRequired
from gpupools.errors import FieldError, Invalid
from gpupools.models import Cluster
from gpupools.services import idempotency
from gpupools.services.access import Actor

Row = TypeVar("Row")

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="A repeated request with the same key is answered as the first was, and does nothing again.",
)
IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="The ETag that you read.")
AFTER = OpenApiParameter("after", str, description="`next_after` of the page before.")
LIMIT = OpenApiParameter("limit", int, description="How many at most: 1 to 2000, 500 unless told.")


class Pages(CursorPagination):
    """Pages that stay whole while rows come and go."""

    page_size = 50
    max_page_size = 500
    page_size_query_param = "page_size"
    ordering = "-pk"


class Door(viewsets.GenericViewSet[Any]):
    """A view of the REST API: parse, call a service, show."""

    pagination_class: Any = Pages
    lookup_value_regex = r"[^/]+"

    @property
    def actor(self) -> Actor:
        """Who acts. Kept for the request, so that grants are read once."""
        if not hasattr(self.request, "gpupools_actor"):
            self.request.gpupools_actor = actor_of(self.request)
        return self.request.gpupools_actor  # type: ignore[no-any-return]  # set just above

    def read(self, serializer: type[BaseSerializer[Any]], **kwargs: Any) -> dict[str, Any]:
        """Check the body of the request against a serializer and return its values."""
        checked = serializer(data=self.request.data, context=self.get_serializer_context(), **kwargs)
        checked.is_valid(raise_exception=True)
        if unknown := _unknown(self.request.data, checked):
            raise Invalid("The body has fields that nobody reads.", code="unknown-field", errors=unknown)
        return dict(checked.validated_data)

    def cluster(self, name: str | None = None) -> Cluster:
        """Find the cluster that the path (or ``name``) names; one that may not be seen is not found."""
        wanted = self.kwargs.get("cluster", "") if name is None else name
        return get_object_or_404(Cluster.objects.visible_to(self.actor), name=wanted)

    def paged(self, rows: QuerySet[Any], serializer: type[BaseSerializer[Any]]) -> Response:
        """Answer one page of rows."""
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(serializer(page, many=True, context=self.get_serializer_context()).data)

    def once(self, work: Callable[[], Response]) -> Response:
        """Do the work of a POST once per Idempotency-Key; without the header, just do it."""
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return work()
        request = self.request
        # The body was parsed already, so its text is what the parser read: the same values are the same request.
        body = repr(sorted(request.data.items())) if hasattr(request.data, "items") else repr(request.data)
        seen = idempotency.begin(
            self.actor, key, idempotency.digest(request.method or "", request.get_full_path(), body.encode())
        )
        if seen is not None:
            where = {"Location": seen.location} if seen.location else {}
            return Response(seen.body, status=seen.status, headers={**where, "Idempotency-Replayed": "true"})
        kept = False
        try:
            response = work()
            answer = idempotency.Answer(response.status_code, plain(response.data), response.get("Location", ""))
            idempotency.finish(self.actor, key, answer)
            kept = True
            return response
        finally:
            if not kept:
                idempotency.release(self.actor, key)


def _unknown(data: Any, serializer: BaseSerializer[Any]) -> list[FieldError]:
    """Name the fields of a body that the serializer does not know: dropping them would be a silent no.

    A serializer may say in ``elsewhere`` where a field that people try is changed instead.
    """
    fields = getattr(serializer, "fields", {})
    elsewhere: dict[str, str] = getattr(serializer, "elsewhere", {})
    return [
        FieldError(
            str(name),
            elsewhere.get(str(name), "There is no such field here."),
            code="unknown-field",
            found=str(name),
            allowed=", ".join(fields),
        )
        for name in (data if isinstance(data, Mapping) else ())
        if name not in fields
    ]


def plain(data: Any) -> Any:
    """Return serialized data as JSON values (dates as text), just as they are sent."""
    return json.loads(JSONRenderer().render(data))


def check_version(request: Request, version: int) -> None:
    """Hold an edit to the version that it was made on; raise 428 without If-Match and 412 for a stale one."""
    wanted = request.headers.get("If-Match")
    if wanted is None:
        raise VersionRequired
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in wanted.split(",")}
    if "*" not in tags and str(version) not in tags:
        raise StaleVersion


def etag(version: int) -> dict[str, str]:
    """Return the header that names a version."""
    return {"ETag": f'"{version}"'}


def windowed(request: Request, rows: Sequence[Row], key: Callable[[Row], str]) -> tuple[list[Row], str | None]:
    """Cut a sorted list to one window by ``limit`` and ``after``; return it with what ``after`` is next."""
    try:
        limit = int(request.query_params.get("limit", "500"))
    except ValueError:
        limit = 0
    if not 1 <= limit <= 2000:
        raise ValidationError({"limit": ["This is a whole number from 1 to 2000."]})
    after = request.query_params.get("after", "")
    try:
        start = base64.b64decode(after.encode(), altchars=b"-_", validate=True).decode() if after else ""
    except (ValueError, UnicodeDecodeError):
        raise ValidationError({"after": ["This is not a `next_after` of this list."]}) from None
    rest = [row for row in rows if key(row) > start] if start else list(rows)
    window = rest[:limit]
    more = len(rest) > limit
    return window, base64.urlsafe_b64encode(key(window[-1]).encode()).decode() if more else None


def get_visible(rows: QuerySet[Any], **lookup: Any) -> Any:
    """Find one row among those that may be seen, or answer 404."""
    found: Model = get_object_or_404(rows, **lookup)
    return found
