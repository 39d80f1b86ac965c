"""Requests for dangerous operations: made by asking for the operation, decided by another person."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from gpupools.api.base import IDEMPOTENCY_KEY, Door, get_visible
from gpupools.api.serializers.clusters import ReasonIn
from gpupools.api.serializers.requests import ApproveIn, OperationRequestOut
from gpupools.models import OperationRequest
from gpupools.services import requests

_RELATED = ("cluster", "requested_by", "decided_by", "push")


def asked(door: Door, made: OperationRequest) -> Response:
    """Answer that an operation waits for a second person: 202 with the request, and where it is."""
    row = OperationRequest.objects.select_related(*_RELATED).get(pk=made.pk)
    body = OperationRequestOut(row, context=door.get_serializer_context()).data
    where = reverse("api:operation-request-detail", args=[made.pk])
    return Response(body, status=202, headers={"Location": where})


class OperationRequestView(Door):
    """Requests for operations that release machines, end pods or take components away."""

    queryset = OperationRequest.objects.none()
    serializer_class = OperationRequestOut
    lookup_value_regex = r"[0-9]+"
    filterset_fields = {
        "state": ["exact"], "kind": ["exact"], "pool": ["exact"], "target": ["exact"], "cluster__name": ["exact"],
    }  # fmt: skip

    def get_queryset(self) -> Any:
        """Requests on clusters that the caller sees whole."""
        return OperationRequest.objects.visible_to(self.actor).select_related(*_RELATED).order_by("-pk")

    def _shown(self, pk: Any) -> Response:
        row = get_visible(self.get_queryset(), pk=pk)
        return Response(OperationRequestOut(row, context=self.get_serializer_context()).data)

    def list(self, request: Request) -> Response:
        """List requests, newest first."""
        return self.paged(self.filter_queryset(self.get_queryset()), OperationRequestOut)

    def retrieve(self, request: Request, pk: str) -> Response:
        """Read one request: what will be done, and who is hit."""
        return self._shown(pk)

    @extend_schema(request=ApproveIn, responses=OperationRequestOut, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Let an operation go ahead; its requester may not. Pods that came since the request are named."""
        row, values = get_visible(self.get_queryset(), pk=pk), self.read(ApproveIn)

        def work() -> Response:
            requests.approve(self.actor, row, **values)
            return self._shown(pk)

        return self.once(work)

    @extend_schema(request=ReasonIn, responses=OperationRequestOut, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: str) -> Response:
        """Refuse an operation; its requester may not decide."""
        row, values = get_visible(self.get_queryset(), pk=pk), self.read(ReasonIn)

        def work() -> Response:
            requests.reject(self.actor, row, **values)
            return self._shown(pk)

        return self.once(work)

    @extend_schema(request=None, responses=OperationRequestOut, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """Take one's own request back before somebody decides."""
        row = get_visible(self.get_queryset(), pk=pk)

        def work() -> Response:
            requests.withdraw(self.actor, row)
            return self._shown(pk)

        return self.once(work)
