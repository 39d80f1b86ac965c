"""The card glyph: one bar per card, a slot per whole card, from a wire row of a node.

Pure arithmetic on the row that the API and the socket send too; static/js/glyphs.js draws the same row the
same way, and a browser test compares the two. It knows no template and no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 96
SLOT = 16
GAP = 3
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a bar, in pixels from its left end. ``shade``: a or b, in turn by holder."""

    x: int
    width: int
    shade: str
    releasing: bool
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One card of a shared node. ``scale`` is what the full width stands for: above the total when over-allocated."""

    index: int
    used: int
    total: int
    segments: tuple[Segment, ...]
    core: tuple[Segment, ...]
    core_used: int
    core_total: int
    limit_x: int | None
    healthy: bool
    holders: int

    @property
    def over(self) -> bool:
        """Whether more is allocated than the card has."""
        return self.limit_x is not None


@dataclass(frozen=True, slots=True)
class Slots:
    """The whole cards of a node, taken ones first: the API server does not say which card a pod has.

    ``indexed`` is true where the cards' numbers are known (topology); each slot is then (segment or None).
    """

    used: int
    total: int
    width: int
    indexed: bool
    segments: tuple[Segment | None, ...]
    limit_x: int | None


def edges(values: Iterable[int], scale: int, width: int = WIDTH) -> list[tuple[int, int]]:
    """Turn amounts into (x, width) in whole pixels; rounding never accumulates, and nothing held is invisible."""
    spans, before = [], 0
    for value in values:
        start = before * width * 2 // scale + 1 >> 1
        before += value
        end = before * width * 2 // scale + 1 >> 1
        spans.append((start, max(end - start, 1 if value else 0)))
    return spans


def bar(gpu: Row) -> Bar:
    """Draw one card of a shared node."""
    held = [holding for holding in gpu["holdings"] if holding["memory_units"]]
    total, used = gpu["memory_units"], gpu["memory_units_used"]
    amounts = [holding["memory_units"] for holding in held]
    scale = max(total, sum(amounts), 1)
    core_total = gpu["core_percent"]
    cores = [holding["core_percent"] for holding in held]
    core_scale = max(core_total, sum(cores), 1)
    return Bar(
        index=gpu["index"],
        used=used,
        total=total,
        segments=_segments(held, edges(amounts, scale)),
        core=_segments(held, edges(cores, core_scale)) if core_total else (),
        core_used=gpu["core_percent_used"],
        core_total=core_total,
        limit_x=edges([total], scale)[0][1] if sum(amounts) > total else None,
        healthy=gpu["healthy"],
        holders=len({holding["uid"] for holding in held}),
    )


def slots(row: Row) -> Slots:
    """Draw the whole cards of an exclusive or topology node."""
    total, used = row["cards"], row["cards_used"]
    taken: list[tuple[Row, str] | None]
    indexed = bool(row["gpus"])
    if indexed:
        taken = []
        order: dict[str, int] = {}
        for gpu in row["gpus"]:
            holding = next(iter(gpu["holdings"]), None)
            if holding is not None:
                order.setdefault(holding["uid"], len(order))
            taken.append(None if holding is None else (holding, "ab"[order[holding["uid"]] % 2]))
    else:
        taken = [
            (holding, "ab"[place % 2]) for place, holding in enumerate(row["holdings"]) for _ in range(holding["cards"])
        ]
    taken += [None] * (total - len(taken))
    segments = tuple(
        None if entry is None else Segment(place * (SLOT + GAP), SLOT, entry[1], entry[0]["releasing"], _name(entry[0]))
        for place, entry in enumerate(taken)
    )
    width = max(len(segments) * (SLOT + GAP) - GAP, SLOT)
    over = total * (SLOT + GAP) - 2 if len(segments) > total else None
    return Slots(used, total, width, indexed, segments, over)


def is_shared(row: Row) -> bool:
    """Whether the row's cards are shared in memory units."""
    return bool(row["memory_units"]) or any(gpu["memory_units"] for gpu in row["gpus"])


def _segments(held: Sequence[Row], spans: Sequence[tuple[int, int]]) -> tuple[Segment, ...]:
    return tuple(
        Segment(x, width, "ab"[place % 2], holding["releasing"], _name(holding))
        for place, (holding, (x, width)) in enumerate(zip(held, spans, strict=True))
    )


def _name(holding: Row) -> str:
    return f"{holding['namespace']}/{holding['pod']}" if holding["namespace"] else holding["pod"]
