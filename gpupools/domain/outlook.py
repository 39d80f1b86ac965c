"""What a mode change does to room: cards in the old unit and the new one, and pending pods that gain or lose a place.

Pure; where a pod would land is asked of placement, so the answer is an estimate as every preview is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gpupools.domain.disruptions import is_pinned
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import (
    CARD_COUNT_LABEL,
    EXCLUSIVE_GPU,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    GPU_RESOURCES,
    MODES,
    TOPOLOGY_GPU,
    Mode,
)
from gpupools.domain.placement import preview
from gpupools.domain.quantities import integer
from gpupools.domain.states import node_states

UNIT_MIB = 1024
SMALL_UNIT_MIB = 128
# Pods that were asked about; more would make the page wait, and say no more.
MOST_ASKED = 50


class Capacity(msgspec.Struct, frozen=True):
    """What some nodes offer in a mode. None: cannot be known before the nodes report it."""

    mode: str
    nodes: int
    cards: int | None
    memory_units: int | None = None
    core_percent: int | None = None
    unit_mib: int | None = None


class Moved(msgspec.Struct, frozen=True):
    """A pod that gains or loses its place by a change; ``message`` is what the scheduler would say."""

    namespace: str
    pod: str
    owner: str
    asks: dict[str, int]
    message: str = ""


class Outlook(msgspec.Struct, frozen=True):
    """Room before and after, and the pods concerned. ``asked`` of ``pending`` were looked at."""

    before: tuple[Capacity, ...]
    after: Capacity
    unblocked: tuple[Moved, ...] = ()
    stranded: tuple[Moved, ...] = ()
    homeless: tuple[Moved, ...] = ()
    pending: int = 0
    asked: int = 0


def cards_of(node: GpuNode) -> int | None:
    """Return how many cards a node has: as it reports them, else as ACK's discovery label says."""
    return node.whole_cards or node.shared_cards or integer(node.labels.get(CARD_COUNT_LABEL, ""))


def unit_mib(fleet: Iterable[GpuNode]) -> int:
    """Return the size of one unit: a whole cluster's setting that no object says, so read from what nodes report."""
    for node in fleet:
        if node.memory_units and node.shared_cards and node.card_memory_mib:
            each = node.card_memory_mib / max(1, node.per_card(GPU_MEM))
            return SMALL_UNIT_MIB if each < UNIT_MIB / 2 else UNIT_MIB
    return UNIT_MIB


def predicted(node: GpuNode, mode: Mode, labels: dict[str, str], unit: int) -> GpuNode:
    """Return a node as it would be in a mode; its unknown parts stay out. Units of a card are rounded down (ACK)."""
    facts, cards = MODES[mode], cards_of(node) or 0
    units = (node.card_memory_mib or 0) // unit
    if not units and node.shared_cards:
        units = node.per_card(GPU_MEM)
    amounts = {
        EXCLUSIVE_GPU: cards,
        TOPOLOGY_GPU: cards,
        GPU_MEM: cards * units,
        GPU_CORE: cards * 100,
        GPU_COUNT: cards,
    }
    reported = {*facts.resources, *((GPU_COUNT,) if facts.shared else ())}
    kept = {name: amount for name, amount in node.allocatable.items() if name not in GPU_RESOURCES}
    gpu = {name: amounts[name] for name in reported}
    return msgspec.structs.replace(
        node, labels={**node.labels, **labels}, allocatable=kept | gpu, capacity=kept | gpu, unschedulable=False
    )


def capacities(nodes: Iterable[GpuNode]) -> tuple[Capacity, ...]:
    """Return what nodes offer now, by mode."""
    by_mode: dict[str, list[GpuNode]] = {}
    for node in nodes:
        by_mode.setdefault(node.declared.value if node.declared else "unknown", []).append(node)
    return tuple(_capacity(mode, found, unit_mib(found)) for mode, found in sorted(by_mode.items()))


def _capacity(mode: str, nodes: Sequence[GpuNode], unit: int) -> Capacity:
    counts = [cards_of(node) for node in nodes]
    cards = None if any(count is None for count in counts) else sum(count or 0 for count in counts)
    if mode not in list(Mode) or not MODES[Mode(mode)].shared:
        return Capacity(mode, len(nodes), cards)
    units = [node.memory_units for node in nodes]
    core = sum(node.core_percent for node in nodes) if mode == Mode.CORE_MEM else None
    return Capacity(mode, len(nodes), cards, sum(units) if all(units) else None, core, unit)


def outlook(
    changing: Sequence[GpuNode],
    fleet: Sequence[GpuNode],
    pods: Sequence[Pod],
    *,
    mode: Mode,
    labels: dict[str, str],
    evict: bool,
    beside: Sequence[GpuNode] = (),
) -> Outlook:
    """Compare the cluster as it is with the cluster after ``changing`` are in a mode and free of their holders.

    ``beside``: nodes that are in the mode already and only get another choice of cards; they keep their pods.

    Each pod is asked about alone, so two that gain a place may gain the same one.
    """
    unit = unit_mib(fleet)
    new = {node.name: predicted(node, mode, labels, unit) for node in changing}
    after = [new.get(node.name, node) for node in fleet]
    states_now = node_states(fleet, pods)
    staying = [pod for pod in pods if pod.node not in new or not _gpus(pod)]
    states_then = node_states(after, staying)
    waiting = [pod for pod in pods if not pod.node and not pod.finished and not pod.terminating and _gpus(pod)]
    unblocked, stranded = [], []
    for pod in waiting[:MOST_ASKED]:
        now, then = preview(pod.ask, states_now), preview(pod.ask, states_then)
        if now.chosen is None and then.chosen is not None:
            unblocked.append(_moved(pod, ""))
        elif now.chosen is not None and then.chosen is None:
            stranded.append(_moved(pod, then.message or then.prefilter))
    homeless = []
    evicted = [
        pod
        for pod in pods
        if evict and pod.node in new and _gpus(pod) and pod.owner_kind and not pod.finished and not is_pinned(pod)
    ]
    for pod in evicted[:MOST_ASKED]:
        # What its owner starts again is bound to no node yet.
        then = preview(msgspec.structs.replace(pod.ask, node_name=""), states_then)
        if then.chosen is None:
            homeless.append(_moved(pod, then.message or then.prefilter))
    return Outlook(
        capacities([*changing, *beside]),
        _capacity(mode.value, [*new.values(), *beside], unit),
        tuple(unblocked),
        tuple(stranded),
        tuple(homeless),
        len(waiting),
        min(len(waiting), MOST_ASKED),
    )


def _gpus(pod: Pod) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod.ask.containers:
        for name in GPU_RESOURCES:
            if amount := container.limits.get(name, 0):
                total[name] = total.get(name, 0) + amount
    return total


def _moved(pod: Pod, message: str) -> Moved:
    owner = f"{pod.owner_kind}/{pod.owner_name}" if pod.owner_kind else ""
    return Moved(pod.namespace, pod.name, owner, _gpus(pod), message)
