"""Node pools: create, edit, scale, delete. A mode is changed by a mode change, never here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.db.models import Prefetch
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from gpupools.api.base import IDEMPOTENCY_KEY, IF_MATCH, Door, check_version, etag, get_visible
from gpupools.api.serializers.clusters import (
    AdoptIn,
    AnswerOut,
    AttachIn,
    DeleteIn,
    NodePoolEdit,
    NodePoolIn,
    NodePoolOut,
    RestoreIn,
    ScaleIn,
    TakeOutIn,
)
from gpupools.api.serializers.poolplans import AdviceList, EditPreviewOut, InstanceTypeList, NewPoolOut, PoolFoundOut
from gpupools.api.serializers.requests import OperationRequestOut
from gpupools.api.views.requests import asked
from gpupools.domain.changes import OPEN
from gpupools.domain.gpus import Taint
from gpupools.domain.instances import INSTANCE_TYPES
from gpupools.models import ModeChange, NodePool, OperationRequest
from gpupools.services import members, pooladvice, poolcuts, poolfound, poolpreviews, pools

_OPEN = Prefetch(
    "changes",
    queryset=ModeChange.objects.filter(state__in=[state.value for state in OPEN]).only("pk", "pool_id"),
    to_attr="open_changes",
)


def _taints(values: dict[str, Any]) -> dict[str, Any]:
    if "taints" in values:
        values["taints"] = [Taint(**taint) for taint in values["taints"]]
    return values


class NodePoolView(Door):
    """Node pools of every cluster that the caller may see."""

    queryset = NodePool.objects.none()
    serializer_class = NodePoolOut
    lookup_value_regex = r"[0-9]+"
    filterset_fields = {"cluster__name": ["exact"], "name": ["exact"], "mode": ["exact"], "state": ["exact"]}

    def get_queryset(self) -> Any:
        """Pools of visible clusters, with the change that holds each."""
        return NodePool.objects.visible_to(self.actor).select_related("cluster").prefetch_related(_OPEN).order_by("-pk")

    def _shown(self, pool: NodePool, status: int = 200) -> Response:
        fresh = get_visible(self.get_queryset(), pk=pool.pk)
        return Response(NodePoolOut(fresh).data, status=status, headers=etag(fresh.version))

    def list(self, request: Request) -> Response:
        """List node pools; filter by cluster__name, name, mode and state."""
        return self.paged(self.filter_queryset(self.get_queryset()), NodePoolOut)

    def retrieve(self, request: Request, pk: str) -> Response:
        """Read one node pool; its ETag goes into If-Match of an edit."""
        return self._shown(get_visible(self.get_queryset(), pk=pk))

    @extend_schema(request=NodePoolIn, responses={201: NodePoolOut}, parameters=[IDEMPOTENCY_KEY])
    def create(self, request: Request) -> Response:
        """Create a node pool; over existing nodes of another mode it also asks for a mode change."""
        values = _taints(self.read(NodePoolIn))
        cluster = self.cluster(values.pop("cluster"))
        return self.once(lambda: self._shown(pools.create(self.actor, cluster, **values), 201))

    @extend_schema(request=NodePoolIn, responses=NewPoolOut)
    @action(detail=False, methods=["post"], url_path="preview")
    def preview(self, request: Request) -> Response:
        """Say what creating a node pool with this body would make and what to know of it; nothing is made."""
        values = _taints(self.read(NodePoolIn))
        cluster = self.cluster(values.pop("cluster"))
        return Response(NewPoolOut(pooladvice.of_new(self.actor, cluster, **values)).data)

    @extend_schema(responses=InstanceTypeList)
    @action(detail=False, methods=["get"], url_path="instance-types", pagination_class=None, filter_backends=[])
    def instance_types(self, request: Request) -> Response:
        """List the instance types that the console knows, with their cards."""
        return Response(InstanceTypeList({"results": INSTANCE_TYPES}).data)

    @extend_schema(responses=AdviceList)
    @action(detail=True, methods=["get"])
    def advice(self, request: Request, pk: str) -> Response:
        """Say what to know of a pool: mixed modes or cards, pools that cannot be told apart, unknown machines."""
        pool = get_visible(self.get_queryset(), pk=pk)
        return Response(AdviceList({"results": pooladvice.of(self.actor, pool)}).data)

    @extend_schema(responses=PoolFoundOut)
    @action(detail=True, methods=["get"])
    def found(self, request: Request, pk: str) -> Response:
        """Count the nodes of a pool as they are found: ready, by mode, by card model, and which differ from it."""
        pool = get_visible(self.get_queryset(), pk=pk)
        taken_at, found = poolfound.of(self.actor, pool)
        body = {
            "taken_at": datetime.fromtimestamp(taken_at, tz=UTC) if taken_at is not None else None,
            "mode_wanted": pool.mode,
            "nodes_wanted": pool.desired_size or len(pool.node_names),
            "nodes": found and found.nodes,
            "nodes_ready": found and found.ready,
            "modes": found and found.modes,
            "card_models": found and found.card_models,
            "drifting": found and found.drifting,
            "changing": found and found.changing,
        }
        return Response(PoolFoundOut(body).data)

    @extend_schema(request=NodePoolEdit, responses=EditPreviewOut)
    @action(detail=True, methods=["post"], url_path="preview-edit")
    def preview_edit(self, request: Request, pk: str) -> Response:
        """Say what an edit with this body would do to the pool and to each of its nodes; nothing is written."""
        pool = get_visible(self.get_queryset(), pk=pk)
        values = _taints(self.read(NodePoolEdit, partial=True))
        for word in ("reason", "approved_pods"):
            values.pop(word, None)
        return Response(EditPreviewOut(poolpreviews.edit(self.actor, pool, **values)).data)

    @extend_schema(request=NodePoolEdit, responses={200: NodePoolOut, 202: OperationRequestOut}, parameters=[IF_MATCH])
    def partial_update(self, request: Request, pk: str) -> Response:
        """Edit free labels and taints; 202 where a second person must approve a taint that ends pods."""
        pool = get_visible(self.get_queryset(), pk=pk)
        check_version(request, pool.version)
        values = _taints(self.read(NodePoolEdit, partial=True))
        made = pools.edit(self.actor, pool, version=pool.version, **values)
        return asked(self, made) if isinstance(made, OperationRequest) else self._shown(made)

    @extend_schema(
        request=ScaleIn, responses={200: NodePoolOut, 202: OperationRequestOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @action(detail=True, methods=["post"])
    def scale(self, request: Request, pk: str) -> Response:
        """Set the size of a pool whose provider owns machines; 202 where a second person must approve that."""
        pool = get_visible(self.get_queryset(), pk=pk)
        values = self.read(ScaleIn)

        def work() -> Response:
            made = poolcuts.scale(self.actor, pool, **values)
            return asked(self, made) if isinstance(made, OperationRequest) else self._shown(made)

        return self.once(work)

    @extend_schema(
        request=DeleteIn,
        responses={
            202: PolymorphicProxySerializer(
                "DeletedOrAsked", [NodePoolOut, OperationRequestOut], resource_type_field_name=None
            )
        },
        parameters=[IDEMPOTENCY_KEY],
    )
    @action(detail=True, methods=["post"], url_path="delete")
    def remove(self, request: Request, pk: str) -> Response:
        """Delete a pool: its machines on ACK, only its labels on plain Kubernetes.

        With a `Location`, the answer is the request that a second person must approve.
        """
        pool = get_visible(self.get_queryset(), pk=pk)
        values = self.read(DeleteIn)

        def work() -> Response:
            made = poolcuts.delete(self.actor, pool, **values)
            return asked(self, made) if made else self._shown(pool, 202)

        return self.once(work)

    @extend_schema(request=TakeOutIn, responses={202: NodePoolOut}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"], url_path="take-out")
    def take_out(self, request: Request, pk: str) -> Response:
        """Take nodes out of a pool; a node that shall change its mode is moved by a mode change instead."""
        return self._of_nodes(pk, TakeOutIn, members.take_out)

    @extend_schema(request=AttachIn, responses={202: NodePoolOut}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def attach(self, request: Request, pk: str) -> Response:
        """Let machines that are outside the cluster join an ACK pool."""
        return self._of_nodes(pk, AttachIn, members.attach)

    def _of_nodes(self, pk: str, body: Any, do: Callable[..., object]) -> Response:
        pool = get_visible(self.get_queryset(), pk=pk)
        values = self.read(body)

        def work() -> Response:
            do(self.actor, pool, **values)
            return self._shown(pool, 202)

        return self.once(work)

    @extend_schema(request=RestoreIn, responses=AnswerOut, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"], url_path="restore-drift")
    def restore_drift(self, request: Request, pk: str) -> Response:
        """Bring nodes back to what the pool wants; a request where a mode would change."""
        return self._answer(pk, RestoreIn, members.restore)

    @extend_schema(request=AdoptIn, responses=AnswerOut, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"], url_path="adopt-drift")
    def adopt_drift(self, request: Request, pk: str) -> Response:
        """Let the pool want what one of its nodes carries; a request where that is another mode."""
        return self._answer(pk, AdoptIn, members.adopt)

    def _answer(self, pk: str, body: Any, do: Callable[..., ModeChange | OperationRequest | None]) -> Response:
        pool = get_visible(self.get_queryset(), pk=pk)
        values = self.read(body)

        def work() -> Response:
            made = do(self.actor, pool, **values)
            body: dict[str, int | None] = {"change": None, "request": None}
            if made is not None:
                body["request" if isinstance(made, OperationRequest) else "change"] = made.pk
            return Response(AnswerOut(body).data)

        return self.once(work)
