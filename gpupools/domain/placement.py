"""Where a pod would land: filter, score and take, with every rejection and its reason.

Preview and the embedded cluster's scheduler call the same functions. It knows no cluster; nodes come as states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gpupools.domain.allocation import fold_holders, holders
from gpupools.domain.asks import effective_requests, host_ports
from gpupools.domain.devices import judge
from gpupools.domain.filters import Filter, filters_of, matches_term, untolerated
from gpupools.domain.gpus import Ask, Gpu, GpuNode, Holding, HostPort, NodeAllocation, Pod
from gpupools.domain.messages import failed_scheduling
from gpupools.domain.modes import PlacementPolicy
from gpupools.domain.validation import ack_problems, invalid_text, validate_ask
from gpupools.domain.verdicts import NodeState, Preview, Rejection, Verdict, core_room_of, room_of
from gpupools.domain.wishes import Wish, prefilter, wish

__all__ = [
    "NodeState",
    "Preview",
    "Rejection",
    "Verdict",
    "node_state",
    "node_states",
    "preview",
    "sequence",
    "take",
    "validate_ask",
]

# kube-scheduler's weights of the two preferences that a pod can state.
AFFINITY_WEIGHT = 2
TAINT_WEIGHT = 3
SOFT_EFFECTS = frozenset({"PreferNoSchedule"})


def node_state(node: GpuNode, pods: Iterable[Pod]) -> NodeState:
    """Return a node with what its pods take of it; pods of other nodes and finished pods are passed over."""
    return _state(node, holders(pod for pod in pods if pod.node == node.name).get(node.name, []))


def node_states(nodes: Iterable[GpuNode], pods: Iterable[Pod]) -> list[NodeState]:
    """Return the states of a whole cluster in one pass over its pods."""
    by_node = holders(pods)
    return [_state(node, by_node.get(node.name, [])) for node in nodes]


def _state(node: GpuNode, pods: Sequence[Pod]) -> NodeState:
    requested: dict[str, int] = {}
    ports: list[HostPort] = []
    for pod in pods:
        for resource, amount in effective_requests(pod.ask).items():
            requested[resource] = requested.get(resource, 0) + amount
        ports += host_ports(pod.ask)
    return _with_rooms(node, fold_holders(node, pods), requested, len(pods), tuple(ports))


def _with_rooms(
    node: GpuNode, allocation: NodeAllocation, requested: dict[str, int], pods: int, ports: tuple[HostPort, ...]
) -> NodeState:
    gpus: tuple[Gpu, ...] = allocation.gpus if node.memory_units else ()
    core_rooms = tuple([core_room_of(gpu) for gpu in gpus]) if node.core_percent else ()
    return NodeState(node, allocation, requested, pods, ports, tuple([room_of(gpu) for gpu in gpus]), core_rooms)


def preview(
    ask: Ask, states: Sequence[NodeState], *, whole_card_policy: PlacementPolicy = PlacementPolicy.BINPACK
) -> Preview:
    """Return where a pod would land, and each node's verdict.

    Order of checks: what the API server and ACK call invalid, PreFilter, kube-scheduler's filters on every node,
    ACK's cards. Of the nodes that fit, the one with the best score is chosen; equal nodes by name.
    On a real cluster other scores count too, so among several nodes the chosen one is a best guess.
    """
    problems = (*validate_ask(ask), *ack_problems(ask))
    if problems:
        return Preview(message=invalid_text(ask.name, problems), problems=problems)
    wanted = wish(ask)
    if reason := prefilter(wanted):
        return Preview(message=failed_scheduling((), nodes=len(states), prefilter=reason), prefilter=reason)
    checks = filters_of(wanted)
    return _decide(wanted, states, [_verdict(wanted, checks, state) for state in states], whole_card_policy)


def _verdict(wanted: Wish, checks: Sequence[Filter], state: NodeState) -> Verdict:
    for check in checks:
        if rejections := check(wanted, state):
            return Verdict(state.node.name, False, rejections)
    return judge(wanted, state)


def _decide(
    wanted: Wish, states: Sequence[NodeState], verdicts: Sequence[Verdict], whole_card_policy: PlacementPolicy
) -> Preview:
    """Rank the nodes that fit and choose; with none, word the failure."""
    fitting = [position for position, verdict in enumerate(verdicts) if verdict.fits]
    if not fitting:
        return Preview(verdicts=tuple(verdicts), message=failed_scheduling(verdicts, nodes=len(verdicts)))
    ranked = list(verdicts)
    if wanted.whole_cards and not wanted.shares and whole_card_policy is PlacementPolicy.SPREAD:
        for position in fitting:
            ranked[position] = msgspec.structs.replace(ranked[position], score=100 - ranked[position].score)
    for position, points in _preferences(wanted.ask, states, fitting).items():
        ranked[position] = msgspec.structs.replace(ranked[position], preference=points)
    top = max(_rank(ranked[position]) for position in fitting)
    tied = sorted((ranked[position] for position in fitting if _rank(ranked[position]) == top), key=lambda v: v.node)
    chosen = tied[0]
    return Preview(
        chosen=chosen.node,
        cards=chosen.cards,
        tie_nodes=tuple(verdict.node for verdict in tied),
        tie_cards=chosen.tie_set,
        verdicts=tuple(ranked),
    )


def _rank(verdict: Verdict) -> int:
    return int(verdict.score) + verdict.preference


def _preferences(ask: Ask, states: Sequence[NodeState], fitting: Sequence[int]) -> dict[int, int]:
    """Return what preferred affinity and soft taints add to nodes, as kube-scheduler scales and weighs them."""
    points = {}
    if ask.preferred_terms:
        weights = {
            position: sum(p.weight for p in ask.preferred_terms if matches_term(p.term, states[position].node))
            for position in fitting
        }
        most = max(weights.values())
        points = {position: AFFINITY_WEIGHT * (100 * w // most) for position, w in weights.items() if w and most > 0}
    if any(taint.effect in SOFT_EFFECTS for position in fitting for taint in states[position].node.taints):
        counts = {position: len(untolerated(ask, states[position].node.taints, SOFT_EFFECTS)) for position in fitting}
        most = max(counts.values())
        for position, count in counts.items():
            gain = 100 - 100 * count // most if most else 100
            points[position] = points.get(position, 0) + TAINT_WEIGHT * gain
    return points


def sequence(
    ask: Ask,
    count: int,
    states: Sequence[NodeState],
    *,
    whole_card_policy: PlacementPolicy = PlacementPolicy.BINPACK,
) -> list[Preview]:
    """Return the previews of ``count`` equal pods that are placed one after the other.

    Once one does not fit, none of the rest does: they share its preview.
    """
    if count <= 0:
        return []
    first = preview(ask, states, whole_card_policy=whole_card_policy)
    previews = [first]
    if first.chosen is None:
        return previews * count
    wanted = wish(ask)
    checks = filters_of(wanted)
    now = list(states)
    verdicts = [_verdict(wanted, checks, state) for state in now]
    where = {state.node.name: position for position, state in enumerate(now)}
    while len(previews) < count and (last := previews[-1]).chosen is not None:
        # Only the node that took the last pod can have changed its mind.
        position = where[last.chosen]
        now[position] = take(now[position], ask, last.cards)
        verdicts[position] = _verdict(wanted, checks, now[position])
        previews.append(_decide(wanted, now, verdicts, whole_card_policy))
    return previews + previews[-1:] * (count - len(previews))


def take(state: NodeState, ask: Ask, cards: Sequence[int]) -> NodeState:
    """Return the state after a pod was placed on these cards of the node."""
    wanted = wish(ask)
    requested = dict(state.requested)
    for resource, amount in wanted.requests:
        requested[resource] = requested.get(resource, 0) + amount
    allocation = _with_pod(state.allocation, wanted, cards)
    return _with_rooms(state.node, allocation, requested, state.pods + 1, state.ports + wanted.ports)


def _with_pod(allocation: NodeAllocation, wanted: Wish, cards: Sequence[int]) -> NodeAllocation:
    ask = wanted.ask
    whole = wanted.topology_cards or wanted.whole_cards
    if not wanted.shares and not whole:
        return allocation
    share = Holding("", ask.namespace, ask.name, wanted.memory_units, wanted.core_percent, 1 if whole else 0)
    total = msgspec.structs.replace(
        share,
        memory_units=share.memory_units * len(cards),
        core_percent=share.core_percent * len(cards),
        cards=whole,
    )
    gpus = list(allocation.gpus)
    newly_used = 0
    for index in cards:
        gpu = gpus[index]
        newly_used += not gpu.holdings
        gpus[index] = msgspec.structs.replace(
            gpu,
            memory_units_used=gpu.memory_units_used + share.memory_units,
            core_percent_used=gpu.core_percent_used + share.core_percent,
            cards_used=gpu.cards_used + share.cards,
            holdings=(*gpu.holdings, share),
            memory_units_held=gpu.memory_units_held + share.memory_units,
            core_percent_held=gpu.core_percent_held + share.core_percent,
        )
    return msgspec.structs.replace(
        allocation,
        gpus=tuple(gpus),
        cards_used=allocation.cards_used + (whole or newly_used),
        memory_units_used=allocation.memory_units_used + total.memory_units,
        core_percent_used=allocation.core_percent_used + total.core_percent,
        holdings=(*allocation.holdings, total),
    )
