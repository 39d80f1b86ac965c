"""What the cluster holds now: nodes, pods, logs and the allocation of every card. Read from the current picture."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from gpupools.api.base import AFTER, LIMIT, Door, windowed
from gpupools.api.serializers.numbers import NumberOut
from gpupools.api.serializers.waiting import WaitingOut
from gpupools.api.serializers.work import InspectOut, LogOut, NodeOut, NodePage, PodOut, PodPage
from gpupools.api.views.work import shown_preview
from gpupools.models import AllocationPoint, Cluster
from gpupools.services import allocation, explaining, nodes, pods, waiting
from gpupools.services.explaining import Figure


def _instant(taken_at: float | None) -> datetime | None:
    return datetime.fromtimestamp(taken_at, tz=UTC) if taken_at is not None else None


class NodeView(Door):
    """Nodes of one cluster, with the live checks of their mode."""

    queryset = Cluster.objects.none()
    serializer_class = NodeOut
    pagination_class = None
    lookup_field = "name"

    @extend_schema(
        responses=NodePage,
        parameters=[AFTER, LIMIT, OpenApiParameter("pool", str), OpenApiParameter("mode", str)],
    )
    def list(self, request: Request, cluster: str) -> Response:
        """List nodes by name; filter by pool and mode."""
        listing = nodes.listing(self.actor, self.cluster())
        wanted = {key: request.query_params[key] for key in ("pool", "mode") if request.query_params.get(key)}
        rows = [row for row in listing.rows if all(getattr(row, key) == value for key, value in wanted.items())]
        page, after = windowed(request, rows, lambda row: row.name)
        body = {"taken_at": _instant(listing.taken_at), "next_after": after, "results": page}
        return Response(NodePage(body).data)

    @extend_schema(responses=NodeOut)
    def retrieve(self, request: Request, cluster: str, name: str) -> Response:
        """Read one node."""
        listing = nodes.listing(self.actor, self.cluster(), name=name)
        if not listing.rows:
            raise Http404
        return Response(NodeOut(listing.rows[0]).data)


class PodView(Door):
    """Pods of one cluster, in the namespaces that the caller may see."""

    queryset = Cluster.objects.none()
    serializer_class = PodOut
    pagination_class = None
    lookup_field = "pod"
    lookup_value_regex = r"[^/]+/[^/]+"

    @extend_schema(
        responses=PodPage,
        parameters=[
            AFTER,
            LIMIT,
            *(OpenApiParameter(name, str) for name in ("namespace", "node", "owner", "phase", "mode")),
            OpenApiParameter("gpu_only", bool),
        ],
    )
    def list(self, request: Request, cluster: str) -> Response:
        """List pods by namespace and name."""
        query = request.query_params
        names = ("namespace", "node", "owner", "phase", "mode")
        filters = pods.Filters(
            **{name: query.get(name, "") for name in names},
            gpu_only=query.get("gpu_only", "") in {"1", "true", "True"},
        )
        listing = pods.listing(self.actor, self.cluster(), filters)
        page, after = windowed(request, listing.rows, lambda row: f"{row.pod.namespace}/{row.pod.name}")
        body = {"taken_at": _instant(listing.taken_at), "next_after": after, "results": page}
        return Response(PodPage(body).data)

    @extend_schema(
        responses=LogOut, parameters=[OpenApiParameter("container", str), OpenApiParameter("tail_lines", int)]
    )
    @action(detail=True, methods=["get"])
    def log(self, request: Request, cluster: str, pod: str) -> Response:
        """Read the end of a container's log, straight from the cluster."""
        namespace, _, name = pod.partition("/")
        try:
            tail_lines = int(request.query_params.get("tail_lines", "500"))
        except ValueError:
            raise ValidationError({"tail_lines": ["This is a whole number."]}) from None
        text = pods.log(
            self.actor,
            self.cluster(),
            namespace,
            name,
            container=request.query_params.get("container", ""),
            tail_lines=tail_lines,
        )
        return Response({"text": text})

    @extend_schema(responses=WaitingOut)
    @action(detail=True, methods=["get"])
    def waiting(self, request: Request, cluster: str, pod: str) -> Response:
        """Read why a pod waits: the scheduler's reasons and what they mean for it, and where it would land now."""
        namespace, _, name = pod.partition("/")
        found = waiting.look(self.actor, self.cluster(), namespace, name)
        body = {
            "waits": found is not None,
            "taken_at": _instant(found.taken_at) if found else None,
            "said": found.said if found else None,
            "agrees": found.agrees if found else None,
            "preview": shown_preview(found.preview) if found else None,
            "help": found.help if found else None,
            "scheduler": found.scheduler if found else None,
        }
        return Response(WaitingOut(body).data)


class AllocationView(Door):
    """What every card of one cluster holds."""

    queryset = Cluster.objects.none()
    pagination_class = None

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def list(self, request: Request, cluster: str) -> Response:
        """Read the whole allocation: the same snapshot that the WebSocket sends first."""
        found = self.cluster()
        return Response(allocation.view(found, self.actor.namespaces(found)))

    @extend_schema(responses=InspectOut, parameters=[OpenApiParameter("node", str)])
    @action(detail=False, methods=["get"])
    def inspect(self, request: Request, cluster: str) -> Response:
        """Read the allocation as text, laid out as ``kubectl inspect cgpu`` lays it out."""
        tables = nodes.tables(self.actor, self.cluster(), node=request.query_params.get("node", ""))
        body = {"taken_at": _instant(tables.taken_at), "shared": tables.shared, "whole": tables.whole}
        return Response(InspectOut(body).data)

    @extend_schema(
        responses=NumberOut,
        parameters=[
            OpenApiParameter("figure", str, required=True, enum=[each.value for each in Figure]),
            OpenApiParameter("node", str, description="One node."),
            OpenApiParameter("gpu", int, description="One card of that node."),
            OpenApiParameter("pool", str, description="One node pool."),
        ],
    )
    @action(detail=False, methods=["get"])
    def explain(self, request: Request, cluster: str) -> Response:
        """Read which pods make up a figure of a card, a node, a pool or the cluster; the parts add up to it."""
        given = request.query_params
        gpu = given.get("gpu", "")
        if gpu and not (gpu.isascii() and gpu.isdigit() and len(gpu) < 6):
            raise ValidationError({"gpu": ["This is not the index of a card."]})
        found = explaining.explain(
            self.actor,
            self.cluster(),
            explaining.figure_of(given.get("figure", "")),
            node=given.get("node", ""),
            gpu=int(gpu) if gpu else None,
            pool=given.get("pool", ""),
        )
        return Response(NumberOut(found).data)

    @extend_schema(responses=OpenApiTypes.OBJECT, parameters=[OpenApiParameter("since", OpenApiTypes.DATETIME)])
    @action(detail=False, methods=["get"])
    def history(self, request: Request, cluster: str) -> Response:
        """Read the totals of earlier polls, oldest first, for at most seven days."""
        since = request.query_params.get("since")
        try:
            start = datetime.fromisoformat(since) if since else datetime.now(UTC) - allocation.KEEP_HISTORY
        except ValueError:
            raise ValidationError({"since": ["This is not an ISO 8601 instant."]}) from None
        if start.tzinfo is None:
            raise ValidationError({"since": ["The instant needs a time zone, for instance Z."]})
        points = allocation.history(self.cluster(), since=start)
        fields = [field.name for field in AllocationPoint._meta.fields if field.name not in {"id", "cluster"}]
        return Response({"results": [{name: getattr(point, name) for name in fields} for point in points]})
