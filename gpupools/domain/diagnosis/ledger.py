"""Rules about who holds a node's cards: former modes, unreadable allocations, over-full and crowded cards."""

from __future__ import annotations

from collections.abc import Iterator

from gpupools.domain.allocation import (
    FORMER_MODE,
    LIMIT_DIFFERS,
    NO_CARDS,
    OVER_ALLOCATED,
    PENDING,
    UNIT_CHANGED,
    UNKNOWN_CARD,
)
from gpupools.domain.annotations import UNREADABLE
from gpupools.domain.diagnosis.scene import Diagnosis, Scene, Severity, counted
from gpupools.domain.gpus import GpuNode, NodeAllocation
from gpupools.domain.modes import GPU_COUNT, Mode

# ACK names 20 pods to a card as cGPU's limit in one place and 16 in another: warn from the lower one.
CROWDED = 16
MOST_PODS = 20


def former_mode(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """5: pods that hold cards by a mode that the node has left."""
    if found := _warned(fold, FORMER_MODE):
        yield Diagnosis(
            "former-mode-pods",
            5,
            Severity.ERROR,
            f"Pods on {node.name} hold cards that its mode does not count.",
            found[0],
            "Let them end, or delete them: the scheduler gives the same cards to others meanwhile. "
            "Switch a mode by a request, which waits for its holders.",
            node.name,
            pods=found[1],
        )


def unknown_card(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """6: pods whose allocation names a card that the node does not have."""
    if found := _warned(fold, UNKNOWN_CARD):
        yield Diagnosis(
            "unknown-card",
            6,
            Severity.ERROR,
            f"Pods on {node.name} are allocated on cards that it does not have.",
            found[0],
            "See whether the node lost a card, or the annotation was written by hand. Delete these pods and let their "
            "owner make new ones: the scheduler counts them on no card until then.",
            node.name,
            pods=found[1],
        )


def over_allocated(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """6: cards beyond their size, and what can be seen of the cause."""
    full = _warned(fold, OVER_ALLOCATED)
    if not full:
        return
    differ, changed = _warned(fold, LIMIT_DIFFERS), _warned(fold, UNIT_CHANGED)
    if differ and (named := [pod for pod in differ[1] if pod in full[1]]):
        why = f"The allocation of {', '.join(named[:5])} says another amount than it asks for."
    elif changed and not set(changed[1]).isdisjoint(full[1]):
        why = "Its cards had another number of units when the pods were bound."
    elif any(holding.releasing for gpu in fold.gpus for holding in gpu.holdings):
        why = "Pods that are ending still hold it; if it stays beyond its size without them, two schedulers filled it."
    else:
        why = "Pods that were bound by hand, by two schedulers or under a former mode do this."
    yield Diagnosis(
        "over-allocated",
        6,
        Severity.ERROR,
        f"A card of {node.name} is given out beyond its size."
        if fold.memory_units
        else f"More cards of {node.name} are given out than it has.",
        full[0],
        f"Delete one of the pods; its owner makes a new one where there is room. {why}",
        node.name,
        pods=full[1],
    )


def unreadable_allocation(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """6: pods that are bound and on no card of the ledger: their allocation is missing or cannot be read."""
    blind = _warned(fold, UNREADABLE)
    loose = [holding for holding in fold.unplaced if holding.lost == PENDING]
    if not blind and not loose:
        return
    units, core, cards = (
        sum(getattr(holding, part) for holding in loose) for part in ("memory_units", "core_percent", "cards")
    )
    missing = [
        counted(units, "memory unit") if units else "",
        f"{core}% of compute" if core else "",
        counted(cards, "whole card") if cards else "",
    ]
    said = [blind[0]] if blind else []
    if held := " and ".join(part for part in missing if part):
        said.append(f"On no card: {held} of {counted(len({each.uid for each in loose}), 'pod')}.")
    named = (*(blind[1] if blind else ()), *(f"{each.namespace}/{each.pod}" for each in loose))
    yield Diagnosis(
        "unreadable-allocation",
        6,
        Severity.WARNING,
        f"Pods are bound to {node.name} without an allocation that can be read in full.",
        " ".join(said),
        "Delete these pods and let their owner make new ones: the scheduler counts what cannot be read on no card.",
        node.name,
        pods=tuple(dict.fromkeys(named)),
    )


def another_amount(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """6: pods whose allocation can be read and is not what they ask for."""
    if found := _warned(fold, LIMIT_DIFFERS):
        yield Diagnosis(
            "allocation-differs",
            6,
            Severity.WARNING,
            f"Pods on {node.name} are allocated another amount than they ask for.",
            found[0],
            "ACK counts the allocation. Delete these pods and let their owner make new ones, and see who wrote it.",
            node.name,
            pods=found[1],
        )


def units_changed(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """35: pods from a time when the node's cards had another number of units."""
    if found := _warned(fold, UNIT_CHANGED):
        yield Diagnosis(
            "units-changed",
            35,
            Severity.INFO,
            f"Pods on {node.name} were bound when its cards had another number of units.",
            found[0],
            "Nothing is wrong with them, and the sums are exact again once they have ended. See whether ECC was "
            "switched or the memory unit was changed.",
            node.name,
            pods=found[1],
        )


def no_card_count(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """1: memory without a card count."""
    if found := _warned(fold, NO_CARDS):
        yield Diagnosis(
            "no-card-count",
            1,
            Severity.ERROR,
            f"{node.name} reports memory and no {GPU_COUNT}: shared scheduling skips it.",
            found[0],
            "Restart the device plugin's pod on the node.",
            node.name,
        )


def crowded_card(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """26: more pods on a card than the isolation module takes."""
    if fold.mode not in {Mode.CGPU, Mode.CORE_MEM}:
        return
    for gpu in fold.gpus:
        count = len(gpu.holdings)
        if count >= CROWDED:
            yield Diagnosis(
                "crowded-card",
                26,
                Severity.ERROR if count > MOST_PODS else Severity.WARNING,
                f"GPU{gpu.index} of {node.name} has {count} pods; cGPU takes {CROWDED} to {MOST_PODS} on a card.",
                f"{gpu.memory_units_used} of {gpu.memory_units} units are used.",
                "Give each pod more memory, so that fewer fit, or place by spread.",
                node.name,
                pods=tuple(f"{holding.namespace}/{holding.pod}" for holding in gpu.holdings),
            )


def releasing(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """22: deleted pods that still hold cards."""
    held = [holding for holding in fold.holdings if holding.releasing]
    if held:
        yield Diagnosis(
            "still-releasing",
            22,
            Severity.INFO,
            f"Deleted pods on {node.name} have not given their cards back yet.",
            f"Ending: {counted(len(held), 'pod')} with {counted(fold.memory_units_releasing, 'memory unit')} and "
            f"{counted(fold.cards_releasing, 'card')} of their own.",
            "They are free once the pods have ended. A pod that waits for them may take up to five minutes longer: the "
            "scheduler looks again only then.",
            node.name,
            pods=tuple(f"{holding.namespace}/{holding.pod}" for holding in held),
        )


def _warned(fold: NodeAllocation, *codes: str) -> tuple[str, tuple[str, ...]] | None:
    found = [warning for warning in fold.warnings if warning.code in codes]
    if not found:
        return None
    pods = tuple(dict.fromkeys(pod for warning in found for pod in warning.pods))
    return " ".join(warning.message for warning in found[:5]), pods


_RULES = (
    former_mode,
    unknown_card,
    over_allocated,
    unreadable_allocation,
    another_amount,
    units_changed,
    no_card_count,
    crowded_card,
    releasing,
)


def rules(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """Apply all of these to a node that has a fold."""
    fold = scene.folds.get(node.name)
    if fold is None:
        return
    for rule in _RULES:
        yield from rule(node, fold)


RULES = (rules,)
