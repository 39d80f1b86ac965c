"""Rows on the wire: whole numbers, unknown as null, and no names of other namespaces."""

from __future__ import annotations

import json

import msgspec
import pytest

from gpupools.domain.allocation import fold
from gpupools.models import Cluster
from gpupools.services import rows
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_pool

NODE = a_node("n1", cards=2, labels={"aliyun.accelerator/nvidia_name": "Tesla-V100"}, ip="10.0.0.1", unschedulable=True)
PODS = [
    a_pod("mine", mem=4, at={0: 4}, namespace="vision", owner_kind="Job", owner_name="train"),
    a_pod("other", mem=9, at={0: 9}, namespace="secret"),
    a_pod("lost", mem=3, namespace="secret"),
    a_pod("stray", mem=2, at={7: 2}, namespace="secret"),
]


def the_row() -> rows.NodeRow:
    return rows.node_row(NODE, fold(NODE, PODS), None)


def test_a_row_is_json_of_whole_numbers() -> None:
    row = the_row()
    assert json.loads(json.dumps(row)) == row
    assert (row["node"], row["pool"], row["mode"], row["model"], row["ip"]) == (
        "n1",
        "",
        "cgpu",
        "Tesla-V100",
        "10.0.0.1",
    )
    assert row["unschedulable"]
    assert (row["memory_units"], row["memory_units_used"]) == (30, 18)
    assert (row["memory_units_pending"], row["memory_units_orphan"]) == (3, 2)
    assert [gpu["memory_units_used"] for gpu in row["gpus"]] == [13, 0]
    assert [(each["pod"], each["owner"]) for each in row["gpus"][0]["holdings"]] == [
        ("other", ""),
        ("mine", "Job/train"),
    ]


def test_what_is_not_known_is_null() -> None:
    row = the_row()
    assert (row["card_memory_mib"], row["unit_mib"]) == (None, None)
    unknown = a_node("n2", "no-such-mode")
    assert rows.node_row(unknown, fold(unknown, []), None)["mode"] is None


@pytest.mark.django_db
def test_a_row_names_the_pool_and_its_drift(lab: Cluster) -> None:
    row = rows.node_row(NODE, fold(NODE, []), a_pool(lab, "shared", mode="mps"))
    assert row["pool"] == "shared"
    (found,) = row["drift"]
    assert (found["key"], found["wanted"], found["found"]) == ("ack.node.gpu.schedule", "mps", "cgpu")


def test_whoever_may_see_all_sees_the_row_itself() -> None:
    row = the_row()
    assert rows.masked(row, None) is row


def test_for_others_amounts_stay_and_names_of_other_namespaces_go() -> None:
    row = the_row()
    shown = rows.masked(row, frozenset({"vision"}))
    text = json.dumps(shown)
    assert "secret" not in text
    assert "uid-secret" not in text
    assert "other" not in text.replace(rows.ANOTHER_NAMESPACE, "")
    assert "stray" not in text
    assert "Job/train" in text
    for key in ("memory_units_used", "memory_units_pending", "memory_units_orphan"):
        assert shown[key] == row[key]  # type: ignore[literal-required]  # keys of the row
    assert [sum(h["memory_units"] for h in gpu["holdings"]) for gpu in shown["gpus"]] == [13, 0]
    assert {each["code"] for each in shown["warnings"]} == {each["code"] for each in row["warnings"]}


def test_changed_rows_and_gone_nodes_are_told_apart() -> None:
    old = rows.by_name([the_row()])
    same = rows.by_name([the_row()])
    assert rows.changed(old, same) == ([], [])
    empty = rows.node_row(NODE, fold(NODE, []), None)
    assert rows.changed(old, {"n1": empty}) == ([empty], [])
    assert rows.changed(old, {}) == ([], ["n1"])


@pytest.mark.parametrize(
    ("counted", "cards", "missing"),
    [
        pytest.param("2", 2, 0, id="all are reported"),
        pytest.param("2", 0, 2, id="the device plugin is gone"),
        pytest.param("8", 7, 1, id="one has fallen off"),
        pytest.param("two", 0, 0, id="a label that is no number"),
        pytest.param("1", 2, 0, id="more than were counted"),
    ],
)
def test_cards_that_a_node_is_known_to_have_do_not_vanish_with_its_device_plugin(
    counted: str, cards: int, missing: int
) -> None:
    node = a_node("n1", "cgpu", cards, units=15 if cards else 0, labels={"aliyun.accelerator/nvidia_count": counted})
    row = rows.node_row(node, fold(node, []), None)
    assert row["cards_missing"] == missing
    assert rows.totals_row([fold(node, [])])["all"]["cards_missing"] == missing
    assert ("aliyun.com/gpu-mem is not reported" in row["wrong"]) == (not cards)


def test_an_unhealthy_card_is_there_though_it_is_not_handed_out() -> None:
    node = a_node("n1", "exclusive", 2, labels={"aliyun.accelerator/nvidia_count": "2"})
    broken = msgspec.structs.replace(
        node, allocatable={**node.allocatable, "nvidia.com/gpu": 1}, capacity={**node.allocatable, "nvidia.com/gpu": 2}
    )
    assert broken.cards_missing == 0
    silent = msgspec.structs.replace(broken, allocatable={**node.allocatable, "nvidia.com/gpu": 0})
    assert silent.cards_missing == 2, "a plugin that has gone leaves capacity behind for a while"


def test_totals_are_json_per_mode_and_over_all() -> None:
    totals = rows.totals_row([fold(NODE, PODS)])
    assert json.loads(json.dumps(totals)) == totals
    [mode] = totals["modes"]
    assert (mode["mode"], mode["nodes"], mode["memory_units"], mode["memory_units_used"]) == ("cgpu", 1, 30, 18)
    assert totals["all"]["memory_units_used"] == 18


def test_instants_are_iso_in_utc() -> None:
    assert rows.timestamp(0.25) == "1970-01-01T00:00:00.250Z"
