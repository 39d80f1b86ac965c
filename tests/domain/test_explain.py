"""Every figure is the sum of the pods that are named for it, on every level."""

from __future__ import annotations

import pytest
from hypothesis import given

from gpupools.domain.allocation import fold, fold_all
from gpupools.domain.explain import Figure, explain, explain_card
from gpupools.domain.totals import totals
from tests.domain.builders import a_node, a_pod, filled
from tests.domain.picks import cases

ON_CARDS = (
    Figure.MEMORY_UNITS_USED,
    Figure.MEMORY_UNITS_RELEASING,
    Figure.CORE_PERCENT_USED,
    Figure.CARDS_USED,
)


def named(explained):
    return [(part.gpu, part.amount, [pod.pod for pod in part.pods], part.lost) for part in explained.parts]


def test_the_pods_of_a_card_a_node_and_a_cluster():
    nodes = [a_node("a", cards=2), a_node("b", cards=2)]
    pods = [
        *filled(4, 5, on="a"),
        *filled(6, on="b"),
        a_pod("waits", mem=3, on="a"),
        a_pod("far", mem=2, at={7: 2}, on="b"),
    ]
    folds = fold_all(nodes, pods)
    card = explain_card(folds["a"], 1, Figure.MEMORY_UNITS_USED)
    assert (card.value, named(card)) == (5, [(1, 5, ["used-1"], "")])
    node = explain([folds["a"]], Figure.MEMORY_UNITS_USED)
    assert (node.value, named(node)[-1]) == (12, (None, 3, ["waits"], "pending"))
    cluster = explain(folds.values(), Figure.MEMORY_UNITS_USED)
    assert (cluster.value, {part.node for part in cluster.parts}) == (20, {"a", "b"})
    assert named(explain(folds.values(), Figure.MEMORY_UNITS_PENDING)) == [(None, 3, ["waits"], "pending")]
    assert named(explain(folds.values(), Figure.MEMORY_UNITS_ORPHAN)) == [(None, 2, ["far"], "unknown-card")]
    assert explain_card(folds["a"], 9, Figure.MEMORY_UNITS_USED).value == 0


def test_a_shared_card_in_use_counts_once_and_names_all_its_pods():
    pods = [
        a_pod("one", mem=1, at={0: 1}),
        a_pod("two", mem=2, at={0: 2}, terminating=True),
        a_pod("last", mem=1, at={1: 1}),
    ]
    pods[2] = a_pod("last", mem=1, at={1: 1}, terminating=True)
    allocation = fold(a_node(cards=3), pods)
    assert named(explain([allocation], Figure.CARDS_USED)) == [(0, 1, ["one", "two"], ""), (1, 1, ["last"], "")]
    assert named(explain([allocation], Figure.CARDS_RELEASING)) == [(1, 1, ["last"], "")]


def test_exclusive_cards_have_pods_and_no_index():
    allocation = fold(a_node(mode="exclusive"), [a_pod("a", whole=2), a_pod("b", mem=3, at={0: 3})])
    assert named(explain([allocation], Figure.CARDS_USED)) == [(None, 2, ["a"], "")]
    assert named(explain([allocation], Figure.MEMORY_UNITS_ORPHAN)) == [(None, 3, ["b"], "former-mode")]
    assert explain([allocation], Figure.MEMORY_UNITS_USED).value == 0


def test_topology_cards_are_named_where_an_annotation_names_them():
    notes = {"topology.kubernetes.io/gpu-group": "0,9"}
    allocation = fold(a_node(mode="topology"), [a_pod("a", topology=3, annotations=notes), a_pod("b", whole=1)])
    assert {part.node for part in explain([allocation], Figure.CARDS_USED).parts} == {"n1"}
    assert named(explain([allocation], Figure.CARDS_USED)) == [
        (0, 1, ["a"], ""),
        (None, 1, ["a"], "unknown-card"),
        (None, 1, ["a"], "pending"),
    ]


def a_cluster(picks):
    nodes = [
        a_node(
            name,
            picks.one_of("cgpu", "core_mem", "core_mem", "topology", "exclusive"),
            picks.between(0, 3),
            picks.between(1, 20),
        )
        for name in "abc"
    ]
    pods = []
    for number in range(picks.between(0, 9)):
        kind = picks.one_of("mem", "mem", "core", "alone", "whole", "topology", "both")
        amount, card = picks.between(1, 9), picks.between(0, 4)
        fields = {"on": picks.one_of("a", "b", "c"), "terminating": picks.yes()}
        given_cards = picks.one_of({card: amount}, {card: amount, card + 1: 1}, None)
        if kind in {"mem", "core"}:
            fields |= {"mem": amount, "at": given_cards}
        if kind in {"core", "alone"}:
            fields |= {"core": 10 * amount, "core_at": {card: 10 * amount} if picks.yes() else None}
        if kind in {"whole", "both"}:
            fields |= {"whole": amount}
        if kind in {"topology", "both"}:
            notes = {"topology.kubernetes.io/gpu-group": f"{card},{card + 1}"} if picks.yes() else {}
            fields |= {"topology": amount, "annotations": notes}
        pods.append(a_pod(f"p{number}", **fields))
    return nodes, pods


@given(cases(a_cluster, size=128))
def test_figures_are_the_sums_of_their_parts_on_every_level(cluster):
    folds = fold_all(*cluster)
    summed = totals(folds.values()).all
    for figure in Figure:
        whole = explain(folds.values(), figure)
        assert whole.value == getattr(summed, figure)
        assert whole.value == sum(explain([fold_], figure).value for fold_ in folds.values())
        assert whole.figure is figure
        for allocation in folds.values():
            node = explain([allocation], figure)
            assert {part.node for part in node.parts} <= {allocation.node}
            assert explain_card(allocation, 0, figure).figure is figure
            assert node.value == getattr(allocation, figure)
            assert all(part.amount > 0 and part.pods for part in node.parts)
            cards = [explain_card(allocation, gpu.index, figure) for gpu in allocation.gpus]
            assert sum(card.value for card in cards) + sum(p.amount for p in node.parts if p.gpu is None) == node.value
            if figure in ON_CARDS:
                assert [card.value for card in cards] == [getattr(gpu, figure) for gpu in allocation.gpus]


@pytest.mark.parametrize("figure", list(Figure))
def test_nothing_has_no_parts(figure):
    assert explain([], figure).parts == ()
