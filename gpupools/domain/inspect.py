"""The tables of ``kubectl inspect cgpu``, byte for byte where that tool is right, and one for nodes with whole cards.

Where the tool is wrong the cells are right, and footnotes say what it would print: see footnotes.py.
It only prints folds: no rule lives here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gpupools.domain.allocation import PENDING
from gpupools.domain.footnotes import footnotes, held_before, unit
from gpupools.domain.gpus import UNKNOWN, GpuNode, Holding, NodeAllocation
from gpupools.domain.modes import MODES

PADDING = 2
IN_CLUSTER = "Allocated/Total GPU Memory In Cluster:"


def table(
    allocations: Sequence[NodeAllocation],
    nodes: Mapping[str, GpuNode],
    *,
    namespaces: Collection[str] | None = None,
) -> str:
    """Return the summary table of nodes that report shared memory, in the order given.

    ``nodes`` by name tell addresses and cards. Like the tool: PENDING is what is bound without a readable
    allocation, and a card that a node does not have shows ``0/0``. What is claimed of such a card counts in the sum of
    the node and of the cluster. Nodes on which a former mode still holds memory come last, and count in no sum.
    Footnotes name pods of ``namespaces`` (None: all).
    """
    shared, former = _parted(allocations)
    columns = max((len(node.gpus) for node in shared), default=0)
    has_pending = any(node.memory_units_pending for node in shared)
    header = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(columns))]
    header += ["PENDING(Allocated)"] if has_pending else []
    rows = [[*header, f"GPU Memory({unit(shared)})"]]
    for node in [*shared, *former]:
        cells = [f"{gpu.memory_units_used}/{gpu.memory_units}" for gpu in node.gpus] if node.memory_units else []
        row = [node.node, _address(nodes, node), *cells, *["0/0"] * (columns - len(cells))]
        row += [str(node.memory_units_pending or "")] if has_pending else []
        rows.append([*row, f"{_held(node)}/{node.memory_units}"])
    text = _framed(rows, IN_CLUSTER, _used(shared), _total(shared))
    return text + _lines(footnotes(shared, former, nodes, columns=columns, namespaces=namespaces))


def details(
    allocations: Sequence[NodeAllocation],
    nodes: Mapping[str, GpuNode],
    *,
    namespaces: Collection[str] | None = None,
) -> str:
    """Return the tool's ``-d``: every node that reports shared memory with its pods, one line per pod.

    Like the tool, what is claimed of cards that are not there counts in the sums. Pods come by the first card
    that they hold, pending ones first; a footnote names what stands in no column. Nodes on which a former mode still
    holds memory come last, and count in no sum of the cluster.
    """
    shared, former = _parted(allocations)
    rows: list[list[str]] = []
    dashes = ""
    for node in [*shared, *former]:
        rows += [[""], ["NAME:", node.node], ["IPADDRESS:", _address(nodes, node)], [""]]
        pending = ["Pending(Allocated)"] if node.memory_units_pending else []
        gpus = node.gpus if node.memory_units else ()
        rows.append(["NAME", "NAMESPACE", *(f"GPU{gpu.index}(Allocated)" for gpu in gpus), *pending, ""])
        pods = [
            [each.pod, each.namespace, *(str(units) for units in cards), *([str(waiting)] if pending else []), ""]
            for each, cards, waiting in (_pod_rows(node) if node.memory_units else _former_rows(node))
        ]
        rows += pods
        # The first node's pods set the length of every rule: their bytes with one separator per cell, plus 10.
        dashes = dashes or "-" * (sum(len("\t".join(row).encode()) + 1 for row in pods) + 10)
        used = _held(node)
        rows += [["Allocated :", f"{used} ({_percent(used, node.memory_units)}%)", ""]]
        rows += [["Total :", f"{node.memory_units} ", ""], [dashes]]
    used, total = _used(shared), _total(shared)
    rows += [[""], [""], [IN_CLUSTER, f"{used}/{total} ({_percent(used, total)}%)", ""]]
    return _lines(_tabbed(rows)) + _lines(footnotes(shared, former, nodes, namespaces=namespaces))


def _parted(allocations: Sequence[NodeAllocation]) -> tuple[list[NodeAllocation], list[NodeAllocation]]:
    """Part the nodes that report shared memory from those on which only a former mode holds some."""
    shared = [node for node in allocations if node.memory_units > 0]
    return shared, [node for node in allocations if held_before(node)]


def _before(node: NodeAllocation) -> int:
    return sum(holding.memory_units for holding in held_before(node))


def _held(node: NodeAllocation) -> int:
    return node.memory_units_used + _before(node)


def _address(nodes: Mapping[str, GpuNode], node: NodeAllocation) -> str:
    found = nodes.get(node.node)
    return (found.ip if found else "") or UNKNOWN


def _used(nodes: Iterable[NodeAllocation]) -> int:
    return sum(node.memory_units_used for node in nodes)


def _total(nodes: Iterable[NodeAllocation]) -> int:
    return sum(node.memory_units for node in nodes)


def _former_rows(node: NodeAllocation) -> list[tuple[Holding, list[int], int]]:
    return [(holding, [], 0) for holding in held_before(node)]


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


def document(allocations: Sequence[NodeAllocation], nodes: Mapping[str, GpuNode]) -> dict[str, Any]:
    """Return what the tables show as one value for JSON, with the summary's footnotes.

    Figures are memory units; ``unit`` is the word in the table's head, and ``unit_mib`` null is unknown.
    ``memory_units_former`` is what a former mode of a node still holds; it is in no other figure but the orphans'.
    """
    shared, former = _parted(allocations)
    used, total = _used(shared), _total(shared)
    columns = max((len(node.gpus) for node in shared), default=0)
    return {
        "nodes": [_document_of(node, _address(nodes, node)) for node in [*shared, *former]],
        "unit": unit(shared),
        "memory_units": total,
        "memory_units_used": used,
        "memory_units_former": sum(_before(node) for node in former),
        "percent": _percent(used, total),
        "footnotes": footnotes(shared, former, nodes, columns=columns),
    }


def _document_of(node: NodeAllocation, ip: str) -> dict[str, Any]:
    return {
        "name": node.node,
        "ip": None if ip == UNKNOWN else ip,
        "mode": node.mode.value if node.mode else None,
        "policy": node.policy.value,
        "unit_mib": node.unit_mib,
        "memory_units": node.memory_units,
        "memory_units_used": node.memory_units_used,
        "memory_units_releasing": node.memory_units_releasing,
        "memory_units_pending": node.memory_units_pending,
        "memory_units_orphan": node.memory_units_orphan,
        "memory_units_former": _before(node),
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
