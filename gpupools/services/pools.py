"""Node pools: create and edit. Each checks the rules, writes row and audit, and queues one push.

Scaling and deleting is in poolcuts.py; what is then done in the cluster, in poolpushes.py; what others did there, in
poolsync.py. Whatever would change the mode of an existing node becomes a request for a mode change here, and is never
pushed directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from gpupools.clusters.port import AutoScaling, PoolSpec
from gpupools.domain.changes import OPEN
from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.requests import Kind
from gpupools.errors import Conflict, Invalid
from gpupools.models import Cluster, ModeChange, NodePool, OperationRequest, Push, Role
from gpupools.services import audit, changefacts, changes, endings, poolrules, pushes, radii, requestrules
from gpupools.services.access import Actor
from gpupools.services.changerules import needed
from gpupools.services.gateways import kubernetes_of
from gpupools.services.poolspecs import (
    names,
    nodes_of,
    scaling_to_json,
    spec_of,
    taints_to_json,
    target_of,
    to_json,
    unlike,
)
from gpupools.services.radii import Radius
from gpupools.services.requestrules import Wish

__all__ = ["check_free", "create", "edit", "nodes_of", "push_modify", "write"]


def create(
    actor: Actor,
    cluster: Cluster,
    *,
    name: str,
    mode: str,
    policy: str | None = None,
    instance_types: Sequence[str] = (),
    desired_size: int = 0,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint | Mapping[str, str]] | None = None,
    node_names: Sequence[str] = (),
    vswitch_ids: Sequence[str] = (),
    auto_scaling: Mapping[str, Any] | None = None,
    reason: str = "",
) -> NodePool:
    """Make a node pool: of new machines on ACK, over the named nodes on plain Kubernetes.

    Where named nodes are in another mode today, the pool starts without a mode, and a request for the mode change
    is made with ``reason``. ``auto_scaling``: {enable, min_instances, max_instances, type}, on ACK only; without a type
    it is the one that follows the mode. Raises Invalid with an error per field, Conflict when the name's race is lost.
    """
    actor.require(Role.OPERATOR, cluster)
    spec = poolrules.checked(
        cluster,
        name=name.strip(),
        mode=mode,
        policy=policy,
        instance_types=instance_types,
        desired_size=desired_size,
        labels=labels or {},
        taints=poolrules.as_taints(taints or ()),
        node_names=node_names,
        vswitch_ids=vswitch_ids,
        auto_scaling=auto_scaling,
    )
    other = _checked_nodes(cluster, spec)
    if other and not reason.strip():
        raise Invalid.field(
            "reason",
            f"{names(other)} would change mode, which an administrator must approve: say why it is wanted.",
            code="required",
        )
    assert spec.mode is not None  # noqa: S101  # checked() refuses a pool without a mode
    try:
        with transaction.atomic():
            pool = _write(cluster, spec, declares_mode=not other)
            pushes.enqueue(
                actor,
                kind="pool.create",
                cluster=cluster,
                target=target_of(pool),
                payload={"pool": pool.pk, "spec": to_json(replace(spec_of(pool), auto_scaling=spec.auto_scaling))},
            )
            audit.record(actor, "pool.create", pool, **to_json(spec))
            if other:
                changes.request(
                    actor,
                    pool,
                    target_mode=spec.mode,
                    target_policy=spec.policy,
                    holders=ModeChange.Holders.WAIT,
                    reason=reason.strip(),
                )
    except IntegrityError as error:
        raise Conflict("A node pool of this name was made meanwhile.", code="taken", name=spec.name) from error
    return pool


def edit(
    actor: Actor,
    pool: NodePool,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint | Mapping[str, str]] | None = None,
    update_nodes: bool = False,
    version: int | None = None,
    approved_pods: Sequence[str] = (),
    reason: str = "",
) -> NodePool | OperationRequest:
    """Change a pool's free labels and taints; None leaves them as they are. Its mode needs a mode change.

    On ACK only ``update_nodes`` carries the edit to nodes that exist; elsewhere there are no others. ``version`` is
    the one that the person saw: Conflict (code ``stale``) when the pool was edited since.

    A NoExecute taint that ends pods on nodes needs ``reason``: by policy a request is made and returned, and where
    none is wanted, these pods are named in ``approved_pods`` (Conflict ``kills-pods`` otherwise).
    """
    actor.require(Role.OPERATOR, pool.cluster)
    check_free(pool)
    wanted_labels = dict(pool.labels) if labels is None else dict(labels)
    wanted_taints = pool.taints if taints is None else taints_to_json(poolrules.as_taints(taints))
    poolrules.check_edit(pool, wanted_labels, poolrules.as_taints(wanted_taints))
    update_nodes = update_nodes or pool.cluster.provider == Cluster.Provider.KUBERNETES
    if update_nodes:
        _check_no_mode_change(pool)
    if version is not None and version != pool.version:
        raise _stale(pool)
    edited: dict[str, Any] = {"labels": wanted_labels, "taints": wanted_taints}
    radius = radii.of_taints(pool, poolrules.as_taints(wanted_taints)) if update_nodes else None
    if radius is None or not radius.pods:
        write(actor, pool, **edited, update_nodes=update_nodes, radius=radius)
        return pool
    reason = needed(reason, f"A NoExecute taint ends pods of {pool.name}: say why.")
    if requestrules.needed_for(Kind.EVICTING_TAINT):
        wish = Wish(Kind.EVICTING_TAINT, pool.cluster, pool.name, radius, edited, _diff(pool, edited), pool)
        return requestrules.ask(actor, wish, reason=reason)
    said = f"A NoExecute taint on nodes of {pool.name} ends {{many}}: {{named}}. Name them to let that happen."
    endings.check(radius.pod_names, approved_pods, said=said)
    write(actor, pool, **edited, update_nodes=True, radius=radius, reason=reason)
    return pool


@transaction.atomic
def write(
    actor: Actor,
    pool: NodePool,
    *,
    labels: Mapping[str, str],
    taints: list[dict[str, str]],
    update_nodes: bool,
    radius: Radius | None = None,
    **because: object,
) -> Push:
    """Write labels and taints to a pool's row and queue the push. Whoever calls has checked the rules.

    ``radius``: which pods may end. The push stops where others have come by then.
    """
    check_free(pool)
    before = spec_of(pool)
    moved = NodePool.objects.filter(pk=pool.pk, version=pool.version).update(
        labels=labels, taints=taints, state=NodePool.State.UPDATING, error="", version=F("version") + 1
    )
    if not moved:
        raise _stale(pool)
    approved = radius.approved if radius else None
    push = push_modify(actor, pool, before=before, update_nodes=update_nodes, approved=approved)
    audit.record(
        actor,
        "pool.edit",
        pool,
        cluster=pool.cluster,
        labels={"old": dict(before.labels), "new": labels},
        taints={"old": taints_to_json(before.taints), "new": taints},
        update_nodes=update_nodes,
        **because,
    )
    return push


def _diff(pool: NodePool, edited: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what an edit changes, for people; where it only brings nodes back, the taints that end pods."""
    old, new = dict(pool.labels), edited["labels"]
    lines = [
        (f"Label {key}", _shown(old, key), _shown(new, key))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    had, wanted = {_named(each) for each in pool.taints}, {_named(each) for each in edited["taints"]}
    lines += [("Taint", each, "") for each in sorted(had - wanted)]
    lines += [("Taint", "none", each) for each in sorted(wanted - had)]
    again = [("Taint", "not on every node", each) for each in sorted(wanted & had) if each.endswith(":NoExecute")]
    return lines or again


def _shown(labels: Mapping[str, str], key: str) -> str:
    if key not in labels:
        return "none"
    return labels[key] or "no value"


def _named(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint.get('effect', '')}"


def _stale(pool: NodePool) -> Conflict:
    return Conflict(f"{pool.name} was edited meanwhile; look at it again.", code="stale", pool=pool.name)


def _checked_nodes(cluster: Cluster, spec: PoolSpec) -> list[GpuNode]:
    """Check the named nodes against the cluster as it is now; return those that are in another mode."""
    if cluster.provider == Cluster.Provider.ACK:
        return []
    with kubernetes_of(cluster) as kubernetes:
        nodes = kubernetes.nodes()
    poolrules.check_nodes(cluster, spec, nodes)
    named = set(spec.node_names)
    return unlike([node for node in nodes if node.name in named], spec.mode, spec.policy)


def _write(cluster: Cluster, spec: PoolSpec, *, declares_mode: bool) -> NodePool:
    """Make the row, in the place of a pool of this name that is gone."""
    columns = {
        "pool_id": "",
        "mode": spec.mode.value if spec.mode and declares_mode else "",
        "policy": spec.policy.value if spec.policy and declares_mode else "",
        "labels": dict(spec.labels),
        "taints": taints_to_json(spec.taints),
        "instance_types": list(spec.instance_types),
        "desired_size": spec.desired_size,
        "node_names": list(spec.node_names),
        "vswitch_ids": list(spec.vswitch_ids),
        "auto_scaling": scaling_to_json(spec.auto_scaling),
        "state": NodePool.State.PENDING,
        "seen": {},
        "error": "",
        "synced_at": None,
        "created_at": timezone.now(),
    }
    gone = NodePool.objects.filter(cluster=cluster, name=spec.name, state=NodePool.State.GONE)
    if gone.update(version=F("version") + 1, **columns):
        return NodePool.objects.select_related("cluster").get(cluster=cluster, name=spec.name)
    return NodePool.objects.create(cluster=cluster, name=spec.name, **columns)


def push_modify(
    actor: Actor,
    pool: NodePool,
    *,
    before: PoolSpec,
    update_nodes: bool,
    auto_scaling: AutoScaling | None = None,
    approved: Mapping[str, Any] | None = None,
) -> Push:
    """Queue what a pool's row wants now, in the caller's transaction. ``before``: what it wanted until then.

    ``approved``: the machines and pods that were seen by whoever lets them go; the worker looks again.
    """
    pool.refresh_from_db()
    spec = replace(spec_of(pool), auto_scaling=auto_scaling)
    return pushes.enqueue(
        actor,
        kind="pool.modify",
        cluster=pool.cluster,
        target=target_of(pool),
        payload={
            "pool": pool.pk,
            "spec": to_json(spec),
            "before": to_json(before),
            "update_nodes": update_nodes,
            "approved": approved,
        },
    )


def check_free(pool: NodePool) -> None:
    """Refuse while the pool is gone, held by an open mode change, or written to by an operation on its way."""
    if pool.state == NodePool.State.GONE:
        raise Conflict(f"{pool.name} is gone from the cluster.", code="gone", pool=pool.name)
    if ModeChange.objects.filter(pool=pool, state__in=[state.value for state in OPEN]).exists():
        raise Conflict(
            f"An open mode change holds {pool.name}; it must be finished, rejected or withdrawn first.",
            code="change-open",
            pool=pool.name,
        )
    if Push.objects.filter(cluster=pool.cluster, target=target_of(pool), state=Push.State.QUEUED).exists():
        raise Conflict(
            f"Another operation on {pool.name} is under way; try again when it is done.", code="busy", pool=pool.name
        )


def _check_no_mode_change(pool: NodePool) -> None:
    """Refuse an edit whose labels would put nodes of the pool into another mode than they are in."""
    spec = spec_of(pool)
    if spec.mode is None:
        return
    # Looked at as the preview looks; what moves until then, the push finds in the cluster itself.
    if other := unlike(changefacts.see(pool).nodes, spec.mode, spec.policy):
        raise Conflict(
            f"Writing the labels to the nodes would also change the mode of {names(other)}. "
            "Ask for a mode change of the pool first.",
            code="would-change-mode",
            nodes=[node.name for node in other],
        )
