"""Nodes taken out of pools, and drift that names who wrote it and is answered both ways, on an embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.domain.changes import State
from gpupools.errors import Conflict, Invalid
from gpupools.models import Cluster, NodePool
from gpupools.services import changes, drift, members, pools
from gpupools.services.access import Actor
from gpupools.services.poolspecs import members as nodes_in
from tests.services import driving
from tests.services.driving import connected, drive, opened, reaches, settle, until
from tests.services.test_carrying import approved, gpu_nodes, nodes_of, reported
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
MODE, PLACEMENT, POOL = "ack.node.gpu.schedule", "ack.node.gpu.placement", "gpupools.internal/pool"


@pytest.fixture
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=20.0) as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, admin: Actor) -> Cluster:
    cluster = connected(simulator)
    with opened(cluster) as kubernetes:
        until(lambda: all(reported(node) for node in gpu_nodes(kubernetes.nodes())), what="nodes that report cards")
    driving.with_components(admin, cluster, "ack-ai-installer")
    return cluster


@pytest.fixture
def pool(cluster: Cluster, operator: Actor) -> NodePool:
    pool = pools.create(
        operator, cluster, name="shared", mode="exclusive", node_names=["gpu-01", "gpu-02"], labels={"team": "vision"}
    )
    settle()
    pool.refresh_from_db()
    return pool


def drift_of(pool: NodePool) -> list[drift.Drift]:
    with opened(pool.cluster) as kubernetes:
        return drift.drifted(pool, nodes_in(pool, kubernetes.nodes()))


def relabelled(pool: NodePool, node: str, **labels: str) -> None:
    with opened(pool.cluster) as kubernetes:
        named = {MODE if key == "mode" else key: value for key, value in labels.items()}
        kubernetes.label_node(node, labels=named, op_id="somebody")


def test_a_node_leaves_its_pool_and_keeps_its_mode(operator: Actor, cluster: Cluster, pool: NodePool) -> None:
    members.take_out(operator, pool, node_names=["gpu-02"], reason="repairs")
    settle()
    node = nodes_of(cluster)["gpu-02"]
    assert POOL not in node.labels
    assert "team" not in node.labels
    assert node.labels[MODE] == "default"
    pool.refresh_from_db()
    assert (pool.node_names, pool.desired_size) == (["gpu-01"], 1)


def test_a_node_that_is_not_in_the_pool_is_not_taken_out(operator: Actor, pool: NodePool) -> None:
    with pytest.raises(Invalid) as refused:
        members.take_out(operator, pool, node_names=["gpu-03", "nowhere"], reason="repairs")
    assert [each.code for each in refused.value.errors] == ["not-a-member", "not-a-member"]


def test_drift_names_who_wrote_it_and_when(pool: NodePool) -> None:
    assert drift_of(pool) == []
    relabelled(pool, "gpu-02", mode="topology")
    (found,) = drift_of(pool)
    assert (found.node, found.key, found.wanted, found.found) == ("gpu-02", MODE, "default", "topology")
    assert found.by == "gpupools"
    assert found.since.startswith("20")


def test_drift_of_a_mode_is_restored_by_a_request(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    relabelled(pool, "gpu-02", mode="topology")
    change = members.restore(operator, pool, reason="somebody relabelled it")
    assert change is not None
    assert [each["node"] for each in change.diff["nodes"]] == ["gpu-02"]
    changes.approve(admin, change, reason="agreed")
    drive(reaches(change, State.APPLIED), what="a restored node")
    assert nodes_of(cluster)["gpu-02"].labels[MODE] == "default"
    done = {name for step in change.steps.all() for name in step.learned.get("done", ())}
    assert done == {"gpu-02"}, "the other node was never part of it"
    with pytest.raises(Conflict) as nothing:
        members.restore(operator, pool, reason="again")
    assert nothing.value.code == "no-drift"


def test_drift_of_a_mode_is_adopted_by_a_request_for_the_other_nodes(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    relabelled(pool, "gpu-02", mode="topology")
    change = members.adopt(operator, pool, node_name="gpu-02", reason="it is better")
    assert change is not None
    assert change.target_mode == "topology"
    changes.approve(admin, change, reason="agreed")
    drive(reaches(change, State.APPLIED), what="a pool that follows its node")
    assert nodes_of(cluster)["gpu-01"].labels[MODE] == "topology"
    pool.refresh_from_db()
    assert (pool.mode, drift_of(pool)) == ("topology", [])


def test_drift_of_a_free_label_is_restored_and_adopted_at_once(operator: Actor, pool: NodePool) -> None:
    relabelled(pool, "gpu-01", team="speech")
    assert members.restore(operator, pool, reason="it is vision's") is None
    settle()
    pool.refresh_from_db()
    assert drift_of(pool) == []
    relabelled(pool, "gpu-01", team="speech")
    assert members.adopt(operator, pool, node_name="gpu-01", reason="it is speech's now") is None
    settle()
    pool.refresh_from_db()
    assert (pool.labels, drift_of(pool)) == ({"team": "speech"}, [])


def test_a_mode_that_nobody_knows_is_not_adopted(operator: Actor, pool: NodePool) -> None:
    relabelled(pool, "gpu-02", mode="quantum")
    with pytest.raises(Invalid) as refused:
        members.adopt(operator, pool, node_name="gpu-02", reason="why not")
    assert refused.value.errors[0].code == "unknown-mode"


def test_both_answers_are_refused_while_a_change_holds_the_pool(operator: Actor, admin: Actor, pool: NodePool) -> None:
    relabelled(pool, "gpu-02", mode="topology")
    approved(operator, admin, pool, "cgpu")
    for answer in (
        lambda: members.restore(operator, pool, reason="x"),
        lambda: members.adopt(operator, pool, node_name="gpu-02", reason="x"),
    ):
        with pytest.raises(Conflict) as held:
            answer()
        assert held.value.code == "change-open"
