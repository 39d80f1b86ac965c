"""Answers in full, word for word and figure for figure: rejections, warnings, scores, and the states after a pod."""

from __future__ import annotations

from itertools import combinations, product

import msgspec
import pytest

from gpupools.domain.allocation import fold
from gpupools.domain.gpus import AffinityTerm, HostPort, PreferredTerm, Requirement, Taint, Toleration
from gpupools.domain.placement import Fleet, node_state, node_states, preview, sequence, take
from gpupools.domain.topology import BestCards, best_cards, best_effort
from gpupools.domain.verdicts import Rejection
from gpupools.domain.wishes import prefilter, wish
from tests.domain.builders import CORE, COUNT, MEM, TOPOLOGY, WHOLE, a_node, a_pod, an_ask, container, filled
from tests.domain.test_groups import GROUP, REPLICA, of_group, topology_nodes

CARDS = "node(s) didn't have enough device resources to allocate"
TAINTED = "node(s) had untolerated taint(s)"
BOTH = "node(s) owns gpu resources are not matched that pod requests"


def with_port(number, **limits):
    return msgspec.structs.replace(container(**limits), ports=(HostPort(number),))


@pytest.mark.parametrize(
    ("node", "pods", "ask", "expected"),
    [
        (a_node(unschedulable=True), [], an_ask(mem=4),
         ("unschedulable", "node(s) were unschedulable", "", 0, 0, 0, True)),
        (
            a_node(), [], an_ask(mem=4, node_name="n2"),
            ("name", "node(s) didn't match the requested node name", "", 0, 0, 0, True),
        ),
        (a_node(taints=(Taint("k"),)), [], an_ask(mem=4), ("taint", TAINTED, "", 0, 0, 0, True)),
        (
            a_node(), [], an_ask(mem=4, node_selector={"a": "b"}),
            ("affinity", "node(s) didn't match Pod's node affinity/selector", "", 0, 0, 0, True),
        ),
        (
            a_node(), [],
            an_ask(mem=4, required_terms=(AffinityTerm((), (Requirement("metadata.name", "In", ("n2",)),)),)),
            ("affinity", "node(s) didn't satisfy plugin(s) [NodeAffinity]", "", 0, 0, 0, True),
        ),
        (
            a_node(), [a_pod("p", with_port(80))], an_ask(with_port(80, mem=4)),
            ("ports", "node(s) didn't have free ports for the requested pod ports", "", 0, 0, 0, False),
        ),
        (a_node(resources={"pods": 1}), [a_pod()], an_ask(mem=4),
         ("insufficient", "Too many pods", "pods", 1, 0, 0, False)),
        (a_node(), filled(9), an_ask(mem=60), ("insufficient", f"Insufficient {MEM}", MEM, 60, 51, 0, False)),
        (a_node(), [], an_ask(mem=61), ("insufficient", f"Insufficient {MEM}", MEM, 61, 60, 0, True)),
        (a_node(mode="exclusive"), [], an_ask(mem=4), ("mode", f"Insufficient {MEM}", MEM, 4, 0, 0, True)),
        (a_node(cards=2), filled(10, 9), an_ask(mem=8), ("device", CARDS, MEM, 8, 11, 6, False)),
        (a_node(cards=1), filled(20), an_ask(mem=0, cpu=1, core=0, whole=0), None),
        (a_node(cards=2, unhealthy=(0, 1)), [], an_ask(mem=8), ("device", CARDS, MEM, 8, 30, 0, False)),
        (a_node(resources={COUNT: 0}), [], an_ask(mem=8), ("device", CARDS, MEM, 8, 60, 0, False)),
        (
            a_node(mode="core_mem", cards=2),
            [a_pod("a", mem=1, core=80, at={0: 1}, core_at={0: 80}),
             a_pod("b", mem=1, core=70, at={1: 1}, core_at={1: 70})],
            an_ask(mem=5, core=50),
            ("device", CARDS, CORE, 50, 50, 30, False),
        ),
        (
            a_node(mode="core_mem", cards=2),
            [a_pod("a", mem=12, core=10, at={0: 12}, core_at={0: 10}),
             a_pod("b", mem=1, core=60, at={1: 1}, core_at={1: 60})],
            an_ask(mem=5, core=90),
            ("device", CARDS, MEM, 5, 17, 14, False),
        ),
        (a_node(mode="core_mem"), [], an_ask(mem=4), ("mode", BOTH, "", 0, 0, 0, True)),
        (a_node(mode="core_mem", resources={CORE: 1}), [], an_ask(mem=4), ("mode", BOTH, "", 0, 0, 0, True)),
        (
            a_node(mode="core_mem", cards=2),
            [a_pod(f"p{n}", mem=12, core=60, at={n: 12}, core_at={n: 60}) for n in range(2)],
            an_ask(mem=5, core=50),
            ("device", CARDS, MEM, 5, 6, 3, False),
        ),
        (a_node(mode="core_mem"), [], an_ask(core=5),
         ("mode", f"reqeust resources must include {MEM}", "", 0, 0, 0, True)),
        (
            a_node(labels={"ack.node.gpu.max-pod": "x"}), [], an_ask(mem=4),
            ("device", "node(s) had an invalid value of label ack.node.gpu.max-pod", "", 0, 0, 0, True),
        ),
        (
            a_node(cards=1, labels={"ack.node.gpu.max-pod": "1"}), filled(1), an_ask(mem=4),
            ("device", "The number of pods per gpu device has reached the maximum allowed", "", 0, 0, 0, False),
        ),
        (
            a_node(mode="topology", unhealthy=(0, 1, 2)), [], an_ask(topology=2),
            ("topology", "not enough gpus with topology on the node", TOPOLOGY, 2, 1, 1, False),
        ),
    ],
)  # fmt: skip
def test_a_rejection_has_its_code_words_and_figures(node, pods, ask, expected):
    (verdict,) = preview(ask, node_states([node], pods)).verdicts
    if expected is None:
        assert verdict.fits is True
        return
    assert verdict.fits is False
    assert verdict.rejections == (Rejection("n1", *expected),)


def test_memory_is_named_when_it_is_what_is_short_and_compute_only_when_that_is():
    node = a_node(mode="core_mem", cards=2)
    pods = [a_pod("a", mem=1, core=60, at={0: 1}, core_at={0: 60}), a_pod("b", mem=12, core=0, at={1: 12})]
    # Compute would do on card 1, memory on card 0: no single figure is short.
    (rejection,) = preview(an_ask(mem=5, core=100), node_states([node], pods)).verdicts[0].rejections
    assert (rejection.resource, rejection.best) == (MEM, 14)


def test_several_reasons_come_in_the_schedulers_order():
    node = a_node(resources={"cpu": 1000, "memory": 10, "ephemeral-storage": 5, "a.example/x": 0})
    ask = an_ask(container(mem=99, cpu=2000, **{"memory": 20, "ephemeral-storage": 9, "a.example/x": 1, "zero": 0}))
    (verdict,) = preview(ask, node_states([node], [])).verdicts
    resources = [rejection.resource for rejection in verdict.rejections]
    assert resources == ["cpu", "memory", "ephemeral-storage", "a.example/x", MEM]
    assert wish(ask).requests == (
        ("cpu", 2000),
        ("memory", 20),
        ("ephemeral-storage", 9),
        ("a.example/x", 1),
        (MEM, 99),
    )


# -- Warnings in words

NOTES = "scheduler.framework.gpushare.allocation"


@pytest.mark.parametrize(
    ("node", "pod", "code", "words"),
    [
        (a_node(), a_pod(mem=1, annotations={NOTES: "?"}), "unreadable-allocation",
         "default/p has an allocation that cannot be read."),
        (a_node(mode="topology"), a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "x"}),
         "unreadable-allocation", "default/p has an allocation that cannot be read."),
        (a_node(), a_pod(mem=1, at={0: 2}), "limit-differs",
         "default/p asks for 1 memory unit, but its allocation says 2."),
        (a_node(), a_pod(mem=3, at={0: 2}), "limit-differs",
         "default/p asks for 3 memory units, but its allocation says 2."),
        (a_node(cards=1), a_pod(mem=4, at={1: 2, 2: 2}), "unknown-card",
         "default/p is allocated on GPU1, GPU2, but the node has 1 card."),
        (a_node(mode="topology", cards=2), a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "2"}),
         "unknown-card", "default/p is allocated on GPU2, but the node has 2 cards."),
        (a_node(mode="exclusive"), a_pod(mem=1, at={1: 1}), "former-mode",
         "default/p holds 1 memory unit on GPU1, allocated under a former mode of the node."),
        (a_node(mode="exclusive"), a_pod(mem=4, at={2: 2, 0: 2}), "former-mode",
         "default/p holds 4 memory units on GPU0, GPU2, allocated under a former mode of the node."),
        (a_node(mode="exclusive"), a_pod(mem=2), "former-mode",
         "default/p holds 2 memory units on an unknown card, allocated under a former mode of the node."),
        (a_node(), a_pod(whole=1), "former-mode",
         "default/p holds 1 whole card, allocated under a former mode of the node."),
        (a_node(), a_pod(topology=2), "former-mode",
         "default/p holds 2 whole cards, allocated under a former mode of the node."),
        (a_node(mode="topology"), a_pod(whole=2), "former-mode",
         "default/p holds 2 whole cards, allocated under a former mode of the node."),
        (a_node(cards=1), a_pod(mem=16, at={0: 16}), "over-allocated",
         "GPU0 is over-allocated: 16 of 15 memory units."),
        (a_node(mode="core_mem", cards=1), a_pod(mem=15, core=105, at={0: 15}, core_at={0: 105}), "over-allocated",
         "GPU0 is over-allocated: 105% of 100% compute."),
        (a_node(mode="core_mem", cards=1), a_pod(mem=16, core=105, at={0: 16}, core_at={0: 105}), "over-allocated",
         "GPU0 is over-allocated: 16 of 15 memory units and 105% of 100% compute."),
        (a_node(cards=1, units=30), a_pod(mem=4, at={0: 4}, annotations={
            "gpushare.alibabacloud.com/device-resource": '{"0":15}'}), "unit-changed",
         "default/p was bound when a card had 15 memory units; it has 30 now, and ACK's scheduler counts it in "
         "proportion."),
    ],
)  # fmt: skip
def test_a_warning_says_what_and_who(node, pod, code, words):
    (warning,) = fold(node, [pod]).warnings
    assert (warning.code, warning.message, warning.pods) == (code, words, ("default/p",))


def test_warnings_of_the_node_name_no_pod():
    (warning,) = fold(a_node(resources={COUNT: 0}), []).warnings
    assert (warning.message, warning.pods) == ("The node reports 60 memory units, but no cards.", ())
    (warning,) = fold(a_node(mode="exclusive"), [a_pod(whole=5)]).warnings
    assert (warning.code, warning.message, warning.pods) == (
        "over-allocated",
        "5 cards are held, but the node has 4.",
        (),
    )


def test_a_full_card_is_not_over_allocated_and_two_pods_on_a_topology_card_are():
    full = a_pod(mem=15, core=100, at={0: 15}, core_at={0: 100})
    assert fold(a_node(mode="core_mem", cards=1), [full]).warnings == ()
    notes = {"topology.kubernetes.io/gpu-group": "0"}
    pods = [a_pod(name, topology=1, annotations=notes) for name in "ab"]
    (warning,) = fold(a_node(mode="topology"), pods).warnings
    assert (warning.message, warning.pods) == ("GPU0 is over-allocated: 2 whole-card pods.", ("default/a", "default/b"))


def test_a_holding_keeps_who_and_since_when():
    pod = a_pod(mem=1, at={0: 1}, created_at="2026-11-30T00:00:00Z", owner_kind="Job", owner_name="j")
    (holding,) = fold(a_node(), [pod]).holdings
    assert (holding.created_at, holding.owner_kind, holding.owner_name) == ("2026-11-30T00:00:00Z", "Job", "j")


# -- Scores and preferences


def plain(name, **resources):
    return a_node(name, mode="", cards=0, resources=resources)


@pytest.mark.parametrize(
    ("resources", "score"),
    [
        ({"cpu": 3000, "memory": 7}, 61),  # 66 and 57 of a hundred, each cut, and their mean too
        ({"cpu": 1000, "memory": 3}, 0),
        ({"cpu": 1001, "memory": 4}, 12),
        ({"cpu": 2000, "memory": 6}, 50),
        ({"cpu": 1500, "memory": 9}, 49),  # 33 and 66, though a third and two thirds are one
    ],
)
def test_a_pod_without_cards_goes_where_most_stays_free(resources, score):
    ask = an_ask(container(cpu=1000, memory=3))
    (verdict,) = preview(ask, node_states([plain("n", **resources)], [])).verdicts
    assert verdict.score == score


def test_what_a_pod_does_not_ask_for_stays_free_but_not_less_than_nothing():
    ask = an_ask(cpu=1000)
    states = node_states([plain("n", cpu=4000, memory=10), plain("m", cpu=4000, memory=1)], [])
    assert [verdict.score for verdict in preview(ask, states).verdicts] == [87, 87]
    over = node_states([plain("n1", cpu=4000, memory=10)], [a_pod("p", container(memory=12))])
    assert preview(ask, over).verdicts[0].score == 75 // 2


def test_a_resource_that_a_node_does_not_report_scores_nothing():
    node = msgspec.structs.replace(plain("n"), allocatable={"cpu": 4000})
    (verdict,) = preview(an_ask(cpu=1000), node_states([node], [])).verdicts
    assert verdict.score == 75 // 2


def test_a_preference_is_cut_to_whole_points():
    def term(weight, value):
        return PreferredTerm(weight, AffinityTerm((Requirement("zone", "In", (value,)),)))

    nodes = [a_node(name, labels={"zone": name}) for name in "abc"]
    seen = preview(an_ask(mem=4, preferred_terms=(term(3, "a"), term(2, "b"))), node_states(nodes, []))
    assert [verdict.preference for verdict in seen.verdicts] == [200, 132, 0]
    one = preview(an_ask(mem=4, preferred_terms=(term(1, "b"),)), node_states(nodes, []))
    assert (one.chosen, [verdict.preference for verdict in one.verdicts]) == ("b", [0, 200, 0])


def test_soft_taints_are_cut_to_whole_points_and_added():
    def soft(count):
        return tuple(Taint(f"k{number}", "", "PreferNoSchedule") for number in range(count))

    nodes = [a_node(f"n{count}", taints=soft(count)) for count in range(4)]
    seen = preview(an_ask(mem=4), node_states(nodes, []))
    assert [verdict.preference for verdict in seen.verdicts] == [300, 201, 102, 0]
    tolerant = an_ask(mem=4, tolerations=(Toleration(operator="Exists"),))
    assert [verdict.preference for verdict in preview(tolerant, node_states(nodes, [])).verdicts] == [300] * 4
    term = PreferredTerm(1, AffinityTerm((Requirement("zone", "DoesNotExist"),)))
    both = preview(an_ask(mem=4, preferred_terms=(term,)), node_states(nodes, []))
    assert [verdict.preference for verdict in both.verdicts] == [500, 401, 302, 200]


def test_a_soft_taint_that_comes_later_is_heard_of():
    fleet = Fleet(node_states([a_node("a"), a_node("b")], []))
    assert fleet.preview(an_ask(mem=4)).chosen == "a"
    fleet.put(node_state(a_node("a", taints=(Taint("k", "", "PreferNoSchedule"),)), []))
    assert fleet.preview(an_ask(mem=4)).chosen == "b"


def test_the_emptiest_whole_cards_first_only_when_asked_to():
    states = node_states([a_node("a", mode="exclusive"), a_node("b", mode="exclusive")], [a_pod(whole=1, on="b")])
    policy = type(states[0].node.policy)
    assert preview(an_ask(whole=1), states).chosen == "b"
    assert preview(an_ask(whole=1), states, whole_card_policy=policy.SPREAD).chosen == "a"
    cpu = node_states([plain("a"), plain("b")], [a_pod(cpu=1000, on="a")])
    assert preview(an_ask(cpu=1000), cpu, whole_card_policy=policy.SPREAD).chosen == "b"


def test_the_score_of_a_topology_node_is_its_share():
    states = topology_nodes(a=8, b=3)
    assert [verdict.score for verdict in preview(an_ask(topology=2), states).verdicts] == [25, 200 / 3]


# -- Questions that are the same


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


def test_a_pod_that_is_refused_is_called_by_its_own_name():
    fleet = Fleet(node_states([a_node()], []))
    for name in ("one", "two"):
        assert fleet.preview(an_ask(mem=4, core=33, name=name)).message.startswith(f'Pod "{name}" is invalid')


def test_no_pods_have_no_previews():
    assert sequence(an_ask(mem=4), 0, node_states([a_node()], [])) == []
    assert sequence(an_ask(mem=4), -1, node_states([a_node()], [])) == []


# -- The state after a pod


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


# -- Groups


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
    assert preview(an_ask(topology=1, labels={GROUP: "g", REPLICA: "1" * 10}), topology_nodes(a=8)).chosen == "a"
    assert prefilter(wish(an_ask(topology=1, labels={GROUP: "g", REPLICA: "-2"}))) == (
        "invalid replica -2,it should great than 0"
    )


# -- Small things of cards, labels and numbers


def test_edges_of_the_choice_by_links():
    assert best_cards([[1.0]], [0], 0) == BestCards((), ((),))
    assert best_cards(None, [0, 1], 0) == BestCards((), ((),))
    links = [[0, 5, 1], [5, 0, 1], [1, 1, 0]]
    assert best_effort(links, [0, 1, 2], 1) == (0,)
    assert best_effort(links, [0, 1, 2], 3) == (0, 1, 2)
    assert best_effort(links, [0, 1, 2], 0) is None
    assert best_effort(links, [0, 1, 2], 2) == (0, 1)


@pytest.mark.parametrize(
    ("value", "bound", "fits"),
    [("+5", "4", True), ("9" * 19, "1", True), ("1" + "0" * 19, "1", False), ("", "-1", False), ("5", "5", False)],
)
def test_numbers_in_affinity_are_whole_ones_of_the_api(value, bound, fits):
    term = AffinityTerm((Requirement("size", "Gt", (bound,)),))
    seen = preview(an_ask(mem=4, required_terms=(term,)), node_states([a_node(labels={"size": value})], []))
    assert (seen.chosen is not None) is fits


@pytest.mark.parametrize(
    "requirement",
    [Requirement("size", "Gt", ()), Requirement("size", "Gt", ("1", "2")), Requirement("size", "Near", ("5",))],
)
def test_a_requirement_that_makes_no_sense_is_not_met(requirement):
    term = AffinityTerm((requirement,))
    assert (
        preview(an_ask(mem=4, required_terms=(term,)), node_states([a_node(labels={"size": "5"})], [])).chosen is None
    )


def test_an_empty_operator_is_equal():
    node = a_node(taints=(Taint("k", "v"),))
    for toleration, fits in ((Toleration("k", "", "v"), True), (Toleration("k", "", "w"), False)):
        assert preview(an_ask(mem=4, tolerations=(toleration,)), node_states([node], [])).verdicts[0].fits is fits


def test_an_unknown_operator_tolerates_nothing():
    node = a_node(taints=(Taint("k", "v"),))
    odd = an_ask(mem=4, tolerations=(Toleration("k", "Near", "v"),))
    assert preview(odd, node_states([node], [])).chosen is None


@pytest.mark.parametrize(("label", "cards"), [("+2", 1), ("1" * 10, 1), ("0", 1), ("3", 3)])
def test_a_count_of_cards_that_cannot_be_read_is_one(label, cards):
    assert wish(an_ask(mem=12, core=0, labels={"aliyun.com/gpu-count": label})).cards == cards
    assert prefilter(wish(an_ask(mem=12, labels={"aliyun.com/gpu-count": "+2"}))) == ""


def test_names_of_nodes_in_several_terms_are_put_together():
    def named(*names):
        return AffinityTerm((), (Requirement("metadata.name", "In", names),))

    states = node_states([a_node(name) for name in "abc"], [])
    seen = preview(an_ask(mem=4, required_terms=(named("a"), named("b"))), states)
    assert [verdict.fits for verdict in seen.verdicts] == [True, True, False]


def test_an_init_container_counts_for_what_it_asks_alone():
    ask = an_ask(container(mem=4), init=[container(mem=10, cpu=100), container(mem=2, **{WHOLE: 1})])
    assert dict(wish(ask).requests) == {MEM: 10, "cpu": 100, WHOLE: 1}


@pytest.mark.parametrize(("units", "cards", "expected"), [(64, 2, 1024), (506, 2, 128), (65, 2, 1024), (60, 0, None)])
def test_the_unit_is_that_of_a_whole_card(units, cards, expected):
    node = a_node(resources={MEM: units, COUNT: cards}, labels={"aliyun.accelerator/nvidia_mem": "32510MiB"})
    assert fold(node, []).unit_mib == expected


def test_the_choice_of_several_cards_ends_at_the_last_one_taken():
    state = node_states([a_node(cards=4)], filled(9, 6, 3, 3))
    seen = preview(an_ask(mem=9, labels={"aliyun.com/gpu-count": "3"}), state)
    assert (seen.cards, seen.tie_cards) == ((0, 1, 2), (0, 1, 2, 3))


def test_nothing_waits_where_nothing_terminates():
    pods = [a_pod("a", mem=14, at={0: 14}), a_pod("b", mem=4, at={1: 4}, terminating=True)]
    (verdict,) = preview(an_ask(mem=1), node_states([a_node(cards=2)], pods)).verdicts
    assert (verdict.cards, verdict.waits_for) == ((0,), 0)
    assert preview(an_ask(mem=1), node_states([a_node()], [])).verdicts[0].waits_for == 0
    assert preview(an_ask(mem=1), node_states([a_node()], [])).verdicts[0].rejections == ()
