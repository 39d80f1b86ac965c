"""Changes that are rolled back, undone, carried out by batches or confirmed by hand, against an embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.domain.changes import State
from gpupools.errors import Conflict, Invalid
from gpupools.models import AuditEntry, ChangeStep, Cluster, ModeChange, NodePool, PoolHold, Push
from gpupools.services import changes, pools
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.driving import connected, drive, opened, reaches, run_one, settle, until
from tests.services.test_carrying import approved, gpu_nodes, nodes_of, reported, start_pod
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
MODE, PLACEMENT, POOL = "ack.node.gpu.schedule", "ack.node.gpu.placement", "gpupools.internal/pool"
NODES = ("gpu-01", "gpu-02")


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


def made(operator: Actor, cluster: Cluster, name: str, mode: str, *nodes: str) -> NodePool:
    pool = pools.create(operator, cluster, name=name, mode=mode, node_names=nodes, reason="a test")
    settle()
    pool.refresh_from_db()
    return pool


@pytest.fixture
def pool(cluster: Cluster, operator: Actor) -> NodePool:
    return made(operator, cluster, "shared", "exclusive", *NODES)


def fail_at(change: ModeChange, kind: str) -> None:
    """Let a change fail at a step: as if it had waited there for ever."""
    step = change.steps.get(kind=kind, is_rollback=change.state == State.ROLLING_BACK)
    drive(lambda: change.steps.filter(pk=step.pk, state="running").exists(), what=f"a change at {kind}")
    ChangeStep.objects.filter(pk=step.pk).update(started_at="2026-01-01T00:00:00Z")
    drive(reaches(change, State.FAILED), what="a failed change")


def without_installer(cluster: Cluster) -> None:
    with opened(cluster) as kubernetes:
        for workload in kubernetes.workloads():
            if workload.kind == "DaemonSet" and workload.name != "ack-nvidia-device-plugin":
                kubernetes.delete("DaemonSet", workload.namespace, workload.name)


def test_a_failed_change_is_rolled_back_to_the_labels_that_it_found(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    without_installer(cluster)
    change = approved(operator, admin, pool, "cgpu")
    fail_at(change, "wait_resources")
    assert nodes_of(cluster)["gpu-01"].labels[MODE] == "cgpu"
    changes.roll_back(operator, change, reason="back to work")
    assert change.state == State.ROLLING_BACK
    assert change.steps.filter(is_rollback=False, state="skipped").exists()
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    nodes = nodes_of(cluster)
    for name in NODES:
        assert nodes[name].labels[MODE] == "default"
        assert PLACEMENT not in nodes[name].labels
        assert nodes[name].allocatable["nvidia.com/gpu"] > 0
        assert not nodes[name].unschedulable
    pool.refresh_from_db()
    assert pool.mode == "exclusive"
    assert not PoolHold.objects.exists()
    actions = set(AuditEntry.objects.filter(object_type="modechange").values_list("action", flat=True))
    assert {"change.roll_back", "change.rolled_back"} <= actions


def test_a_change_that_wrote_no_label_only_uncordons_on_its_way_back(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    start_pod(cluster, "busy")
    change = approved(operator, admin, pool, "cgpu")
    drive(lambda: change.steps.filter(kind="drain", state="running").exists(), what="a change that drains")
    change.refresh_from_db()
    changes.pause(operator, change, reason="wrong pool")
    settle()
    change.refresh_from_db()
    changes.roll_back(operator, change, reason="wrong pool")
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    assert [step.kind for step in change.steps.filter(is_rollback=True)] == ["uncordon", "verify"]
    assert not any(nodes_of(cluster)[name].unschedulable for name in NODES)


def test_a_roll_back_that_failed_can_be_turned_into_a_retry(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    without_installer(cluster)
    change = approved(operator, admin, pool, "cgpu")
    fail_at(change, "wait_resources")
    changes.roll_back(operator, change, reason="back")
    drive(lambda: change.steps.filter(is_rollback=True, kind="write_labels", state="done").exists(), what="old labels")
    with opened(cluster) as kubernetes:
        kubernetes.label_node("gpu-02", labels={MODE: "topology"}, op_id="somebody")
    change.refresh_from_db()
    fail_at(change, "wait_resources")
    cluster.components.all().delete()
    driving.with_components(admin, cluster, "ack-ai-installer")
    change.refresh_from_db()
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert all(nodes_of(cluster)[name].labels[MODE] == "cgpu" for name in NODES)
    assert not change.steps.filter(is_rollback=True).exists()


def test_an_applied_change_is_undone_by_a_new_one_that_somebody_decides_on(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    change = approved(operator, admin, pool, "cgpu", target_policy="spread")
    with pytest.raises(Conflict) as refused:
        changes.undo(operator, change, reason="too soon")
    assert refused.value.code == "not-applied"
    drive(reaches(change, State.APPLIED), what="an applied change")
    change.pool.refresh_from_db()
    undoing = changes.undo(operator, change, reason="it did not help")
    assert (undoing.state, undoing.target_mode, undoing.undoes) == (State.PENDING, "exclusive", change)
    changes.approve(admin, undoing, reason="agreed")
    drive(reaches(undoing, State.APPLIED), what="an undone change")
    assert nodes_of(cluster)["gpu-01"].labels[MODE] == "default"


def test_batches_leave_the_nodes_of_later_ones_in_use(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    start_pod(cluster, "busy", node="gpu-02")
    change = approved(operator, admin, pool, "cgpu", way="batches", batch_size=1)
    assert [step.wave for step in change.steps.filter(kind="drain")] == [1, 2]
    second = change.steps.get(kind="drain", wave=2)
    drive(lambda: ChangeStep.objects.get(pk=second.pk).detail, what="a second batch that waits")
    nodes = nodes_of(cluster)
    assert (nodes["gpu-01"].labels[MODE], nodes["gpu-01"].unschedulable) == ("cgpu", False)
    assert (nodes["gpu-02"].labels[MODE], nodes["gpu-02"].unschedulable) == ("default", True)
    second.refresh_from_db()
    assert "gpu-02: default/busy" in second.detail
    assert second.waiting_since is not None
    with opened(cluster) as kubernetes:
        kubernetes.delete("Job", "default", "busy")
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert nodes_of(cluster)["gpu-02"].labels[MODE] == "cgpu"


def test_a_half_done_change_by_batches_rolls_its_first_batch_back(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    start_pod(cluster, "busy", node="gpu-02")
    change = approved(operator, admin, pool, "cgpu", way="batches", batch_size=1)
    drive(lambda: change.steps.filter(kind="drain", wave=2, state="running").exists(), what="a second batch")
    change.refresh_from_db()
    changes.pause(operator, change, reason="enough")
    settle()
    change.refresh_from_db()
    changes.roll_back(operator, change, reason="enough")
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    nodes = nodes_of(cluster)
    assert [nodes[name].labels[MODE] for name in NODES] == ["default", "default"]
    assert not any(nodes[name].unschedulable for name in NODES)


def doubted(change: ModeChange, kind: str, said: str) -> None:
    """See that a confirmation which the nodes speak against is handed back, with what they say."""
    back = change.steps.filter(kind=kind, state="running", confirmed_at=None, learned__has_key="unseen")
    drive(back.exists, what="a confirmation that is handed back")
    assert said in back.get().detail
    change.refresh_from_db()


def test_cgpu_to_share_waits_for_a_person_to_restart_the_nodes(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    drive(reaches(approved(operator, admin, pool, "cgpu"), State.APPLIED), what="the way there")
    pool.refresh_from_db()
    change = approved(operator, admin, pool, "share")
    drive(lambda: change.steps.filter(kind="restart", state="running").exists(), what="a step for a person")
    change.refresh_from_db()
    assert nodes_of(cluster)["gpu-01"].unschedulable, "nobody gets on before the restart"
    with pytest.raises(Invalid):
        changes.confirm(operator, change, reason=" ")
    changes.confirm(operator, change, reason="both restarted")
    with pytest.raises(Conflict):
        changes.confirm(operator, change, reason="again")
    doubted(change, "restart", "2 of 2 have not restarted since this step began: gpu-01, gpu-02")
    changes.confirm(operator, change, reason="they run the new module all the same")
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert change.steps.get(kind="restart").detail.startswith(f"Confirmed again by {operator.name}, though 2 of 2 have")
    assert AuditEntry.objects.filter(action="change.confirm", data__reason="both restarted").exists()


def test_a_node_comes_into_a_pool_with_its_mode_changed_by_a_request(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    drive(reaches(approved(operator, admin, pool, "cgpu"), State.APPLIED), what="a pool of another mode")
    pool.refresh_from_db()
    change = changes.request(operator, pool, way="join", node_names=["gpu-03"], reason="more cards")
    assert change.state == State.PENDING
    changes.approve(admin, change, reason="agreed")
    drive(reaches(change, State.APPLIED), what="an applied change")
    node = nodes_of(cluster)["gpu-03"]
    assert (node.labels[MODE], node.labels[POOL], node.unschedulable) == ("cgpu", "shared", False)
    pool.refresh_from_db()
    assert pool.node_names == ["gpu-01", "gpu-02", "gpu-03"]


def test_a_node_that_has_the_mode_already_joins_by_rule(operator: Actor, cluster: Cluster, pool: NodePool) -> None:
    change = changes.request(operator, pool, way="join", node_names=["gpu-03"], reason="more cards")
    assert (change.state, change.decided_by) == (State.APPROVED, None)
    assert change.rule == "gpu-03 is exclusive already."
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert nodes_of(cluster)["gpu-03"].labels[POOL] == "shared"


def test_a_node_moves_into_a_pool_of_another_mode_and_back(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    other = made(operator, cluster, "cards", "topology", "gpu-05")
    changes.approve(admin, ModeChange.objects.get(pool=other), reason="agreed")
    settle()
    other.refresh_from_db()
    assert other.mode == "topology"
    change = changes.request(
        operator, pool, way="move", target_pool=other, node_names=["gpu-02"], reason="a bigger training pool"
    )
    assert set(PoolHold.objects.values_list("pool__name", flat=True)) == {"shared", "cards"}
    with pytest.raises(Conflict) as held:
        changes.request(operator, other, target_mode="cgpu", reason="meanwhile")
    assert held.value.code == "change-open"
    changes.approve(admin, change, reason="agreed")
    drive(reaches(change, State.APPLIED), what="an applied change")
    node = nodes_of(cluster)["gpu-02"]
    assert (node.labels[MODE], node.labels[POOL]) == ("topology", "cards")
    for row, names in ((pool, ["gpu-01"]), (other, ["gpu-02", "gpu-05"])):
        row.refresh_from_db()
        assert row.node_names == names
    undoing = changes.undo(operator, change, reason="back")
    changes.approve(admin, undoing, reason="agreed")
    drive(reaches(undoing, State.APPLIED), what="the way back")
    node = nodes_of(cluster)["gpu-02"]
    assert (node.labels[MODE], node.labels[POOL]) == ("default", "shared")
    assert not Push.objects.filter(state=Push.State.FAILED).exists()


def test_a_worker_that_dies_between_any_two_runs_of_the_way_back_costs_nothing(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run is done twice: once by a worker that dies before it can write what became of it, once for good."""
    without_installer(cluster)
    change = approved(operator, admin, pool, "cgpu")
    fail_at(change, "wait_resources")
    changes.roll_back(operator, change, reason="back")

    class Killed(BaseException):
        pass

    def dies(push: Push, outcome: object) -> None:
        raise Killed

    def is_back_after_one_more_death() -> bool:
        with monkeypatch.context() as dying:
            dying.setattr("gpupools.services.pushes._settle", dies)
            try:
                run_one()
            except Killed:
                Push.objects.filter(state=Push.State.QUEUED).update(lease_until=None)  # it runs out in time
        run_one()
        return reaches(change, State.ROLLED_BACK)()

    until(is_back_after_one_more_death, what="a change rolled back")
    nodes = nodes_of(cluster)
    assert [nodes[name].labels[MODE] for name in NODES] == ["default", "default"]
    assert not any(nodes[name].unschedulable for name in NODES)
    steps = change.steps.filter(is_rollback=True)
    assert AuditEntry.objects.filter(action="change.step").count() == change.steps.filter(state="done").count()
    assert {step.state for step in steps} == {ChangeStep.State.DONE}


def test_a_node_that_goes_to_core_mem_is_added_again_by_hand(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    change = approved(operator, admin, pool, "core_mem")
    drive(lambda: change.steps.filter(kind="readd", state="running").exists(), what="a step for a person")
    change.refresh_from_db()
    assert nodes_of(cluster)["gpu-01"].labels[MODE] == "default", "nothing is written before"
    changes.confirm(operator, change, reason="both were reinstalled")
    doubted(change, "readd", "2 of 2 have not left the cluster and joined anew: the same node as before: gpu-01")
    changes.confirm(operator, change, reason="reinstalled in place")
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert change.steps.get(kind="readd").detail.startswith("Confirmed again by")
    assert nodes_of(cluster)["gpu-01"].allocatable["aliyun.com/gpu-core.percentage"] > 0


def test_a_move_given_up_half_way_leaves_each_node_in_the_pool_that_it_is_in(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    other = made(operator, cluster, "cards", "topology", "gpu-05")
    changes.approve(admin, ModeChange.objects.get(pool=other), reason="agreed")
    settle()
    other.refresh_from_db()
    change = changes.request(operator, pool, way="move", target_pool=other, batch_size=1, reason="piece by piece")
    changes.approve(admin, change, reason="agreed")
    drive(lambda: change.steps.filter(kind="uncordon", wave=1, state="done").exists(), what="one node over there")
    change.refresh_from_db()
    changes.pause(operator, change, reason="enough")
    changes.abandon(operator, change, reason="enough")
    settle()
    nodes = nodes_of(cluster)
    assert [nodes[name].labels[POOL] for name in NODES] == ["cards", "shared"]
    assert not any(nodes[name].unschedulable for name in NODES)
    for row, names in ((pool, ["gpu-02"]), (other, ["gpu-01", "gpu-05"])):
        row.refresh_from_db()
        assert row.node_names == names
    assert not PoolHold.objects.exists()
