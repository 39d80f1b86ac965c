"""What the console wants of a cluster: Protocols and values. It knows no SDK and no raw API object.

``Kubernetes`` is the API server, ``PoolProvider`` whoever owns node pools, ``AddonProvider`` whoever owns add-ons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpupools.domain.abilities import Ability
from gpupools.domain.disruptions import Budget
from gpupools.domain.gpus import GpuNode, Pod, Taint, Workload
from gpupools.domain.modes import Mode, PlacementPolicy
from gpupools.domain.releases import HelmRelease


@dataclass(frozen=True, slots=True)
class AckAccess:
    """How to reach the ACK OpenAPI. ``secret`` never appears in a repr."""

    cluster_id: str
    region: str
    access_key_id: str
    secret: str = field(repr=False)
    endpoint: str = ""  # empty: cs.<region>.aliyuncs.com
    protocol: str = "https"
    ram_role: str = ""  # of the machine that the console runs on; then there is neither AccessKey nor secret


@dataclass(frozen=True, slots=True)
class Connection:
    """A checked way into a cluster: one context of a kubeconfig, and the OpenAPI for provider ``ack``."""

    server: str
    kubeconfig: Mapping[str, Any] = field(repr=False)
    context: str = ""
    ack: AckAccess | None = None
    timeout_seconds: float = 10.0
    denied: tuple[str, ...] = ()  # networks and host names to which nothing is ever sent


@dataclass(frozen=True, slots=True)
class AutoScaling:
    """Whether ACK makes and removes machines by itself, and between which sizes. ``kind`` cannot be changed later."""

    enable: bool = False
    min_instances: int = 0
    max_instances: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What a node pool shall be. ``labels`` holds the free labels only: mode and policy are typed.

    ``node_names`` matters to label-owned pools (plain Kubernetes), ``instance_types`` and ``desired_size`` to ACK.
    """

    name: str
    mode: Mode | None
    policy: PlacementPolicy | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    instance_types: Sequence[str] = ()
    desired_size: int = 0
    node_names: Sequence[str] = ()
    vswitch_ids: Sequence[str] = ()
    auto_scaling: AutoScaling | None = None  # None leaves it as it is


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What a provider says a node pool is now. ``labels`` holds all labels, mode and policy among them."""

    pool_id: str
    name: str
    state: str  # active, scaling, removing, deleting, updating, failed
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    instance_types: Sequence[str] = ()
    desired_size: int = 0
    total_nodes: int = 0
    healthy_nodes: int = 0
    failed_nodes: int = 0
    op_id: str = ""
    auto_scaling: AutoScaling = AutoScaling()
    cpu_policy: str = ""  # the kubelet's; empty where the provider does not say


@dataclass(frozen=True, slots=True)
class Started:
    """A provider accepted a call. An empty ``task_id`` means that it is done already."""

    pool_id: str = ""
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """An asynchronous task of the provider: ``running``, ``success`` or ``fail``.

    ``failed``: the parts of it (machines, add-ons) that it says it could not do, though the task may be a success.
    """

    task_id: str
    state: str
    message: str = ""
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddonFacts:
    """An installed add-on as the provider reports it."""

    name: str
    version: str
    state: str


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What a probe found. ``spec`` is ACK's cluster_spec (``ack.pro.small``), empty elsewhere."""

    version: str
    spec: str = ""
    name: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What a write did: ``created``, ``changed``, ``unchanged`` or ``already`` (this operation had landed before)."""

    outcome: str
    uid: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch, already translated. ``kind``: Node, Pod, Job, DaemonSet; ``value`` None when deleted."""

    kind: str
    uid: str
    value: GpuNode | Pod | Workload | None


class Kubernetes(Protocol):
    """The API server. Every method raises Unreachable (network, 5xx, 429) or Refused (4xx) with a plain sentence."""

    def version(self) -> str: ...
    def nodes(self) -> list[GpuNode]: ...
    def node(self, name: str) -> GpuNode | None: ...
    def pods(self, *, node: str = "", namespace: str = "") -> list[Pod]: ...
    def workloads(self) -> list[Workload]: ...
    def pod_log(self, namespace: str, name: str, *, container: str = "", tail_lines: int = 500) -> str: ...
    def create(self, manifest: Mapping[str, Any], *, op_id: str, dry_run: bool = False) -> ApplyResult:
        """Create a named object once: an object of that name that carries our op_id is ``already``; another
        object of that name raises Conflict."""

    def apply(self, manifest: Mapping[str, Any], *, op_id: str) -> ApplyResult:
        """Server-side apply as field manager ``gpupools``."""

    def rehearse(self, manifest: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
        """Return the object as it is (None: not there) and as applying would leave it; nothing is written."""

    def helm_releases(self, namespace: str) -> dict[str, HelmRelease]: ...

    def delete(self, kind: str, namespace: str, name: str) -> bool:
        """Delete in the background (dependants too); False when it was not there."""

    def label_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None],
        taints_add: Sequence[Taint] = (),
        taints_remove: Sequence[Taint] = (),
        op_id: str,
        annotations: Mapping[str, str | None] | None = None,
    ) -> ApplyResult:
        """Write only these label and annotation keys (None removes) and taints, by a patch that tests
        resourceVersion."""

    def cordon(self, name: str, *, unschedulable: bool, op_id: str) -> ApplyResult: ...
    def evict(self, namespace: str, name: str) -> bool:
        """Evict a pod; False when it was not there. Raises Conflict (``disruption-budget``) when one says no."""

    def budgets(self) -> list[Budget]: ...
    def may(self, verb: str, group: str, resource: str) -> bool:
        """SelfSubjectAccessReview; a server without that API counts as allowed."""

    def abilities(self) -> list[Ability]:
        """SelfSubjectRulesReview, judged: which functions of the console our identity leaves."""


class PoolProvider(Protocol):
    """Node pools of one cluster. Calls return at once; a task tells when they are done."""

    owns_nodes: bool  # ACK makes and removes machines; on plain Kubernetes a pool is a label on existing nodes

    def pools(self) -> list[PoolFacts]: ...
    def pool(self, pool_id: str) -> PoolFacts | None: ...
    def find(self, op_id: str) -> PoolFacts | None:
        """Look for a pool that an earlier try of this operation made."""

    def create(self, spec: PoolSpec, *, op_id: str) -> Started: ...
    def modify(self, pool_id: str, spec: PoolSpec, *, update_nodes: bool, op_id: str) -> Started:
        """Write name, labels, taints and size as a whole; ``update_nodes`` pushes labels and taints to nodes."""

    def delete(self, pool_id: str, *, force: bool, op_id: str) -> Started: ...
    def task(self, task_id: str) -> TaskFacts: ...
    def node_names(self, pool_id: str) -> list[str]: ...

    def instances(self, pool_id: str) -> dict[str, str]:
        """Return the pool's machines: instance id -> name of its node, empty before it joined (owner of nodes only)."""

    def remove(self, pool_id: str, instance_ids: Sequence[str]) -> Started:
        """Take machines out of a pool and the cluster without releasing them (owner of nodes only)."""

    def attach(self, pool_id: str, instance_ids: Sequence[str]) -> Started:
        """Let machines outside the cluster join a pool; they are set up anew (owner of nodes only)."""

    def place(self, spec: PoolSpec, node_names: Sequence[str], *, op_id: str) -> Started:
        """Put nodes into a pool, wherever they were, with its labels and taints (pools by label only)."""

    def leave(self, pool_id: str, node_names: Sequence[str], *, op_id: str) -> Started:
        """Take a pool's labels and taints off nodes; their mode stays (pools by label only)."""


class AddonProvider(Protocol):
    """Add-ons of one cluster (ACK only)."""

    def addons(self) -> list[AddonFacts]: ...
    def install(self, name: str) -> Started:
        """Raises Refused with code ``addon-not-found`` where the API does not know the add-on."""

    def uninstall(self, name: str) -> Started: ...
    def newest(self, name: str) -> str:
        """Return the version that an upgrade would lead to; raises Refused (``addon-not-found``) like ``install``."""

    def upgrade(self, name: str, version: str, *, config: str = "") -> Started:
        """Upgrade an add-on; one that has this version counts as done."""

    def configure(self, name: str, config: str) -> None:
        """Write an add-on's configuration, a JSON object as text; what runs may be restarted by that."""

    def configuration(self, name: str) -> str: ...
    def task(self, task_id: str) -> TaskFacts: ...
    def cluster(self) -> ClusterFacts: ...
    def kubeconfig(self) -> str: ...


class Watcher(Protocol):
    """A local copy of a cluster that is never half-empty (see reflector.py)."""

    def rings(self) -> Iterator[frozenset[str]]:
        """Yield, at most ten times a second, the names of nodes that changed since the last ring."""
