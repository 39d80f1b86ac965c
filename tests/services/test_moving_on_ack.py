"""Machines that go from one ACK pool into another, one by one, and into their own pool again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from alibabacloud_cs20151215.models import DescribeClusterTasksRequest

from gpupools.clusters.port import AutoScaling
from gpupools.domain.changes import State
from gpupools.models import Cluster, ModeChange, NodePool, Push
from gpupools.services import changes, gateways, holdings, poolcuts, pools, poolsync
from gpupools.services.access import Actor
from gpupools.services.site import Site
from tests.services import driving
from tests.services.driving import connected, drive, opened, reaches, run_one, settle, until
from tests.services.test_carrying_on_ack import MODE, approved, labels_of, nodes_of
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
    until(lambda: [node.allocatable.get("nvidia.com/gpu", 0) > 0 for node in nodes_of(pool)] == [True, True], what="it")
    return pool


@pytest.fixture
def target(operator: Actor, cluster: Cluster, pool: NodePool) -> NodePool:
    types = list(pool.instance_types)
    made = pools.create(operator, cluster, name="inference", mode="cgpu", instance_types=types, desired_size=0)
    settle()
    made.refresh_from_db()
    return made


def machines_of(pool: NodePool) -> set[str]:
    with gateways.pools_of(pool.cluster) as (_, provider):
        return set(provider.instances(pool.pool_id))


def machine_tasks(cluster: Cluster) -> list[str]:
    """The removals and attachments that ACK was asked for, oldest first."""
    with gateways.pools_of(cluster) as (_, provider):
        answer = provider._client.describe_cluster_tasks(
            provider._cluster_id, DescribeClusterTasksRequest(page_number=1, page_size=50)
        )
    kinds = [task.task_type for task in answer.body.tasks]
    return [kind for kind in reversed(kinds) if "remove" in kind or "attach" in kind]


def moved(operator: Actor, admin: Actor, pool: NodePool, target: NodePool) -> ModeChange:
    change = changes.request(operator, pool, way="move", target_pool=target, reason="piece by piece")
    return changes.approve(admin, change, reason="agreed")


def test_a_pool_moves_piece_by_piece_into_a_pool_of_another_mode(
    operator: Actor, admin: Actor, pool: NodePool, target: NodePool
) -> None:
    machines = machines_of(pool)
    change = moved(operator, admin, pool, target)
    assert [step.wave for step in change.steps.filter(kind="attach")] == [1, 2]
    drive(lambda: change.steps.filter(kind="uncordon", wave=1, state="done").exists(), what="the first node over there")
    assert len(machines_of(target)) == 1
    assert not any(node.unschedulable for node in nodes_of(pool)), "the second one is in use until its turn"
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert (machines_of(pool), machines_of(target)) == (set(), machines), "no machine was released or made"
    for node in nodes_of(target):
        assert node.labels[MODE] == "cgpu"
        assert node.allocatable["aliyun.com/gpu-mem"] > 0
    assert len(machine_tasks(pool.cluster)) == 4


def test_machines_that_have_moved_are_moved_back(
    operator: Actor, admin: Actor, pool: NodePool, target: NodePool
) -> None:
    machines = machines_of(pool)
    change = moved(operator, admin, pool, target)
    drive(lambda: change.steps.filter(kind="remove", wave=2, state="done").exists(), what="one moved, one outside")
    change.refresh_from_db()
    changes.pause(operator, change, reason="enough")
    settle()
    change.refresh_from_db()
    changes.roll_back(operator, change, reason="enough")
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    assert (machines_of(pool), machines_of(target)) == (machines, set())
    assert [node.labels[MODE] for node in nodes_of(pool)] == ["default", "default"]
    assert not any(node.unschedulable for node in nodes_of(pool))


def test_a_node_that_was_only_cordoned_is_open_again_when_others_have_moved_back(
    operator: Actor, admin: Actor, pool: NodePool, target: NodePool
) -> None:
    machines = machines_of(pool)
    change = moved(operator, admin, pool, target)
    drive(lambda: change.steps.filter(kind="cordon", wave=2, state="done").exists(), what="a second node cordoned")
    change.refresh_from_db()
    changes.pause(operator, change, reason="enough")
    settle()
    change.refresh_from_db()
    stayed = change.remembered["ours"]
    assert len(stayed) == 1
    changes.roll_back(operator, change, reason="enough")
    last = list(change.steps.filter(is_rollback=True).order_by("-position")[:2])
    assert [(step.kind, step.node_names) for step in last] == [("verify", []), ("uncordon", stayed)]
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    assert (machines_of(pool), machines_of(target)) == (machines, set())
    assert not any(node.unschedulable for node in nodes_of(pool))
    assert not holdings.held_by(change)


def test_nodes_that_go_to_core_mem_leave_their_pool_and_join_it_again(
    operator: Actor, admin: Actor, pool: NodePool
) -> None:
    before = {node.name: node.uid for node in nodes_of(pool)}
    change = approved(operator, admin, pool, "core_mem")
    assert "set-up-anew" in [each["code"] for each in change.warnings]
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert labels_of(pool)[MODE] == "core_mem"
    nodes = nodes_of(pool)
    assert len(nodes) == 2
    for node in nodes:
        assert before[node.name] != node.uid
        assert node.allocatable["aliyun.com/gpu-core.percentage"] > 0


def test_a_worker_that_dies_after_each_call_moves_no_machine_twice(
    operator: Actor, admin: Actor, pool: NodePool, target: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run is done twice: once by a worker that dies before it can write anything that it learned."""
    change = moved(operator, admin, pool, target)

    class Killed(BaseException):
        pass

    learn = Site.learn

    def dies(*_: object, **__: object) -> None:
        raise Killed

    def dies_of_a_task(site: Site, **facts: object) -> None:
        if "task_id" in facts:
            raise Killed
        learn(site, **facts)

    def arrives_after_one_more_death() -> bool:
        with monkeypatch.context() as dying:
            dying.setattr(Site, "learn", dies_of_a_task)
            dying.setattr("gpupools.services.pushes._settle", dies)
            try:
                run_one()
            except Killed:
                Push.objects.filter(state=Push.State.QUEUED).update(lease_until=None)
        run_one()
        return reaches(change, State.APPLIED)()

    until(arrives_after_one_more_death, what="an applied change", seconds=120)
    assert len(machines_of(target)) == 2
    tasks = machine_tasks(pool.cluster)
    assert (sum("remove" in each for each in tasks), sum("attach" in each for each in tasks)) == (2, 2)


def test_auto_scaling_is_held_while_a_change_runs(operator: Actor, admin: Actor, pool: NodePool) -> None:
    wanted = AutoScaling(True, 1, 5)
    bounds = {"enable": True, "min_instances": 1, "max_instances": 5}
    poolcuts.scale(operator, pool, desired_size=2, auto_scaling=bounds)
    settle()
    poolsync.sync(pool.cluster)
    pool.refresh_from_db()
    assert pool.auto_scaling == {"enable": True, "min_instances": 1, "max_instances": 5, "type": ""}
    change = approved(operator, admin, pool, "cgpu")
    drive(lambda: change.steps.filter(kind="cordon", state="done").exists(), what="cordoned nodes")
    with gateways.pools_of(pool.cluster) as (_, provider):
        held = provider.pool(pool.pool_id)
    assert held is not None
    assert not held.auto_scaling.enable
    drive(reaches(change, State.APPLIED), what="an applied change")
    with gateways.pools_of(pool.cluster) as (_, provider):
        after = provider.pool(pool.pool_id)
    assert after is not None
    assert after.auto_scaling == wanted
    with opened(pool.cluster) as kubernetes:
        assert kubernetes.nodes()
