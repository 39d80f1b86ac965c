"""The main job from end to end: on the embedded cluster under kill -9, and by kubeconfig on a plain cluster."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from gpupools import clusters
from gpupools.clusters import kubeconfig
from gpupools.management.touring.ground import POOLS
from tests.services.work import until
from tests.simulator.harness import SimulatorProcess
from tests.tour.touring import Tour, troubles

# After which line of progress which process is killed: while it has work of the kind that must not be lost.
KILLS = (
    ("component ack-mps-control", "worker"),
    ("verify tour-topology", "watcher"),
    ("job: card model required", "web"),
    ("scene binpack", "worker"),
    ("allocation tables", "web"),
)


@pytest.fixture
def small() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=10) as running:
        yield running


def row(text: str, node: str) -> list[str]:
    """Return the cells of a node's row in the first table that has it."""
    return next(line.split()[2:] for line in text.splitlines() if line.split()[:1] == [node])


def test_the_tour_ends_well_though_processes_are_killed_and_nothing_is_pushed_twice(tmp_path: Path) -> None:
    tour = Tour("--data-dir", str(tmp_path / "var"))
    try:
        for line, victim in KILLS:
            tour.wait_line(line)
            dead = tour.kill(victim)
        code, report, text = tour.finish()
    finally:
        tour.stop()
    assert (code, troubles(report)) == (0, []), tour.lines[-20:]
    assert sum("ended" in line for line in tour.lines) >= len(KILLS), "somebody was not killed"
    assert dead not in tour.pids.values(), "the killed process was not replaced"

    scenes = re.split(r"\n\n(?=binpack|spread)", text)
    binpack, spread = scenes[1], scenes[2]
    assert "\n24/60 (40%)" in binpack
    assert re.search(r"15/15 +9/15 +0/15 +0/15 +24/60", binpack)
    assert "\n12/60 (20%)" in spread
    line = next(each for each in spread.splitlines() if "12/60" in each)
    assert Counter(line.split()[2:6]) == Counter({"4/15": 3, "0/15": 1})

    with sqlite3.connect(tmp_path / "var" / "console.sqlite3") as database:
        pushes = database.execute("select op_id, kind, target, state from gpupools_push").fetchall()
        done = database.execute("select data from gpupools_auditentry where action = 'push.done'").fetchall()
    assert {state for *_, state in pushes} == {"done"}
    assert len(done) == len(pushes), "each operation is done once"

    # The other side of the wire: one pool of each name, one machine in each, one task per call.
    ack = json.loads((tmp_path / "var" / "cluster" / "state.json").read_text())["shelves"]["ack"]
    names = Counter(pool["nodepool_info"]["name"] for pool in ack["pools"].values())
    assert all(names[wish.name] == 1 for wish in POOLS)
    ids = {pool_id: pool["nodepool_info"]["name"] for pool_id, pool in ack["pools"].items()}
    machines = Counter(ids[machine["pool_id"]] for machine in ack["machines"].values())
    assert all(machines[wish.name] == 1 for wish in POOLS)
    tasks = Counter(task["task_type"] for task in ack["tasks"].values())
    assert tasks == {"nodepool_create": len(POOLS), "cluster_addon_install": 2, "nodepool_update": 1}


def test_the_tour_runs_on_a_plain_cluster_by_kubeconfig_and_leaves_it_as_it_was(small: SimulatorProcess) -> None:
    connection = kubeconfig.parse(small.kubeconfig.read_text(), allow_loopback=True, timeout_seconds=10)
    nodes = [f"gpu-{number:02}" for number in range(1, 8)]
    with clusters.connect(connection) as kubernetes:
        until(
            lambda: len(kubernetes.nodes()) == 11 and all(node.ready and not node.taints for node in kubernetes.nodes())
        )
        before = {node.name: (node.labels, node.taints, node.unschedulable) for node in kubernetes.nodes()}
        daemonsets = {each.name for each in kubernetes.workloads() if each.kind == "DaemonSet"}
    tour = Tour("--kubeconfig", str(small.kubeconfig), "--nodes", ",".join(nodes))
    try:
        code, report, text = tour.finish()
    finally:
        tour.stop()
    assert (code, troubles(report)) == (0, []), tour.lines[-20:]
    assert row(text, "gpu-02")[:4] == ["15/15", "9/15", "0/15", "0/15"]
    with clusters.connect(connection) as kubernetes:
        after = {node.name: (node.labels, node.taints, node.unschedulable) for node in kubernetes.nodes()}
        left = {each.name for each in kubernetes.workloads() if each.kind == "DaemonSet"}
        pods = [pod.name for pod in kubernetes.pods(namespace="default")]
    assert after == before
    assert left == daemonsets
    assert pods == []


def test_what_a_cluster_lacks_is_skipped_with_its_reason_and_never_passed(small: SimulatorProcess) -> None:
    tour = Tour("--kubeconfig", str(small.kubeconfig), "--nodes", "gpu-01,gpu-02,gpu-03")
    try:
        code, report, _ = tour.finish()
    finally:
        tour.stop()
    assert code == 0
    status = {step["name"]: step["status"] for step in report["steps"]}
    assert status["pool tour-cgpu-binpack"] == status["scene binpack"] == "ok"
    assert status["pool tour-mps"] == status["verify tour-mps"] == status["allocation: shared-mps"] == "skipped"
    assert {step["status"] for step in report["steps"]} == {"ok", "skipped"}
    assert all(step["detail"] for step in report["steps"] if step["status"] == "skipped")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kubeconfig", "/nonexistent", "--nodes", "a"), "cannot be read"),
        (("--kubeconfig", "/nonexistent"), "name the nodes"),
        (("--nodes", "a"), "go with --kubeconfig"),
    ],
)
def test_options_that_do_not_go_together_are_said_plainly(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("tour", *arguments)
