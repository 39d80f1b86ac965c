"""Who is hit by an operation that is no mode change, and the facts that an approval of it is bound to.

It reads rows and the current picture, or the cluster itself where the picture is missing or old, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gpupools.domain import requests
from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.modes import Component
from gpupools.models import Cluster, ComponentState, NodePool
from gpupools.services import allocation, changefacts, componentguards, endings
from gpupools.services.access import Actor
from gpupools.services.poolspecs import members
from gpupools.services.rows import ANOTHER_NAMESPACE

_NOT_THERE: Final = (ComponentState.State.ABSENT, ComponentState.State.REMOVING)


@dataclass(frozen=True, slots=True)
class Radius:
    """Nodes whose machines go ({uid, name}), pods that end, pools that need it, and the facts. Pods are no fact."""

    facts: dict[str, Any]
    nodes: list[dict[str, str]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    pools: list[str] = field(default_factory=list)

    @property
    def pod_names(self) -> list[str]:
        """The pods that end, as namespace/name."""
        return [endings.name_of(pod) for pod in self.pods]

    @property
    def lost(self) -> int:
        """How many of the pods nothing starts again."""
        return sum(pod["fate"] == "lost" for pod in self.pods)

    @property
    def approved(self) -> dict[str, Any]:
        """Return who was seen by whoever let it happen, for the worker to look again: machines and pods."""
        kept = ("uid", "namespace", "pod", "owner")
        return {
            "nodes": [node["uid"] for node in self.nodes],
            "pods": [{key: pod[key] for key in kept} for pod in self.pods],
        }

    def as_json(self) -> dict[str, Any]:
        """Return who is hit, as a request keeps it."""
        return {"nodes": self.nodes, "pods": self.pods, "pools": self.pools}


def machines_of(pool: NodePool) -> int | None:
    """Return how many machines a pool of ACK has, by its last sync or the picture; None where nobody has counted."""
    counted = pool.seen.get("total_nodes")
    if counted is None and pool.pool_id:
        return None
    picture = allocation.current(pool.cluster)
    seen = len(members(pool, picture.nodes)) if picture is not None else 0
    return max(int(counted or 0), seen)


def of_pool(pool: NodePool, *, some: bool = False) -> Radius:
    """Return who is hit when the machines of a pool go, or some of them, of which nobody knows yet.

    Raises Unreachable when nobody knows who is there.
    """
    seen = changefacts.see(pool)
    nodes = sorted(seen.nodes, key=lambda node: node.name)
    pods = requests.ending_on(nodes, seen.pods, some=some)
    named = [{"uid": node.uid, "name": node.name} for node in nodes]
    return Radius(_facts(pool, nodes), named, msgspec.to_builtins(pods))


def of_taints(pool: NodePool, taints: Iterable[Taint]) -> Radius:
    """Return which pods end when taints are written to the nodes of a pool. Raises Unreachable when nobody knows."""
    seen = changefacts.see(pool)
    nodes = sorted(seen.nodes, key=lambda node: node.name)
    pods = requests.endings(requests.evicted(nodes, seen.pods, taints))
    return Radius(_facts(pool, nodes), pods=msgspec.to_builtins(pods))


def _facts(pool: NodePool, nodes: Iterable[GpuNode]) -> dict[str, Any]:
    return {
        "version": pool.version,
        "desired_size": pool.desired_size,
        "auto_scaling": pool.auto_scaling,
        "nodes": {node.uid: node.name for node in nodes},
    }


def of_component(cluster: Cluster, component: Component, *, pools: Sequence[str]) -> Radius:
    """Return who is hit when a component goes or restarts. Raises Unreachable when nobody knows its clients."""
    state = ComponentState.objects.filter(cluster=cluster, name=component).first()
    facts = {
        "present": state is None or state.state not in _NOT_THERE,
        "version": state.version if state else "",
        "pools": list(pools),
    }
    pods = requests.endings(componentguards.client_pods(cluster, component))
    return Radius(facts, pods=msgspec.to_builtins(pods), pools=list(pools))


def visible(actor: Actor, cluster: Cluster, pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods of a blast radius; those of namespaces out of the actor's reach have no name."""
    namespaces = actor.namespaces(cluster)
    return [
        each
        if namespaces is None or each["namespace"] in namespaces
        else {**each, "uid": "", "namespace": "", "pod": ANOTHER_NAMESPACE, "owner": "", "sentence": "", "budget": ""}
        for each in pods
    ]
