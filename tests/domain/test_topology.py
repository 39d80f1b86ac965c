"""The best set of cards by link bandwidth."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.placement import card_alternatives, node_states, preview
from gpupools.domain.topology import BestCards, alternatives, best_cards, best_effort, largest_sum
from tests.domain.builders import a_node, an_ask


def dgx_1v():
    """Eight cards: two sockets with doubled NVLinks, single NVLinks and PCIe between them, as levels that add up."""

    def pairs(text):
        return {tuple(map(int, pair)) for pair in text.split()}

    nv2, nv1 = pairs("03 04 12 15 23 47 56 67"), pairs("01 02 13 26 37 45 46 57")
    pix = pairs("01 23 45 67")
    links = [[0.0] * 8 for _ in range(8)]
    for a, b in combinations(range(8), 2):
        base = 50 if (a, b) in pix else 30 if a // 4 == b // 4 else 10
        links[a][b] = links[b][a] = base + (200 if (a, b) in nv2 else 100 if (a, b) in nv1 else 0)
    return links


DGX = dgx_1v()


def test_v38a_two_cards_out_of_four():
    best = best_cards(DGX, [0, 2, 4, 5], 2)
    assert (best.cards, best.bandwidth) == ((0, 4), 210)
    assert best_effort(DGX, [0, 2, 4, 5], 2) == (4, 5)


def test_v38b_three_of_all_cards_where_acks_measure_ties():
    best = best_cards(DGX, range(8), 3)
    assert (best.cards, best.bandwidth) == ((0, 1, 2), 130)
    assert len(best.ties) > 1
    assert (0, 2, 3) in best.ties
    assert best_effort(DGX, range(8), 3) == (0, 2, 3)
    assert largest_sum(DGX, range(8), 3) == (0, 2, 3)


def test_v38c_four_of_six_stay_on_their_socket():
    assert best_cards(DGX, [0, 1, 4, 5, 6, 7], 4).cards == (4, 5, 6, 7)


def test_v38d_two_cards_are_not_three():
    assert best_cards(DGX, [0, 1], 3) is None
    assert best_effort(DGX, [0, 1], 3) is None
    assert largest_sum(DGX, [0, 1], 3) is None


def test_one_card_is_judged_by_its_own_entry():
    links = [[10, 1, 1], [1, 30, 1], [1, 1, 30]]
    best = best_cards(links, [0, 1, 2], 1)
    assert (best.cards, best.ties, best.bandwidth) == ((1,), ((1,), (2,)), 30)


@pytest.mark.parametrize("links", [None, [[1.0, 1.0], [1.0, 1.0]]])
def test_without_a_matrix_that_covers_the_cards_the_first_free_ones_are_taken(links):
    best = best_cards(links, [5, 3, 1], 2)
    assert (best.cards, best.bandwidth) == ((1, 3), None)


def test_a_matrix_that_ends_before_the_last_free_card_is_not_used():
    assert best_cards([[0.0, 9.0], [9.0, 0.0]], [0, 1, 2], 2).bandwidth is None
    assert best_cards([[0.0, 9.0], [9.0, 0.0]], [0, 1], 2).bandwidth == 9


def test_of_many_ties_32_are_named():
    links = [[1.0] * 9 for _ in range(9)]
    best = best_cards(links, range(9), 2)
    assert (len(best.ties), best.ties[0], best.ties[-1]) == (32, (0, 1), (5, 7))
    assert len(best_cards([[1.0] * 40 for _ in range(40)], range(40), 1).ties) == 32
    assert best_effort(links, range(9), 2) is not None


def test_too_many_free_cards_are_not_divided():
    links = [[1.0] * 10 for _ in range(10)]
    assert best_effort(links, range(10), 2) is None


@st.composite
def some_links(draw):
    size = draw(st.integers(1, 7))
    links = [[0] * size for _ in range(size)]
    for a in range(size):
        for b in range(a, size):
            links[a][b] = links[b][a] = draw(st.integers(1, 4))
    return links


@given(some_links(), st.integers(1, 7), st.sets(st.integers(0, 6)))
def test_the_choice_is_the_first_with_the_fastest_slowest_link(links, count, free):
    free = sorted(card for card in free if card < len(links))
    best = best_cards(links, free, count)

    def slowest(cards):
        return min((links[a][b] for a, b in combinations(cards, 2)), default=links[cards[0]][cards[0]])

    sets = list(combinations(free, count))
    if not sets:
        assert best is None
        return
    top = max(slowest(cards) for cards in sets)
    assert best.ties == tuple(cards for cards in sets if slowest(cards) == top)[:32]
    assert best.cards == best.ties[0]
    assert best.bandwidth == top


def test_other_measures_are_offered_with_their_names():
    found = {each.label: each for each in alternatives(DGX, [0, 2, 4, 5], 2)}
    assert [(each.label, each.title) for each in found.values()] == [
        ("ack", "ACK: the fastest slowest link"),
        ("best-effort", "NVIDIA best-effort: the best division of all free cards"),
        ("largest-sum", "The largest sum of links"),
    ]
    assert (found["ack"].cards, found["ack"].slowest, found["ack"].total) == ((0, 4), 210, 210)
    assert (found["best-effort"].cards, found["best-effort"].slowest) == ((4, 5), 150)
    ack, _, largest = alternatives(DGX, range(8), 3)
    assert (ack.cards, ack.slowest, ack.total) == ((0, 1, 2), 130, 510)
    assert (largest.cards, largest.slowest, largest.total) == ((0, 2, 3), 130, 610)
    assert [each.label for each in alternatives([[1.0] * 12 for _ in range(12)], range(12), 2)] == [
        "ack",
        "largest-sum",
    ]


def test_without_a_choice_of_links_there_is_no_alternative():
    assert alternatives(None, [0, 1], 2) == ()
    assert alternatives(DGX, [0, 1], 3) == ()
    assert alternatives(DGX, [0, 1], 1) == ()


def test_the_alternatives_of_a_pods_node():
    states = node_states([a_node("dgx", mode="topology", cards=8, links=DGX), a_node("s")], [])
    ask = an_ask(topology=3)
    found = card_alternatives(ask, states, preview(ask, states))
    assert [each.cards for each in found] == [(0, 1, 2), (0, 2, 3), (0, 2, 3)]
    share = an_ask(mem=4)
    assert card_alternatives(share, states, preview(share, states)) == ()
    large = an_ask(topology=9)
    assert card_alternatives(large, states, preview(large, states)) == ()


def test_edges_of_the_choice_by_links():
    assert best_cards([[1.0]], [0], 0) == BestCards((), ((),))
    assert best_cards(None, [0, 1], 0) == BestCards((), ((),))
    links = [[0, 5, 1], [5, 0, 1], [1, 1, 0]]
    assert best_effort(links, [0, 1, 2], 1) == (0,)
    assert best_effort(links, [0, 1, 2], 3) == (0, 1, 2)
    assert best_effort(links, [0, 1, 2], 0) is None
    assert best_effort(links, [0, 1, 2], 2) == (0, 1)
