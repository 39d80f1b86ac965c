"""Drives the queue of operations by hand against a running embedded cluster, as a worker would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.utils import timezone

from gpupools.clusters.port import Kubernetes
from gpupools.models import Cluster, ModeChange, Push
from gpupools.services import clusters, components, gateways, pushes
from gpupools.services.access import SYSTEM, Actor
from gpupools.services.pushing import HANDLERS
from tests.simulator.harness import SimulatorProcess

SECONDS = 60.0


def until(condition: Callable[[], object], *, what: str, seconds: float = SECONDS) -> None:
    """Look again until it is so; fail with what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for: {what}")
        time.sleep(0.05)


def run_one() -> Push | None:
    """Carry out one run of the push that is due first; pauses between two looks at the cluster are cut short."""
    Push.objects.filter(state=Push.State.QUEUED, lease_until=None).update(due_at=timezone.now())
    push = pushes.claim()
    if push is not None:
        pushes.carry_out(push, HANDLERS[push.kind])
    return push


def drive(condition: Callable[[], object], *, what: str, seconds: float = SECONDS) -> None:
    """Work the queue until it is so."""

    def step() -> bool:
        if condition():
            return True
        run_one()
        return bool(condition())

    until(step, what=what, seconds=seconds)


def settle(*, seconds: float = SECONDS) -> None:
    """Work the queue until it is empty."""
    drive(lambda: not Push.objects.filter(state=Push.State.QUEUED).exists(), what="an empty queue", seconds=seconds)


def reaches(change: ModeChange, state: str) -> Callable[[], bool]:
    """Tell whether a change is in a state by now."""

    def is_there() -> bool:
        change.refresh_from_db()
        return change.state == state

    return is_there


def connected(simulator: SimulatorProcess, name: str = "embedded") -> Cluster:
    """Connect a running embedded cluster, by the OpenAPI too where it has one."""
    return clusters.connect(
        SYSTEM,
        name=name,
        provider="ack" if simulator.ack else "kubernetes",
        kubeconfig=simulator.kubeconfig.read_text(),
        ack={
            key: simulator.ack[key]
            for key in ("cluster_id", "region", "access_key_id", "access_key_secret", "endpoint", "protocol")
        }
        if simulator.ack
        else None,
        is_embedded=True,
    )


def with_components(actor: Actor, cluster: Cluster, *names: str) -> None:
    """Install components and wait until the queue is empty."""
    for name in names:
        components.install(actor, cluster, name, image_prefix="registry.example.com/acs")
    settle()


@contextmanager
def opened(cluster: Cluster) -> Iterator[Kubernetes]:
    """Open the cluster's API server beside the console, as somebody with kubectl would."""
    with gateways.kubernetes_of(cluster) as kubernetes:
        yield kubernetes


def a_sleeper(
    name: str, *, seconds: int, limits: dict[str, int], node: str, namespace: str = "default"
) -> dict[str, object]:
    """The manifest of a Job whose one pod holds cards of a node for so many seconds of the cluster's time."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"kubernetes.io/hostname": node},
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox:1",
                            "command": ["sleep", str(seconds)],
                            "resources": {"limits": {key: str(value) for key, value in limits.items()}},
                        }
                    ],
                }
            }
        },
    }
