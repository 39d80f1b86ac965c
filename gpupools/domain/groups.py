"""Groups of pods that ACK's topology plugin places together: which nodes, how many pods on each, which cards.

Fewest nodes for the whole group, of those the tightest fit, on each node the cards with the fastest slowest link.
The pods of a group are taken to ask for the same. It judges no node: it gets the states that a pod may go to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpupools.domain.devices import free_topology_cards
from gpupools.domain.gpus import Ask, Pod
from gpupools.domain.quantities import integer
from gpupools.domain.topology import best_cards
from gpupools.domain.verdicts import NodeState
from gpupools.domain.wishes import (
    GANG_LABEL,
    GANG_SIZE_LABEL,
    TOPOLOGY_GROUP_LABEL,
    TOPOLOGY_REPLICA_LABEL,
    Wish,
)

PODS = "pods"
MOST_SETS = 10_000  # nodes times pods; beyond, the largest nodes are taken without looking for the tightest fit


class Group(msgspec.Struct, frozen=True):
    """The group that a pod says it belongs to, by the label ``key``, and the number of pods that it must have."""

    key: str
    name: str
    size: int


class Seat(msgspec.Struct, frozen=True):
    """Where one pod of a group goes."""

    node: str
    cards: tuple[int, ...]


def group_of(labels: Mapping[str, str]) -> Group | None:
    """Read the group labels of a pod; None without one, or without a readable size."""
    for key, size_key in ((TOPOLOGY_GROUP_LABEL, TOPOLOGY_REPLICA_LABEL), (GANG_LABEL, GANG_SIZE_LABEL)):
        size = integer(labels.get(size_key, ""))
        if name := labels.get(key):
            return Group(key, name, size) if size is not None and size >= 0 else None
    return None


def mates(ask: Ask, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the live pods of the ask's group: same namespace and label, neither finished nor terminating."""
    group = group_of(ask.labels)
    if group is None:
        return ()
    return tuple(
        pod
        for pod in pods
        if pod.namespace == ask.namespace
        and pod.ask.labels.get(group.key) == group.name
        and not pod.finished
        and not pod.terminating
    )


def incomplete(group: Group, found: int) -> str:
    """Return ACK's PreFilter reason for a group with another number of pods than its label says, or nothing."""
    if found == group.size:
        return ""
    return f"Number({found}) of of GPUTopologyGroup({group.name}) pods is not equal to label replica({group.size})"


def too_big(group: Group) -> str:
    """Return ACK's reason when every pod finds a node, but the group as a whole finds none."""
    return f"Insufficient gpus to allocate for the topology group {group.name}"


class _Choice(msgspec.Struct, frozen=True):
    """A node as a seat for the group: pods that fit (at most all), its free cards, whether it hosts one already."""

    node: str
    pods: int
    free: int
    hosts: bool


def seats(
    wanted: Wish, states: Sequence[NodeState], count: int, *, hosting: frozenset[str] = frozenset()
) -> tuple[Seat, ...]:
    """Return a seat for each of ``count`` pods on nodes that passed the filters; nothing when they do not all fit.

    ``hosting`` names the nodes where pods of the group run already.
    """
    by_name = {state.node.name: state for state in states}
    choices = [
        _Choice(name, pods, len(free_topology_cards(state)), name in hosting)
        for name, state in sorted(by_name.items())
        if (pods := min(count, _capacity(wanted, state)))
    ]
    chosen = _node_set(choices, count)
    if not chosen:
        return ()
    return tuple(
        Seat(node, cards)
        for node, number in _shared_out(chosen, count, wanted.topology_cards)
        for cards in _cards(by_name[node], wanted.topology_cards, number)
    )


def _capacity(wanted: Wish, state: NodeState) -> int:
    """How many pods of the ask fit on a node one after the other."""
    fit = len(free_topology_cards(state)) // wanted.topology_cards
    allocatable = state.node.allocatable
    if (room := allocatable.get(PODS)) is not None:
        fit = min(fit, room - state.pods)
    for resource, asked in wanted.requests:
        fit = min(fit, (allocatable.get(resource, 0) - state.requested.get(resource, 0)) // asked)
    # A port of the node can be had once.
    return max(0, min(fit, 1) if wanted.ports else fit)


def _node_set(choices: Sequence[_Choice], count: int) -> tuple[_Choice, ...]:
    """Choose the fewest nodes that hold all pods; of such sets, most hosts, then fewest free cards, then names."""
    size, room = 0, 0
    for choice in sorted(choices, key=lambda choice: -choice.pods):
        if room >= count:
            break
        size, room = size + 1, room + choice.pods
    if room < count:
        return ()
    # Of nodes that are alike no set has more than ``size``.
    alike: dict[tuple[int, int, bool], int] = {}
    few = []
    for choice in choices:
        kind = (choice.pods, choice.free, choice.hosts)
        alike[kind] = alike.get(kind, 0) + 1
        if alike[kind] <= size:
            few.append(choice)
    if size * count > MOST_SETS:
        return tuple(sorted(few, key=lambda c: (-c.pods, not c.hosts, c.free, c.node))[:size])
    # best[nodes, pods]: the cheapest set of so many nodes for at least so many pods.
    best: dict[tuple[int, int], tuple[tuple[int, int, tuple[str, ...]], tuple[_Choice, ...]]] = {
        (0, 0): ((0, 0, ()), ())
    }
    for choice in few:
        for (nodes, pods), ((hosts, free, names), chosen) in list(best.items()):
            if nodes == size:
                continue
            key = (nodes + 1, min(count, pods + choice.pods))
            cost = (hosts - choice.hosts, free + choice.free, (*names, choice.node))
            if key not in best or cost < best[key][0]:
                best[key] = (cost, (*chosen, choice))
    return best[size, count][1]


def _shared_out(chosen: Sequence[_Choice], count: int, cards: int) -> list[tuple[str, int]]:
    """Give each pod the node that has the fewest cards left over after it; return pods by node."""
    given = dict.fromkeys((choice.node for choice in chosen), 0)
    for _ in range(count):
        open_choices = [choice for choice in chosen if given[choice.node] < choice.pods]
        fullest = min(open_choices, key=lambda c: (c.free - cards * given[c.node], c.node))
        given[fullest.node] += 1
    return [(node, number) for node, number in given.items() if number]


def _cards(state: NodeState, each: int, number: int) -> list[tuple[int, ...]]:
    """Choose the cards of all pods of a node at once, then divide them pod by pod, both by the slowest link."""
    links = state.node.links
    together = best_cards(links, [gpu.index for gpu in free_topology_cards(state)], each * number)
    rest = list(together.cards) if together else []
    given = []
    for _ in range(number):
        best = best_cards(links, rest, each)
        cards = best.cards if best else ()
        given.append(cards)
        rest = [card for card in rest if card not in cards]
    return given
