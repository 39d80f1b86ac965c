"""Where the pods of a topology group sit: among other pods, on the fewest nodes, on the best cards."""

from __future__ import annotations

from itertools import combinations, product

import msgspec
import pytest

from gpupools.domain.placement import node_states, preview, sequence
from gpupools.domain.wishes import prefilter, wish
from tests.domain.builders import a_node, a_pod, an_ask, with_port
from tests.domain.test_groups import GROUP, REPLICA, of_group, topology_nodes


def test_a_seat_is_said_in_the_nodes_verdict_too():
    seen = sequence(of_group(2, 2), 2, topology_nodes(a=4, b=8))
    assert [(each.chosen, each.tie_cards) for each in seen] == [("a", (0, 1)), ("a", (2, 3))]
    for each in seen:
        assert [verdict.node for verdict in each.verdicts] == ["a", "b"]
        mine, other = each.verdicts
        assert (mine.cards, mine.tie_set) == (each.cards, each.cards)
        assert other.cards == (0, 1)
    (big, _, _) = sequence(of_group(3, 4), 3, topology_nodes(a=8))
    assert [verdict.fits for verdict in big.verdicts] == [True]
    assert sequence(of_group(2, 1), 1, topology_nodes(a=8))[0].verdicts == ()


def test_a_port_of_the_node_seats_one_pod_of_a_group_on_each():
    labels = {GROUP: "g", REPLICA: "2"}
    ask = an_ask(with_port(80, topology=1), labels=labels)
    assert [each.chosen for each in sequence(ask, 2, topology_nodes(a=8, b=8))] == ["a", "b"]
    assert [each.chosen for each in sequence(ask, 2, topology_nodes(a=8))] == [None, None]


def test_what_other_pods_take_limits_a_group():
    nodes = [a_node(name, mode="topology", cards=8, resources={"cpu": 5000, "pods": 4}) for name in "ab"]
    busy = [a_pod("busy", cpu=2000, on="a"), a_pod("more", on="a")]
    ask = an_ask(topology=1, cpu=1500, labels={GROUP: "g", REPLICA: "3"})
    assert [each.chosen for each in sequence(ask, 3, node_states(nodes, busy))] == ["b", "b", "b"]
    five = msgspec.structs.replace(ask, labels={GROUP: "g", REPLICA: "5"})
    assert sorted(each.chosen for each in sequence(five, 5, node_states(nodes, busy))) == ["a", "a", "b", "b", "b"]
    six = msgspec.structs.replace(ask, labels={GROUP: "g", REPLICA: "6"})
    assert {each.chosen for each in sequence(six, 6, node_states(nodes, busy))} == {None}


def test_a_very_large_group_takes_the_largest_nodes_and_hosts_first():
    nodes = [a_node(f"n{number:03}", mode="topology", cards=8 if number % 2 else 4) for number in range(300)]
    seen = sequence(of_group(300, 4), 300, node_states(nodes, []))
    assert {each.chosen for each in seen} <= {node.name for number, node in enumerate(nodes) if number % 2}


def test_a_part_of_a_pod_is_no_seat():
    assert {each.chosen for each in sequence(of_group(5, 3), 5, topology_nodes(a=8, b=8))} == {None}
    nodes = [a_node(name, mode="topology", cards=8, resources={"cpu": 5000}) for name in "abc"]
    ask = an_ask(topology=1, cpu=1500, labels={GROUP: "g", REPLICA: "10"})
    assert {each.chosen for each in sequence(ask, 10, node_states(nodes, []))} == {None}


@pytest.mark.parametrize("busy", [[a_pod("x", cpu=2000), a_pod("y", cpu=2000)], [a_pod(n, on="n1") for n in "wxyz"]])
def test_the_room_that_other_pods_leave_counts(busy):
    node = a_node(mode="topology", cards=8, resources={"cpu": 6000, "pods": 6})
    labels = {GROUP: "g", REPLICA: "3"}
    seen = sequence(an_ask(topology=1, cpu=1000, labels=labels), 3, node_states([node], busy))
    assert {each.chosen for each in seen} == {None}
    labels = {GROUP: "g", REPLICA: "2"}
    seen = sequence(an_ask(topology=1, cpu=1000, labels=labels), 2, node_states([node], busy))
    assert {each.chosen for each in seen} == {"n1"}


def test_the_node_with_the_fewest_cards_left_is_filled_to_its_end():
    seen = sequence(of_group(4, 2), 4, topology_nodes(a=7, b=6))
    assert [each.chosen for each in seen] == ["a", "b", "b", "b"]


def test_the_seat_of_a_group_may_be_others_than_the_best_cards_of_one_pod():
    fast = {(0, 4): 100.0, (0, 1): 50.0, (2, 3): 50.0}
    links = tuple(
        tuple(fast.get((min(a, b), max(a, b)), 1.0 if 4 in (a, b) else 40.0) for b in range(5)) for a in range(5)
    )
    states = node_states([a_node("n", mode="topology", cards=5, links=links)], [])
    assert preview(an_ask(topology=2), states).cards == (0, 4)
    first, second = sequence(of_group(2, 2), 2, states)
    assert (first.cards, second.cards) == ((0, 1), (2, 3))
    assert (first.verdicts[0].cards, first.verdicts[0].tie_set) == ((0, 1), (0, 1))


@pytest.mark.parametrize("count", [3, 5, 6])
def test_every_small_fleet_gets_its_smallest_and_tightest_set(count):
    for frees in product((1, 2, 3), repeat=4):
        named = dict(zip("abcd", frees, strict=True))
        seen = {each.chosen for each in sequence(of_group(count, 1), count, topology_nodes(**named))}
        able = [
            (size, sum(named[name] for name in names))
            for size in range(1, 5)
            for names in combinations("abcd", size)
            if sum(named[name] for name in names) >= count
        ]
        assert (len(seen), sum(named[name] for name in seen)) == min(able) if able else seen == {None}


def test_a_group_whose_size_cannot_be_read_is_none():
    labels = {GROUP: "g", REPLICA: "many"}
    assert preview(an_ask(topology=1, labels=labels), topology_nodes(a=8)).chosen == "a"
    assert preview(an_ask(topology=1, labels={GROUP: "g"}), topology_nodes(a=8)).chosen == "a"
    assert preview(an_ask(topology=1, labels={GROUP: "g", REPLICA: "9" * 20}), topology_nodes(a=8)).chosen == "a"
    assert prefilter(wish(an_ask(topology=1, labels={GROUP: "g", REPLICA: "-2"}))) == (
        "invalid replica -2,it should great than 0"
    )
