"""The way from a cluster's row to its API server and its pool provider, opened for one piece of work and closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpupools import clusters
from gpupools.clusters.port import Kubernetes, PoolProvider
from gpupools.models import Cluster
from gpupools.services import credentials

__all__ = ["Kubernetes", "PoolProvider", "kubernetes_of", "pools_of"]


@contextmanager
def kubernetes_of(cluster: Cluster) -> Iterator[Kubernetes]:
    """Open a cluster's API server. Raises Unreachable when its credentials cannot be read."""
    kubernetes = clusters.connect(credentials.connection_of(cluster))
    try:
        yield kubernetes
    finally:
        kubernetes.close()


@contextmanager
def pools_of(cluster: Cluster) -> Iterator[tuple[Kubernetes, PoolProvider]]:
    """Open a cluster's API server and whoever owns its node pools."""
    connection = credentials.connection_of(cluster)
    kubernetes = clusters.connect(connection)
    try:
        yield kubernetes, clusters.pools(connection, kubernetes)
    finally:
        kubernetes.close()
