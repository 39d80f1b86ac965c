"""Pods that come to hold cards while a change runs: nobody evicts them unseen, on no way; stand-ins are known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.domain.changes import State
from gpupools.domain.gpus import Pod
from gpupools.errors import NotAllowed
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import changes, courses
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.driving import a_sleeper, connected, drive, opened, reaches, settle, until
from tests.services.test_carrying import approved, gpu_nodes, nodes_of, reported, start_pod
from tests.services.test_rolling_back import MODE, NODES, POOL, made
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


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
    return made(operator, cluster, "shared", "exclusive", *NODES)


def running(cluster: Cluster, job: str) -> Pod | None:
    with opened(cluster) as kubernetes:
        pods = kubernetes.pods(namespace="default")
    return next((pod for pod in pods if pod.owner_name == job and pod.ready and not pod.terminating), None)


@pytest.fixture
def half_done(operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool) -> ModeChange:
    """A paused change whose first batch is done, with a Job of a stranger on the node of that batch."""
    change = approved(operator, admin, pool, "cgpu", holders="evict", way="batches", batch_size=1)
    drive(lambda: change.steps.filter(kind="uncordon", wave=1, state="done").exists(), what="a first batch")
    change.refresh_from_db()
    changes.pause(operator, change, reason="a look")
    settle()
    limits = {"aliyun.com/gpu-mem": 2}
    with opened(cluster) as kubernetes:
        kubernetes.create(a_sleeper("stranger", seconds=100_000, limits=limits, node="gpu-01"), op_id="stranger")
    until(lambda: running(cluster, "stranger"), what="a stranger's pod")
    change.refresh_from_db()
    return change


def test_rolling_back_waits_for_pods_that_nobody_had_seen_instead_of_evicting_them(
    operator: Actor, cluster: Cluster, half_done: ModeChange
) -> None:
    stranger = running(cluster, "stranger")
    assert stranger is not None
    assert [each["uid"] for each in courses.newcomers_back(half_done)] == [stranger.uid]
    changes.roll_back(operator, half_done, reason="not now")
    draining = half_done.steps.get(kind="drain", is_rollback=True)
    assert draining.title == "Evict the pods that the decision named; wait for others that hold cards"

    def says_so() -> bool:
        draining.refresh_from_db()
        return f"Not evicted, for nobody has approved that: default/{stranger.name}." in draining.detail

    drive(says_so, what="a step that waits for the stranger's pod")
    still = running(cluster, "stranger")
    assert still is not None
    assert still.uid == stranger.uid
    with opened(cluster) as kubernetes:
        kubernetes.delete("Job", "default", "stranger")
    drive(reaches(half_done, State.ROLLED_BACK), what="a change rolled back")
    assert [nodes_of(cluster)[name].labels[MODE] for name in NODES] == ["default", "default"]


def test_only_an_administrator_who_did_not_ask_lets_rolling_back_evict_pods_that_nobody_had_seen(
    operator: Actor, admin: Actor, cluster: Cluster, half_done: ModeChange
) -> None:
    stranger = running(cluster, "stranger")
    assert stranger is not None
    named = [each["pod"] for each in courses.newcomers_back(half_done)]
    assert named == [f"default/{stranger.name}"]
    with pytest.raises(NotAllowed):
        changes.roll_back(operator, half_done, reason="out with it", approved_pods=named)
    half_done.refresh_from_db()
    assert half_done.state == State.PAUSED
    changes.roll_back(admin, half_done, reason="agreed", approved_pods=named)
    assert half_done.note == f"agreed Approved to be evicted too: default/{stranger.name}."
    drive(reaches(half_done, State.ROLLED_BACK), what="a change rolled back")
    assert running(cluster, "stranger") is None, "its Job starts another pod, which finds no room"
    assert nodes_of(cluster)["gpu-01"].labels[MODE] == "default"


def test_a_pod_that_restarts_on_a_node_of_a_later_batch_stands_in_for_the_evicted_one(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    manifest = a_sleeper("roams", seconds=100_000, limits={"nvidia.com/gpu": 1}, node="gpu-01")
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {POOL: "shared"}  # type: ignore[index]  # it is ours
    with opened(cluster) as kubernetes:
        kubernetes.cordon("gpu-02", unschedulable=True, op_id="one-side")
        kubernetes.create(manifest, op_id="roams")
        until(lambda: running(cluster, "roams"), what="a pod on the first node")
        kubernetes.cordon("gpu-02", unschedulable=False, op_id="both-sides")
    change = approved(operator, admin, pool, "cgpu", holders="evict", way="batches", batch_size=1)
    drive(lambda: change.steps.filter(kind="drain", wave=1, state="done").exists(), what="a first batch without pods")

    def on_the_second_node() -> bool:
        pod = running(cluster, "roams")
        return pod is not None and pod.node == "gpu-02"

    until(on_the_second_node, what="a pod that has moved on")
    drive(reaches(change, State.APPLIED), what="an applied change, though nobody decided again")
    assert "approved_later" not in change.remembered


def test_a_pod_that_came_before_a_later_batch_stops_the_change_until_somebody_decides(
    operator: Actor, admin: Actor, cluster: Cluster, pool: NodePool
) -> None:
    change = approved(operator, admin, pool, "cgpu", holders="evict", way="batches", batch_size=1)
    drive(lambda: change.steps.filter(kind="uncordon", wave=1, state="done").exists(), what="a first batch")
    start_pod(cluster, "late", node="gpu-02")
    drive(reaches(change, State.PAUSED), what="a change that stops")
    with pytest.raises(NotAllowed):
        changes.retry(operator, change, reason="go on")
    changes.retry(admin, change, reason="agreed")
    assert [each["owner"] for each in change.remembered["approved_later"]] == ["Job/late"]
    drive(reaches(change, State.APPLIED), what="an applied change")
