"""Placement: which cards of a node, and what stands in their way."""

from __future__ import annotations

import pytest

from gpupools.domain.placement import node_states, preview
from gpupools.domain.wishes import prefilter, wish
from tests.domain.builders import WHOLE, a_node, a_pod, an_ask, filled
from tests.domain.seeing import core_mem_pods, labelled, reason_of, see


@pytest.mark.parametrize(
    ("node", "pods", "ask", "cards", "score", "ties"),
    [
        pytest.param(
            a_node(), filled(11, 9), an_ask(mem=4), (0,), 100, (0,), id="V18-binpack-fills-the-card-to-the-brim"
        ),
        pytest.param(
            a_node(), filled(11, 9), an_ask(mem=6), (1,), 100, (1,), id="V19-the-next-card-when-one-is-too-full"
        ),
        pytest.param(
            a_node(policy="spread"),
            filled(4, 4, 0, 4),
            an_ask(mem=4),
            (2,),
            92,
            (2,),
            id="V19-spread-takes-the-emptiest",
        ),
        pytest.param(a_node(), filled(11, 9), labelled(2, mem=8), (0, 1), 45.5, (0, 1), id="V22-two-cards-binpack"),
        pytest.param(
            a_node(policy="spread"), filled(11, 9), labelled(2, mem=8), (2, 3), 39.5, (2, 3), id="V22-two-cards-spread"
        ),
        pytest.param(
            a_node(mode="core_mem", cards=3),
            core_mem_pods(),
            an_ask(mem=5, core=30),
            (1,),
            91.5,
            (1,),
            id="V25-binpack",
        ),
        pytest.param(
            a_node(mode="core_mem", cards=3, policy="spread"),
            core_mem_pods(),
            an_ask(mem=5, core=30),
            (2,),
            90.5,
            (2,),
            id="V25-spread",
        ),
        pytest.param(a_node(), [], an_ask(mem=4), (0,), 78, (0, 1, 2, 3), id="equal-cards-are-a-tie"),
        pytest.param(
            a_node(), filled(0, 4), labelled(2, mem=8), (0, 1), 29.5, (0, 1, 2, 3), id="a-tie-for-the-second-card"
        ),
        pytest.param(a_node(cards=1), [], an_ask(mem=15), (0,), 100, (0,), id="one-empty-card-binpack"),
        pytest.param(a_node(cards=1, policy="spread"), [], an_ask(mem=15), (0,), 70, (0,), id="one-empty-card-spread"),
        pytest.param(
            a_node(), filled(9, 0, 0, 4), labelled(2, mem=8), (0, 3), 38.5, (0, 3), id="two-cards-of-different-fill"
        ),
        pytest.param(
            a_node(), filled(9, 0, 0, 4), an_ask(mem=4), (0,), 96, (0,), id="card-scores-of-a-mixed-node-binpack"
        ),
        pytest.param(
            a_node(policy="spread"),
            filled(9, 0, 0, 4),
            an_ask(mem=4),
            (1,),
            92,
            (1, 2),
            id="card-scores-of-a-mixed-node-spread",
        ),
        pytest.param(
            a_node(policy="spread"),
            filled(9, 0, 0, 4),
            labelled(2, mem=8),
            (1, 2),
            39.5,
            (1, 2),
            id="the-two-empty-cards",
        ),
        pytest.param(a_node(), [], labelled(0, mem=4), (0,), 78, (0, 1, 2, 3), id="a-count-of-0-is-no-count"),
        pytest.param(
            a_node(),
            filled(4),
            an_ask(mem=15, labels={"ack.gpushare.placement": "require-whole-device"}),
            (1,),
            100,
            (1, 2, 3),
            id="a-whole-shared-card",
        ),
        pytest.param(
            a_node(labels={"ack.node.gpu.max-pod": "1"}),
            filled(4),
            an_ask(mem=4),
            (1,),
            78,
            (1, 2, 3),
            id="one-pod-per-card",
        ),
    ],
)
def test_the_best_card_of_a_shared_node_is_chosen(node, pods, ask, cards, score, ties):
    seen = see(ask, node, pods=pods)
    assert (seen.chosen, seen.message, seen.cards, seen.tie_cards) == ("n1", "", cards, ties)
    assert seen.verdicts[0].score == pytest.approx(score, abs=1e-9)


def test_a_card_can_be_filled_to_its_last_per_cent():
    node = a_node(mode="core_mem", cards=1)
    pods = [a_pod("a", mem=10, core=70, at={0: 10}, core_at={0: 70})]
    assert see(an_ask(mem=5, core=30), node, pods=pods).chosen == "n1"
    assert see(an_ask(mem=5, core=30), node, pods=pods).verdicts[0].score == 100


def test_labels_of_other_schedulers_mean_nothing_without_a_gang():
    ask = an_ask(topology=1, labels={"gputopology.alibabacloud.com/ttl": "9"})
    assert see(ask, a_node(mode="topology")).chosen == "n1"


def test_what_terminating_pods_hold_is_free_on_the_card_but_not_on_the_node():
    leaving = a_pod("leaving", mem=12, at={0: 12}, terminating=True)
    seen = see(an_ask(mem=10), a_node(cards=2), pods=[leaving, *filled(0, 8)])
    assert (seen.chosen, seen.cards, seen.verdicts[0].waits_for) == ("n1", (0,), 1)
    assert see(an_ask(mem=2), a_node(cards=2), pods=[leaving]).verdicts[0].waits_for == 0
    assert reason_of(see(an_ask(mem=10), a_node(cards=1), pods=[leaving])) == (
        "0/1 nodes are available: 1 Insufficient aliyun.com/gpu-mem."
    )


def test_a_terminating_pods_compute_is_free_on_the_card():
    node = a_node(mode="core_mem", cards=2)
    leaving = a_pod("leaving", mem=2, core=60, at={0: 2}, core_at={0: 60}, terminating=True)
    staying = a_pod("staying", mem=12, core=10, at={1: 12}, core_at={1: 10})
    seen = see(an_ask(mem=4, core=50), node, pods=[leaving, staying])
    assert (seen.cards, seen.verdicts[0].waits_for) == ((0,), 1)


def test_pending_pods_are_on_no_card_but_count_on_the_node():
    seen = see(an_ask(mem=4), a_node(cards=1), pods=[a_pod("pending", mem=10)])
    assert (seen.chosen, seen.verdicts[0].score) == ("n1", 78)
    assert see(an_ask(mem=6), a_node(cards=1), pods=[a_pod("pending", mem=10)]).chosen is None


def test_an_over_allocated_card_takes_nothing_and_free_room_is_never_negative():
    over = a_pod("over", mem=20, at={0: 20})
    (rejection,) = see(an_ask(mem=4), a_node(cards=1), pods=[over]).verdicts[0].rejections
    assert (rejection.code, rejection.free) == ("insufficient", 0)
    (rejection,) = see(an_ask(mem=11), a_node(cards=3), pods=[over, *filled(0, 5, 5)]).verdicts[0].rejections
    assert (rejection.code, rejection.free, rejection.best) == ("device", 15, 10)


def test_topology_takes_the_fastest_set_and_the_tightest_node():
    links = ((0.0, 16.0, 50.0), (16.0, 0.0, 16.0), (50.0, 16.0, 0.0))
    nodes = [a_node("wide", mode="topology", cards=4), a_node("tight", mode="topology", cards=3, links=links)]
    seen = see(an_ask(topology=2), *nodes)
    assert (seen.chosen, seen.cards, seen.tie_cards) == ("tight", (0, 2), (0, 2))
    taken = a_pod(topology=1, on="tight", annotations={"topology.kubernetes.io/gpu-group": "2"})
    seen = see(an_ask(topology=2, node_selector={}), nodes[1], pods=[taken])
    assert seen.cards == (0, 1)


def test_a_card_of_a_terminating_topology_pod_is_free_for_the_ledger():
    leaving = a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "0"}, terminating=True)
    seen = see(an_ask(topology=1), a_node(mode="topology", cards=2), pods=[leaving])
    assert (seen.cards, seen.verdicts[0].waits_for) == ((0,), 1)


def test_exclusive_cards_are_asked_for_as_the_node_has_them():
    assert see(an_ask(whole=4), a_node(mode="exclusive")).chosen == "n1"
    assert see(an_ask(whole=4), a_node(mode="exclusive", resources={WHOLE: 3})).chosen is None


@pytest.mark.parametrize(("mem", "core", "waits"), [(5, 40, 0), (6, 40, 1), (5, 45, 1), (5, 0, 0)])
def test_a_pod_waits_only_for_what_it_cannot_do_without(mem, core, waits):
    node = a_node(mode="core_mem" if core else "cgpu", cards=2)
    leaving = a_pod(
        "leaving", mem=10, core=60 if core else 0, at={0: 10}, core_at={0: 60} if core else None, terminating=True
    )
    full = a_pod("full", mem=14, core=5 if core else 0, at={1: 14}, core_at={1: 5} if core else None)
    seen = see(an_ask(mem=mem, core=core), node, pods=[leaving, full])
    assert (seen.cards, seen.verdicts[0].waits_for) == ((0,), waits)


@pytest.mark.parametrize(("label", "cards"), [("+2", 2), ("1_0", 1), ("0", 1), ("-3", 1), ("3", 3)])
def test_a_count_of_cards_that_cannot_be_read_is_one(label, cards):
    assert wish(an_ask(mem=12, core=0, labels={"aliyun.com/gpu-count": label})).cards == cards
    assert prefilter(wish(an_ask(mem=12, labels={"aliyun.com/gpu-count": "+2"}))) == ""


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
