"""What a mode change is judged by: the pool's nodes and pods as they are now, and the facts an approval is bound to.

It reads the current picture, or the cluster itself where the picture is missing or old, and writes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpupools.domain import plans
from gpupools.domain.components import missing_for, verdict
from gpupools.domain.disruptions import Budget
from gpupools.domain.gpus import GpuNode, Pod, Workload
from gpupools.domain.modes import MODES, Component, Mode, PlacementPolicy, mode_labels
from gpupools.domain.routes import Way
from gpupools.errors import ConsoleError, Unreachable
from gpupools.models import Cluster, ComponentState, ModeChange, NodePool
from gpupools.services import allocation, endings, gateways
from gpupools.services.drift import pool_label, wanted_labels, wanted_taints
from gpupools.services.poolspecs import members

logger = logging.getLogger(__name__)

# Older numbers are not what a person should decide on.
FRESH_SECONDS: Final = 60.0
_PRESENT = (ComponentState.State.INSTALLED, ComponentState.State.DEGRADED)


@dataclass(frozen=True, slots=True)
class Seen:
    """A pool's nodes, the pods of the cluster and its Jobs and DaemonSets, at one instant."""

    nodes: Sequence[GpuNode]
    pods: Sequence[Pod]
    workloads: Sequence[Workload]
    fleet: Sequence[GpuNode] = ()  # every node of the cluster

    def unlike(self, mode: Mode) -> list[GpuNode]:
        """Return the nodes that would leave another mode."""
        return [node for node in self.nodes if node.declared is not mode]


def see(pool: NodePool, node_names: Collection[str] = ()) -> Seen:
    """Look at a pool, or at the named nodes. Raises Unreachable when neither picture nor cluster can be read.

    A cluster that is known to be silent is not waited for: whoever asks sits before a page.
    """
    cluster = pool.cluster
    picture = allocation.current(cluster)
    if picture is not None and time.time() - picture.taken_at <= FRESH_SECONDS:
        return Seen(_concerned(pool, node_names, picture.nodes), picture.pods, picture.workloads, picture.nodes)
    if cluster.state == Cluster.State.UNREACHABLE:
        said = f"Cluster {cluster.name} does not answer, so nobody can tell how its nodes are now."
        raise Unreachable(f"{said} {cluster.last_error}".strip(), code="cluster-away")
    with gateways.kubernetes_of(pool.cluster) as kubernetes:
        return look(pool, kubernetes, node_names)


def look(pool: NodePool, kubernetes: gateways.Kubernetes, node_names: Collection[str] = ()) -> Seen:
    """Look at a pool, or at the named nodes, in the cluster itself."""
    nodes = kubernetes.nodes()
    return Seen(_concerned(pool, node_names, nodes), kubernetes.pods(), kubernetes.workloads(), nodes)


def _concerned(pool: NodePool, node_names: Collection[str], nodes: Iterable[GpuNode]) -> list[GpuNode]:
    if not node_names:
        return members(pool, nodes)
    named = set(node_names)
    return [node for node in nodes if node.name in named]


def names_now(change: ModeChange) -> list[str]:
    """Return what the nodes of a change are called now: a machine that joins a pool anew may get another name.

    Empty where they are the nodes of the pool; those that move into another pool are known by their names.
    """
    renamed = change.remembered.get("renamed", {})
    named = change.node_names
    if not named and change.way == Way.MOVE:
        named = sorted(each["name"] for each in change.diff["facts"]["nodes"].values())
    return [renamed.get(name, name) for name in named]


def newcomers(change: ModeChange, holders: Iterable[Pod], pods: Iterable[Pod]) -> list[Pod]:
    """Return those of the holders that nobody who decided on a change has seen, and that stand in for none of these.

    ``pods``: all of the cluster, by which a pod is known to have ended.
    """
    seen = [*change.blast_radius, *change.remembered.get("approved_later", ())]
    alive = {pod.uid for pod in pods if not (pod.finished or pod.terminating)}
    found = {pod.uid: pod for pod in holders if not pod.terminating}
    return [found[row["uid"]] for row in endings.strangers(seen, map(pod_row, found.values()), alive)]


def pod_row(pod: Pod) -> dict[str, str]:
    """Return how a change keeps a pod that came since the request; ``pod`` is namespace/name."""
    owner = f"{pod.owner_kind}/{pod.owner_name}" if pod.owner_kind else ""
    name = f"{pod.namespace}/{pod.name}"
    return {"uid": pod.uid, "namespace": pod.namespace, "pod": name, "owner": owner, "node": pod.node}


def budgets(cluster: Cluster) -> list[Budget] | None:
    """Read the disruption budgets of a cluster; None where it does not answer or does not let the console."""
    if cluster.state == Cluster.State.UNREACHABLE:
        return None
    try:
        with gateways.kubernetes_of(cluster) as kubernetes:
            return kubernetes.budgets()
    except ConsoleError as error:
        logger.info("The disruption budgets of cluster %s cannot be read: %s", cluster.pk, error.code)
        return None


def components(cluster: Cluster, mode: Mode, workloads: Sequence[Workload]) -> dict[str, bool]:
    """Return the components that a mode needs, and whether each is there: by the last check, or by its DaemonSets."""
    rows = ComponentState.objects.filter(cluster=cluster, state__in=_PRESENT)
    checked = set(rows.values_list("name", flat=True))
    absent = missing_for(mode, [verdict(each, workloads) for each in MODES[mode].components])
    return {each.value: each.value in checked or each not in absent for each in MODES[mode].components}


def facts(pool: NodePool, seen: Seen, mode: Mode) -> dict[str, Any]:
    """Return what an approval of a change to this mode is bound to."""
    return plans.facts(
        labels=wanted_labels(pool),
        taints=wanted_taints(pool),
        nodes=seen.nodes,
        components=components(pool.cluster, mode, seen.workloads),
    )


def mps_is_missing(mode: Mode, present: dict[str, bool]) -> bool:
    """Tell whether a mode needs the MPS daemon and the cluster has none."""
    return Component.MPS_CONTROL in MODES[mode].components and not present[Component.MPS_CONTROL.value]


def diff(pool: NodePool, seen: Seen, mode: Mode, policy: PlacementPolicy | None) -> dict[str, Any]:
    """Return the exact difference that a change makes: labels of the pool and of each node, old and new."""
    wanted = mode_labels(mode, policy)
    old = wanted_labels(pool)
    kept = {key: value for key, value in old.items() if key in plans.MODE_KEYS}
    return {
        "pool": [_as_row(each) for each in plans.label_changes(kept, wanted)],
        "nodes": [
            {"node": node.name, "labels": [_as_row(each) for each in changes]}
            for node in seen.nodes
            if (changes := [*node_changes(pool, node, mode, policy), *membership_changes(pool, node)])
        ],
    }


def membership_changes(pool: NodePool, node: GpuNode) -> list[plans.LabelChange]:
    """Return what joining a pool changes on a node that is not in it: the pool's label, free labels and taints."""
    if is_member(pool, node):
        return []
    label = pool_label(pool.cluster)
    wanted = {label: pool.pool_id or pool.name, **pool.labels}
    changes = plans.label_changes({key: node.labels[key] for key in wanted if key in node.labels}, wanted)
    taints = [taint for taint in wanted_taints(pool) if taint not in node.taints]
    return [*changes, *(plans.LabelChange(f"taint {each.key}", "", f"{each.value}:{each.effect}") for each in taints)]


def is_member(pool: NodePool, node: GpuNode) -> bool:
    """Tell whether a node carries the label of a pool."""
    return node.labels.get(pool_label(pool.cluster)) == (pool.pool_id or pool.name)


def node_changes(pool: NodePool, node: GpuNode, mode: Mode, policy: PlacementPolicy | None) -> list[plans.LabelChange]:
    """Return how the mode's labels change a node of a pool; empty when it carries them."""
    wanted = mode_labels(mode, policy)
    kept = {key: node.labels[key] for key in plans.MODE_KEYS if key in node.labels}
    changes = plans.label_changes(kept, wanted)
    if pool.cluster.provider == Cluster.Provider.ACK:
        # Whether ACK takes a label off nodes is not documented; a card choice that the mode does not know is idle.
        changes = [change for change in changes if change.new]
    return changes


def _as_row(change: plans.LabelChange) -> dict[str, str]:
    return {"key": change.key, "old": change.old, "new": change.new}
