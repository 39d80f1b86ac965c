"""What a person should know of a node pool although nothing forbids it: mixing, and what cannot be known. Pure.

The best practice behind it is ACK's: one pool per scheduling mode, with nodes that are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpupools.domain.gpus import GpuNode
from gpupools.domain.instances import BY_NAME
from gpupools.domain.modes import MODES, Mode


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to know, with a stable code."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as advice looks at it. ``labels``: all that it wants on its nodes, those of its mode among them."""

    name: str
    mode: Mode | None
    labels: Mapping[str, str] = field(default_factory=dict)
    instance_types: Sequence[str] = ()
    scaling_kind: str = ""
    nodes: Sequence[GpuNode] = ()


def of_pool(pool: PoolView, others: Iterable[PoolView]) -> list[Advice]:
    """Return everything to know of a pool beside the other pools of its cluster."""
    return [*_mixed_modes(pool), *_mixed_cards(pool), *_unknown_types(pool), *_twins(pool, others), *_scaling(pool)]


def scaling_kind_for(mode: Mode) -> str:
    """Return the type of auto scaling that counts what this mode hands out: ACK never changes it afterwards."""
    return "gpushare" if MODES[mode].shared else "gpu"


def _mixed_modes(pool: PoolView) -> Iterator[Advice]:
    found = Counter(_mode_of(node) for node in pool.nodes if node.is_gpu)
    if len(found) > 1:
        yield Advice(
            "mixed-modes",
            f"The nodes of {pool.name} are in several modes: {_counted(found)}. "
            "Use one pool per mode: what its labels promise holds for only some of these nodes.",
        )


def _mixed_cards(pool: PoolView) -> Iterator[Advice]:
    found = Counter(node.card_model for node in pool.nodes if node.card_model)
    coming = sorted({BY_NAME[name].card for name in pool.instance_types if name in BY_NAME})
    if len(found) > 1:
        yield Advice(
            "mixed-cards", f"The nodes of {pool.name} have cards of several models: {_counted(found)}. {_ALIKE}"
        )
    elif len(coming) > 1:
        yield Advice(
            "mixed-cards", f"Machines with different cards may come into {pool.name}: {', '.join(coming)}. {_ALIKE}"
        )


_ALIKE = (
    "A unit of memory is a part of the card that a pod gets, so the same request means different amounts; "
    "a pool per model, or a node selector on aliyun.accelerator/nvidia_name, keeps them apart."
)


def _unknown_types(pool: PoolView) -> Iterator[Advice]:
    unknown = [name for name in pool.instance_types if name not in BY_NAME]
    if unknown and not pool.nodes:
        yield Advice(
            "unknown-type",
            f"The console does not know {', '.join(unknown)}: which cards it has, how many, and how much memory each "
            "has are unknown until the first node has joined and says so.",
        )


def _twins(pool: PoolView, beside: Iterable[PoolView]) -> Iterator[Advice]:
    if pool.mode is None:
        return
    others = tuple(beside)
    own = pool.labels.items()
    same = sorted(other.name for other in others if other.mode is not None and other.labels.items() == own)
    within = sorted(other.name for other in others if other.mode is not None and other.labels.items() < own)
    around = sorted(other.name for other in others if other.mode is not None and own < other.labels.items())
    hint = "A label that only one of them has tells them apart."
    if same:
        yield Advice(
            "same-labels",
            f"{_and(same)} {'wants' if len(same) == 1 else 'want'} the same labels on nodes as {pool.name}: a pod that "
            f"selects nodes by them fits in either. {hint}",
        )
    if within:
        yield Advice(
            "fits-two-pools",
            f"Nodes of {pool.name} carry every label of {_and(within)} too: a pod that selects nodes by those may land "
            f"here as well. {hint}",
        )
    if around:
        yield Advice(
            "fits-two-pools",
            f"Nodes of {_and(around)} carry every label of {pool.name} too: a pod that selects nodes by them may land "
            f"there as well. {hint}",
        )


def _scaling(pool: PoolView) -> Iterator[Advice]:
    if pool.mode is None or not pool.scaling_kind or pool.scaling_kind == "spot":
        return
    fitting = scaling_kind_for(pool.mode)
    if pool.scaling_kind != fitting:
        yield Advice(
            "scaling-type",
            f"Auto scaling of type {pool.scaling_kind} does not follow what mode {pool.mode.value} hands out; "
            f"{fitting} does. ACK does not change the type after it was set.",
        )


def _mode_of(node: GpuNode) -> str:
    return node.declared.value if node.declared else "unknown"


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(found.items()))


def _and(names: Sequence[str], most: int = 5) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
