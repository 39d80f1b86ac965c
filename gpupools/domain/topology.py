"""The best set of cards by link bandwidth. Pure arithmetic over a matrix; it knows no pod and no node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

Links = Sequence[Sequence[float]]

MOST_TIES = 32
MOST_CARDS_FOR_PARTITIONS = 9  # beyond, the partitions of the best-effort choice are too many to look at


class BestCards(msgspec.Struct, frozen=True):
    """The chosen cards and up to 32 sets that are just as good (the chosen one first).

    ``bandwidth`` is the slowest link inside the set, None without a matrix.
    """

    cards: tuple[int, ...]
    ties: tuple[tuple[int, ...], ...]
    bandwidth: float | None = None


def best_cards(links: Links | None, free: Sequence[int], count: int) -> BestCards | None:
    """Choose ``count`` of the free cards as ACK does: the slowest link is as fast as it can be.

    Among equals the first in lexicographic order, and without a matrix the first free cards. None when fewer
    cards are free. A single card is judged by its own entry in the diagonal.
    """
    free = sorted(free)
    if len(free) < count:
        return None
    if not links or count <= 0 or free[-1] >= len(links):
        first = tuple(free[: max(0, count)])
        return BestCards(first, (first,))
    if count == 1:
        best = max(links[card][card] for card in free)
        ties = tuple((card,) for card in free if links[card][card] == best)[:MOST_TIES]
        return BestCards(ties[0], ties, best)
    # Sets whose links are all at least so fast are cliques: try the speeds from the top until one exists.
    speeds = sorted({_link(links, a, b) for a, b in combinations(free, 2)}, reverse=True)
    for speed in speeds:
        cliques = _cliques(links, free, count, speed)
        first_clique = next(cliques, None)
        if first_clique is not None:
            rest = [clique for clique, _ in zip(cliques, range(MOST_TIES - 1), strict=False)]
            return BestCards(first_clique, (first_clique, *rest), speed)
    return None


def _link(links: Links, a: int, b: int) -> float:
    return min(links[a][b], links[b][a])


def _cliques(links: Links, free: Sequence[int], count: int, speed: float) -> Iterator[tuple[int, ...]]:
    """Yield, in lexicographic order, the sets of cards whose links all reach a speed."""
    near = {a: [b for b in free if b > a and _link(links, a, b) >= speed] for a in free}

    def grow(chosen: tuple[int, ...], candidates: Sequence[int]) -> Iterator[tuple[int, ...]]:
        missing = count - len(chosen)
        if missing == 0:
            yield chosen
            return
        for position, card in enumerate(candidates):
            if len(candidates) - position < missing:
                return
            reachable = near[card]
            yield from grow((*chosen, card), [other for other in candidates[position + 1 :] if other in reachable])

    yield from grow((), free)


def _sum(links: Links, cards: Sequence[int]) -> float:
    return sum(_link(links, a, b) for a, b in combinations(cards, 2))


def largest_sum(links: Links, free: Sequence[int], count: int) -> tuple[int, ...] | None:
    """Choose the set with the largest sum of link bandwidths, the first among equals: an alternative to ACK's."""
    sets = combinations(sorted(free), count)
    return max(sets, key=lambda cards: _sum(links, cards), default=None)


def best_effort(links: Links, free: Sequence[int], count: int) -> tuple[int, ...] | None:
    """Choose as NVIDIA's best-effort policy does: the best set of the division that is best for all free cards.

    The free cards are divided into groups of ``count`` (the last may be smaller) so that the sum over all groups
    is the largest; of that division the group with the largest sum is taken. None when too few cards are free,
    or so many that the divisions cannot be looked at.
    """
    cards = tuple(sorted(free))
    if not 0 < count <= len(cards) or len(cards) > MOST_CARDS_FOR_PARTITIONS:
        return None
    divisions = _divisions(cards, count, len(cards) % count)
    best = max(divisions, key=lambda groups: sum(_sum(links, group) for group in groups))
    whole = [group for group in best if len(group) == count]
    return max(whole, key=lambda group: _sum(links, group))


def _divisions(cards: tuple[int, ...], count: int, short: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield all ways to split cards into groups of ``count`` and, when ``short``, one group of ``short``."""
    if not cards:
        yield ()
        return
    first, others = cards[0], cards[1:]
    for size in (count, short) if short else (count,):
        for mates in combinations(others, size - 1):
            rest = tuple(card for card in others if card not in mates)
            for tail in _divisions(rest, count, 0 if size == short else short):
                yield ((first, *mates), *tail)


class CardSet(msgspec.Struct, frozen=True):
    """A choice of cards by a named measure, with its slowest link and the sum of all its links."""

    label: str
    title: str
    cards: tuple[int, ...]
    slowest: float
    total: float


def alternatives(links: Links | None, free: Sequence[int], count: int) -> tuple[CardSet, ...]:
    """Return ACK's choice and what other measures would take of the same cards; nothing without a matrix.

    Only the first is what ACK's scheduler does: the others are there to compare.
    """
    best = best_cards(links, free, count)
    if links is None or best is None or best.bandwidth is None or count < 2:
        return ()
    choices = (
        ("ack", "ACK: the fastest slowest link", best.cards),
        ("best-effort", "NVIDIA best-effort: the best division of all free cards", best_effort(links, free, count)),
        ("largest-sum", "The largest sum of links", largest_sum(links, free, count)),
    )
    return tuple(
        CardSet(label, title, cards, min(_link(links, a, b) for a, b in combinations(cards, 2)), _sum(links, cards))
        for label, title, cards in choices
        if cards is not None
    )
