"""Pools of three machines on an embedded ACK cluster, and changes that stop half way there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gpupools.domain.changes import State
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import changes, gateways, pools, poolsync
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.driving import connected, drive, reaches, settle, until
from tests.services.test_carrying_on_ack import nodes_of
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.harness import SimulatorProcess

TYPE = "ecs.gn6v-c8g1.8xlarge"
RESOURCE = {"exclusive": "nvidia.com/gpu", "cgpu": "aliyun.com/gpu-mem"}
Maker = Callable[..., NodePool]


@pytest.fixture(scope="module")
def ack_simulator() -> Iterator[SimulatorProcess]:
    """One embedded cluster for a module: each test makes pools of its own."""
    with SimulatorProcess(fleet="demo", ack=True, speed=50.0) as running:
        yield running


@pytest.fixture
def breaker(ack_simulator: SimulatorProcess) -> Iterator[Breaker]:
    with breaking(ack_simulator) as found:
        yield found


@pytest.fixture
def ack_cluster(db: None, ack_simulator: SimulatorProcess, admin: Actor) -> Cluster:
    cluster = connected(ack_simulator)
    driving.with_components(admin, cluster, "ack-ai-installer")
    poolsync.sync(cluster)
    return cluster


@pytest.fixture
def make(operator: Actor, ack_cluster: Cluster) -> Iterator[Maker]:
    """Make a pool of so many machines and wait until they report their cards; its machines go at the end."""
    made: list[NodePool] = []

    def pool_of(name: str, mode: str = "exclusive", size: int = 3) -> NodePool:
        pool = pools.create(operator, ack_cluster, name=name, mode=mode, instance_types=[TYPE], desired_size=size)
        settle()
        pool.refresh_from_db()
        made.append(pool)
        resource = RESOURCE[mode]
        until(
            lambda: [node.allocatable.get(resource, 0) > 0 for node in nodes_of(pool)] == [True] * size,
            what=f"{size} nodes of {name} with {resource}",
        )
        return pool

    yield pool_of
    with gateways.pools_of(ack_cluster) as (_, provider):
        for pool in made:
            provider.delete(pool.pool_id, force=True, op_id=f"end-{pool.pool_id}")


def machines_of(pool: NodePool) -> dict[str, str]:
    """The pool's machines, with the names of their nodes."""
    with gateways.pools_of(pool.cluster) as (_, provider):
        return provider.instances(pool.pool_id)


def names_of(pool: NodePool) -> list[str]:
    return sorted(node.name for node in nodes_of(pool))


def asked_for(operator: Actor, admin: Actor, pool: NodePool, **wishes: object) -> ModeChange:
    """Ask for a change and have it approved."""
    change = changes.request(operator, pool, reason="needed", **wishes)
    return changes.approve(admin, change, reason="agreed")


def fails(change: ModeChange, kind: str) -> None:
    """Work until the change has failed, and see that it did at this kind of step."""
    drive(reaches(change, State.FAILED), what=f"a change that failed at {kind}")
    assert change.steps.get(state="failed").kind == kind
