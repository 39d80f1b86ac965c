"""The only code that talks to clusters, and the only one that knows their SDKs. Services call these three functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupools.clusters.kube import KubeClient
from gpupools.clusters.labelled import LabelledPools
from gpupools.clusters.port import AckAccess, AddonProvider, Connection, Kubernetes, PoolProvider

if TYPE_CHECKING:
    from gpupools.clusters.ack import AckClient


def connect(connection: Connection) -> KubeClient:
    """Return a client of the API server; nothing is sent yet. Close it, or use it in a ``with``."""
    return KubeClient(connection)


def pools(connection: Connection, kubernetes: Kubernetes) -> PoolProvider:
    """Return who owns the node pools: ACK where we have its OpenAPI, labels elsewhere."""
    if connection.ack is not None:
        return _ack(connection.ack, connection.timeout_seconds)
    return LabelledPools(kubernetes)


def addons(connection: Connection) -> AddonProvider | None:
    """Return who owns the add-ons; None on a cluster without the ACK OpenAPI."""
    if connection.ack is None:
        return None
    return _ack(connection.ack, connection.timeout_seconds)


def _ack(access: AckAccess, timeout_seconds: float) -> AckClient:
    # Its SDK takes 30 MiB of memory, which a process that only meets plain Kubernetes need not have.
    from gpupools.clusters.ack import AckClient

    return AckClient(access, timeout_seconds=timeout_seconds)
