"""A node with all that is taken of it: made from its pods, and changed by one more pod. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gpupools.domain.allocation import fold_holders, holders
from gpupools.domain.asks import effective_requests, host_ports
from gpupools.domain.gpus import Ask, Gpu, GpuNode, Holding, HostPort, NodeAllocation, Pod
from gpupools.domain.verdicts import NodeState, core_room_of, room_of
from gpupools.domain.wishes import Wish, wish


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
            requested[resource] = requested.get(resource, 0) + max(0, amount)
        ports += host_ports(pod.ask)
    return _with_rooms(node, fold_holders(node, pods), requested, len(pods), tuple(ports))


def _with_rooms(
    node: GpuNode, allocation: NodeAllocation, requested: dict[str, int], pods: int, ports: tuple[HostPort, ...]
) -> NodeState:
    gpus: tuple[Gpu, ...] = allocation.gpus if node.memory_units else ()
    core_rooms = tuple([core_room_of(gpu) for gpu in gpus]) if node.core_percent else ()
    return NodeState(node, allocation, requested, pods, ports, tuple([room_of(gpu) for gpu in gpus]), core_rooms)


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
        first = int(not gpu.holdings)
        newly_used += first
        gpus[index] = msgspec.structs.replace(
            gpu,
            memory_units_used=gpu.memory_units_used + share.memory_units,
            core_percent_used=gpu.core_percent_used + share.core_percent,
            cards_used=gpu.cards_used + (share.cards or first),
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
