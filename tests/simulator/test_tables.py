"""What kubectl's columns read, cell by cell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpupools.simulator import tables
from gpupools.simulator.kinds import KINDS, Object
from gpupools.simulator.podstatus import status_word
from gpupools.simulator.tables import human_duration

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def ago(**delta: int) -> str:
    return (NOW - timedelta(**delta)).strftime("%Y-%m-%dT%H:%M:%SZ")


def cells(kind: str, obj: Object) -> list[Any]:
    whole = {**obj, "metadata": {"name": "x", "creationTimestamp": ago(hours=5), **obj.get("metadata", {})}}
    return tables.row(kind, whole, NOW, embed=None)["cells"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (192, "3m12s"), (600, "10m"),
        (10_000, "166m"), (10_800, "3h"), (11_100, "3h5m"), (28_800, "8h"), (170_000, "47h"), (172_800, "2d"),
        (273_600, "3d4h"), (800_000, "9d"), (63_072_000, "2y"), (64_000_000, "2y10d"), (300_000_000, "9y"),
    ],
)  # fmt: skip
def test_durations_read_as_kubectl_words_them(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_every_kind_has_as_many_cells_as_columns() -> None:
    for kind in KINDS:
        assert len(cells(kind, {})) == len(tables.columns(kind)), kind


def waiting(reason: str) -> Object:
    return {"name": "c", "restartCount": 0, "state": {"waiting": {"reason": reason}}}


def ended(code: int, **more: Any) -> Object:
    return {"name": "c", "restartCount": 0, "state": {"terminated": {"exitCode": code, **more}}}


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        ({"status": {"phase": "Pending"}}, "Pending"),
        ({"status": {"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}}, "ContainerCreating"),
        ({"status": {"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")]}}, "ImagePullBackOff"),
        ({"status": {"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff")]}}, "CrashLoopBackOff"),
        ({"status": {"phase": "Failed", "containerStatuses": [ended(1, reason="Error")]}}, "Error"),
        ({"status": {"phase": "Failed", "containerStatuses": [ended(137, reason="OOMKilled")]}}, "OOMKilled"),
        ({"status": {"phase": "Failed", "containerStatuses": [ended(3)]}}, "ExitCode:3"),
        ({"status": {"phase": "Failed", "containerStatuses": [ended(0, signal=9)]}}, "Signal:9"),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted"),
        (
            {"metadata": {"deletionTimestamp": ago(seconds=1)}, "status": {"phase": "Running"}},
            "Terminating",
        ),
        (
            {"metadata": {"deletionTimestamp": ago(seconds=1)}, "status": {"phase": "Failed", "reason": "Evicted"}},
            "Evicted",
        ),
        (
            {
                "spec": {"initContainers": [{"name": "c"}, {"name": "d"}]},
                "status": {"phase": "Pending", "initContainerStatuses": [ended(0), waiting("PodInitializing")]},
            },
            "Init:1/2",
        ),
        (
            {
                "spec": {"initContainers": [{"name": "c"}]},
                "status": {"phase": "Pending", "initContainerStatuses": [ended(1, reason="Error")]},
            },
            "Init:Error",
        ),
    ],
)
def test_a_pod_s_status_is_one_word(pod: Object, word: str) -> None:
    assert status_word({"metadata": {}, **pod}) == word


def test_restarts_tell_when_the_last_one_was() -> None:
    entry = {
        "name": "c",
        "ready": True,
        "restartCount": 3,
        "state": {"running": {"startedAt": ago(minutes=2)}},
        "lastState": {"terminated": {"finishedAt": ago(minutes=3)}},
    }
    row = cells("Pod", {"spec": {"containers": [{}]}, "status": {"phase": "Running", "containerStatuses": [entry]}})
    assert row[:5] == ["x", "1/1", "Running", "3 (3m ago)", "5h"]


def test_a_cordoned_node_says_so_and_roles_come_from_labels() -> None:
    node = {
        "metadata": {"labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "gpu"}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    }
    assert cells("Node", node)[:4] == ["x", "NotReady,SchedulingDisabled", "control-plane,gpu", "5h"]


@pytest.mark.parametrize(
    ("job", "status", "completions", "duration"),
    [
        (
            {"spec": {"completions": 3}, "status": {"succeeded": 1, "startTime": ago(seconds=30)}},
            "Running",
            "1/3",
            "30s",
        ),
        ({"spec": {"parallelism": 4}, "status": {}}, "Running", "0/1 of 4", ""),
        (
            {
                "spec": {"completions": 1},
                "status": {
                    "succeeded": 1,
                    "startTime": ago(minutes=10),
                    "completionTime": ago(minutes=5),
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            "Complete",
            "1/1",
            "5m",
        ),
        (
            {"spec": {"completions": 1}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}},
            "Failed",
            "0/1",
            "",
        ),
        ({"spec": {}, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}, "Suspended", "0/1", ""),
    ],
)
def test_a_job_s_columns(job: Object, status: str, completions: str, duration: str) -> None:
    assert cells("Job", job)[1:4] == [status, completions, duration]


def test_an_event_s_columns() -> None:
    event = {
        "involvedObject": {"kind": "Pod", "name": "p"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/3 nodes are available",
        "source": {"component": "default-scheduler"},
        "firstTimestamp": ago(minutes=9),
        "lastTimestamp": ago(seconds=20),
        "count": 4,
    }
    assert cells("Event", event) == [
        "20s", "Warning", "FailedScheduling", "pod/p", "", "default-scheduler", "0/3 nodes are available", "9m", 4, "x",
    ]  # fmt: skip
