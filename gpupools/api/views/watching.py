"""How the watching of a cluster goes: age, relists, lag and failures, for monitoring."""

from __future__ import annotations

from datetime import UTC, datetime

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gpupools.api.base import Door
from gpupools.api.serializers.watching import WatchOut
from gpupools.errors import Missing
from gpupools.models import Cluster
from gpupools.services import watchreports


class WatchView(Door):
    """The watcher's own numbers on one cluster."""

    queryset = Cluster.objects.none()
    serializer_class = WatchOut
    pagination_class = None

    @extend_schema(responses=WatchOut)
    def list(self, request: Request, cluster: str) -> Response:
        """Read what the watcher counts; 404 when nobody has watched for a minute."""
        found = watchreports.load(self.cluster().pk)
        if found is None:
            raise Missing("Nobody has watched this cluster for a minute.", code="not-watched")
        seen = datetime.fromtimestamp(found.last_seen, tz=UTC) if found.last_seen is not None else None
        body = {
            **{
                name: getattr(found, name) for name in ("holder", "publishes", "synced", "live", "lag_seconds", "error")
            },
            "at": datetime.fromtimestamp(found.at, tz=UTC),
            "last_seen": seen,
            "age_seconds": found.age_seconds,
            "gaps": list(found.gaps),
            "kinds": found.kinds,
        }
        return Response(WatchOut(body).data)
