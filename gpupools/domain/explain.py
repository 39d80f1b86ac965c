"""Explain a number: the pods that make up any figure of a card, a node, a pool or a cluster.

A figure is the sum of its parts and of nothing else, and a larger place has the parts of the smaller ones, so the
levels cannot disagree. It knows no page and no pool: who asks says which nodes belong together.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from gpupools.domain.allocation import FORMER_MODE, PENDING, UNKNOWN_CARD
from gpupools.domain.gpus import Holding, NodeAllocation


class Figure(StrEnum):
    """The figures that can be explained, by the names that they have in folds, rows and the API."""

    MEMORY_UNITS_USED = "memory_units_used"
    MEMORY_UNITS_RELEASING = "memory_units_releasing"
    MEMORY_UNITS_PENDING = "memory_units_pending"
    MEMORY_UNITS_ORPHAN = "memory_units_orphan"
    CORE_PERCENT_USED = "core_percent_used"
    CARDS_USED = "cards_used"
    CARDS_RELEASING = "cards_releasing"


class Part(msgspec.Struct, frozen=True):
    """One summand: an amount on a card of a node (``gpu`` None: on no card that the API names) and its pods.

    A card in use counts once however many pods hold it, so such a part has several. ``lost`` as in ``Holding``.
    """

    node: str
    gpu: int | None
    amount: int
    pods: tuple[Holding, ...]
    lost: str = ""


class Explained(msgspec.Struct, frozen=True):
    """A figure with its parts, by node and card."""

    figure: Figure
    parts: tuple[Part, ...]

    @property
    def value(self) -> int:
        """The figure: the sum of its parts."""
        return sum(part.amount for part in self.parts)


def explain(allocations: Iterable[NodeAllocation], figure: Figure) -> Explained:
    """Explain a figure of a node, or of several together: a pool, a mode, a cluster."""
    ordered = sorted(allocations, key=lambda allocation: allocation.node)
    return Explained(figure, tuple(part for allocation in ordered for part in _parts(allocation, figure)))


def explain_card(allocation: NodeAllocation, index: int, figure: Figure) -> Explained:
    """Explain a figure of one card; a card that the node does not have has no parts."""
    chosen = tuple(part for part in _parts(allocation, figure) if part.gpu == index)
    return Explained(figure, chosen)


def _parts(allocation: NodeAllocation, figure: Figure) -> list[Part]:
    if figure in {Figure.CARDS_USED, Figure.CARDS_RELEASING}:
        return _card_parts(allocation, releasing=figure is Figure.CARDS_RELEASING)
    if figure is Figure.MEMORY_UNITS_PENDING:
        return [part for part in _lost_parts(allocation, "memory_units") if part.lost == PENDING]
    if figure is Figure.MEMORY_UNITS_ORPHAN:
        return [part for part in _lost_parts(allocation, "memory_units") if part.lost in {UNKNOWN_CARD, FORMER_MODE}]
    field = "core_percent" if figure is Figure.CORE_PERCENT_USED else "memory_units"
    placed = [
        Part(allocation.node, gpu.index, amount, (holding,))
        for gpu in allocation.gpus
        for holding in gpu.holdings
        if (amount := getattr(holding, field))
    ]
    lost = [part for part in _lost_parts(allocation, field) if part.lost != FORMER_MODE]
    parts = [*placed, *lost]
    if figure is Figure.MEMORY_UNITS_RELEASING:
        return [part for part in parts if part.pods[0].releasing]
    return parts


def _lost_parts(allocation: NodeAllocation, field: str) -> list[Part]:
    return [
        Part(allocation.node, None, amount, (holding,), holding.lost)
        for holding in allocation.unplaced
        if (amount := getattr(holding, field))
    ]


def _card_parts(allocation: NodeAllocation, *, releasing: bool) -> list[Part]:
    if allocation.memory_units:
        held = [gpu for gpu in allocation.gpus if gpu.holdings]
        if releasing:
            held = [gpu for gpu in held if all(holding.releasing for holding in gpu.holdings)]
        return [Part(allocation.node, gpu.index, 1, gpu.holdings) for gpu in held]
    on_cards = [
        Part(allocation.node, gpu.index, holding.cards, (holding,))
        for gpu in allocation.gpus
        for holding in gpu.holdings
    ]
    lost = [part for part in _lost_parts(allocation, "cards") if part.lost != FORMER_MODE]
    # Exclusive cards have no index in the API: what their pods hold stands with the node alone.
    counted = {part.pods[0].uid for part in (*on_cards, *lost)}
    former = [msgspec.structs.replace(each, lost="") for each in allocation.unplaced if each.lost == FORMER_MODE]
    unnamed = []
    for holding in allocation.holdings:
        if holding in former:
            former.remove(holding)
        elif holding.cards and holding.uid not in counted:
            unnamed.append(Part(allocation.node, None, holding.cards, (holding,)))
    parts = [*on_cards, *unnamed, *lost]
    return [part for part in parts if part.pods[0].releasing] if releasing else parts
