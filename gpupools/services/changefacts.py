"""What a mode change is judged by: the pool's nodes and pods as they are now, and the facts an approval is bound to.

It reads the current picture, or the cluster itself where the picture is missing or old, and writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpupools.domain import plans
from gpupools.domain.components import missing_for, verdict
from gpupools.domain.gpus import GpuNode, Pod, Workload
from gpupools.domain.modes import MODE_LABEL, MODES, PLACEMENT_LABEL, Component, Mode, PlacementPolicy, mode_labels
from gpupools.models import Cluster, ComponentState, NodePool
from gpupools.services import allocation, gateways
from gpupools.services.drift import wanted_labels, wanted_taints
from gpupools.services.poolspecs import members

# Older numbers are not what a person should decide on.
FRESH_SECONDS: Final = 60.0
# The labels that declare a mode; removing the mode label itself is never what a change does.
MODE_KEYS: Final = (MODE_LABEL, PLACEMENT_LABEL)
_PRESENT = (ComponentState.State.INSTALLED, ComponentState.State.DEGRADED)


@dataclass(frozen=True, slots=True)
class Seen:
    """A pool's nodes, the pods of the cluster and its Jobs and DaemonSets, at one instant."""

    nodes: Sequence[GpuNode]
    pods: Sequence[Pod]
    workloads: Sequence[Workload]

    def unlike(self, mode: Mode) -> list[GpuNode]:
        """Return the nodes that would leave another mode."""
        return [node for node in self.nodes if node.declared is not mode]


def see(pool: NodePool) -> Seen:
    """Look at a pool. Raises Unreachable when neither picture nor cluster can be read."""
    picture = allocation.current(pool.cluster)
    if picture is not None and time.time() - picture.taken_at <= FRESH_SECONDS:
        return Seen(members(pool, picture.nodes), picture.pods, picture.workloads)
    with gateways.kubernetes_of(pool.cluster) as kubernetes:
        return look(pool, kubernetes)


def look(pool: NodePool, kubernetes: gateways.Kubernetes) -> Seen:
    """Look at a pool in the cluster itself."""
    return Seen(members(pool, kubernetes.nodes()), kubernetes.pods(), kubernetes.workloads())


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
    kept = {key: value for key, value in old.items() if key in MODE_KEYS}
    return {
        "pool": [_as_row(each) for each in plans.label_changes(kept, wanted)],
        "nodes": [
            {"node": node.name, "labels": [_as_row(each) for each in changes]}
            for node in seen.nodes
            if (changes := node_changes(pool, node, mode, policy))
        ],
    }


def node_changes(pool: NodePool, node: GpuNode, mode: Mode, policy: PlacementPolicy | None) -> list[plans.LabelChange]:
    """Return how the mode's labels change a node of a pool; empty when it carries them."""
    wanted = mode_labels(mode, policy)
    kept = {key: node.labels[key] for key in MODE_KEYS if key in node.labels}
    changes = plans.label_changes(kept, wanted)
    if pool.cluster.provider == Cluster.Provider.ACK:
        # Whether ACK takes a label off nodes is not documented; a card choice that the mode does not know is idle.
        changes = [change for change in changes if change.new]
    return changes


def _as_row(change: plans.LabelChange) -> dict[str, str]:
    return {"key": change.key, "old": change.old, "new": change.new}
