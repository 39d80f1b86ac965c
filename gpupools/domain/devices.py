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
from gpupools.domain.quantities import integer
from gpupools.domain.topology import best_cards
from gpupools.domain.verdicts import NO_ROOM, NodeState, Rejection, Verdict, given_units
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
    node, rooms = state.node, state.rooms
    memory, core, count = wanted.memory_units, wanted.core_percent, wanted.cards
    if (label := node.labels.get(MAX_PODS_LABEL)) is not None:
        cap = integer(label)
        if cap is None or cap < 0:
            reason = f"node(s) had an invalid value of label {MAX_PODS_LABEL}"
            return _rejected(state, Rejection(node.name, "device", reason, unresolvable=True))
        crowded = [len(_staying(gpu)) >= cap for gpu in state.allocation.gpus]
        if all(crowded):
            reason = "The number of pods per gpu device has reached the maximum allowed"
            return _rejected(state, Rejection(node.name, "device", reason))
        rooms = tuple(NO_ROOM if full else room for room, full in zip(rooms, crowded, strict=True))
    if not memory:
        reason = f"reqeust resources must include {GPU_MEM}"  # ACK's spelling
        return _rejected(state, Rejection(node.name, "mode", reason, unresolvable=True))
    if (core > 0) != (node.allocatable.get(GPU_CORE, 0) > 0):
        reason = "node(s) owns gpu resources are not matched that pod requests"
        return _rejected(state, Rejection(node.name, "mode", reason, unresolvable=True))
    fitting = [index for index, room in enumerate(rooms) if room >= memory]
    if core:
        fitting = [index for index in fitting if state.core_rooms[index] >= core]
    if wanted.whole_device:
        gpus = state.allocation.gpus
        fitting = [index for index in fitting if rooms[index] == memory == given_units(gpus[index])]
    if len(fitting) < count:
        return _rejected(state, _no_room(wanted, state))
    return _choose(wanted, state, fitting)


def _staying(gpu: Gpu) -> list[Holding]:
    return [holding for holding in gpu.holdings if not holding.releasing]


def _no_room(wanted: Wish, state: NodeState) -> Rejection:
    node = state.node
    if wanted.whole_device:
        reason = "Pod's RequireWholeGPU is true and not available devices can be fully occupied by it"
    else:
        reason = "node(s) didn't have enough device resources to allocate"
    best = max(state.rooms, default=0)
    resource, asked, free = GPU_MEM, wanted.memory_units, node.memory_units - state.requested.get(GPU_MEM, 0)
    if wanted.core_percent and wanted.memory_units <= best:
        core_best = max(state.core_rooms, default=0)
        if wanted.core_percent > core_best:
            resource, asked, best = GPU_CORE, wanted.core_percent, core_best
            free = node.core_percent - state.requested.get(GPU_CORE, 0)
    return Rejection(node.name, "device", reason, resource, asked, free, max(0, best))


def _choose(wanted: Wish, state: NodeState, fitting: list[int]) -> Verdict:
    """Take the cards with the best score; equal cards are equal to ACK too, so all of them are the tie set."""
    node, gpus = state.node, state.allocation.gpus
    memory, core, count = wanted.memory_units, wanted.core_percent, wanted.cards
    # What stays free of a card is a fraction with the same denominator on every card of a node: its numerator ranks.
    whole = given_units(gpus[0])
    if core:
        units, percent = whole, gpus[0].core_percent - gpus[0].core_percent_withheld
        whole = 2 * units * percent
        left = {
            index: (state.rooms[index] - memory) * percent + (state.core_rooms[index] - core) * units
            for index in fitting
        }
    else:
        left = {index: state.rooms[index] - memory for index in fitting}
    spread = state.allocation.policy is PlacementPolicy.SPREAD
    if count == 1:
        edge = max(left.values()) if spread else min(left.values())
        tied = [index for index in fitting if left[index] == edge]
        taken, sum_left = tied[:1], edge
    else:
        # The sort is stable: of equal cards the lowest index comes first.
        taken = sorted(fitting, key=left.__getitem__, reverse=spread)[:count]
        edge = left[taken[-1]]
        sure = [index for index in taken if left[index] != edge]
        tied = sorted([*sure, *(index for index in fitting if left[index] == edge)])
        sum_left = sum(left[index] for index in taken)
        taken.sort()
    denominator = whole * count
    numerator = sum_left if spread else denominator - sum_left
    squares = count * count
    score = (FILL_POINTS * numerator * squares + CARD_POINTS * denominator) / (denominator * squares)
    waits_for = _waiting(wanted, [gpus[index] for index in taken]) if state.allocation.memory_units_releasing else 0
    return Verdict(node.name, True, (), tuple(taken), score, tuple(tied), 0, waits_for)


def _waiting(wanted: Wish, gpus: Sequence[Gpu]) -> int:
    """Count the terminating pods on cards that have room only without them."""
    waiting = {
        holding.uid
        for gpu in gpus
        if gpu.memory_units_used + wanted.memory_units > given_units(gpu)
        or (
            wanted.core_percent
            and gpu.core_percent_used + wanted.core_percent > gpu.core_percent - gpu.core_percent_withheld
        )
        for holding in gpu.holdings
        if holding.releasing
    }
    return len(waiting)


def free_topology_cards(state: NodeState) -> list[Gpu]:
    """Return the healthy cards of a topology node that no pod holds, or only terminating ones do."""
    if state.node.memory_units:
        return []
    return [gpu for gpu in state.allocation.gpus if gpu.healthy and not _staying(gpu)]


def _judge_topology(wanted: Wish, state: NodeState) -> Verdict:
    node, asked = state.node, wanted.topology_cards
    free = free_topology_cards(state)
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
