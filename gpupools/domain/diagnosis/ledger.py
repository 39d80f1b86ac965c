"""Rules about who holds a node's cards: former modes, unreadable allocations, over-full and crowded cards."""

from __future__ import annotations

from collections.abc import Iterator

from gpupools.domain.allocation import (
    FORMER_MODE,
    LIMIT_DIFFERS,
    NO_CARDS,
    OVER_ALLOCATED,
    UNIT_CHANGED,
    UNKNOWN_CARD,
)
from gpupools.domain.annotations import UNREADABLE
from gpupools.domain.diagnosis.scene import Diagnosis, Scene, Severity
from gpupools.domain.gpus import GpuNode, NodeAllocation
from gpupools.domain.modes import GPU_COUNT, Mode

# ACK names 20 pods to a card as cGPU's limit in one place and 16 in another: warn from the lower one.
CROWDED = 16
MOST_PODS = 20


def former_mode(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """5: pods that hold cards by a mode that the node has left."""
    if found := _warned(fold, FORMER_MODE, UNKNOWN_CARD):
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


def unreadable_allocation(node: GpuNode, fold: NodeAllocation) -> Iterator[Diagnosis]:
    """6: pods whose allocation the scheduler's ledger does not have, and cards beyond their size."""
    full = _warned(fold, OVER_ALLOCATED)
    blind = _warned(fold, UNREADABLE, LIMIT_DIFFERS, UNIT_CHANGED)
    if full:
        yield Diagnosis(
            "over-allocated",
            6,
            Severity.ERROR,
            f"A card of {node.name} is given out beyond its size.",
            full[0],
            "Delete one of the pods; it comes back where there is room. A mode that was switched under pods does this.",
            node.name,
            pods=full[1],
        )
    if blind or fold.memory_units_pending:
        unplaced = tuple(f"{holding.namespace}/{holding.pod}" for holding in fold.unplaced)
        yield Diagnosis(
            "unreadable-allocation",
            6,
            Severity.WARNING,
            f"Pods are bound to {node.name} without an allocation that can be read.",
            blind[0] if blind else f"{fold.memory_units_pending} units are on no card.",
            "Delete these pods and let their owner make new ones: the scheduler counts them on no card until then.",
            node.name,
            pods=blind[1] if blind else unplaced,
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
                f"{gpu.memory_units_used} of {gpu.memory_units} units are used by {count} pods.",
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
            f"{len(held)} pods are ending: {fold.memory_units_releasing} units, {fold.cards_releasing} cards.",
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


def rules(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """Apply all of these to a node that has a fold."""
    fold = scene.folds.get(node.name)
    if fold is None:
        return
    for rule in (former_mode, unreadable_allocation, no_card_count, crowded_card, releasing):
        yield from rule(node, fold)


RULES = (rules,)
