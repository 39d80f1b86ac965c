"""ACK's card-level filter and score: which cards of one node take a pod. Also the plain count of exclusive cards.

A card is judged as ACK's ledger does: what terminating pods hold is free already, what is bound without a
readable allocation is on no card. It knows no other node.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpupools.domain.gpus import Gpu, Holding
from gpupools.domain.modes import (
    EXCLUSIVE_GPU,
    GPU_CORE,
    GPU_MEM,
    MAX_PODS_LABEL,
    TOPOLOGY_GPU,
    PlacementPolicy,
)
from gpupools.domain.topology import best_cards
from gpupools.domain.verdicts import NodeState, Rejection, Verdict
from gpupools.domain.wishes import Wish

# ACK's score of a choice: up to 30 points for how full (or empty) the cards get, 70 divided by the square of
# their number.
FILL_POINTS = 30
CARD_POINTS = 70


def judge(wanted: Wish, state: NodeState) -> Verdict:
    """Return the verdict of a node that passed all node-level filters."""
    if wanted.shares:
        return _judge_shares(wanted, state)
    if wanted.topology_cards:
        return _judge_topology(wanted, state)
    node, requested = state.node, state.requested
    if wanted.whole_cards:
        taken = requested.get(EXCLUSIVE_GPU, 0) + wanted.whole_cards
        return Verdict(node.name, True, score=100 * taken / node.allocatable[EXCLUSIVE_GPU])
    return Verdict(node.name, True, score=_least_allocated(wanted, state))


def _least_allocated(wanted: Wish, state: NodeState) -> float:
    """kube-scheduler's own score: the mean share of cpu and memory that would stay free, in whole per cent."""
    shares = []
    needs = dict(wanted.requests)
    for resource in ("cpu", "memory"):
        total = state.node.allocatable.get(resource, 0)
        free = total - state.requested.get(resource, 0) - needs.get(resource, 0)
        shares.append(100 * free // total if total > 0 and free > 0 else 0)
    return float(sum(shares) // len(shares))


def _rejected(state: NodeState, rejection: Rejection) -> Verdict:
    return Verdict(state.node.name, False, (rejection,))


def _judge_shares(wanted: Wish, state: NodeState) -> Verdict:
    node, gpus = state.node, state.allocation.gpus
    name = node.name
    cap = node.labels.get(MAX_PODS_LABEL)
    if cap is not None:
        if not (cap.isascii() and cap.isdigit()):
            reason = f"node(s) had an invalid value of label {MAX_PODS_LABEL}"
            return _rejected(state, Rejection(name, "device", reason, unresolvable=True))
        gpus = tuple(gpu for gpu in gpus if len(_staying(gpu)) < int(cap))
        if not gpus:
            reason = "The number of pods per gpu device has reached the maximum allowed"
            return _rejected(state, Rejection(name, "device", reason))
    if not wanted.memory_units:
        reason = f"reqeust resources must include {GPU_MEM}"  # ACK's spelling
        return _rejected(state, Rejection(name, "mode", reason, unresolvable=True))
    if bool(wanted.core_percent) != bool(node.core_percent):
        reason = "node(s) owns gpu resources are not matched that pod requests"
        return _rejected(state, Rejection(name, "mode", reason, unresolvable=True))
    fitting = [gpu for gpu in gpus if gpu.healthy and _takes(wanted, gpu)]
    if len(fitting) < wanted.cards:
        return _rejected(state, _no_room(wanted, state))
    return _choose(wanted, state, fitting)


def _staying(gpu: Gpu) -> list[Holding]:
    return [holding for holding in gpu.holdings if not holding.releasing]


def _memory_held(gpu: Gpu) -> int:
    return gpu.memory_units_used - gpu.memory_units_releasing


def _core_held(gpu: Gpu) -> int:
    if not gpu.core_percent_used:
        return 0
    return sum(holding.core_percent for holding in gpu.holdings if not holding.releasing)


def _takes(wanted: Wish, gpu: Gpu) -> bool:
    held = gpu.memory_units_used - gpu.memory_units_releasing
    if wanted.memory_units > gpu.memory_units - held:
        return False
    if wanted.core_percent and wanted.core_percent > gpu.core_percent - _core_held(gpu):
        return False
    return not wanted.whole_device or (held == 0 and wanted.memory_units == gpu.memory_units)


def _no_room(wanted: Wish, state: NodeState) -> Rejection:
    node = state.node
    if wanted.whole_device:
        reason = "Pod's RequireWholeGPU is true and not available devices can be fully occupied by it"
    else:
        reason = "node(s) didn't have enough device resources to allocate"
    best = max((gpu.memory_units - _memory_held(gpu) for gpu in state.allocation.gpus if gpu.healthy), default=0)
    resource, asked, free = GPU_MEM, wanted.memory_units, node.memory_units - state.requested.get(GPU_MEM, 0)
    if wanted.core_percent and wanted.memory_units <= best:
        cores = [gpu.core_percent - _core_held(gpu) for gpu in state.allocation.gpus if gpu.healthy]
        if wanted.core_percent > max(cores, default=0):
            resource, asked, best = GPU_CORE, wanted.core_percent, max(cores, default=0)
            free = node.core_percent - state.requested.get(GPU_CORE, 0)
    return Rejection(node.name, "device", reason, resource, asked, max(0, free), max(0, best))


def _choose(wanted: Wish, state: NodeState, fitting: Sequence[Gpu]) -> Verdict:
    """Take the cards with the best score; equal cards are equal to ACK too, so all of them are the tie set."""
    spread = state.node.policy is PlacementPolicy.SPREAD
    parts, whole = [], 1
    for gpu in fitting:
        # A card's fill is a fraction with the same denominator on every card of a node: compare numerators.
        filled = _memory_held(gpu) + wanted.memory_units
        part, whole = (gpu.memory_units - filled if spread else filled), gpu.memory_units
        if wanted.core_percent:
            core = _core_held(gpu) + wanted.core_percent
            core = gpu.core_percent - core if spread else core
            part, whole = part * gpu.core_percent + core * gpu.memory_units, 2 * whole * gpu.core_percent
        parts.append((-part, gpu.index, gpu))
    parts.sort(key=lambda entry: entry[:2])
    count = wanted.cards
    taken, edge = parts[:count], parts[count - 1][0]
    tied = [entry for entry in parts if entry[0] == edge]
    sure = [entry for entry in taken if entry[0] != edge]
    numerator, denominator = -sum(entry[0] for entry in taken), whole * count
    squares = count * count
    score = (FILL_POINTS * numerator * squares + CARD_POINTS * denominator) / (denominator * squares)
    waiting = {
        holding.uid
        for _, _, gpu in taken
        if gpu.memory_units_used + wanted.memory_units > gpu.memory_units
        or (wanted.core_percent and gpu.core_percent_used + wanted.core_percent > gpu.core_percent)
        for holding in gpu.holdings
        if holding.releasing
    }
    return Verdict(
        state.node.name,
        True,
        cards=tuple(sorted(entry[1] for entry in taken)),
        score=score,
        tie_set=tuple(sorted(entry[1] for entry in (*sure, *tied))),
        waits_for=len(waiting),
    )


def _judge_topology(wanted: Wish, state: NodeState) -> Verdict:
    node, asked = state.node, wanted.topology_cards
    free = [gpu for gpu in state.allocation.gpus if gpu.healthy and not _staying(gpu)]
    best = best_cards(node.links, [gpu.index for gpu in free], asked)
    if best is None:
        reason = "not enough gpus with topology on the node"
        return _rejected(state, Rejection(node.name, "topology", reason, TOPOLOGY_GPU, asked, len(free), len(free)))
    waiting = {holding.uid for gpu in free if gpu.index in best.cards for holding in gpu.holdings}
    return Verdict(
        node.name,
        True,
        cards=best.cards,
        score=100 * asked / len(free),
        tie_set=best.cards,
        waits_for=len(waiting),
    )
