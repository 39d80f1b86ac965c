"""Figures at the edges of the rules, where one sign more or less would be another answer."""

from __future__ import annotations

import pytest

from gpupools.domain.allocation import fold
from gpupools.domain.gpus import MOST_CARDS
from gpupools.domain.units import unit_mib
from tests.domain.builders import CORE, COUNT, MEM, a_node, a_pod, an_ask
from tests.domain.seeing import see

WAS = "gpushare.alibabacloud.com/device-resource"
CARD_MEMORY = "aliyun.accelerator/nvidia_mem"


def card(allocation, index=0):
    gpu = allocation.gpus[index]
    return (
        gpu.memory_units_used,
        gpu.memory_units_releasing,
        gpu.core_percent_used,
        gpu.memory_units_held,
        gpu.core_percent_held,
    )


def said(allocation):
    return {warning.code: warning.message for warning in allocation.warnings}


def test_pods_on_one_card_add_up_in_every_figure():
    pods = [
        a_pod("a", mem=2, core=10, at={0: 2}, core_at={0: 10}),
        a_pod("b", mem=3, core=20, at={0: 3}, core_at={0: 20}),
        a_pod("c", mem=4, core=30, at={0: 4}, core_at={0: 30}, terminating=True),
        a_pod("d", mem=1, core=5, at={0: 1}, core_at={0: 5}, terminating=True),
    ]
    allocation = fold(a_node(mode="core_mem", cards=1), pods)
    # What terminating pods give back is held no more: 2 + 3 units and 10 + 20 per cent stay.
    assert card(allocation) == (10, 5, 65, 5, 30)


@pytest.mark.parametrize(
    ("asked", "noted", "at", "found"),
    [
        pytest.param(40, {0: 20}, {0: 4}, [20, 0], id="what the annotation says of compute counts, not the limit"),
        pytest.param(
            45, None, {0: 2, 1: 2}, [22, 22], id="a limit that does not divide gives each card the whole part"
        ),
        pytest.param(0, None, {0: 4}, [0, 0], id="no compute asked for is none held"),
        pytest.param(30, {0: 15, 1: 15}, {0: 4}, [15, 15], id="compute on a card without memory counts there"),
    ],
)
def test_compute_is_held_where_it_was_given(asked, noted, at, found):
    pod = a_pod(mem=4, core=asked, at=at, core_at=noted)
    allocation = fold(a_node(mode="core_mem", cards=2), [pod])
    assert [gpu.core_percent_used for gpu in allocation.gpus] == found


def test_compute_on_a_card_that_is_not_there_is_no_memory():
    pod = a_pod(mem=4, core=30, at={0: 4}, core_at={0: 10, 6: 20})
    allocation = fold(a_node(mode="core_mem", cards=2), [pod])
    assert (allocation.memory_units_orphan, allocation.strays) == (0, {6: 0})
    assert [(each.memory_units, each.core_percent) for each in allocation.unplaced] == [(0, 20)]
    assert said(allocation)["unknown-card"] == "default/p is allocated on GPU6, but the node has 2 cards."


@pytest.mark.parametrize(
    ("was", "held", "changed"),
    [("1", 60, True), ("15", 4, False), ("0", 4, False), ("30", 2, True)],
    ids=["a card of one unit then", "the same units now", "no units noted", "twice the units then"],
)
def test_a_pod_bound_under_other_units_counts_in_proportion(was, held, changed):
    pod = a_pod(mem=4, at={0: 4}, annotations={WAS: f'{{"0": {was}}}'})
    allocation = fold(a_node(cards=1), [pod])
    assert allocation.gpus[0].memory_units_held == held
    assert ("unit-changed" in said(allocation)) is changed
    if changed:
        then = "1 memory unit;" if was == "1" else f"{was} memory units;"
        assert then in said(allocation)["unit-changed"]


@pytest.mark.parametrize(
    ("memory", "core", "words"),
    [
        (16, 30, "16 of 15 memory units"),
        (16, 100, "16 of 15 memory units"),
        (15, 105, "105% of 100% compute"),
        (16, 105, "16 of 15 memory units and 105% of 100% compute"),
        (15, 100, None),
    ],
)
def test_only_what_is_over_is_called_over_allocated(memory, core, words):
    pod = a_pod(mem=memory, core=core, at={0: memory}, core_at={0: core})
    allocation = fold(a_node(mode="core_mem", cards=1), [pod])
    assert said(allocation).get("over-allocated") == (words and f"GPU0 is over-allocated: {words}.")


def test_a_node_that_reports_no_capacity_has_the_cards_that_are_allocatable():
    assert len(fold(a_node(mode="topology", cards=3, capacity={}), []).gpus) == 3


def test_cards_that_a_node_is_known_to_have_and_does_not_report_are_told():
    node = a_node(mode="cgpu", cards=3, labels={"aliyun.accelerator/nvidia_count": "4"})
    assert (node.cards_missing, fold(node, []).cards_missing) == (1, 1)


@pytest.mark.parametrize(
    ("resources", "card_memory", "unit"),
    [
        pytest.param({MEM: 2, COUNT: 4}, "512MiB", None, id="less than one unit a card has no size"),
        pytest.param({MEM: 60, COUNT: 0}, "1024MiB", None, id="without cards a unit has no size"),
        pytest.param({MEM: 61, COUNT: 4}, "15360MiB", 1024, id="the remainder does not count"),
    ],
)
def test_the_size_of_a_unit_needs_whole_units_on_a_card(resources, card_memory, unit):
    assert unit_mib(a_node(resources=resources, labels={CARD_MEMORY: card_memory})) == unit


def test_a_refusal_for_compute_names_what_is_free_of_it():
    # Two cards share 100 per cent: the node has room for 80, no card has.
    node = a_node(mode="core_mem", cards=2, resources={CORE: 100})
    (rejection,) = see(an_ask(mem=1, core=80), node).verdicts[0].rejections
    assert (rejection.code, rejection.resource) == ("device", CORE)
    assert (rejection.asked, rejection.free, rejection.best) == (80, 100, 50)


def test_whole_cards_of_a_former_mode_are_counted_in_words():
    assert said(fold(a_node(), [a_pod(topology=1)]))["former-mode"].startswith("default/p holds 1 whole card,")


@pytest.mark.parametrize(
    ("cards", "known", "words"),
    [
        (MOST_CARDS, MOST_CARDS, None),
        (MOST_CARDS + 1, 0, f"{MOST_CARDS + 1} cards, which no machine has"),
        (0, 0, "no cards"),
    ],
)
def test_a_number_of_cards_that_no_machine_has_is_none(cards, known, words):
    allocation = fold(a_node(resources={MEM: MOST_CARDS * 2, COUNT: cards}), [])
    assert len(allocation.gpus) == known
    assert words is None or words in said(allocation)["no-cards"]


def test_a_card_of_one_unit_is_over_allocated_in_the_singular():
    allocation = fold(a_node(cards=1, units=1), [a_pod(mem=2, at={0: 2})])
    assert said(allocation)["over-allocated"] == "GPU0 is over-allocated: 2 of 1 memory unit."
