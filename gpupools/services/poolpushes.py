"""Carrying node-pool operations into a cluster, on both providers by the same code.

Each run makes one probe or one call and stores what it learned before anything waits on it, so that a worker that
dies in between loses nothing; a pool that an earlier try made is found by the operation's id before making another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from gpupools.clusters.port import Kubernetes, PoolFacts, PoolProvider, PoolSpec, Started
from gpupools.domain import requests
from gpupools.errors import Conflict, Refused
from gpupools.models import NodePool, Push
from gpupools.services import endings, pushes
from gpupools.services.gateways import pools_of
from gpupools.services.poolspecs import (
    free_labels,
    from_json,
    members,
    mode_and_policy,
    names,
    taints_to_json,
    to_json,
    unlike,
)
from gpupools.services.pushes import Again, Done, Outcome

# How long until a task of the provider is looked at again.
TASK_SECONDS = 1.0
# States in which ACK still works on a pool that it has accepted.
_BUSY = frozenset({"initial", "scaling", "updating", "removing", "deleting"})


@dataclass(frozen=True, slots=True)
class _Reach:
    """Both ways into the cluster of a push, and the pool's row."""

    kubernetes: Kubernetes
    provider: PoolProvider
    pool: NodePool


@contextmanager
def _reached(push: Push) -> Iterator[_Reach]:
    pool = NodePool.objects.select_related("cluster").filter(pk=push.payload["pool"]).first()
    if pool is None:
        raise Conflict("The console no longer has this node pool.", code="gone")
    with pools_of(push.cluster) as (kubernetes, provider):
        yield _Reach(kubernetes, provider, pool)


def create(push: Push) -> Outcome:
    """Make the pool once, then follow its task."""
    with _reached(push) as reach:
        return _create(push, reach)


def _create(push: Push, reach: _Reach) -> Outcome:
    spec = from_json(push.payload["spec"])
    if push.learned.get("pool_id"):
        return _follow(push, reach, push.learned["pool_id"])
    if reach.provider.owns_nodes:
        if (made := reach.provider.find(str(push.op_id))) is not None:
            # An earlier try made it and died before it said so: its task's id is lost, the pool's state is not.
            return _learn(push, Started(pool_id=made.pool_id))
    else:
        # Nothing to look for: labels may have reached some nodes of an earlier try, and are written again.
        named = set(spec.node_names)
        _check_modes([node for node in reach.kubernetes.nodes() if node.name in named], spec)
    pushes.hold(push)
    return _learn(push, reach.provider.create(spec, op_id=str(push.op_id)))


def modify(push: Push) -> Outcome:
    """Write labels, taints and size, unless somebody else has edited the pool meanwhile; then follow the task."""
    with _reached(push) as reach:
        return _modify(push, reach)


def _modify(push: Push, reach: _Reach) -> Outcome:
    pool, spec = reach.pool, from_json(push.payload["spec"])
    if push.learned.get("pool_id"):
        return _follow(push, reach, pool.pool_id)
    facts = reach.provider.pool(pool.pool_id)
    if facts is None and reach.provider.owns_nodes:
        raise Conflict(f"{pool.name} is gone from the cluster.", code="gone")
    if facts is not None and reach.provider.owns_nodes:
        _check_unedited(facts, from_json(push.payload["before"]), spec)
    if push.payload["update_nodes"]:
        _check_modes(members(pool, reach.kubernetes.nodes()), spec)
        _check_evicted(push, reach, spec)
    elif facts is not None and facts.desired_size != spec.desired_size:
        _check_hits(push, reach)
    pushes.hold(push)
    started = reach.provider.modify(
        pool.pool_id, spec, update_nodes=push.payload["update_nodes"], op_id=str(push.op_id)
    )
    return _learn(push, Started(pool_id=pool.pool_id, task_id=started.task_id))


def delete(push: Push) -> Outcome:
    """Delete the pool and follow the task; a pool that is not there is deleted already."""
    with _reached(push) as reach:
        return _delete(push, reach)


def _delete(push: Push, reach: _Reach) -> Outcome:
    if push.learned.get("task_id") and (waiting := _task(push, reach)) is not None:
        return waiting
    pool_id = reach.pool.pool_id or _made_by_its_creation(reach)
    facts = reach.provider.pool(pool_id) if pool_id else None
    if facts is None:
        return Done("deleted", write=lambda: _write(reach.pool, state=NodePool.State.GONE, pool_id=pool_id, seen={}))
    if facts.state == "deleting" or push.learned.get("pool_id"):
        return Again(TASK_SECONDS, detail=f"the provider says: {facts.state}")
    _check_hits(push, reach)
    pushes.hold(push)
    started = reach.provider.delete(pool_id, force=push.payload["force"], op_id=str(push.op_id))
    return Again(0 if not started.task_id else TASK_SECONDS, {"pool_id": pool_id, "task_id": started.task_id})


def create_failed(push: Push, error: str) -> None:
    """Show on the pool that it was never made."""
    NodePool.objects.filter(pk=push.payload["pool"]).update(state=NodePool.State.FAILED, error=error[:500])


def change_failed(push: Push, error: str) -> None:
    """Show on the pool that an edit or deletion failed; the pool itself is still there."""
    NodePool.objects.filter(pk=push.payload["pool"]).exclude(state=NodePool.State.GONE).update(
        state=NodePool.State.ACTIVE, error=error[:500]
    )


def _learn(push: Push, started: Started) -> Again:
    state = NodePool.State.CREATING if push.kind == "pool.create" else NodePool.State.UPDATING
    pool_id = started.pool_id
    return Again(
        TASK_SECONDS if started.task_id else 0,
        {"pool_id": pool_id, "task_id": started.task_id},
        write=lambda: _write_by_key(push.payload["pool"], pool_id=pool_id, state=state),
    )


def _follow(push: Push, reach: _Reach, pool_id: str) -> Outcome:
    if push.learned.get("task_id") and (waiting := _task(push, reach)) is not None:
        return waiting
    facts = reach.provider.pool(pool_id)
    if facts is None and reach.provider.owns_nodes:
        raise Conflict(f"{reach.pool.name} is gone from the cluster.", code="gone")
    if facts is not None and facts.state == "failed":
        raise Refused(f"The provider says that {reach.pool.name} failed.")
    if facts is not None and facts.state in _BUSY:
        return Again(TASK_SECONDS, detail=f"the provider says: {facts.state}")
    # Without nodes, a pool on plain Kubernetes is nowhere but in our row.
    seen = seen_of(facts) if facts else {}
    return Done(
        f"{reach.pool.name} is {facts.state if facts else 'without nodes'}",
        write=lambda: _write(reach.pool, pool_id=pool_id, state=NodePool.State.ACTIVE, error="", seen=seen),
    )


def _task(push: Push, reach: _Reach) -> Again | None:
    """Return when to look again at the provider's task, None when it has succeeded; raise when it failed."""
    task = reach.provider.task(push.learned["task_id"])
    if task.state == "fail":
        raise Refused(task.message or "The provider says that the task failed, without a reason.")
    return None if task.state == "success" else Again(TASK_SECONDS, detail="the provider's task is running")


def _made_by_its_creation(reach: _Reach) -> str:
    """Find the pool that a creation made although the console gave it up."""
    tries = Push.objects.filter(cluster=reach.pool.cluster, kind="pool.create", target=f"pool:{reach.pool.pk}")
    for op_id in tries.order_by("-pk").values_list("op_id", flat=True)[:3]:
        if (found := reach.provider.find(str(op_id))) is not None:
            return found.pool_id
    return ""


def _check_modes(nodes: list[Any], spec: PoolSpec) -> None:
    if other := unlike(nodes, spec.mode, spec.policy):
        raise Conflict(
            f"{names(other)} would change mode by this. Ask for a mode change of the pool first.",
            code="would-change-mode",
            nodes=[node.name for node in other],
        )


def _check_hits(push: Push, reach: _Reach) -> None:
    """Look again, in the cluster itself, who would be hit: others may have come since somebody approved."""
    approved = push.payload.get("approved")
    if approved is None:
        return
    nodes = members(reach.pool, reach.kubernetes.nodes())
    if joined := [node for node in nodes if node.uid not in approved["nodes"]]:
        raise Conflict(f"{names(joined)} joined the pool since this was approved. Nothing was released.", code="moved")
    ending = msgspec.to_builtins(requests.ending_on(nodes, reach.kubernetes.pods()))
    said = "{many} would end that came since this was approved: {named}. Nothing was released; ask for it again."
    endings.check(endings.newcomers(approved["pods"], ending), (), said=said)


def _check_evicted(push: Push, reach: _Reach, spec: PoolSpec) -> None:
    """Look again which pods the taints would end; on nodes that carry them by now, they end none."""
    approved = push.payload.get("approved")
    if approved is None:
        return
    nodes = members(reach.pool, reach.kubernetes.nodes())
    pods = requests.evicted(nodes, reach.kubernetes.pods(), spec.taints)
    ending = msgspec.to_builtins(requests.endings(pods))
    said = "{many} would end that came since this was asked for: {named}. Nothing was written; edit it again."
    endings.check(endings.newcomers(approved["pods"], ending), (), said=said)


def _check_unedited(facts: PoolFacts, before: PoolSpec, after: PoolSpec) -> None:
    """Refuse to write over what somebody else has written since the row was last in step with the provider."""
    found = (free_labels(facts.labels), mode_and_policy(facts.labels), _sorted(taints_to_json(facts.taints)))
    for spec in (before, after):
        wishes = to_json(spec)
        if found == (wishes["labels"], (wishes["mode"], wishes["policy"]), _sorted(wishes["taints"])):
            return
    raise Conflict(
        "The pool's labels or taints were changed outside the console meanwhile. Look at it again and repeat the edit.",
        code="edited-elsewhere",
    )


def _sorted(taints: list[dict[str, str]]) -> list[tuple[str, ...]]:
    return sorted((each["key"], each["value"], each["effect"]) for each in taints)


def seen_of(facts: PoolFacts) -> dict[str, Any]:
    """Return what a provider says of a pool as its row keeps it."""
    return {
        "labels": dict(facts.labels),
        "taints": taints_to_json(facts.taints),
        "state": facts.state,
        "total_nodes": facts.total_nodes,
        "healthy_nodes": facts.healthy_nodes,
        "failed_nodes": facts.failed_nodes,
    }


def _write(pool: NodePool, **columns: Any) -> None:
    _write_by_key(pool.pk, **columns)


def _write_by_key(key: int, **columns: Any) -> None:
    # Not an edit, so the version stays.
    NodePool.objects.filter(pk=key).update(**columns)
