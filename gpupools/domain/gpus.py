"""Values that the rules work on: nodes with cards, pods that hold cards, and what a pod asks for.

Pure values, cheap to encode: the watcher writes them to Redis, placement reads them back. No raw API fields here.
None of them can be part of a cycle, so the garbage collector need not look at the many that there are (``gc=False``).
"""

from __future__ import annotations

import msgspec

from gpupools.domain.modes import (
    CARD_COUNT_LABEL,
    CARD_MEMORY_LABEL,
    CARD_NAME_LABEL,
    EXCLUSIVE_GPU,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    MODE_LABEL,
    PLACEMENT_LABEL,
    TOPOLOGY_GPU,
    Mode,
    PlacementPolicy,
    mode_of_label,
)
from gpupools.domain.quantities import integer

MOST_CARDS = 1024  # no machine has so many; a number above is no number of cards


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A node taint, as Kubernetes has it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A pod toleration; an empty operator means Equal, an empty effect all effects."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One ``matchExpressions`` entry: operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class AffinityTerm(msgspec.Struct, frozen=True, gc=False):
    """Requirements that are ANDed (labels) plus ``matchFields`` on metadata.name; terms are ORed by their holder."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PreferredTerm(msgspec.Struct, frozen=True, gc=False):
    """A preferred affinity term with its weight 1..100."""

    weight: int
    term: AffinityTerm


class GpuNode(msgspec.Struct, frozen=True, gc=False):
    """A node as the rules see it.

    ``allocatable`` and ``capacity`` hold whole numbers: cpu in millicores, memory and ephemeral-storage in bytes,
    everything else in units. ``links`` is the bandwidth matrix of the topology report, None without one.
    """

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    ip: str = ""
    allocatable: dict[str, int] = {}
    capacity: dict[str, int] = {}
    links: tuple[tuple[float, ...], ...] | None = None
    unhealthy: tuple[int, ...] = ()
    instance_type: str = ""
    created_at: str = ""
    kubelet_version: str = ""
    owners: dict[str, tuple[str, str]] = {}  # label key, or "taints" -> who wrote it (field manager) and when
    boot_id: str = ""  # another one after each restart
    silent: bool = False  # says nothing of being ready, neither yes nor no

    @property
    def declared(self) -> Mode | None:
        """The mode that the label declares; None for a value that nobody knows."""
        return mode_of_label(self.labels.get(MODE_LABEL))

    @property
    def policy(self) -> PlacementPolicy:
        """Card choice on a shared node; ACK's default is binpack."""
        spread = self.labels.get(PLACEMENT_LABEL) == PlacementPolicy.SPREAD
        return PlacementPolicy.SPREAD if spread else PlacementPolicy.BINPACK

    @property
    def memory_units(self) -> int:
        """Allocatable ``aliyun.com/gpu-mem`` of the whole node."""
        return self.allocatable.get(GPU_MEM, 0)

    @property
    def core_percent(self) -> int:
        """Allocatable ``aliyun.com/gpu-core.percentage`` of the whole node."""
        return self.allocatable.get(GPU_CORE, 0)

    @property
    def shared_cards(self) -> int:
        """Number of cards that a shared mode reports (``aliyun.com/gpu-count``)."""
        return self.allocatable.get(GPU_COUNT, 0)

    def per_card(self, resource: str) -> int:
        """Return how many units of a resource each shared card has: the node's by its cards, rounded down.

        The plugin takes a sick card's units out of allocatable and leaves ``gpu-count`` as it is, so where whole
        cards are missing from allocatable, capacity tells a card's size.
        """
        return self.capacity[resource] // self.shared_cards if self._cards_out(resource) else self.given(resource)

    def given(self, resource: str) -> int:
        """Return how many units of each shared card ACK's scheduler gives: it divides allocatable alone."""
        return self.allocatable.get(resource, 0) // self.shared_cards if self.shared_cards > 0 else 0

    @property
    def cards_out(self) -> int:
        """Shared cards that the plugin calls unhealthy, by the units that are missing; it does not say which."""
        return self._cards_out(GPU_MEM)

    def _cards_out(self, resource: str) -> int:
        cards, have, all_ = self.shared_cards, self.allocatable.get(resource, 0), self.capacity.get(resource, 0)
        if not 0 < have < all_ or cards <= 0 or cards != self.capacity.get(GPU_COUNT) or all_ % cards:
            return 0
        missing, rest = divmod(all_ - have, all_ // cards)
        return 0 if rest else missing

    @property
    def whole_cards(self) -> int:
        """Number of cards handed out whole: exclusive or topology."""
        return self.allocatable.get(EXCLUSIVE_GPU, 0) or self.allocatable.get(TOPOLOGY_GPU, 0)

    @property
    def cards_missing(self) -> int:
        """Cards that ACK counted when the node joined and that nothing reports now.

        A card that is only unhealthy is reported: it stays in capacity while others can be allocated.
        """
        counted = self.labels.get(CARD_COUNT_LABEL, "")
        names = [name for name in (GPU_COUNT, EXCLUSIVE_GPU, TOPOLOGY_GPU) if self.allocatable.get(name)]
        reported = max((max(self.allocatable[name], self.capacity.get(name, 0)) for name in names), default=0)
        known = integer(counted) or 0
        return max(0, known - reported) if known <= MOST_CARDS else 0

    @property
    def card_model(self) -> str:
        """Card model by ACK's discovery label, empty when ACK did not write it."""
        return self.labels.get(CARD_NAME_LABEL, "")

    @property
    def card_memory_mib(self) -> int | None:
        """Memory of one card by ACK's discovery label (``32510MiB``), None when missing or unreadable."""
        text = self.labels.get(CARD_MEMORY_LABEL, "")
        return integer(text[:-3]) if text.endswith("MiB") else None

    @property
    def is_gpu(self) -> bool:
        """Whether the node reports, or ever reported, any GPU resource, or declares a mode or a card model."""
        named = MODE_LABEL in self.labels or CARD_NAME_LABEL in self.labels
        resources = (EXCLUSIVE_GPU, GPU_MEM, TOPOLOGY_GPU)
        return named or any(name in self.allocatable or name in self.capacity for name in resources)


class HostPort(msgspec.Struct, frozen=True, gc=False):
    """A port of the node that a container wants; ``ip`` empty or 0.0.0.0 stands for every address."""

    port: int
    protocol: str = "TCP"
    ip: str = ""


class ContainerAsk(msgspec.Struct, frozen=True, gc=False):
    """What one container asks for; same units as ``GpuNode.allocatable``. ``restartable``: a sidecar init container.

    ``fractions``: limits or requests -> resource -> text, of what is counted in wholes and was written in parts.
    """

    name: str = ""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    restartable: bool = False
    ports: tuple[HostPort, ...] = ()
    fractions: dict[str, dict[str, str]] = {}


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Everything placement needs to know of a pod that wants a node.

    ``pod_requests`` stand for the pod as a whole, in the stead of what its containers add up to. ``gated``: nobody
    may place it yet. ``preempts``: others of lower priority may be evicted for it. ``scheduler`` is who places it,
    where that is not Kubernetes' default; ``host_ipc``: it shares its node's IPC namespace.
    """

    namespace: str = "default"
    name: str = ""
    containers: tuple[ContainerAsk, ...] = ()
    init_containers: tuple[ContainerAsk, ...] = ()
    overhead: dict[str, int] = {}
    labels: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    required_terms: tuple[AffinityTerm, ...] | None = None
    preferred_terms: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""
    priority: int = 0
    pod_requests: dict[str, int] = {}
    gated: bool = False
    preempts: bool = True
    scheduler: str = ""
    host_ipc: bool = False


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod of a cluster with what it asks for and what its annotations claim. Keyed by ``uid``, never by name."""

    uid: str
    namespace: str
    name: str
    ask: Ask
    node: str = ""
    phase: str = "Pending"
    terminating: bool = False
    annotations: dict[str, str] = {}
    owner_kind: str = ""
    owner_name: str = ""
    created_at: str = ""
    started_at: str = ""
    reason: str = ""
    message: str = ""
    restarts: int = 0
    ready: bool = False
    containers: tuple[str, ...] = ()
    image: str = ""

    @property
    def finished(self) -> bool:
        """Succeeded and Failed pods hold nothing."""
        return self.phase in {"Succeeded", "Failed"}


class Holding(msgspec.Struct, frozen=True, gc=False):
    """What one pod holds of one card, or of a node.

    ``lost`` says why it sits on no card, where it does not: "pending" (no readable allocation), "unknown-card" (a
    card that is not there) or "former-mode" (given before the node changed its mode).
    """

    uid: str
    namespace: str
    pod: str
    memory_units: int = 0
    core_percent: int = 0
    cards: int = 0
    releasing: bool = False
    owner_kind: str = ""
    owner_name: str = ""
    created_at: str = ""
    lost: str = ""


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One card of a node with its holders. ``memory_units`` is the card's total; sums never clamp.

    ``memory_units_held`` and ``core_percent_held`` are what ACK's scheduler counts: without terminating pods, and
    memory in proportion to what the card had when each pod was bound. While another card of the node is sick, ACK's
    scheduler divides what is left by all cards: ``memory_units_withheld`` and ``core_percent_withheld`` it does not
    give of this one meanwhile.
    """

    index: int
    memory_units: int
    core_percent: int = 0
    memory_units_used: int = 0
    memory_units_releasing: int = 0
    core_percent_used: int = 0
    cards_used: int = 0
    healthy: bool = True
    holdings: tuple[Holding, ...] = ()
    memory_units_held: int = 0
    core_percent_held: int = 0
    memory_units_withheld: int = 0
    core_percent_withheld: int = 0


class Warning_(msgspec.Struct, frozen=True, gc=False):
    """Something about a node's ledger that a person should know: stable code, sentence, pods concerned."""

    code: str
    message: str
    pods: tuple[str, ...] = ()


class NodeAllocation(msgspec.Struct, frozen=True, gc=False):
    """The fold of a node's holders onto its cards.

    In the shared modes ``gpus`` has one entry per card. Exclusive cards have no index in the API, so ``gpus`` is
    empty and ``cards``/``cards_used`` count; topology cards have an index only through their annotation.
    ``pending``: bound, but no readable allocation. ``orphan``: names a card that is not there, or a former mode.
    ``cards_missing``: cards that the node is known to have and does not report; they are in no other sum.
    """

    node: str
    uid: str
    mode: Mode | None
    policy: PlacementPolicy
    gpus: tuple[Gpu, ...] = ()
    cards: int = 0
    cards_used: int = 0
    cards_releasing: int = 0
    memory_units: int = 0
    memory_units_used: int = 0
    memory_units_releasing: int = 0
    memory_units_pending: int = 0
    memory_units_orphan: int = 0
    core_percent: int = 0
    core_percent_used: int = 0
    unit_mib: int | None = None
    holdings: tuple[Holding, ...] = ()
    unplaced: tuple[Holding, ...] = ()
    warnings: tuple[Warning_, ...] = ()
    strays: dict[int, int] = {}  # memory units by the index of a card that is not there
    cards_missing: int = 0


class Workload(msgspec.Struct, frozen=True, gc=False):
    """A Job or DaemonSet, wanted and found. ``state`` of a Job: active, suspended, complete, failed.

    ``observed``: a controller has looked at it as it is now, so its numbers mean something.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""
    wanted: int = 0
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    state: str = ""
    reason: str = ""
    message: str = ""
    created_at: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    image: str = ""
    observed: bool = True
    policy: str = ""  # POLICY in the environment of a DaemonSet: how cGPU shares compute time


class Picture(msgspec.Struct, frozen=True, gc=False):
    """All nodes and pods of a cluster at one instant: what pages, previews and the API read."""

    epoch: int
    sequence: int
    taken_at: float
    nodes: tuple[GpuNode, ...] = ()
    pods: tuple[Pod, ...] = ()
    workloads: tuple[Workload, ...] = ()


UNKNOWN = "unknown"
