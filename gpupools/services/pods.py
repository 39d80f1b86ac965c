"""Looking at pods: the list as the current picture has it, and the log of one container.

Every actor sees only the namespaces that their grants name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpupools.domain.gpus import GpuNode, NodeAllocation, Pod
from gpupools.domain.messages import Unschedulable, read_failed_scheduling
from gpupools.domain.modes import GPU_RESOURCES
from gpupools.errors import Invalid
from gpupools.models import Cluster, Role
from gpupools.services import allocation, gateways
from gpupools.services.access import Actor

MOST_LOG_LINES: Final = 10_000
CRASHING: Final = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which pods are wanted; empty means any. ``owner`` is ``Job/name`` or just ``name``."""

    namespace: str = ""
    node: str = ""
    owner: str = ""
    phase: str = ""
    mode: str = ""
    gpu_only: bool = False


@dataclass(frozen=True, slots=True)
class CardUse:
    """What a pod holds of one card. ``index`` is None where the API does not tell which card (exclusive mode)."""

    index: int | None
    memory_units: int = 0
    core_percent: int = 0
    cards: int = 0


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod with its node's mode and the cards it holds. ``uses`` is empty while nothing is allocated to it."""

    pod: Pod
    mode: str
    asks: dict[str, int]
    uses: tuple[CardUse, ...]

    @property
    def phase(self) -> str:
        """How it stands: its phase, Terminating, or CrashLoopBackOff where Running would only be a name."""
        if self.pod.terminating:
            return "Terminating"
        return CRASHING if is_crashing(self.pod) else self.pod.phase

    @property
    def waits(self) -> bool:
        """Whether it waits for a node."""
        return self.pod.phase == "Pending" and not self.pod.node and not self.pod.terminating

    @property
    def unschedulable(self) -> Unschedulable | None:
        """The scheduler's sentence on a pod that waits for a node, read into counted reasons; None without one."""
        return read_failed_scheduling(self.pod.message) if self.waits else None


def is_crashing(pod: Pod) -> bool:
    """Whether a pod's container fails again and again: Kubernetes calls that Running."""
    return pod.phase == "Running" and pod.reason == CRASHING


@dataclass(frozen=True, slots=True)
class Listing:
    """Pods and how old the list is (seconds since 1970); ``taken_at`` None: nothing is known yet."""

    taken_at: float | None
    rows: tuple[PodRow, ...]


def listing(actor: Actor, cluster: Cluster, filters: Filters | None = None) -> Listing:
    """List pods of the namespaces that the actor may see, by namespace and name.

    Raises Missing and NotAllowed for a cluster or namespace out of reach, Unreachable when the broker is away.
    """
    filters = filters or Filters()
    actor.require(Role.VIEWER, cluster, filters.namespace)
    picture = allocation.current(cluster)
    if picture is None:
        return Listing(None, ())
    namespaces = actor.namespaces(cluster)
    chosen = [
        pod for pod in picture.pods if (namespaces is None or pod.namespace in namespaces) and _matches(pod, filters)
    ]
    folds = allocation.folds_of(picture, {pod.node for pod in chosen if pod.node})
    nodes = {node.name: node for node in picture.nodes}
    rows = [row_of(pod, nodes.get(pod.node), folds.get(pod.node)) for pod in chosen]
    if filters.mode:
        rows = [row for row in rows if row.mode == filters.mode]
    return Listing(picture.taken_at, tuple(sorted(rows, key=lambda row: (row.pod.namespace, row.pod.name))))


def _matches(pod: Pod, filters: Filters) -> bool:
    kind, slash, name = filters.owner.rpartition("/")
    return (
        filters.namespace in ("", pod.namespace)
        and filters.node in ("", pod.node)
        and filters.phase in ("", pod.phase)
        and (not filters.owner or (name == pod.owner_name and (not slash or kind == pod.owner_kind)))
        and (not filters.gpu_only or bool(gpu_asks(pod)))
    )


def gpu_asks(pod: Pod) -> dict[str, int]:
    """Return what a pod asks for of GPU resources, bound or not, finished or not."""
    asks: dict[str, int] = {}
    for container in pod.ask.containers:
        for name, amount in container.limits.items():
            if amount and name in GPU_RESOURCES:
                asks[name] = asks.get(name, 0) + amount
    return asks


def row_of(pod: Pod, node: GpuNode | None, fold: NodeAllocation | None) -> PodRow:
    """Put a pod beside what the fold of its node says about it."""
    mode = fold.mode.value if fold and fold.mode and node and node.is_gpu else ""
    return PodRow(pod, mode, gpu_asks(pod), tuple(_uses(pod, fold)) if fold else ())


def _uses(pod: Pod, fold: NodeAllocation) -> Iterator[CardUse]:
    found = False
    for gpu in fold.gpus:
        for holding in gpu.holdings:
            if holding.uid == pod.uid:
                found = True
                yield CardUse(gpu.index, holding.memory_units, holding.core_percent, holding.cards)
    if not found:
        for holding in fold.holdings:
            if holding.uid == pod.uid:
                yield CardUse(None, holding.memory_units, holding.core_percent, holding.cards)


def log(
    actor: Actor, cluster: Cluster, namespace: str, name: str, *, container: str = "", tail_lines: int = 500
) -> str:
    """Return the end of a container's log, straight from the cluster.

    Raises Invalid for a wrong number of lines, Missing and NotAllowed for a pod out of reach, Refused with the
    cluster's own sentence (no such pod, container still waiting), Unreachable when it does not answer.
    """
    actor.require(Role.VIEWER, cluster, namespace)
    if not 1 <= tail_lines <= MOST_LOG_LINES:
        raise Invalid.field(
            "tail_lines",
            "This many lines cannot be read at once.",
            found=str(tail_lines),
            allowed=f"1 to {MOST_LOG_LINES}",
        )
    with gateways.kubernetes_of(cluster) as kubernetes:
        return kubernetes.pod_log(namespace, name, container=container, tail_lines=tail_lines)
