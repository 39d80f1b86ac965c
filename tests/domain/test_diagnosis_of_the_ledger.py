"""Each want of a node's ledger is named for what it is, and names the pods that have it, all of them and no others."""

from __future__ import annotations

import pytest

from gpupools.domain.allocation import fold_all
from gpupools.domain.diagnosis import Scene, Severity, diagnose
from tests.domain.builders import a_node, a_pod

WAS = {"gpushare.alibabacloud.com/device-resource": '{"0":30,"1":30}'}
GARBLED = {"scheduler.framework.gpushare.allocation": "{bad json"}


def found(node, *pods):
    scene = Scene([node], pods, (), folds=fold_all([node], pods))
    return {each.code: each for each in diagnose(scene)}


def test_an_allocation_of_too_much_is_readable():
    said = found(a_node(cards=2), a_pod("p", mem=4, at={1: 99_999}))
    assert said.keys() == {"over-allocated", "allocation-differs"}
    assert said["over-allocated"].fix.endswith("The allocation of default/p says another amount than it asks for.")
    assert said["allocation-differs"].evidence == ("default/p asks for 4 memory units, but its allocation says 99999.")


def test_pods_without_an_allocation_are_named_beside_those_whose_it_cannot_be_read():
    said = found(
        a_node(cards=2),
        a_pod("differs", mem=4, at={1: 5}),
        a_pod("empty", mem=9, annotations={"scheduler.framework.gpushare.allocation": "{}"}),
        a_pod("garbled", mem=1, annotations=GARBLED),
        a_pod("none", mem=1),
    )
    blind = said["unreadable-allocation"]
    assert blind.pods == ("default/garbled", "default/empty", "default/none")
    assert blind.evidence == (
        "default/garbled has an allocation that cannot be read. On no card: 11 memory units of 3 pods."
    )
    assert said["allocation-differs"].pods == ("default/differs",)


def test_whole_cards_and_compute_that_are_on_no_card():
    said = found(a_node(mode="topology", cards=4), a_pod("p", topology=1))
    assert said["unreadable-allocation"].evidence == "On no card: 1 whole card of 1 pod."
    said = found(a_node(mode="core_mem", cards=2), a_pod("p", mem=2, core=30))
    assert said["unreadable-allocation"].evidence == "On no card: 2 memory units and 30% of compute of 1 pod."


def test_a_card_that_is_not_there_is_no_former_mode():
    said = found(a_node(cards=2), a_pod("p", mem=4, at={9: 4}))
    assert said.keys() == {"unknown-card"}
    assert "mode" not in said["unknown-card"].fix


def test_a_former_mode_is_no_unknown_card():
    said = found(a_node(mode="topology", cards=2), a_pod("p", mem=4, at={9: 4}))
    assert "former-mode-pods" in said
    assert "unknown-card" not in said


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([a_pod("a", mem=10, at={0: 10}), a_pod("b", mem=10, at={0: 10})], "bound by hand, by two schedulers"),
        (
            [a_pod("a", mem=10, at={0: 10}, terminating=True), a_pod("b", mem=10, at={0: 10})],
            "are ending still hold it",
        ),
        ([a_pod("a", mem=20, at={0: 20}, annotations=WAS)], "another number of units when the pods were bound"),
    ],
)
def test_the_cause_of_a_card_beyond_its_size_is_the_one_that_shows(pods, why):
    assert why in found(a_node(cards=2), *pods)["over-allocated"].fix


def test_pods_from_before_are_worth_knowing_and_no_fault():
    said = found(a_node(cards=2), a_pod("p", mem=4, at={0: 4}, annotations=WAS))
    assert said.keys() == {"units-changed"}
    assert said["units-changed"].severity is Severity.INFO


def test_whole_cards_beyond_those_that_are_there():
    said = found(a_node(mode="exclusive", cards=1), a_pod("a", whole=1), a_pod("b", whole=1))
    assert said["over-allocated"].message == "More cards of n1 are given out than it has."
    assert said["over-allocated"].evidence == "2 cards are held, but the node has 1."
