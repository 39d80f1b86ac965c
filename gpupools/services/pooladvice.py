"""What to know of a pool that is, or would be made: mixing, twins, unknown machines. It looks, and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpupools.clusters.port import PoolSpec
from gpupools.domain import cgpupolicy
from gpupools.domain.advice import Advice, PoolView, of_pool
from gpupools.domain.cgpupolicy import PolicyFound
from gpupools.domain.gpus import GpuNode, Picture
from gpupools.domain.modes import POOL_LABEL, Mode, mode_labels
from gpupools.domain.nodewrites import Group, Wishes, grouped, node_writes
from gpupools.models import Cluster, NodePool, Role
from gpupools.services import allocation, poolrules
from gpupools.services.access import Actor
from gpupools.services.changefacts import FRESH_SECONDS
from gpupools.services.drift import wanted_labels, writings
from gpupools.services.gateways import kubernetes_of
from gpupools.services.poolspecs import members, unlike


@dataclass(frozen=True, slots=True)
class NewPool:
    """A pool as it would be made. ``groups``: what happens to the nodes named for it; ``changing``: those whose mode
    would change, which somebody must approve.
    """

    spec: PoolSpec
    labels: Mapping[str, str]
    groups: tuple[Group, ...]
    changing: tuple[str, ...]
    advice: tuple[Advice, ...]


def of(actor: Actor, pool: NodePool) -> tuple[Advice, ...]:
    """Return what to know of a pool as it is, beside the other pools of its cluster."""
    return of_all(actor, pool.cluster).get(pool.pk, ())


def of_all(actor: Actor, cluster: Cluster) -> dict[int, tuple[Advice, ...]]:
    """Return what to know of each pool of a cluster, by its key."""
    actor.require(Role.VIEWER, cluster)
    picture = allocation.current(cluster)
    changing = {node for node, _ in writings(cluster)}
    views = {row.pk: _view(row, picture, changing) for row in _rows(cluster)}
    return {
        key: tuple(of_pool(view, (other for pk, other in views.items() if pk != key))) for key, view in views.items()
    }


def of_new(actor: Actor, cluster: Cluster, **wishes: Any) -> NewPool:
    """Check a new pool as ``pools.create`` does with the same words, and say what it would be; nothing is made.

    Raises Invalid with an error per field, Unreachable when the named nodes cannot be looked at.
    """
    actor.require(Role.OPERATOR, cluster)
    spec = poolrules.checked(cluster, **_given(wishes))
    chosen = _named(cluster, spec)
    picture = allocation.current(cluster)
    labels = {**spec.labels, **(mode_labels(spec.mode, spec.policy) if spec.mode else {})}
    kind = spec.auto_scaling.kind if spec.auto_scaling else ""
    view = PoolView(spec.name, spec.mode, labels, spec.instance_types, kind, chosen)
    changing = unlike(chosen, spec.mode, spec.policy)
    wanted = Wishes({**labels, POOL_LABEL: spec.name}, tuple(spec.taints))
    return NewPool(
        spec,
        labels,
        grouped((node.name, node_writes(node, wanted, owned=())) for node in chosen),
        tuple(node.name for node in changing),
        tuple(of_pool(view, [_view(row, picture) for row in _rows(cluster)])),
    )


def cgpu_policy(cluster: Cluster) -> PolicyFound:
    """Return how cGPU shares compute time in a cluster, or why nobody knows."""
    picture = allocation.current(cluster)
    if picture is None:
        return PolicyFound(None, "nothing of this cluster has been read yet")
    return cgpupolicy.found(picture.workloads)


def _given(wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words of a creation as the rules take them, each with what it is where nobody said."""
    none: dict[str, Any] = {
        "policy": None, "instance_types": (), "desired_size": 0, "labels": {}, "node_names": (), "vswitch_ids": (),
        "auto_scaling": None,
    }  # fmt: skip
    words = {key: value for key, value in wishes.items() if key not in ("reason", "taints")}
    taints = poolrules.as_taints(wishes.get("taints") or ())
    return {**none, **words, "name": str(wishes["name"]).strip(), "taints": taints}


def _named(cluster: Cluster, spec: PoolSpec) -> list[GpuNode]:
    """Return the nodes that a new pool names, checked against those that there are."""
    if cluster.provider == Cluster.Provider.ACK:
        return []
    nodes = _nodes(cluster)
    poolrules.check_nodes(cluster, spec, nodes)
    named = set(spec.node_names)
    return [node for node in nodes if node.name in named]


def _nodes(cluster: Cluster) -> Sequence[GpuNode]:
    picture = allocation.current(cluster)
    if picture is not None and time.time() - picture.taken_at <= FRESH_SECONDS:
        return picture.nodes
    with kubernetes_of(cluster) as kubernetes:
        return kubernetes.nodes()


def _rows(cluster: Cluster) -> Iterable[NodePool]:
    return NodePool.objects.filter(cluster=cluster).exclude(state=NodePool.State.GONE).select_related("cluster")


def _view(pool: NodePool, picture: Picture | None, changing: Collection[str] = ()) -> PoolView:
    # Half done, a change under way leaves a pool mixed by design.
    return PoolView(
        pool.name,
        Mode(pool.mode) if pool.mode else None,
        wanted_labels(pool),
        tuple(pool.instance_types),
        str(pool.auto_scaling.get("type") or ""),
        [node for node in members(pool, picture.nodes) if node.name not in changing] if picture else (),
    )
