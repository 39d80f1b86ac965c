"""People with a session each, and a cluster whose numbers are known: six nodes, one per mode, some of them busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from gpupools.domain.gpus import Picture
from gpupools.models import Cluster, NodePool, Role
from gpupools.services.access import Actor
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_cluster, a_component, a_pool, an_actor
from tests.services.showing import show

Visitor = Callable[[Role | None], Client]
POOL = "gpupools.internal/pool"
CARD = {
    "aliyun.accelerator/nvidia_name": "Tesla-V100-SXM2-16GB",
    "aliyun.accelerator/nvidia_mem": "16130MiB",
    "aliyun.accelerator/nvidia_count": "4",
}


@dataclass
class Lab:
    """A plain Kubernetes cluster with its pools by mode, and the picture that the console has of it."""

    cluster: Cluster
    pools: dict[str, NodePool]
    picture: Picture


@pytest.fixture
def people(db: None) -> dict[Role | None, Actor]:
    """One account per role on every cluster, and one (None) without any grant."""
    made: dict[Role | None, Actor] = {role: an_actor(role, name=f"the-{role}") for role in Role}
    made[None] = an_actor(name="stan")
    return made


@pytest.fixture
def visitor(people: dict[Role | None, Actor]) -> Visitor:
    """Make a browser in which one of the people has signed in."""
    made: dict[Role | None, Client] = {}

    def browser_of(role: Role | None) -> Client:
        if role not in made:
            made[role] = Client()
            made[role].force_login(people[role].user, backend="django.contrib.auth.backends.ModelBackend")
        return made[role]

    return browser_of


def nodes_of_all_modes(**fields: Any) -> list[Any]:
    """One node per mode, each in the pool that is named like it, and one without GPUs."""
    modes = ("exclusive", "cgpu", "core_mem", "share", "mps", "topology")
    return [
        *(a_node(f"n-{mode}", mode, labels={POOL: mode.replace("_", "-"), **CARD}, **fields) for mode in modes),
        a_node("n-plain", "", 0),
    ]


@pytest.fixture
def lab(db: None, empty_redis: object) -> Lab:
    """A cluster with a pool per mode, some pods, and numbers that are fresh."""
    cluster = a_cluster("lab")
    pools = {
        mode: a_pool(
            cluster,
            mode.replace("_", "-"),
            mode=mode,
            policy="" if mode in {"exclusive", "topology"} else "binpack",
            node_names=[f"n-{mode}"],
        )
        for mode in ("exclusive", "cgpu", "core_mem", "share", "mps", "topology")
    }
    for component in ("ack-ai-installer", "ack-mps-control", "ack-nvidia-device-plugin"):
        a_component(cluster, component)
    pods = [
        a_pod("bert", mem=6, at={0: 6}, on="n-cgpu", owner_kind="Job", owner_name="bert"),
        a_pod("going", mem=3, at={0: 3}, on="n-cgpu", terminating=True),
        a_pod("lost", mem=2, on="n-cgpu"),
        a_pod("secret", mem=4, at={1: 4}, on="n-cgpu", namespace="payroll"),
        a_pod("rank", mem=8, core=30, at={2: 8}, core_at={2: 30}, on="n-core_mem"),
        a_pod("train", whole=2, on="n-exclusive"),
        a_pod("waits", mem=40, on="", phase="Pending", reason="Unschedulable", message="0/7 nodes are available."),
    ]
    return Lab(cluster, pools, show(cluster, nodes_of_all_modes(), pods))
