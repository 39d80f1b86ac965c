"""A card of a shared node that the plugin calls unhealthy: what its neighbours are, hold and are given for."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.allocation import CARDS_OUT, UNIT_CHANGED, fold
from gpupools.domain.checks import node_checks
from gpupools.domain.diagnosis import Scene, diagnose
from gpupools.domain.inspect import table
from gpupools.domain.modes import GPU_CORE, GPU_MEM
from gpupools.domain.placement import node_states, preview
from gpupools.domain.units import unit_mib
from tests.domain.builders import CORE, COUNT, MEM, ROOM, a_node, a_pod, an_ask

MODEL = {
    "aliyun.accelerator/nvidia_name": "NVIDIA-A10",
    "aliyun.accelerator/nvidia_mem": "22731MiB",
    "aliyun.accelerator/nvidia_count": "4",
}
WAS = {"gpushare.alibabacloud.com/device-resource": '{"0":22,"1":22,"2":22,"3":22}'}


def one_card_out(name="n1", mode="cgpu", **fields):
    """Four cards of 22 units, of which one fell out: its units leave allocatable, the number of cards stays."""
    well = a_node(name, mode, cards=4, units=22, labels=MODEL, **fields)
    less = {MEM: 66} | ({CORE: 300} if mode == "core_mem" else {})
    return msgspec.structs.replace(well, allocatable=well.allocatable | less, capacity=well.allocatable)


def codes(nodes, pods):
    scene = Scene(nodes, pods, (), folds={node.name: fold(node, pods) for node in nodes})
    return {each.code: each for each in diagnose(scene)}


def test_a_card_keeps_its_size_while_another_one_is_out():
    node = one_card_out(mode="core_mem")
    assert (node.cards_out, node.per_card(GPU_MEM), node.given(GPU_MEM)) == (1, 22, 16)
    assert [(gpu.memory_units, gpu.core_percent) for gpu in fold(node, ()).gpus] == [(22, 100)] * 4
    assert (node.per_card(GPU_CORE), node.given(GPU_CORE), unit_mib(node)) == (100, 75, 1024)


@pytest.mark.parametrize(
    ("capacity", "why"),
    [
        ({MEM: 66, COUNT: 4}, "nothing is missing"),
        ({MEM: 80, COUNT: 4}, "what is missing is no whole card"),
        ({MEM: 88, COUNT: 5}, "the number of cards changed too"),
        ({MEM: 89, COUNT: 4}, "cards are not alike"),
        ({}, "nobody says what it had"),
    ],
)
def test_what_is_no_card_that_fell_out_is_counted_as_it_is_reported(capacity, why):
    node = a_node("n1", cards=4, resources={MEM: 66}, capacity=ROOM | capacity)
    assert (node.cards_out, node.per_card(GPU_MEM)) == (0, 16), why
    assert not fold(node, ()).warnings


def test_which_card_it_is_is_said_to_be_unknown_unless_a_report_names_it():
    node = one_card_out()
    (warning,) = fold(node, ()).warnings
    assert warning.code == CARDS_OUT
    assert "1 of 4 cards unhealthy and does not say which" in warning.message
    named = msgspec.structs.replace(node, unhealthy=(2,))
    assert not fold(named, ()).warnings
    assert [gpu.healthy for gpu in fold(named, ()).gpus] == [True, True, False, True]


def test_pods_from_before_are_no_fault_and_fill_no_card_beyond_its_size():
    node = one_card_out()
    pods = [a_pod(f"p{card}", mem=17, at={card: 17}, annotations=WAS) for card in range(4)]
    found = fold(node, pods)
    assert [gpu.memory_units_used for gpu in found.gpus] == [17] * 4
    assert {warning.code for warning in found.warnings} == {CARDS_OUT}
    # ACK counts 17 of 22 as 13 of 16.
    assert [gpu.memory_units_held for gpu in found.gpus] == [13] * 4


def test_only_the_card_that_fell_out_is_diagnosed():
    nodes = [one_card_out(), a_node("n2", "cgpu", cards=4, units=22, labels=MODEL)]
    pods = [a_pod(f"p{card}", mem=16, at={card: 16}, annotations=WAS) for card in range(4)]
    found = codes(nodes, pods)
    assert "cards-unhealthy" in found
    assert not {
        "implausible-cards",
        "same-model-differs",
        "unreadable-allocation",
        "over-allocated",
        "units-changed",
    } & (found.keys())
    evidence = found["cards-unhealthy"].evidence
    assert "aliyun.com/gpu-mem: 66 of 88 are allocatable. That is 1 of 4 cards, and nothing says which." in evidence
    assert "takes each for 16 memory units instead of 22" in evidence


def test_of_the_checks_only_health_is_wrong():
    node = one_card_out()
    wrong = [check for check in node_checks(node, fold(node, ())) if check.ok is False]
    assert [(check.code, check.sentence) for check in wrong] == [("healthy", "Cards are unhealthy")]


def test_a_pod_lands_where_the_page_shows_room_and_gets_no_more_than_ack_gives():
    node = one_card_out()
    pods = [a_pod("p0", mem=16, at={0: 16}, annotations=WAS)]
    (state,) = node_states([node], pods)
    free = [gpu.memory_units - gpu.memory_units_used for gpu in state.allocation.gpus]
    assert free == [6, 22, 22, 22]
    assert state.rooms == (4, 16, 16, 16)
    assert preview(an_ask(mem=4), [state]).cards == (0,)
    assert preview(an_ask(mem=5), [state]).cards == (1,)
    (verdict,) = preview(an_ask(mem=17), [state]).verdicts
    assert (verdict.rejections[0].code, verdict.rejections[0].best) == ("device", 16)


def test_no_card_shows_less_room_than_placement_gives_however_it_was_filled():
    node = one_card_out()
    for before in range(23):
        held = [a_pod("old", mem=before, at={0: before}, annotations=WAS)] if before else []
        (state,) = node_states([node], held)
        while (found := preview(an_ask(mem=1), [state])).cards == (0,):
            held.append(a_pod(f"new-{len(held)}", mem=1, at={0: 1}))
            (state,) = node_states([node], held)
            assert state.allocation.gpus[0].memory_units_used <= 22
        assert found.chosen == "n1"


def test_a_pod_that_came_while_a_card_was_out_is_counted_in_proportion_once_it_is_back():
    whole = a_node("n1", cards=4, units=22)
    pod = a_pod("p", mem=8, at={0: 8}, annotations={next(iter(WAS)): '{"0":16,"1":16,"2":16,"3":16}'})
    (warning,) = fold(whole, [pod]).warnings
    assert warning.code == UNIT_CHANGED
    assert "when a card had 16 memory units; it has 22 now" in warning.message


def test_the_table_keeps_the_size_too_and_says_what_the_tool_would_print():
    node = one_card_out()
    text = table([fold(node, ())], {"n1": node})
    assert text.count("0/22") == 4
    assert "n1 has 4 cards of 22 units, of which 1 is unhealthy" in text
    assert "take each for 16 units" in text
    assert "may not be alike" not in text


GIVEN = {"gpushare.alibabacloud.com/device-resource": '{"0":16,"1":16,"2":16,"3":16}'}


@pytest.mark.parametrize(
    ("mode", "ask", "score"),
    [("cgpu", {"mem": 4}, 77.5), ("core_mem", {"mem": 4, "core": 15}, 76.75)],
    ids=["a quarter of 16 units", "a quarter of 16 units and a fifth of 75 per cent"],
)
def test_a_card_is_scored_by_what_is_given_of_it(mode, ask, score):
    assert preview(an_ask(**ask), node_states([one_card_out(mode=mode)], [])).verdicts[0].score == score


@pytest.mark.parametrize(
    ("ask", "resource", "best"), [({"mem": 17, "core": 5}, GPU_MEM, 16), ({"mem": 1, "core": 80}, GPU_CORE, 75)]
)
def test_no_more_than_is_given_of_a_card_is_taken(ask, resource, best):
    verdict = preview(an_ask(**ask), node_states([one_card_out(mode="core_mem")], [])).verdicts[0]
    assert [(each.resource, each.best) for each in verdict.rejections] == [(resource, best)]


@pytest.mark.parametrize("ask", [{"mem": 8, "core": 5}, {"mem": 1, "core": 30}], ids=["memory", "compute"])
def test_what_is_given_decides_whether_a_pod_waits_for_one_that_ends(ask):
    held = [a_pod("ends", mem=10, core=50, at={0: 10}, core_at={0: 50}, annotations=GIVEN, terminating=True)]
    held += [a_pod(f"on-{n}", mem=16, core=60, at={n: 16}, core_at={n: 60}, annotations=GIVEN) for n in (1, 2, 3)]
    verdict = preview(an_ask(**ask), node_states([one_card_out(mode="core_mem")], held)).verdicts[0]
    assert (verdict.fits, verdict.cards, verdict.waits_for) == (True, (0,), 1)
