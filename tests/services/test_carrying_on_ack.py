"""Mode changes carried out on an ACK pool: one pool-wide call, made only when every node is free."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.clusters.port import PoolFacts
from gpupools.domain.changes import State
from gpupools.domain.gpus import GpuNode
from gpupools.models import Cluster, NodePool, Push
from gpupools.services import changes, gateways, pools, poolsync
from gpupools.services.access import Actor
from gpupools.services.site import Site
from tests.services import driving
from tests.services.driving import a_sleeper, connected, drive, opened, reaches, run_one, settle, until
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
MODE, PLACEMENT = "ack.node.gpu.schedule", "ack.node.gpu.placement"


@pytest.fixture
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=20.0) as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, admin: Actor) -> Cluster:
    cluster = connected(simulator)
    driving.with_components(admin, cluster, "ack-ai-installer")
    return cluster


@pytest.fixture
def pool(cluster: Cluster) -> NodePool:
    """The pool of two exclusive nodes that is there from the start."""
    poolsync.sync(cluster)
    pool = NodePool.objects.select_related("cluster").get(cluster=cluster, name="training")
    until(
        lambda: [node.allocatable.get("nvidia.com/gpu", 0) > 0 for node in nodes_of(pool)] == [True, True],
        what="the pool's nodes with their cards",
    )
    return pool


def nodes_of(pool: NodePool) -> list[GpuNode]:
    with opened(pool.cluster) as kubernetes:
        nodes = kubernetes.nodes()
    return [node for node in nodes if node.labels.get("alibabacloud.com/nodepool-id") == pool.pool_id]


def facts_of(pool: NodePool) -> PoolFacts:
    with gateways.pools_of(pool.cluster) as (_, provider):
        facts = provider.pool(pool.pool_id)
    assert facts is not None
    return facts


def labels_of(pool: NodePool) -> dict[str, str]:
    return dict(facts_of(pool).labels)


def approved(operator: Actor, admin: Actor, pool: NodePool, target: str, **wishes: str) -> changes.ModeChange:
    change = changes.request(operator, pool, target_mode=target, reason="needed", **wishes)
    return changes.approve(admin, change, reason="agreed")


def test_pool_and_nodes_carry_the_new_mode(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = approved(operator, admin, pool, "cgpu", target_policy="spread")
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert (labels_of(pool)[MODE], labels_of(pool)[PLACEMENT]) == ("cgpu", "spread")
    nodes = nodes_of(pool)
    assert len(nodes) == 2
    for node in nodes:
        assert node.labels[MODE] == "cgpu"
        assert node.allocatable["aliyun.com/gpu-mem"] > 0
        assert node.allocatable.get("nvidia.com/gpu", 0) == 0
        assert not node.unschedulable
    poolsync.sync(pool.cluster)
    pool.refresh_from_db()
    assert (pool.mode, pool.policy, pool.labels) == ("cgpu", "spread", {})


def test_the_pool_is_written_to_only_when_all_its_nodes_are_cordoned_and_free(
    operator: Actor, admin: Actor, pool: NodePool
) -> None:
    node = nodes_of(pool)[0].name
    with opened(pool.cluster) as kubernetes:
        kubernetes.create(a_sleeper("busy", seconds=100_000, limits={"nvidia.com/gpu": 1}, node=node), op_id="busy")
        until(lambda: any(p.phase == "Running" for p in kubernetes.pods(namespace="default")), what="a running pod")
    change = approved(operator, admin, pool, "cgpu")
    drive(
        lambda: change.steps.filter(kind="drain", detail__contains="default/busy").exists(),
        what="a change that says whom it waits for",
    )
    assert all(each.unschedulable for each in nodes_of(pool))
    assert labels_of(pool)[MODE] == "default"
    with opened(pool.cluster) as kubernetes:
        kubernetes.delete("Job", "default", "busy")
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_the_free_labels_and_the_size_that_ack_has_stay(operator: Actor, admin: Actor, pool: NodePool) -> None:
    pools.edit(operator, pool, labels={"team": "vision"}, update_nodes=True)
    settle()
    pool.refresh_from_db()
    change = approved(operator, admin, pool, "cgpu")
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert labels_of(pool)["team"] == "vision"
    assert len(nodes_of(pool)) == 2


def test_the_label_call_is_made_once_though_the_worker_dies_after_it(
    operator: Actor, admin: Actor, pool: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = approved(operator, admin, pool, "cgpu")
    drive(lambda: change.steps.filter(kind="drain", state="done").exists(), what="a drained pool")

    class Killed(BaseException):
        pass

    learn = Site.learn

    def dies(site: Site, **facts: object) -> None:
        if "task_id" in facts:
            raise Killed
        learn(site, **facts)

    with monkeypatch.context() as dying:
        dying.setattr(Site, "learn", dies)
        with pytest.raises(Killed):
            run_one()
    operation = facts_of(pool).op_id
    assert operation
    Push.objects.filter(state=Push.State.QUEUED).update(lease_until=None)  # the dead worker's lease runs out
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert facts_of(pool).op_id == operation, "the second try found the first one's call"


def test_an_empty_pool_changes_without_a_cordon(operator: Actor, admin: Actor, cluster: Cluster) -> None:
    poolsync.sync(cluster)
    empty = pools.create(
        operator, cluster, name="empty", mode="exclusive", instance_types=["ecs.gn6v-c8g1.8xlarge"], desired_size=0
    )
    settle()
    empty.refresh_from_db()
    change = approved(operator, admin, empty, "topology")
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert [step.kind for step in change.steps.all()] == ["preflight", "write_labels", "verify"]
    assert labels_of(empty)[MODE] == "topology"


def test_a_policy_is_changed_in_place(operator: Actor, admin: Actor, pool: NodePool) -> None:
    drive(reaches(approved(operator, admin, pool, "cgpu"), State.APPLIED), what="the way there")
    pool.refresh_from_db()
    change = approved(operator, admin, pool, "cgpu", target_policy="spread")
    drive(reaches(change, State.APPLIED), what="spread")
    assert labels_of(pool)[PLACEMENT] == "spread"
    assert [node.labels[PLACEMENT] for node in nodes_of(pool)] == ["spread", "spread"]
    assert [step.kind for step in change.steps.all()] == ["preflight", "write_labels", "verify"]
