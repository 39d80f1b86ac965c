"""The bench measures real work: its fleet is the trace's, and both ways to the cards end with the same sums."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from gpupools.domain import allocation
from gpupools.domain.modes import CHOOSABLE
from gpupools.management import benchfleet, benching

PODS = 60


@pytest.fixture(scope="module")
def made() -> benching.Fleet:
    return benching.fleet(benchfleet.compact(PODS))


def test_the_fleet_has_the_figures_of_the_trace(made: benching.Fleet) -> None:
    assert made.figures | {"pods_on_nodes": 0} == {
        "source": "compact openb shape",
        "nodes": 1213,
        "cards": 6212,
        "pods": PODS,
        "pods_on_nodes": 0,
    }
    folded = allocation.fold_all(made.nodes, made.pods)
    assert {one.mode for one in folded.values()} == set(CHOOSABLE)
    assert not any(one.unplaced or one.warnings for one in folded.values())
    assert sum(one.memory_units_used for one in folded.values()) > 0
    assert sum(one.cards_used for one in folded.values()) > 0


def test_the_traces_own_files_may_be_read(tmp_path: Path) -> None:
    (tmp_path / benchfleet.NODES_FILE).write_text("sn,cpu_milli,memory_mib,gpu,model\nn,64000,262144,2,P100\n" * 1)
    head = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = [
        "a,1500,1024,1,470,,LS,Running,0,9,0",
        "b,1000,1024,2,1000,,LS,Running,0,9,0",
        "c,9,9,0,0,,LS,Running,0,9,0",
    ]
    (tmp_path / benchfleet.PODS_FILE).write_text("\n".join([head, *rows]))
    shapes = benchfleet.of_files(tmp_path, 4)
    assert shapes.machines == ((64000, 262144, 2, "P100"),)
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in shapes.pods]
    assert limits == [{"aliyun.com/gpu-mem": "8"}, {"nvidia.com/gpu": "2"}, {}, {"aliyun.com/gpu-mem": "8"}]


def test_files_that_are_not_there_are_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("bench", "--csv", str(tmp_path))


def test_both_ways_from_bytes_to_cards_end_with_the_same_sums(made: benching.Fleet) -> None:
    ratios, cost = benching.paths(made)
    assert [ratio.bar_unit for ratio in ratios] == ["times", "times"]
    assert cost["pods"] == PODS
    assert cost["ours"]["cards"] == cost["typed"]["cards"] > 0


def test_it_prints_one_json_object_and_a_line_per_measure(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("bench", "--pods", "9", "--repeat", "1", "--no-paths")
    first, *table = capsys.readouterr().out.splitlines()
    report = json.loads(first)
    assert report["fleet"]["nodes"] == 1213
    assert report["machine"]["cores"] >= 1
    assert len(table) == len(report["measures"])
    assert all(measure["cpu_seconds"] > 0 for measure in report["measures"])
    barred = [measure["name"] for measure in report["measures"] if "bar" in measure]
    assert len(barred) == 5
