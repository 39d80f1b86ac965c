"""ACK's ledger beside the amounts that annotations say: proportions, terminating pods, sick cards; ports of nodes."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.allocation import fold
from gpupools.domain.gpus import HostPort
from gpupools.domain.placement import Fleet, first_unfit, node_states, preview, sequence
from gpupools.domain.verdicts import NO_ROOM
from tests.domain.builders import a_node, a_pod, an_ask, container, filled
from tests.domain.picks import cases
from tests.domain.test_placement_oracle import some_nodes, states_of

DEVICE = "gpushare.alibabacloud.com/device-resource"


def bound_when(units, amount, *, card=0, cards=2, **fields):
    """A pod of ``amount`` units that was bound when each card had ``units``."""
    name = fields.pop("name", f"p{units}-{amount}-{card}")
    was = "{" + ",".join(f'"{index}":{units}' for index in range(cards)) + "}"
    return a_pod(name, mem=amount, at={card: amount}, annotations={DEVICE: was}, **fields)


@pytest.mark.parametrize(
    ("now", "was", "amount", "held"),
    [(30, 15, 4, 8), (15, 30, 4, 2), (15, 30, 5, 3), (14, 15, 15, 14), (15, 14, 1, 2), (15, 15, 7, 7), (15, 0, 7, 7)],
)
def test_a_pod_counts_in_proportion_to_what_its_card_had(now, was, amount, held):
    (gpu, other) = fold(a_node(cards=2, units=now), [bound_when(was, amount)]).gpus
    assert (gpu.memory_units_used, gpu.memory_units_held, other.memory_units_held) == (amount, held, 0)


def test_proportions_are_added_before_they_are_rounded_up():
    pods = [bound_when(30, 1, name=f"p{number}") for number in range(3)]
    assert fold(a_node(cards=1, units=10), pods).gpus[0].memory_units_held == 1
    pods.append(a_pod("new", mem=2, at={0: 2}))
    assert fold(a_node(cards=1, units=10), pods).gpus[0].memory_units_held == 3


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.booleans()), max_size=6), st.integers(1, 40))
def test_the_ledger_is_the_exact_sum_of_the_proportions(held, units):
    pods = [
        bound_when(was, amount, name=f"p{number}", terminating=going)
        for number, (was, amount, going) in enumerate(held)
        if amount
    ]
    exact = sum((Fraction(amount * units, was) for was, amount, going in held if not going), Fraction(0))
    (gpu, _) = fold(a_node(cards=2, units=units), pods).gpus
    assert gpu.memory_units_held == ceil(exact)
    assert gpu.memory_units_used == sum(amount for _, amount, _ in held)


def test_a_changed_unit_is_told_with_both_numbers():
    (warning,) = fold(a_node(cards=2, units=30), [bound_when(15, 20)]).warnings
    assert warning.code == "unit-changed"
    assert "15" in warning.message
    assert "30" in warning.message


def test_placement_goes_by_the_ledger():
    node = a_node(cards=2, units=30)
    pods = [bound_when(15, 10, card=0), a_pod("new", mem=12, at={1: 12})]
    # 10 of 15 are 20 of 30: the second card has more room although its pod has the larger number.
    seen = preview(an_ask(mem=11), node_states([node], pods))
    assert seen.cards == (1,)
    assert preview(an_ask(mem=10), node_states([node], pods)).cards == (0,)
    (verdict,) = preview(an_ask(mem=19), node_states([node], pods)).verdicts
    assert verdict.rejections[0].best == 18


def test_rooms_are_what_acks_scheduler_still_gives():
    node = a_node(mode="core_mem", cards=3, unhealthy=(1,))
    pods = [
        a_pod("a", mem=9, core=30, at={0: 9}, core_at={0: 30}),
        a_pod("b", mem=5, core=60, at={2: 5}, core_at={2: 60}, terminating=True),
    ]
    (state,) = node_states([node], pods)
    assert (state.rooms, state.core_rooms) == ((6, NO_ROOM, 15), (70, NO_ROOM, 100))
    (over,) = node_states([a_node(cards=1)], filled(20))
    assert over.rooms == (0,)
    assert node_states([a_node(mode="topology")], [])[0].rooms == ()


def test_a_sick_card_takes_no_pod_and_is_not_the_best_card():
    node = a_node(cards=2, unhealthy=(0,))
    pods = [a_pod("a", mem=9, at={1: 9})]
    (verdict,) = preview(an_ask(mem=7), node_states([node], pods)).verdicts
    assert (verdict.rejections[0].code, verdict.rejections[0].best) == ("device", 6)
    assert preview(an_ask(mem=6), node_states([node], pods)).cards == (1,)


# -- Ports of the node

NO_PORT = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. "
NO_PORT += "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for "
NO_PORT += "incoming pod."


def with_ports(*ports, sidecar=False, **limits):
    made = container("main", restartable=sidecar, **limits)
    return type(made)(made.name, made.requests, made.limits, sidecar, tuple(ports))


@pytest.mark.parametrize(
    ("taken", "wanted", "fits"),
    [
        (HostPort(80), HostPort(80), False),
        (HostPort(80), HostPort(81), True),
        (HostPort(80), HostPort(80, "UDP"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80), False),
        (HostPort(80), HostPort(80, "TCP", "10.0.0.1"), False),
        (HostPort(80, "TCP", "0.0.0.0"), HostPort(80, "TCP", "10.0.0.1"), False),
        (HostPort(80, "TCP", "10.0.0.2"), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.1"), False),
    ],
)
def test_a_port_of_the_node_is_had_once(taken, wanted, fits):
    states = node_states([a_node()], [a_pod("holder", with_ports(taken))])
    seen = preview(an_ask(with_ports(wanted, mem=4)), states)
    assert (seen.chosen is not None) is fits
    assert seen.message == ("" if fits else NO_PORT)


def test_sidecars_keep_ports_and_finished_init_containers_do_not():
    states = node_states(
        [a_node()], [a_pod("h", init=[with_ports(HostPort(80)), with_ports(HostPort(81), sidecar=True)])]
    )
    assert states[0].ports == (HostPort(81),)


def test_the_second_pod_of_a_job_misses_the_port_that_the_first_took():
    seen = sequence(an_ask(with_ports(HostPort(80), mem=1)), 2, node_states([a_node()], []))
    assert [each.chosen for each in seen] == ["n1", None]
    assert first_unfit(seen) == 1
    assert first_unfit(seen[:1]) is None


# -- A fleet answers as a fresh preview does


@given(cases(some_nodes, size=64), st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0, 0, 10])), max_size=8))
def test_a_fleet_answers_what_a_preview_of_its_states_answers(nodes, asked):
    fleet = Fleet(states_of(nodes))
    for number, (mem, core) in enumerate(asked):
        ask = an_ask(name=f"p{number}", mem=mem, core=core)
        fresh = preview(ask, fleet.states)
        assert fleet.preview(ask) == fresh
        assert fleet.place(ask) == fresh


def test_a_fleet_hears_of_a_new_state():
    fleet = Fleet(node_states([a_node("a", cards=1), a_node("b", cards=1)], []))
    assert fleet.preview(an_ask(mem=15)).tie_nodes == ("a", "b")
    fleet.put(node_states([a_node("a", cards=1)], filled(1, on="a"))[0])
    assert fleet.preview(an_ask(mem=15)).tie_nodes == ("b",)
    fleet.put(node_states([a_node("a", cards=1)], [])[0])
    assert fleet.preview(an_ask(mem=15)).tie_nodes == ("a", "b")
