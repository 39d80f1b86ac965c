"""What the rules of diagnosis look at: one cluster at one instant, laid out by node, and what a rule says.

It knows no rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import cached_property

import msgspec

from gpupools.domain.asks import limit_of
from gpupools.domain.components import NAMESPACE
from gpupools.domain.gpus import GpuNode, NodeAllocation, Pod, Workload
from gpupools.domain.groups import group_of, mates
from gpupools.domain.modes import CARD_COUNT_LABEL, GPU_CORE, GPU_MEM, GPU_RESOURCES, TOPOLOGY_GPU, Mode
from gpupools.domain.placement import Fleet, preview
from gpupools.domain.quantities import integer
from gpupools.domain.states import node_states
from gpupools.domain.units import UNIT_SIZES_MIB
from gpupools.domain.verdicts import NodeState, Preview

# Waiting pods that the engine is asked about; more would make the page wait, and say no more.
MOST_ANSWERS = 100


class Severity(StrEnum):
    """How bad it is: ``error`` something does not work, ``warning`` it soon may not, ``info`` worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Difference(msgspec.Struct, frozen=True):
    """One label or taint of a node that is not as its pool wants it; empty means: not there."""

    key: str
    wanted: str
    found: str


class Diagnosis(msgspec.Struct, frozen=True):
    """One failure that was recognised. ``scenario`` is its number in docs/failure-scenarios.md.

    ``node`` and ``pool`` are names, empty where it is about the whole cluster; ``pods`` are ``namespace/name``.
    """

    code: str
    scenario: int
    severity: Severity
    message: str
    evidence: str
    fix: str
    node: str = ""
    pool: str = ""
    pods: tuple[str, ...] = ()


class Scene:
    """A cluster at one instant. ``pools`` and ``differences`` are by node name; ``spec`` is ACK's cluster_spec.

    ``changing``: names of nodes whose labels a change under way is writing.
    """

    def __init__(
        self,
        nodes: Iterable[GpuNode],
        pods: Iterable[Pod],
        workloads: Iterable[Workload],
        *,
        folds: Mapping[str, NodeAllocation],
        pools: Mapping[str, str] | None = None,
        differences: Mapping[str, tuple[Difference, ...]] | None = None,
        changing: Collection[str] = (),
        spec: str = "",
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.folds = folds
        self.pools = pools or {}
        self.differences = differences or {}
        self.changing = frozenset(changing)
        self.spec = spec
        self.daemonsets = {
            workload.name: workload
            for workload in workloads
            if workload.kind == "DaemonSet" and workload.namespace == NAMESPACE
        }
        self.foreign = [
            workload for workload in workloads if workload.kind == "DaemonSet" and workload.namespace != NAMESPACE
        ]
        self.pods = tuple(pods)
        self._answers = 0

    @cached_property
    def on_node(self) -> Mapping[str, list[Pod]]:
        """Pods by the node that they are bound to."""
        found: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            if pod.node:
                found[pod.node].append(pod)
        return found

    @cached_property
    def gpu_nodes(self) -> list[GpuNode]:
        """The nodes with cards, by name."""
        return [self.nodes[name] for name in sorted(self.nodes) if self.nodes[name].is_gpu]

    @cached_property
    def by_pool(self) -> Mapping[str, list[GpuNode]]:
        """The nodes with cards by their pool; nodes without one are left out."""
        found: dict[str, list[GpuNode]] = defaultdict(list)
        for node in self.gpu_nodes:
            if pool := self.pools.get(node.name):
                found[pool].append(node)
        return found

    @cached_property
    def modes(self) -> Mapping[Mode, list[GpuNode]]:
        """The nodes by the mode that their label declares."""
        found: dict[Mode, list[GpuNode]] = defaultdict(list)
        for node in self.gpu_nodes:
            if node.declared is not None:
                found[node.declared].append(node)
        return found

    @cached_property
    def fullest_of_model(self) -> Mapping[str, list[tuple[int, str]]]:
        """Memory units of a card by its model, the largest first, each with the node that reports it."""
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for node in self.gpu_nodes:
            if node.card_model and node.shared_cards:
                found[node.card_model].append((node.per_card(GPU_MEM), node.name))
        return {model: sorted(set(each), key=lambda pair: (-pair[0], pair[1])) for model, each in found.items()}

    @cached_property
    def _fleet(self) -> Fleet:
        return Fleet(node_states(self.nodes.values(), self.pods))

    @cached_property
    def _states(self) -> Mapping[str, NodeState]:
        return {state.node.name: state for state in self._fleet.states}

    def state(self, node: str) -> NodeState:
        """Return a node with what its pods take of it."""
        return self._states[node]

    def answer(self, pod: Pod) -> Preview | None:
        """Return what the nodes say to a pod now; None once so many were asked about that a page would wait for it."""
        if self._answers >= MOST_ANSWERS:
            return None
        self._answers += 1
        if limit_of(pod.ask, TOPOLOGY_GPU) and group_of(pod.ask.labels):
            others = [each for each in mates(pod.ask, self.pods) if each.uid != pod.uid]
            return preview(pod.ask, self._fleet.states, mates=others)
        return self._fleet.preview(pod.ask)

    def daemons(self, node: str, name: str) -> list[Pod]:
        """Return the pods of a DaemonSet in kube-system on a node."""
        return [
            pod
            for pod in self.on_node.get(node, ())
            if (pod.namespace, pod.owner_kind, pod.owner_name) == (NAMESPACE, "DaemonSet", name)
        ]


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in one or in many."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def name_of(pod: Pod) -> str:
    """Return how a pod is named in sentences."""
    return f"{pod.namespace}/{pod.name}"


def asked(pod: Pod) -> dict[str, int]:
    """Return the GPU resources that a pod asks for, summed over its containers; limits, as ACK counts them."""
    totals: dict[str, int] = {}
    for container in pod.ask.containers:
        for name in GPU_RESOURCES:
            if amount := container.limits.get(name) or container.requests.get(name):
                totals[name] = totals.get(name, 0) + amount
    return totals


def wants_gpu(pod: Pod) -> bool:
    """Tell whether a pod asks for any GPU resource."""
    return any(
        name in container.limits or name in container.requests
        for container in pod.ask.containers
        for name in GPU_RESOURCES
    )


def shared_units(node: GpuNode) -> int:
    """Return the memory units that a node reports, 0 without any."""
    return node.allocatable.get(GPU_MEM, 0)


def core_percent(node: GpuNode) -> int:
    """Return the per cent of compute that a node reports, 0 without any."""
    return node.allocatable.get(GPU_CORE, 0)


def counted_cards(node: GpuNode) -> int | None:
    """Return how many cards ACK counted at join, None when its label is missing or unreadable."""
    return integer(node.labels.get(CARD_COUNT_LABEL, ""))


def as_labelled(node: GpuNode) -> bool:
    """Whether a shared node's units are those of the cards that ACK's labels name; true where labels are missing.

    The device plugin takes every card for the first one's like, so this is false only where that shows.
    """
    memory_mib, cards, units = node.card_memory_mib, counted_cards(node), shared_units(node)
    if not memory_mib or not units or not node.shared_cards:
        return True
    sizes = {memory_mib // size for size in UNIT_SIZES_MIB}
    return node.per_card(GPU_MEM) in sizes and cards in {None, node.shared_cards}
