"""Nodes' verdicts of a preview beside the nodes, ready for a table. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpupools.domain.filters import explained
from gpupools.domain.gpus import Ask
from gpupools.domain.placement import Preview, Verdict
from gpupools.web.lines import NodeLine

ORDER = ("chosen", "tie", "fits", "rejected")


@dataclass(frozen=True, slots=True)
class Landing:
    """A node's verdict beside the node. ``details`` name, by code, the taints and labels that are in the way."""

    verdict: Verdict
    row: NodeLine | None
    state: str
    details: dict[str, str]


def landings(preview: Preview, ask: Ask, lines: Iterable[NodeLine]) -> list[Landing]:
    """Return the nodes' verdicts, the chosen one first, then what fits, then the GPU nodes that do not."""
    by_name = {line.facts.name: line for line in lines}
    found = [
        Landing(verdict, line, _word(preview, verdict), explained(ask, line.facts.node) if line else {})
        for verdict in preview.verdicts
        for line in [by_name.get(verdict.node)]
    ]
    gpu_first = [each for each in found if each.state != "rejected" or (each.row and each.row.row)]
    return sorted(gpu_first, key=lambda each: (ORDER.index(each.state), each.verdict.node))


def _word(preview: Preview, verdict: Verdict) -> str:
    if verdict.node == preview.chosen:
        return "chosen"
    if verdict.node in preview.tie_nodes:
        return "tie"
    return "fits" if verdict.fits else "rejected"
