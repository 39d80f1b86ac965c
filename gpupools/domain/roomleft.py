"""The most that one ask could get where it does not fit: of which resource too little is left, and how much is.

It looks at the nodes that would take the pod if they had more; it knows no pool and tries nothing out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gpupools.domain.asks import limit_of
from gpupools.domain.gpus import Ask
from gpupools.domain.modes import GPU_CORE, GPU_MEM
from gpupools.domain.quantities import format_quantity
from gpupools.domain.verdicts import NodeState, Preview, Rejection, Verdict
from gpupools.domain.wishes import Wish, wish

OUT_OF_REACH = frozenset({"unschedulable", "name", "taint", "affinity", "ports", "mode"})
SHARES = (GPU_MEM, GPU_CORE)


class LargestFree(msgspec.Struct, frozen=True):
    """The most that one ask could get now on a node that would take the pod: of one card, or of the whole node.

    ``amount`` counts as ``GpuNode.allocatable`` does, ``text`` is it as a quantity; ``gpu`` is None where it is not of
    one card.
    """

    node: str
    resource: str
    amount: int
    gpu: int | None = None

    @property
    def text(self) -> str:
        """The amount as a quantity: ``500m``, ``16Gi``, ``4``."""
        return format_quantity(self.resource, self.amount)


def largest_free(ask: Ask, states: Sequence[NodeState], found: Preview) -> tuple[LargestFree, ...]:
    """Return the most that is free of each resource that is short, the one that is nearest to what is asked for first.

    Nodes that are short of one thing come before those that are short of several: there, asking for less of it would
    do. Empty when no node in reach has anything free.
    """
    wanted = wish(ask)
    best: dict[str, tuple[tuple[int, float, str], LargestFree]] = {}
    for state, verdict in zip(states, found.verdicts, strict=True):
        if any(rejection.code in OUT_OF_REACH for rejection in verdict.rejections):
            continue
        for lacking, asked, free in _short(wanted, state, verdict):
            rank = (lacking, -free.amount / asked, free.node)
            if free.amount > 0 and (free.resource not in best or rank < best[free.resource][0]):
                best[free.resource] = (rank, free)
    return tuple(free for _, free in sorted(best.values(), key=lambda entry: entry[0]))


def _short(wanted: Wish, state: NodeState, verdict: Verdict) -> Iterator[tuple[int, int, LargestFree]]:
    """Yield what one node is short of: of how many resources it is, what is asked for, and what it has."""
    short = {each.resource: each for each in verdict.rejections if each.resource}
    others = [name for name in short if name not in SHARES]
    shared = [name for name in SHARES if name in short]
    if shared:
        for lacking, asked, free in _of_cards(wanted, state):
            yield lacking + len(others), asked, free
    for name in others:
        each: Rejection = short[name]
        yield len(others) + len(shared), each.asked, LargestFree(state.node.name, name, each.free)


def _of_cards(wanted: Wish, state: NodeState) -> Iterator[tuple[int, int, LargestFree]]:
    """Yield what the best card has of memory and of compute: with enough of the other, where there is such a card."""
    node, memory, core = state.node, wanted.memory_units, wanted.core_percent
    on_node = {name: node.allocatable.get(name, 0) - state.requested.get(name, 0) for name in SHARES}
    rooms = [min(room, on_node[GPU_MEM]) for room in state.rooms]
    cores = [min(room, on_node[GPU_CORE]) for room in state.core_rooms] or [0] * len(rooms)
    for name, asked, mine, needed, other in (
        (GPU_MEM, memory, rooms, core, cores),
        (GPU_CORE, core, cores, memory, rooms),
    ):
        if not asked:
            continue
        enough = [index for index, room in enumerate(other) if room >= needed]
        lacking = 1 if enough else 2
        room, index = max(((mine[index], -index) for index in enough or range(len(mine))), default=(0, 0))
        if enough or room < asked:
            yield lacking, asked, LargestFree(node.name, name, max(0, room), -index)


def asked_of(ask: Ask, resource: str) -> int:
    """Return what the containers of a pod ask for of a resource: limits of cards, requests of all else."""
    limit = limit_of(ask, resource)
    return limit or sum(container.requests.get(resource, 0) for container in ask.containers)
