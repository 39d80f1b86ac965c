"""One pod after the other: the state after a pod, sequences, and questions that are the same."""

from __future__ import annotations

import pytest

from gpupools.domain.annotations import share_annotations, topology_annotations
from gpupools.domain.gpus import HostPort
from gpupools.domain.placement import Fleet, node_state, node_states, preview, sequence, take
from tests.domain.builders import MEM, TOPOLOGY, a_node, a_pod, an_ask, filled, with_port
from tests.domain.seeing import ROOM_MESSAGE, labelled, reason_of


def test_pods_that_differ_in_what_no_rule_reads_are_one_question():
    fleet = Fleet(node_states([a_node("a"), a_node("b")], []))
    first = fleet.preview(an_ask(mem=4, name="one", labels={"app": "x"}))
    for other in (
        an_ask(mem=4, name="two", labels={"app": "y", "more": "z"}),
        an_ask(mem=4, name="one", namespace="far"),
    ):
        assert all(a is b for a, b in zip(first.verdicts, fleet.preview(other).verdicts, strict=True))
    spread = fleet.preview(an_ask(mem=4, labels={"aliyun.com/gpu-count": "2"}))
    assert spread.verdicts[0] is not first.verdicts[0]
    assert spread.cards == (0, 1)


def test_no_pods_have_no_previews():
    assert sequence(an_ask(mem=4), 0, node_states([a_node()], [])) == []
    assert sequence(an_ask(mem=4), -1, node_states([a_node()], [])) == []


def test_v37_pods_of_a_job_are_placed_in_turn():
    previews = sequence(an_ask(mem=10), 3, node_states([a_node(cards=2)], []))
    assert [seen.cards for seen in previews] == [(0,), (1,), ()]
    assert [seen.tie_cards for seen in previews[:2]] == [(0, 1), (1,)]
    assert reason_of(previews[2]) == f"0/1 nodes are available: 1 {ROOM_MESSAGE}."


def test_a_sequence_ends_with_the_same_failure_for_all_that_are_left():
    previews = sequence(
        an_ask(whole=2), 5, node_states([a_node("a", mode="exclusive"), a_node("b", mode="topology")], [])
    )
    assert [seen.chosen for seen in previews] == ["a", "a", None, None, None]
    assert previews[2].message == previews[4].message != ""
    assert sequence(an_ask(whole=8), 2, node_states([a_node(mode="exclusive")], []))[1].chosen is None
    assert sequence(an_ask(whole=1), 0, []) == []


def test_a_sequence_is_what_one_preview_after_the_other_gives():
    states = node_states([a_node("a", cards=2), a_node("b", cards=2, policy="spread")], filled(4, on="b"))
    ask = an_ask(mem=6)
    expected, now = [], list(states)
    for _ in range(6):
        seen = preview(ask, now)
        expected.append((seen.chosen, seen.cards, seen.tie_nodes, seen.tie_cards))
        now = [take(s, ask, seen.cards) if s.node.name == seen.chosen else s for s in now]
    got = sequence(ask, 6, states)
    assert [(seen.chosen, seen.cards, seen.tie_nodes, seen.tie_cards) for seen in got] == expected


@pytest.mark.parametrize(
    ("node", "ask"),
    [
        (a_node(), an_ask(mem=4)),
        (a_node(), labelled(2, mem=8)),
        (a_node(mode="core_mem"), an_ask(mem=4, core=30)),
        (a_node(mode="exclusive"), an_ask(whole=2)),
        (a_node(mode="topology"), an_ask(topology=2)),
        (a_node(), an_ask(cpu=500)),
    ],
)
def test_taking_gives_the_numbers_that_reading_the_written_annotations_gives(node, ask):
    """What a preview takes and what the fold reads back from the scheduler's annotations must never differ."""
    before = node_state(node, filled(3, 5) if node.memory_units and not node.core_percent else [])
    seen = preview(ask, [before])
    assert seen.chosen == "n1"
    after = take(before, ask, seen.cards)
    notes = {}
    if node.memory_units and ask.containers[0].limits.get(MEM):
        notes = share_annotations(ask, seen.cards, card_units=(15,) * 4, assumed_at_ns=1)
    if ask.containers[0].limits.get(TOPOLOGY):
        notes = topology_annotations(ask, seen.cards, assumed_at_ns=1)
    pod = a_pod("new", *ask.containers, annotations=notes)
    read = node_state(node, [*(filled(3, 5) if node.memory_units and not node.core_percent else []), pod])
    assert (after.requested, after.pods) == (read.requested, read.pods)
    for field in ("cards_used", "memory_units_used", "core_percent_used", "cards_releasing"):
        assert getattr(after.allocation, field) == getattr(read.allocation, field)
    for mine, theirs in zip(after.allocation.gpus, read.allocation.gpus, strict=True):
        for field in ("memory_units_used", "core_percent_used", "cards_used"):
            assert getattr(mine, field) == getattr(theirs, field)


def test_states_count_bound_pods_that_are_not_finished():
    pods = [
        a_pod("a", cpu=500),
        a_pod("b", cpu=500, phase="Succeeded"),
        a_pod("c", cpu=250, terminating=True),
        a_pod("d", cpu=500, on=""),
        a_pod("e", cpu=500, on="n2"),
    ]
    state = node_state(a_node(), pods)
    assert (state.requested, state.pods) == ({"cpu": 750}, 2)
    assert node_states([a_node()], pods) == [state]


def test_the_state_after_a_pod_is_that_of_a_fold_with_it():
    node = a_node(mode="core_mem", cards=2)
    (state,) = node_states([node], [])
    ask = an_ask(with_port(80, mem=4, core=30), name="p", namespace="team")
    after = take(state, ask, (1,))
    pod = a_pod("p", with_port(80, mem=4, core=30), at={1: 4}, core_at={1: 30}, namespace="team", uid="")
    (folded,) = node_states([node], [pod])
    assert after == folded
    again = take(after, ask, (1,))
    assert again.ports == (HostPort(80), HostPort(80))
    assert (again.rooms, again.core_rooms, again.allocation.cards_used) == ((15, 7), (100, 40), 1)
    assert len(again.allocation.gpus[1].holdings) == 2


def test_the_state_after_a_share_of_several_cards_and_after_whole_ones():
    (state,) = node_states([a_node()], filled(0, 3))
    after = take(state, an_ask(mem=8, labels={"aliyun.com/gpu-count": "2"}), (0, 1))
    assert (after.rooms, after.allocation.memory_units_used, after.allocation.cards_used) == ((11, 8, 15, 15), 11, 2)
    assert after.allocation.holdings[-1].memory_units == 8
    (whole,) = node_states([a_node(mode="exclusive")], [])
    assert take(whole, an_ask(whole=3), ()).allocation.holdings[0].cards == 3
    (topology,) = node_states([a_node(mode="topology")], [])
    held = take(topology, an_ask(topology=2), (1, 3)).allocation
    assert (held.holdings[0].cards, [gpu.cards_used for gpu in held.gpus], held.cards_used) == (2, [0, 1, 0, 1], 2)
    (plain_state,) = node_states([a_node()], [])
    assert take(plain_state, an_ask(cpu=1), ()).allocation is plain_state.allocation


def test_all_pods_keep_their_ports():
    (state,) = node_states([a_node()], [a_pod("a", with_port(1)), a_pod("b", with_port(2))])
    assert state.ports == (HostPort(1), HostPort(2))
    assert node_states([a_node()], [])[0].core_rooms == ()


def test_a_node_with_compute_that_is_over_given_has_no_room():
    pod = a_pod(mem=1, core=120, at={0: 1}, core_at={0: 120})
    assert node_states([a_node(mode="core_mem", cards=1)], [pod])[0].core_rooms == (0,)
