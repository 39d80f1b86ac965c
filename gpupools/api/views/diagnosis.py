"""What is wrong in a cluster: known failures, recognised from its nodes, pods and components."""

from __future__ import annotations

from datetime import UTC, datetime

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gpupools.api.base import Door
from gpupools.api.serializers.diagnosis import ReportOut
from gpupools.models import Cluster
from gpupools.services import diagnosing


class DiagnosisView(Door):
    """The diagnosis of one cluster."""

    queryset = Cluster.objects.none()
    serializer_class = ReportOut
    pagination_class = None

    @extend_schema(responses=ReportOut, parameters=[OpenApiParameter("node", str), OpenApiParameter("pool", str)])
    def list(self, request: Request, cluster: str) -> Response:
        """Read what is wrong in the cluster, with one node or with one node pool."""
        query = request.query_params
        found = diagnosing.report(self.actor, self.cluster(), node=query.get("node", ""), pool=query.get("pool", ""))
        taken_at = datetime.fromtimestamp(found.taken_at, tz=UTC) if found.taken_at is not None else None
        body = {"taken_at": taken_at, "errors": found.errors, "warnings": found.warnings, "results": found.found}
        return Response(ReportOut(body).data)
