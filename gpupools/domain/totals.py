"""Sums of folds: per mode and over everything. It only adds up; what is counted is decided by the fold."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpupools.domain.gpus import NodeAllocation
from gpupools.domain.modes import Mode


class ModeTotals(msgspec.Struct, frozen=True):
    """Sums over nodes: of one mode, or of all when ``mode`` is None in ``Totals.all``."""

    mode: Mode | None = None
    nodes: int = 0
    cards: int = 0
    cards_used: int = 0
    cards_releasing: int = 0
    cards_missing: int = 0
    memory_units: int = 0
    memory_units_used: int = 0
    memory_units_releasing: int = 0
    memory_units_pending: int = 0
    memory_units_orphan: int = 0
    core_percent: int = 0
    core_percent_used: int = 0


class Totals(msgspec.Struct, frozen=True):
    """Sums per mode, in the order of ``Mode`` with the unknown mode last, and over everything."""

    modes: tuple[ModeTotals, ...]
    all: ModeTotals


_SUMMED = tuple(name for name in ModeTotals.__struct_fields__ if name not in {"mode", "nodes"})


def totals(allocations: Iterable[NodeAllocation]) -> Totals:
    """Sum allocations per mode; modes without a node are left out."""
    groups: dict[Mode | None, list[NodeAllocation]] = {mode: [] for mode in (*Mode, None)}
    for allocation in allocations:
        groups[allocation.mode].append(allocation)
    everything = [allocation for group in groups.values() for allocation in group]
    modes = tuple(_sum(mode, group) for mode, group in groups.items() if group)
    return Totals(modes=modes, all=_sum(None, everything))


def _sum(mode: Mode | None, group: list[NodeAllocation]) -> ModeTotals:
    sums = {name: sum(getattr(allocation, name) for allocation in group) for name in _SUMMED}
    return ModeTotals(mode=mode, nodes=len(group), **sums)
