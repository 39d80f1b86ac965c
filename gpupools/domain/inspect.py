"""The tables of ``kubectl inspect cgpu``, byte for byte, and one of the same make for nodes with whole cards.

It only prints folds: no rule lives here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpupools.domain.allocation import FORMER_MODE, PENDING, UNKNOWN_CARD
from gpupools.domain.gpus import UNKNOWN, Holding, NodeAllocation
from gpupools.domain.modes import MODES

PADDING = 2
# The tool calls the unit MiB when a card of the first node has more units than this.
MOST_GIB_UNITS = 100
UNIT_WORDS = {1024: "GiB", 128: "128 MiB", 1: "MiB"}


def table(
    allocations: Sequence[NodeAllocation], ips: Mapping[str, str], *, namespaces: frozenset[str] | None = None
) -> str:
    """Return the summary table of nodes that report shared memory, in the order given.

    ``ips`` has the InternalIP by node name. Like the tool: PENDING is what is bound without a readable
    allocation; a card that a node does not have shows ``0/0``, or what pods claim of it; what is claimed of
    cards beyond the last column is left out. Where the tool is wrong, footnotes below the table say so; they name
    pods of ``namespaces`` (None: all).
    """
    nodes = _sharing(allocations)
    columns = max((len(node.gpus) for node in nodes), default=0)
    has_pending = any(node.memory_units_pending for node in nodes)
    header = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(columns))]
    header += ["PENDING(Allocated)"] if has_pending else []
    rows = [[*header, f"GPU Memory({_guessed_unit(nodes)})"]]
    used_in_cluster = 0
    for node in nodes:
        cards = [_card(node, index) for index in range(columns)]
        used = sum(held for held, _ in cards) + node.memory_units_pending
        used_in_cluster += used
        row = [node.node, ips.get(node.node) or UNKNOWN, *(f"{held}/{total}" for held, total in cards)]
        row += [str(node.memory_units_pending or "")] if has_pending else []
        rows.append([*row, f"{used}/{node.memory_units}"])
    total = sum(node.memory_units for node in nodes)
    text = _framed(rows, "Allocated/Total GPU Memory In Cluster:", used_in_cluster, total)
    return text + _lines(footnotes(allocations, namespaces=namespaces))


def details(
    allocations: Sequence[NodeAllocation], ips: Mapping[str, str], *, namespaces: frozenset[str] | None = None
) -> str:
    """Return the tool's ``-d``: every node that reports shared memory with its pods, one line per pod.

    Like the tool, what is claimed of cards that are not there counts in the sums. Pods come by the first card
    that they hold, pending ones first; a footnote names what stands in no column.
    """
    nodes = _sharing(allocations)
    rows: list[list[str]] = []
    dashes = ""
    for node in nodes:
        rows += [[""], ["NAME:", node.node], ["IPADDRESS:", ips.get(node.node) or UNKNOWN], [""]]
        pending = ["Pending(Allocated)"] if node.memory_units_pending else []
        rows.append(["NAME", "NAMESPACE", *(f"GPU{gpu.index}(Allocated)" for gpu in node.gpus), *pending, ""])
        pods = [
            [each.pod, each.namespace, *(str(units) for units in cards), *([str(waiting)] if pending else []), ""]
            for each, cards, waiting in _pod_rows(node)
        ]
        rows += pods
        # The first node's pods set the length of every rule: their bytes with one separator per cell, plus 10.
        dashes = dashes or "-" * (sum(len("\t".join(row).encode()) + 1 for row in pods) + 10)
        used = node.memory_units_used
        rows += [["Allocated :", f"{used} ({_percent(used, node.memory_units)}%)", ""]]
        rows += [["Total :", f"{node.memory_units} ", ""], [dashes]]
    used, total = sum(node.memory_units_used for node in nodes), sum(node.memory_units for node in nodes)
    rows += [[""], [""], ["Allocated/Total GPU Memory In Cluster:", f"{used}/{total} ({_percent(used, total)}%)", ""]]
    return _lines(_tabbed(rows)) + _lines(footnotes(allocations, namespaces=namespaces))


def _sharing(allocations: Sequence[NodeAllocation]) -> list[NodeAllocation]:
    return [allocation for allocation in allocations if allocation.memory_units > 0]


def _pod_rows(node: NodeAllocation) -> list[tuple[Holding, list[int], int]]:
    """Return each pod with its units per card and its pending units, by the first place that it holds."""
    count = len(node.gpus)
    units: dict[str, list[int]] = {}
    on_cards = [(index, holding) for index, gpu in enumerate(node.gpus) for holding in gpu.holdings]
    for index, holding in on_cards:
        units.setdefault(holding.uid, [0] * count)[index] += holding.memory_units
    lost = [holding for holding in node.unplaced if holding.memory_units]
    pending = {holding.uid: holding.memory_units for holding in lost if holding.lost == PENDING}
    lost.sort(key=lambda holding: holding.lost != PENDING)
    order = [*lost[: len(pending)], *(holding for _, holding in on_cards), *lost[len(pending) :]]
    rows: dict[str, tuple[Holding, list[int], int]] = {}
    for holding in order:
        uid = holding.uid
        rows.setdefault(uid, (holding, units.get(uid, [0] * count), pending.get(uid, 0)))
    return list(rows.values())


def _card(node: NodeAllocation, index: int) -> tuple[int, int]:
    if index < len(node.gpus):
        gpu = node.gpus[index]
        return gpu.memory_units_used, gpu.memory_units
    if index in node.strays:
        return node.strays[index], node.gpus[0].memory_units if node.gpus else 0
    return 0, 0


def _guessed_unit(nodes: Sequence[NodeAllocation]) -> str:
    if not nodes:
        return ""
    first = nodes[0]
    units = first.gpus[0].memory_units if first.gpus else 0
    return "MiB" if units > MOST_GIB_UNITS else "GiB"


def footnotes(allocations: Sequence[NodeAllocation], *, namespaces: frozenset[str] | None = None) -> list[str]:
    """Say in sentences where the tool's table is wrong or leaves something out, naming pods of these namespaces."""
    nodes = _sharing(allocations)
    return [
        *_unit_notes(nodes),
        *_card_notes(nodes),
        *(note for node in allocations for note in _lost_notes(node, namespaces)),
    ]


def _unit_notes(nodes: Sequence[NodeAllocation]) -> list[str]:
    """Name the nodes whose unit is known and is not the one in the header."""
    guess = _guessed_unit(nodes)
    wrong: dict[str, list[str]] = {}
    for node in nodes:
        word = UNIT_WORDS.get(node.unit_mib or 0, "")
        if word and word != guess:
            wrong.setdefault(word, []).append(node.node)
    return [
        f"One unit of GPU memory is {word if word[0].isdigit() else f'1 {word}'}, not 1 {guess}, on: {', '.join(names)}"
        for word, names in wrong.items()
    ]


def _card_notes(nodes: Sequence[NodeAllocation]) -> list[str]:
    """Name nodes whose units are no multiple of their cards: the tool gives each the same and loses the rest."""
    notes = []
    for node in nodes:
        cards = len(node.gpus)
        if not cards:
            notes.append(f"{node.node} reports {_units(node.memory_units)}, but no cards.")
        elif rest := node.memory_units % cards:
            notes.append(
                f"{node.node} reports {_units(node.memory_units)} on {cards} cards: {rest} of them "
                f"{'stands' if rest == 1 else 'stand'} on no card. The cards may not be alike."
            )
    return notes


def _lost_notes(node: NodeAllocation, namespaces: frozenset[str] | None) -> list[str]:
    """Name what is held on cards that are not there, or since before the node changed its mode."""
    notes = []
    if stray := [each for each in node.unplaced if each.lost == UNKNOWN_CARD and each.memory_units]:
        where = ", ".join(f"GPU{index}" for index in sorted(node.strays))
        notes.append(
            f"{node.node} has {len(node.gpus)} {'card' if len(node.gpus) == 1 else 'cards'}, but "
            f"{_units(sum(each.memory_units for each in stray))} are allocated on {where}: {_names(stray, namespaces)}"
        )
    if former := [each for each in node.unplaced if each.lost == FORMER_MODE and each.memory_units]:
        notes.append(
            f"{node.node} is in another mode now; {_units(sum(each.memory_units for each in former))} are still "
            f"allocated from a former one and stand in no row: {_names(former, namespaces)}"
        )
    return notes


def _units(count: int) -> str:
    return f"{count} {'unit' if count == 1 else 'units'}"


def _names(holdings: Sequence[Holding], namespaces: frozenset[str] | None) -> str:
    seen = [each for each in holdings if namespaces is None or each.namespace in namespaces]
    names = [f"{each.namespace}/{each.pod}" for each in seen]
    if hidden := len(holdings) - len(seen):
        names.append(f"{hidden} {'pod' if hidden == 1 else 'pods'} of other namespaces")
    return ", ".join(names)


def document(allocations: Sequence[NodeAllocation], ips: Mapping[str, str]) -> dict[str, Any]:
    """Return what the tables show as one value for JSON. Units are memory units; ``unit_mib`` null is unknown."""
    nodes = _sharing(allocations)
    used, total = sum(node.memory_units_used for node in nodes), sum(node.memory_units for node in nodes)
    return {
        "nodes": [_document_of(node, ips.get(node.node) or None) for node in nodes],
        "memory_units": total,
        "memory_units_used": used,
        "percent": _percent(used, total),
        "footnotes": footnotes(allocations),
    }


def _document_of(node: NodeAllocation, ip: str | None) -> dict[str, Any]:
    return {
        "name": node.node,
        "ip": ip,
        "mode": node.mode.value if node.mode else None,
        "policy": node.policy.value,
        "unit_mib": node.unit_mib,
        "memory_units": node.memory_units,
        "memory_units_used": node.memory_units_used,
        "memory_units_releasing": node.memory_units_releasing,
        "memory_units_pending": node.memory_units_pending,
        "memory_units_orphan": node.memory_units_orphan,
        "core_percent": node.core_percent,
        "core_percent_used": node.core_percent_used,
        "gpus": [
            {
                "index": gpu.index,
                "healthy": gpu.healthy,
                "memory_units": gpu.memory_units,
                "memory_units_used": gpu.memory_units_used,
                "memory_units_releasing": gpu.memory_units_releasing,
                "core_percent": gpu.core_percent,
                "core_percent_used": gpu.core_percent_used,
                "pods": [_pod_of(holding) for holding in gpu.holdings],
            }
            for gpu in node.gpus
        ],
        "unplaced": [{**_pod_of(holding), "why": holding.lost} for holding in node.unplaced],
    }


def _pod_of(holding: Holding) -> dict[str, Any]:
    return {
        "namespace": holding.namespace,
        "name": holding.pod,
        "memory_units": holding.memory_units,
        "core_percent": holding.core_percent,
        "releasing": holding.releasing,
    }


def whole_table(allocations: Sequence[NodeAllocation]) -> str:
    """Return a table of the nodes that hand out whole cards, in the order given, under a title line."""
    nodes = [node for node in allocations if node.memory_units == 0 and (node.cards or node.cards_used)]
    rows = [["NAME", "MODE", "GPUs(Allocated/Total)"]]
    for node in nodes:
        mode = MODES[node.mode].label_value if node.mode else UNKNOWN
        rows.append([node.node, mode, f"{node.cards_used}/{node.cards}"])
    used, total = sum(node.cards_used for node in nodes), sum(node.cards for node in nodes)
    return "Whole GPUs:\n" + _framed(rows, "Allocated/Total GPUs In Cluster:", used, total)


def _framed(rows: Sequence[Sequence[str]], title: str, used: int, total: int) -> str:
    # The tool rules off by the bytes of its first row before alignment, one separator per cell, plus 20.
    first = rows[1] if len(rows) > 1 else []
    dashes = "-" * (sum(len(cell.encode()) for cell in first) + len(first) + 20 if first else 0)
    row = [f"{used}/{total} ({_percent(used, total)}%)", ""]
    return _lines([*_tabbed(rows), dashes, title, *_tabbed([row])])


def _percent(used: int, total: int) -> int:
    # In floating point and cut, as the tool reckons it: 29 of 100 are 28 per cent to both.
    return int(used / total * 100) if total else 0


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _tabbed(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay rows out as Go's tabwriter does: the last cell of a row stands free, the others end at a tab stop.

    A column reaches over the rows next to each other that have it, and is as wide as its widest cell plus two.
    """
    widths: list[list[int]] = [[0] * (len(row) - 1) for row in rows]
    for column in range(max((len(row) - 1 for row in rows), default=0)):
        start = 0
        while start < len(rows):
            end = start
            while end < len(rows) and len(rows[end]) - 1 > column:
                end += 1
            width = max((len(row[column]) for row in rows[start:end]), default=0) + PADDING
            for number in range(start, end):
                widths[number][column] = width
            start = max(end, start + 1)
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, own, strict=False)) + row[-1]
        for row, own in zip(rows, widths, strict=True)
    ]
