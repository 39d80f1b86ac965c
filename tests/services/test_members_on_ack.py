"""Machines that leave an ACK pool and join it again, and drift of an ACK pool that is restored by one call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.domain.changes import State
from gpupools.errors import Conflict, Invalid
from gpupools.models import Cluster, NodePool, Push
from gpupools.services import changes, gateways, members, poolsync
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.driving import a_sleeper, connected, drive, opened, reaches, settle, until
from tests.services.test_carrying_on_ack import MODE, nodes_of
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


@pytest.fixture
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=50.0) as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, admin: Actor) -> Cluster:
    cluster = connected(simulator)
    driving.with_components(admin, cluster, "ack-ai-installer")
    return cluster


@pytest.fixture
def pool(cluster: Cluster) -> NodePool:
    poolsync.sync(cluster)
    pool = NodePool.objects.select_related("cluster").get(cluster=cluster, name="training")
    until(lambda: [n.allocatable.get("nvidia.com/gpu", 0) > 0 for n in nodes_of(pool)] == [True, True], what="cards")
    return pool


def machines_of(pool: NodePool) -> dict[str, str]:
    with gateways.pools_of(pool.cluster) as (_, provider):
        return provider.instances(pool.pool_id)


def test_a_machine_leaves_its_pool_is_kept_and_joins_it_again(operator: Actor, pool: NodePool) -> None:
    before = machines_of(pool)
    machine, name = sorted(before.items())[0]
    members.take_out(operator, pool, node_names=[name], reason="a broken fan")
    settle()
    assert machine not in machines_of(pool)
    assert name not in {node.name for node in nodes_of(pool)}
    members.attach(operator, pool, instance_ids=[machine], reason="it is repaired")
    settle()
    assert machines_of(pool) == before
    until(lambda: all(node.ready for node in nodes_of(pool)), what="ready nodes")
    assert not Push.objects.filter(state=Push.State.FAILED).exists()


def test_a_machine_whose_cards_are_held_is_not_taken_out(operator: Actor, pool: NodePool) -> None:
    node = nodes_of(pool)[0].name
    with opened(pool.cluster) as kubernetes:
        kubernetes.create(a_sleeper("busy", seconds=100_000, limits={"nvidia.com/gpu": 1}, node=node), op_id="busy")
        until(lambda: any(p.phase == "Running" for p in kubernetes.pods(namespace="default")), what="a running pod")
    with pytest.raises(Conflict) as refused:
        members.take_out(operator, pool, node_names=[node], reason="a broken fan")
    assert refused.value.code == "has-holders"


def test_what_is_no_instance_id_is_refused(operator: Actor, pool: NodePool) -> None:
    with pytest.raises(Invalid) as refused:
        members.attach(operator, pool, instance_ids=["gpu-1"], reason="more")
    assert refused.value.errors[0].code == "bad-id"


def test_drift_of_an_ack_pool_is_restored_by_one_call_for_its_nodes(
    operator: Actor, admin: Actor, pool: NodePool
) -> None:
    name = nodes_of(pool)[0].name
    with opened(pool.cluster) as kubernetes:
        kubernetes.label_node(name, labels={MODE: "topology"}, op_id="somebody")
    change = members.restore(operator, pool, reason="somebody relabelled it")
    assert change is not None
    changes.approve(admin, change, reason="agreed")
    drive(reaches(change, State.APPLIED), what="a restored node")
    assert [node.labels[MODE] for node in nodes_of(pool)] == ["default", "default"]
