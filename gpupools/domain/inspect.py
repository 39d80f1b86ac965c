"""The table of ``kubectl inspect cgpu``, byte for byte, and one of the same make for nodes with whole cards.

It only prints folds: no rule lives here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpupools.domain.gpus import UNKNOWN, NodeAllocation
from gpupools.domain.modes import MODES

PADDING = 2
# The tool calls the unit MiB when a card of the first node has more units than this.
MOST_GIB_UNITS = 100
UNIT_WORDS = {1024: "GiB", 128: "128 MiB", 1: "MiB"}


def table(allocations: Sequence[NodeAllocation], ips: Mapping[str, str]) -> str:
    """Return the summary table of nodes that report shared memory, in the order given.

    ``ips`` has the InternalIP by node name. Like the tool: PENDING is what is bound without a readable
    allocation; a card that a node does not have shows ``0/0``, or what pods claim of it; what is claimed of
    cards beyond the last column is left out. The tool guesses the unit; a last line corrects a wrong guess.
    """
    nodes = [allocation for allocation in allocations if allocation.memory_units > 0]
    columns = max((len(node.gpus) for node in nodes), default=0)
    has_pending = any(node.memory_units_pending for node in nodes)
    guess = _guessed_unit(nodes)
    header = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(columns))]
    header += ["PENDING(Allocated)"] if has_pending else []
    rows = [[*header, f"GPU Memory({guess})"]]
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
    return text + _footnote(nodes, guess)


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


def _footnote(nodes: Sequence[NodeAllocation], guess: str) -> str:
    """Name the nodes whose unit is known and is not the one in the header."""
    wrong: dict[str, list[str]] = {}
    for node in nodes:
        word = UNIT_WORDS.get(node.unit_mib or 0, "")
        if word and word != guess:
            wrong.setdefault(word, []).append(node.node)
    lines = []
    for word, names in wrong.items():
        size = word if word[0].isdigit() else f"1 {word}"
        lines.append(f"One unit of GPU memory is {size}, not 1 {guess}, on: {', '.join(names)}\n")
    return "".join(lines)


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
    percent = 100 * used // total if total else 0
    lines = [*_aligned(rows), dashes, title, f"{used}/{total} ({percent}%)" + " " * PADDING]
    return "".join(f"{line}\n" for line in lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Pad all cells but a row's last to the widest of their column plus two, as Go's tabwriter does."""
    widths = [max(len(cell) for cell in column) + PADDING for column in zip(*rows, strict=True)]
    return ["".join(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)) + row[-1] for row in rows]
