"""The ledger after any events is the fold of what is left: orders, duplicates, late deletes, pods that move."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from gpupools.domain.allocation import fold_all
from gpupools.domain.ledger import Ledger
from tests.domain.builders import a_node, a_pod, filled
from tests.domain.picks import cases

NODES = ("a", "b")


def a_random_pod(picks):
    """One of few UIDs, of which two share a name; anywhere, anything."""
    number = picks.between(0, 5)
    units = picks.between(1, 6)
    at = {picks.between(0, 4): units} if picks.yes() else None
    return a_pod(
        f"p{number // 2}",
        uid=f"uid-{number}",
        on=picks.one_of("", *NODES, *NODES, "gone"),
        phase=picks.one_of("Running", "Running", "Running", "Pending", "Succeeded"),
        terminating=picks.yes(),
        mem=units,
        at=at,
    )


def a_random_node(picks):
    name = picks.one_of(*NODES)
    return a_node(name, picks.one_of("cgpu", "cgpu", "topology", "exclusive", None), picks.between(0, 3))


def an_event(picks):
    match picks.one_of("pod", "pod", "pod", "node", "no pod", "no node", "again"):
        case "pod":
            return "pod", a_random_pod(picks)
        case "node":
            return "node", a_random_node(picks)
        case "no pod":
            return "no pod", f"uid-{picks.between(0, 5)}"
        case "no node":
            return "no node", picks.one_of(*NODES)
        case again:
            return again, None


EVENTS = cases(lambda picks: picks.several(4, 25, an_event), size=240)


def play(ledger, events):
    """Apply events; return what is left, and check after each that only told nodes changed."""
    nodes, pods, last = {}, {}, None
    for name in NODES:
        nodes[name] = a_node(name, cards=2)
        ledger.put_node(nodes[name])
    for kind, value in events:
        before = dict(ledger.allocations)
        if kind == "again" and last:
            kind, value = last
        last = (kind, value)
        match kind:
            case "pod":
                pods[value.uid] = value
                told = ledger.put_pod(value)
            case "node":
                nodes[value.name] = value
                told = ledger.put_node(value)
            case "no pod":
                pods.pop(value, None)
                told = ledger.drop_pod(value)
            case "no node":
                nodes.pop(value, None)
                told = ledger.drop_node(value)
            case _:
                told = frozenset()
        after = ledger.allocations
        assert {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)} <= told
    return nodes, pods


@settings(max_examples=60)
@given(EVENTS)
def test_after_any_events_the_ledger_is_the_fold_of_what_is_left(events):
    ledger = Ledger()
    nodes, pods = play(ledger, events)
    assert ledger.allocations == fold_all(nodes.values(), pods.values())


@given(EVENTS, EVENTS)
def test_following_a_whole_gives_its_fold_and_names_what_changed(first, second):
    ledger = Ledger()
    play(ledger, first)
    before = dict(ledger.allocations)
    nodes, pods = play(Ledger(), second)
    told = ledger.follow(nodes.values(), pods.values())
    full = fold_all(nodes.values(), pods.values())
    assert ledger.allocations == full
    assert {n for n in before.keys() | full.keys() if before.get(n) != full.get(n)} <= told
    assert ledger.follow(nodes.values(), pods.values()) == frozenset()
    assert Ledger(nodes.values(), pods.values()).allocations == full


def test_a_late_delete_of_an_old_pod_leaves_the_new_one_of_its_name():
    ledger = Ledger([a_node()], [a_pod("p", uid="new", mem=4, at={0: 4})])
    assert ledger.drop_pod("old") == frozenset()
    assert ledger.allocations["n1"].memory_units_used == 4


def test_a_pod_that_moves_is_folded_away_from_its_old_node():
    ledger = Ledger([a_node("a"), a_node("b")], filled(4, on="a"))
    pod = filled(4, on="b", prefix="used")[0]
    assert ledger.put_pod(pod) == {"a", "b"}
    assert [ledger.allocations[name].memory_units_used for name in "ab"] == [0, 4]


@pytest.mark.parametrize("change", [{"phase": "Succeeded"}, {"node": ""}])
def test_a_pod_that_ends_is_folded_away_and_touches_nothing_after(change):
    (pod,) = filled(4)
    ledger = Ledger([a_node()], [pod])
    ended = msgspec.structs.replace(pod, **change)
    assert ledger.put_pod(ended) == {"n1"}
    assert ledger.put_pod(ended) == frozenset()
    assert ledger.drop_pod(pod.uid) == frozenset()
    assert ledger.allocations["n1"].holdings == ()


def test_a_node_that_comes_back_has_its_pods():
    ledger = Ledger([a_node()], filled(4))
    assert ledger.drop_node("n1") == {"n1"}
    assert ledger.allocations == {}
    assert ledger.put_node(a_node()) == {"n1"}
    assert ledger.allocations["n1"].memory_units_used == 4


def test_an_event_on_one_pod_folds_no_other_node():
    ledger = Ledger([a_node("a"), a_node("b")], [*filled(4, on="a"), *filled(5, on="b", prefix="other")])
    untouched = ledger.allocations["b"]
    ledger.put_pod(a_pod("more", mem=1, at={1: 1}, on="a"))
    assert ledger.allocations["b"] is untouched
    assert ledger.allocations["a"].memory_units_used == 5
    ledger.drop_pod("uid-default-more")
    assert ledger.allocations["a"].memory_units_used == 4
    ledger.follow([a_node("a"), a_node("b")], filled(5, on="b", prefix="other"))
    assert ledger.allocations["b"] is untouched
    assert ledger.allocations["a"].holdings == ()
