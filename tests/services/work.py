"""Running what workers run, until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gpupools.clusters.port import Kubernetes
from gpupools.models import Cluster, Push
from gpupools.services import clusters, gateways, pushing
from gpupools.services.access import SYSTEM
from tests.simulator.harness import SimulatorProcess

PATIENCE_SECONDS = 60.0


def until(condition: Callable[[], bool], *, doing: Callable[[], object] = lambda: None) -> None:
    """Repeat ``doing`` until the condition holds; fail when it does not within a minute."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {PATIENCE_SECONDS:.0f} s; queue: {list(queue())}")
        doing()
        time.sleep(0.05)


def queue() -> list[tuple[str, str, str]]:
    """Return the queued pushes: kind, target, error."""
    return list(Push.objects.filter(state=Push.State.QUEUED).values_list("kind", "target", "error"))


def work() -> None:
    """Carry out the queue until it is empty, as a worker and the beat do."""
    until(lambda: not queue(), doing=pushing.run_due)


def connected(simulator: SimulatorProcess, name: str = "embedded", *, ack: Mapping[str, str] | None = None) -> Cluster:
    """Connect a running simulator as a cluster, by the credentials that it wrote (``ack`` overrides some)."""
    return clusters.connect(
        SYSTEM,
        name=name,
        provider=Cluster.Provider.ACK if simulator.ack else Cluster.Provider.KUBERNETES,
        kubeconfig=Path(simulator.kubeconfig).read_text(),
        ack=simulator.ack if ack is None else ack,
    )


def node(cluster: Cluster, name: str):
    """Return a node as it is in the cluster."""
    with gateways.kubernetes_of(cluster) as kubernetes:
        return kubernetes.node(name)


def kubernetes(cluster: Cluster) -> Kubernetes:
    """Open a cluster's API server for the rest of a test."""
    return gateways.clusters.connect(gateways.credentials.connection_of(cluster))
