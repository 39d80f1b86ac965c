"""A real Celery worker is killed in the middle of a change, its real lease runs out, and another one goes on."""

from __future__ import annotations

import queue
from collections import Counter
from pathlib import Path

import pytest

from gpupools.domain.changes import State
from gpupools.models import Push
from gpupools.services import pools, pushes
from gpupools.services.access import Actor
from tests.services.crash_plots import evicts_to_mps, moves
from tests.services.crash_stage import MODE, Stage, staged
from tests.services.driving import drive, reaches, settle
from tests.services.killing import Stop
from tests.services.test_crash import ring, worker
from tests.services.work import until

pytestmark = pytest.mark.django_db(transaction=True)
RING_SECONDS = 0.2


def next_stop(stage: Stage) -> Stop:
    """Wait for what the worker does next, and ring for it as the beat does."""
    while True:
        try:
            return stage.gate.stops.get(timeout=RING_SECONDS)
        except queue.Empty:
            ring()


def killed_at(stage: Stage, log: Path, what: str, method: str, path: str) -> None:
    """Start a worker and kill it when a request comes by: on its way to the cluster, or when it was carried out."""
    stage.gate.is_open = False
    with worker(log):
        while (stop := next_stop(stage)).what != what or stop.method != method or path not in stop.path:
            stop.word.set_result(True)
    stage.gate.is_open = True
    stop.word.set_result(False)
    assert Push.objects.get(state=Push.State.QUEUED).lease_until, (
        "the dead worker holds the change until its lease ends"
    )


def one_dies_after_a_write(stage: Stage) -> None:
    """Kill a worker as soon as the cluster has carried a write out for it, and let its lease run out."""
    (worker, *_), stage.gate.is_open = stage.workers, False
    worker.start()
    while not ((stop := stage.gate.next()).what == "answered" and stop.is_write):
        assert stop.what != "idle", "nothing is queued any more"
        stop.word.set_result(True)
    worker.kill()
    stop.word.set_result(False)
    stage.gate.is_open = True
    Push.objects.filter(state=Push.State.QUEUED).update(lease_until=None)


def test_machines_that_move_are_asked_for_once_though_the_worker_dies_at_each_call(
    empty_redis: object, operator: Actor, admin: Actor, tmp_path: Path
) -> None:
    one_of_each = Counter({"exclusive": 1}), Counter({"cgpu": 1})
    with staged("ack", operator, admin, tmp_path, *one_of_each, speed=50.0) as stage:
        change = moves(stage)
        before = set(stage.tasks())
        killed_at(stage, tmp_path / "log", "asks", "PATCH", "/api/v1/nodes/")
        killed_at(stage, tmp_path / "log", "answered", "DELETE", "/nodes")
        killed_at(stage, tmp_path / "log", "answered", "POST", "/attach")
        with worker(tmp_path / "log"):
            until(reaches(change, State.APPLIED), doing=ring)
        asked = Counter(kind for task, kind in stage.tasks().items() if task not in before)
        nodes = stage.nodes(change.target_pool)
    assert asked == {"nodepool_remove_nodes": 1, "nodepool_attach": 1}
    assert [(node.labels[MODE], node.unschedulable) for node in nodes] == [("cgpu", False)] * 2


def test_nodes_are_written_to_once_though_the_worker_dies_at_an_eviction_and_at_a_label(
    empty_redis: object, operator: Actor, admin: Actor, tmp_path: Path
) -> None:
    with staged("kubernetes", operator, admin, tmp_path, Counter({"exclusive": 1}), Counter(), speed=40.0) as stage:
        change = evicts_to_mps(stage)
        version = stage.version()
        killed_at(stage, tmp_path / "log", "answered", "POST", "/eviction")
        killed_at(stage, tmp_path / "log", "answered", "PATCH", "/api/v1/nodes/")
        with worker(tmp_path / "log"):
            until(reaches(change, State.APPLIED), doing=ring)
        nodes, states = stage.nodes(change.pool), stage.node_states(version)
    assert [(node.labels[MODE], node.unschedulable) for node in nodes] == [("mps", False)] * 2
    assert list(states.values()) == [[(True, "default"), (True, "mps"), (False, "mps")]] * 2


def test_a_step_that_gets_on_is_not_given_up_however_often_its_worker_dies(
    empty_redis: object, operator: Actor, admin: Actor, tmp_path: Path
) -> None:
    nodes = pushes.MAX_TRIES + 2
    with staged("kubernetes", operator, admin, tmp_path, Counter({"exclusive": nodes // 2}), Counter(), 40.0) as stage:
        names = [name for _ in range(nodes // 2) for name in stage.two_nodes("exclusive")]
        pool = pools.create(operator, stage.cluster, name="large", mode="exclusive", node_names=names)
        settle()
        pool.refresh_from_db()
        change = stage.approved(pool, "cgpu")
        for _ in names:
            # Ten nodes are closed in one run, and each worker closes one of them.
            one_dies_after_a_write(stage)
        assert all(node.unschedulable for node in stage.nodes(pool))
        drive(reaches(change, State.APPLIED), what="an applied change")
