"""Mode changes carried out against a running embedded cluster, on plain Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpupools.domain.changes import State
from gpupools.domain.gpus import GpuNode
from gpupools.errors import NotAllowed
from gpupools.models import AuditEntry, ChangeStep, Cluster, ModeChange, NodePool, Push
from gpupools.services import changes, pools
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.driving import a_sleeper, connected, drive, opened, reaches, run_one, settle, until
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
MODE, PLACEMENT = "ack.node.gpu.schedule", "ack.node.gpu.placement"
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


@pytest.fixture
def pool(cluster: Cluster, operator: Actor) -> NodePool:
    pool = pools.create(operator, cluster, name="shared", mode="exclusive", node_names=NODES)
    settle()
    pool.refresh_from_db()
    assert pool.state == NodePool.State.ACTIVE
    return pool


def gpu_nodes(nodes: list[GpuNode]) -> list[GpuNode]:
    return [node for node in nodes if node.name.startswith("gpu-")]


def reported(node: GpuNode) -> bool:
    return node.allocatable.get("nvidia.com/gpu", 0) > 0


def nodes_of(cluster: Cluster) -> dict[str, GpuNode]:
    with opened(cluster) as kubernetes:
        return {node.name: node for node in kubernetes.nodes()}


def approved(operator: Actor, admin: Actor, pool: NodePool, target: str, **wishes: Any) -> ModeChange:
    change = changes.request(operator, pool, target_mode=target, reason="needed", **wishes)
    return changes.approve(admin, change, reason="agreed")


def start_pod(cluster: Cluster, name: str, *, seconds: int = 100_000, node: str = "gpu-01") -> None:
    """Start a pod that holds a card, and wait until it runs."""
    with opened(cluster) as kubernetes:
        kubernetes.create(a_sleeper(name, seconds=seconds, limits={"nvidia.com/gpu": 1}, node=node), op_id=name)
        until(
            lambda: any(p.owner_name == name and p.phase == "Running" for p in kubernetes.pods(namespace="default")),
            what=f"a running pod of {name}",
        )


def test_nodes_carry_the_new_mode_after_the_change_is_carried_out(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    change = approved(operator, admin, pool, "cgpu", target_policy="spread")
    drive(reaches(change, State.APPLIED), what="an applied change")
    nodes = nodes_of(cluster)
    for name in NODES:
        node = nodes[name]
        assert (node.labels[MODE], node.labels[PLACEMENT]) == ("cgpu", "spread")
        assert node.allocatable["aliyun.com/gpu-mem"] > 0
        assert node.allocatable.get("nvidia.com/gpu", 0) == 0
        assert not node.unschedulable, "what the change cordoned is open again"
    assert nodes["gpu-03"].labels[MODE] == "default", "nodes of nobody stay as they are"
    pool.refresh_from_db()
    assert (pool.mode, pool.policy) == ("cgpu", "spread")
    assert [step.state for step in change.steps.all()] == [ChangeStep.State.DONE] * 7
    actions = list(AuditEntry.objects.filter(object_type="modechange").order_by("pk").values_list("action", flat=True))
    assert actions == ["change.request", "change.approve", "change.start", *["change.step"] * 7, "change.applied"]


def test_a_mode_can_be_changed_and_changed_back(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    drive(reaches(approved(operator, admin, pool, "cgpu"), State.APPLIED), what="the way there")
    pool.refresh_from_db()
    drive(reaches(approved(operator, admin, pool, "exclusive"), State.APPLIED), what="the way back")
    node = nodes_of(cluster)["gpu-01"]
    assert node.labels[MODE] == "default", "the label is never taken off"
    assert PLACEMENT not in node.labels
    assert node.allocatable["nvidia.com/gpu"] > 0
    assert node.allocatable.get("aliyun.com/gpu-mem", 0) == 0


def test_a_policy_is_changed_under_running_pods(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    drive(reaches(approved(operator, admin, pool, "cgpu"), State.APPLIED), what="the way there")
    with opened(cluster) as kubernetes:
        manifest = a_sleeper("held", seconds=100_000, limits={"aliyun.com/gpu-mem": 4}, node="gpu-01")
        kubernetes.create(manifest, op_id="held")
        until(lambda: any(p.phase == "Running" for p in kubernetes.pods(namespace="default")), what="a running pod")
    pool.refresh_from_db()
    drive(reaches(approved(operator, admin, pool, "cgpu", target_policy="spread"), State.APPLIED), what="spread")
    assert nodes_of(cluster)["gpu-01"].labels[PLACEMENT] == "spread"
    with opened(cluster) as kubernetes:
        assert [p.phase for p in kubernetes.pods(namespace="default")] == ["Running"]


def test_batches_also_write_the_policy_of_nodes_that_have_the_mode_already(
    operator: Actor, admin: Actor, cluster: Cluster
) -> None:
    pool = pools.create(operator, cluster, name="mixed", mode="exclusive", node_names=(*NODES, "gpu-03"))
    settle()
    with opened(cluster) as kubernetes:
        kubernetes.label_node("gpu-03", labels={MODE: "cgpu"}, op_id="by hand")
    pool.refresh_from_db()
    change = approved(operator, admin, pool, "cgpu", target_policy="spread", way="batches", batch_size=1)
    titles = [step.title for step in change.steps.all() if step.kind == "write_labels"]
    assert titles[-1] == "Write the labels to 1 node of this mode already"
    drive(reaches(change, State.APPLIED), what="an applied change")
    nodes = nodes_of(cluster)
    for name in (*NODES, "gpu-03"):
        assert (nodes[name].labels[MODE], nodes[name].labels[PLACEMENT]) == ("cgpu", "spread")
        assert not nodes[name].unschedulable


def test_a_change_waits_for_the_pods_that_hold_cards(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    start_pod(cluster, "busy", seconds=100_000)
    change = approved(operator, admin, pool, "cgpu")
    draining = change.steps.get(kind="drain")

    def waits() -> bool:
        draining.refresh_from_db()
        return "1 pod still holds cards on gpu-01: default/busy" in draining.detail

    drive(waits, what="a change that says whom it waits for")
    nodes = nodes_of(cluster)
    assert nodes["gpu-01"].unschedulable
    assert nodes["gpu-01"].labels[MODE] == "default", "no label is written while a card is held"
    with opened(cluster) as kubernetes:
        assert kubernetes.delete("Job", "default", "busy")
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_a_change_evicts_the_pods_that_hold_cards_where_that_was_approved(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    start_pod(cluster, "busy")
    change = approved(operator, admin, pool, "cgpu", holders="evict")
    drive(reaches(change, State.APPLIED), what="an applied change")
    with opened(cluster) as kubernetes:
        held = [pod for pod in kubernetes.pods(namespace="default") if pod.node and not pod.finished]
    assert held == []


def test_nodes_that_were_cordoned_before_stay_cordoned(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    with opened(cluster) as kubernetes:
        kubernetes.cordon("gpu-02", unschedulable=True, op_id="somebody")
    change = approved(operator, admin, pool, "cgpu")
    drive(reaches(change, State.APPLIED), what="an applied change")
    nodes = nodes_of(cluster)
    assert (nodes["gpu-01"].unschedulable, nodes["gpu-02"].unschedulable) == (False, True)


def test_pods_that_came_since_the_request_pause_the_change_until_an_administrator_lets_it_go_on(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    change = approved(operator, admin, pool, "cgpu", holders="evict")
    start_pod(cluster, "newcomer")
    drive(reaches(change, State.PAUSED), what="a paused change")
    assert "default/newcomer" in change.note
    assert not nodes_of(cluster)["gpu-01"].unschedulable, "nothing was touched"
    assert not Push.objects.filter(state=Push.State.QUEUED).exists()
    with pytest.raises(NotAllowed):
        changes.retry(operator, change, reason="I asked for it, so I may")
    changes.retry(admin, change, reason="it may be evicted")
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_a_paused_change_goes_on_where_it_stopped(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    start_pod(cluster, "busy")
    change = approved(operator, admin, pool, "cgpu")
    drive(lambda: change.steps.filter(kind="drain", state="running").exists(), what="a change that drains")
    change.refresh_from_db()
    changes.pause(operator, change, reason="the weekend")
    settle()
    assert nodes_of(cluster)["gpu-01"].unschedulable
    with opened(cluster) as kubernetes:
        kubernetes.delete("Job", "default", "busy")
    change.refresh_from_db()
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_giving_a_change_up_uncordons_what_it_cordoned(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    start_pod(cluster, "busy")
    change = approved(operator, admin, pool, "cgpu")
    drive(lambda: change.steps.filter(kind="drain", state="running").exists(), what="a change that drains")
    change.refresh_from_db()
    changes.pause(operator, change, reason="wrong pool")
    settle()
    change.refresh_from_db()
    changes.abandon(operator, change, reason="wrong pool")
    settle()
    nodes = nodes_of(cluster)
    assert not any(nodes[name].unschedulable for name in NODES)
    assert nodes["gpu-01"].labels[MODE] == "default"
    pool.refresh_from_db()
    assert pool.mode == "exclusive"
    changes.request(operator, pool, target_mode="topology", reason="the pool is free again")


def test_a_failed_change_is_retried_from_the_step_that_failed(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    # Without the installer no node ever reports the new resource.
    with opened(cluster) as kubernetes:
        for workload in kubernetes.workloads():
            if workload.kind == "DaemonSet" and workload.name != "ack-nvidia-device-plugin":
                kubernetes.delete("DaemonSet", workload.namespace, workload.name)
    cluster.components.all().delete()
    change = approved(operator, admin, pool, "cgpu")
    waiting = change.steps.get(kind="wait_resources")
    drive(lambda: change.steps.filter(pk=waiting.pk, state="running").exists(), what="a change that waits for cards")
    ChangeStep.objects.filter(pk=waiting.pk).update(started_at="2026-01-01T00:00:00Z")
    drive(reaches(change, State.FAILED), what="a failed change")
    assert "gpu-01: aliyun.com/gpu-mem is not reported yet" in change.note
    waiting.refresh_from_db()
    assert waiting.state == ChangeStep.State.FAILED
    driving.with_components(admin, cluster, "ack-ai-installer")
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_a_change_that_moved_before_it_started_lapses(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    change = approved(operator, admin, pool, "cgpu")
    with opened(cluster) as kubernetes:
        kubernetes.label_node("gpu-02", labels={MODE: "topology"}, op_id="somebody")
    drive(reaches(change, State.LAPSED), what="a lapsed change")
    assert "gpu-02" in change.note
    assert not nodes_of(cluster)["gpu-01"].unschedulable


def test_a_worker_that_dies_between_any_two_runs_costs_nothing(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run is done twice: once by a worker that dies before it can write what became of it, once for good."""
    change = approved(operator, admin, pool, "cgpu")

    class Killed(BaseException):
        pass

    def dies(push: Push, outcome: object) -> None:
        raise Killed

    def has_arrived_after_one_more_death() -> bool:
        with monkeypatch.context() as dying:
            dying.setattr("gpupools.services.pushes._settle", dies)
            try:
                run_one()
            except Killed:
                Push.objects.filter(state=Push.State.QUEUED).update(lease_until=None)  # it runs out in time
        run_one()
        return reaches(change, State.APPLIED)()

    until(has_arrived_after_one_more_death, what="an applied change")
    nodes = nodes_of(cluster)
    assert not any(nodes[name].unschedulable for name in NODES)
    assert all(nodes[name].labels[MODE] == "cgpu" for name in NODES)
    assert AuditEntry.objects.filter(action="change.step").count() == 7


def test_mps_waits_for_its_daemon_on_every_node(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    driving.with_components(admin, cluster, "ack-mps-control")
    change = approved(operator, admin, pool, "mps")
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert change.steps.get(kind="wait_daemon").detail == "The MPS daemon is ready on 2 nodes."
    with opened(cluster) as kubernetes:
        ready = {pod.node for pod in kubernetes.pods() if pod.owner_name == "ack-mps-control" and pod.ready}
    assert ready == set(NODES)


def test_a_pool_over_nodes_of_another_mode_asks_for_the_change_and_then_has_it(
    operator: Actor, admin: Actor, cluster: Cluster
) -> None:
    pool = pools.create(operator, cluster, name="cards", mode="topology", node_names=["gpu-05"], reason="training")
    assert pool.mode == ""
    change = ModeChange.objects.get(pool=pool)
    changes.approve(admin, change, reason="agreed")
    drive(reaches(change, State.APPLIED), what="an applied change")
    node = nodes_of(cluster)["gpu-05"]
    assert (node.labels["gpupools.internal/pool"], node.labels[MODE]) == ("cards", "topology")
    pool.refresh_from_db()
    assert pool.mode == "topology"


def test_a_cluster_that_is_away_stops_the_change_and_not_the_queue(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool, simulator: SimulatorProcess
) -> None:
    change = approved(operator, admin, pool, "cgpu")
    drive(lambda: change.steps.filter(kind="cordon", state="done").exists(), what="cordoned nodes")
    simulator.kill()
    run_one()
    push = Push.objects.get(state=Push.State.QUEUED)
    assert "did not answer" in push.error
    assert change.steps.filter(state="running", detail__contains="did not answer").exists()
