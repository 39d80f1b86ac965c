"""Scaling and deleting node pools: what may release machines, and with them the pods that run there.

Where the policy wants a second person, a request is made instead, and the same deed is done when it is approved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F

from gpupools.domain.requests import Kind
from gpupools.errors import Conflict, Invalid
from gpupools.models import Cluster, NodePool, OperationRequest, Push, Role
from gpupools.services import audit, endings, poolrules, pushes, radii, requestrules
from gpupools.services.access import Actor
from gpupools.services.changerules import needed
from gpupools.services.pools import check_free, push_modify
from gpupools.services.poolspecs import scaling_from_json, scaling_to_json, spec_of, target_of
from gpupools.services.radii import Radius
from gpupools.services.requestrules import Wish


def scale(
    actor: Actor,
    pool: NodePool,
    *,
    desired_size: int,
    auto_scaling: Mapping[str, Any] | None = None,
    approved_pods: Sequence[str] = (),
    reason: str = "",
) -> NodePool | OperationRequest:
    """Set how many machines an ACK pool shall have, and between which sizes ACK may scale it by itself.

    The size is absolute, so doing it twice changes nothing. ``auto_scaling``: {enable, min_instances,
    max_instances, type}; None leaves it as it is. To 0, a pool that has nodes needs ``reason``, and so does one that
    comes below the number of its nodes while pods run there: ACK chooses which machines go. By policy a request is
    made and returned, and where none is wanted, the pods that may end are named in ``approved_pods`` (Conflict
    ``kills-pods`` otherwise).
    """
    actor.require(Role.OPERATOR, pool.cluster)
    check_free(pool)
    poolrules.check_size(pool.cluster, desired_size)
    bounds = None if auto_scaling is None else poolrules.checked_scaling(pool, auto_scaling, desired_size)
    scaling = None if bounds is None else scaling_to_json(bounds)
    radius = released(pool, desired_size)
    if radius is None or not is_guarded(radius, desired_size):
        # Where machines go that carry no pod, the worker still stops when one has come by then.
        set_size(actor, pool, desired_size=desired_size, scaling=scaling, radius=radius)
        return pool
    reason = needed(reason, f"{pool.name} has nodes: say why it is scaled to {desired_size}.")
    kind = kind_of(desired_size)
    if requestrules.needed_for(kind):
        return requestrules.ask(actor, _smaller(kind, pool, desired_size, scaling, radius), reason=reason)
    deed = "ends" if desired_size == 0 else "may end"
    said = f"Scaling {pool.name} to {desired_size} {deed} {{many}}: {{named}}. Name them to let that happen."
    endings.check(radius.pod_names, approved_pods, said=said)
    set_size(actor, pool, desired_size=desired_size, scaling=scaling, radius=radius, reason=reason)
    return pool


def released(pool: NodePool, desired_size: int) -> Radius | None:
    """Return who may be hit by a size that is below the number of a pool's nodes, None where no machine goes.

    Raises Unreachable when nobody knows who is there.
    """
    if pool.cluster.provider != Cluster.Provider.ACK:
        return None
    machines = radii.machines_of(pool)
    # Nobody has counted a pool that was just made: it has no more machines than were wanted.
    if machines == 0 or 0 < (pool.desired_size if machines is None else machines) <= desired_size:
        return None
    return radii.of_pool(pool, some=desired_size > 0)


def is_guarded(radius: Radius, desired_size: int) -> bool:
    """Tell whether a size that releases machines needs a reason and who is hit: to 0 always, else where pods run."""
    return desired_size == 0 or bool(radius.pods)


def kind_of(desired_size: int) -> Kind:
    """Return the policy's word for making a pool that small."""
    return Kind.SIZE_0 if desired_size == 0 else Kind.SCALE_DOWN


def _smaller(kind: Kind, pool: NodePool, desired_size: int, scaling: dict[str, Any] | None, radius: Radius) -> Wish:
    diff = [("Wanted nodes", str(pool.desired_size), str(desired_size))]
    if scaling is not None and scaling != pool.auto_scaling:
        diff.append(("Auto scaling", _said(pool.auto_scaling), _said(scaling)))
    params = {"desired_size": desired_size, "auto_scaling": scaling}
    return Wish(kind, pool.cluster, pool.name, radius, params, diff, pool)


def _said(scaling: Mapping[str, Any]) -> str:
    if not scaling.get("enable"):
        return "off"
    return f"{scaling['min_instances']} to {scaling['max_instances']} nodes"


@transaction.atomic
def set_size(
    actor: Actor,
    pool: NodePool,
    *,
    desired_size: int,
    scaling: dict[str, Any] | None,
    radius: Radius | None = None,
    **because: object,
) -> Push:
    """Write the size and the bounds (None: as they are) and queue the push. Whoever calls has checked the rules.

    ``radius``: who may be hit. The push stops where others have come by then.
    """
    check_free(pool)
    before, old_scaling = spec_of(pool), dict(pool.auto_scaling)
    columns = {} if scaling is None else {"auto_scaling": scaling}
    moved = NodePool.objects.filter(pk=pool.pk, version=pool.version).update(
        desired_size=desired_size, state=NodePool.State.UPDATING, error="", version=F("version") + 1, **columns
    )
    if not moved:
        raise _stale(pool)
    bounds = None if scaling is None else scaling_from_json(scaling)
    approved = radius.approved if radius else None
    push = push_modify(actor, pool, before=before, update_nodes=False, auto_scaling=bounds, approved=approved)
    both = None if scaling is None else {"old": old_scaling, "new": scaling}
    audit.record(
        actor,
        "pool.scale",
        pool,
        cluster=pool.cluster,
        old=before.desired_size,
        new=desired_size,
        auto_scaling=both,
        **because,
    )
    return push


def delete(actor: Actor, pool: NodePool, *, force: bool = False, reason: str = "") -> OperationRequest | None:
    """Delete a pool. On ACK its machines go with it, so a pool with nodes needs ``force`` and a reason.

    By policy, deleting a pool with its machines is a request, which is returned. Elsewhere the nodes of a pool stay,
    keep their mode, and lose the pool's own labels and taints.
    """
    actor.require(Role.OPERATOR, pool.cluster)
    check_free(pool)
    nodes = radii.machines_of(pool) if pool.cluster.provider == Cluster.Provider.ACK else 0
    if nodes and not force:
        raise Conflict(
            f"{pool.name} has {'1 node' if nodes == 1 else f'{nodes} nodes'}; deleting it releases their machines. "
            "Scale it to 0 first, or have the machines of its nodes released with it (force).",
            code="has-nodes",
            nodes=nodes,
        )
    # Without a known node there is nothing to force: ACK itself refuses when there is one after all.
    force = force and nodes != 0
    if force and not reason.strip():
        raise Invalid.field("reason", "Say why a pool with nodes is deleted.", code="required")
    if force and requestrules.needed_for(Kind.FORCED_DELETE):
        return requestrules.ask(actor, _forced(pool, radii.of_pool(pool)), reason=reason.strip())
    remove(actor, pool, force=force, nodes=nodes, reason=reason.strip())
    return None


def _forced(pool: NodePool, radius: Radius) -> Wish:
    many = len(radius.nodes)
    diff = [("Node pool", pool.name, ""), ("Machines", "1" if many == 1 else str(many), "released")]
    return Wish(Kind.FORCED_DELETE, pool.cluster, pool.name, radius, {"force": True}, diff, pool)


@transaction.atomic
def remove(
    actor: Actor, pool: NodePool, *, force: bool, nodes: int | None, radius: Radius | None = None, **because: object
) -> Push:
    """Mark a pool as being deleted and queue the push. Whoever calls has checked the rules; ``radius`` as above."""
    check_free(pool)
    moved = NodePool.objects.filter(pk=pool.pk, version=pool.version).update(
        state=NodePool.State.DELETING, error="", version=F("version") + 1
    )
    if not moved:
        raise _stale(pool)
    pool.refresh_from_db()
    push = pushes.enqueue(
        actor,
        kind="pool.delete",
        cluster=pool.cluster,
        target=target_of(pool),
        payload={"pool": pool.pk, "force": force, "approved": radius.approved if radius else None},
    )
    audit.record(actor, "pool.delete", pool, cluster=pool.cluster, force=force, nodes=nodes, **because)
    return push


def _stale(pool: NodePool) -> Conflict:
    return Conflict(f"{pool.name} was edited meanwhile; look at it again.", code="stale", pool=pool.name)
