"""A pool's nodes: taking some out, letting machines in, and answering drift by restoring or adopting.

Whatever would change a node's mode becomes a request for a mode change, as through every other door.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from gpupools.domain import plans
from gpupools.domain.gpus import GpuNode
from gpupools.domain.modes import MODE_LABEL, PLACEMENT_LABEL
from gpupools.errors import Conflict, FieldError, Invalid
from gpupools.models import Cluster, ModeChange, NodePool, OperationRequest, Push, Role
from gpupools.services import audit, changefacts, changes, drift, pools, pushes
from gpupools.services.access import Actor
from gpupools.services.changequeue import check_not_held
from gpupools.services.changerules import needed
from gpupools.services.poolspecs import names, target_of

TAKE_OUT, ATTACH = "pool.take-out", "pool.attach"
MOST_AT_ONCE = 100


def take_out(actor: Actor, pool: NodePool, *, node_names: Sequence[str], reason: str) -> Push:
    """Take nodes out of a pool: on ACK their machines leave the cluster and stay, elsewhere they lose the pool's
    labels and taints and keep their mode. Nodes with pods that hold cards are refused.
    """
    actor.require(Role.OPERATOR, pool.cluster)
    reason = needed(reason, "Say why nodes are taken out.")
    _check_free(pool)
    wanted = _given("node_names", node_names)
    seen = changefacts.see(pool, wanted)
    by_name = {node.name: node for node in seen.nodes}
    errors = [
        FieldError("node_names", f"{name} is not in {pool.name}.", "not-a-member", name, f"nodes of {pool.name}")
        for name in wanted
        if name not in by_name or not changefacts.is_member(pool, by_name[name])
    ]
    if errors:
        raise Invalid("These nodes cannot be taken out.", errors=errors)
    if pool.cluster.provider == Cluster.Provider.ACK and (holders := plans.holders(seen.nodes, seen.pods)):
        busy = [node for node in seen.nodes if node.name in {pod.node for pod in holders}]
        many = "1 pod holds" if len(holders) == 1 else f"{len(holders)} pods hold"
        raise Conflict(f"{many} cards on {names(busy)}; end them first.", code="has-holders", pods=len(holders))
    with transaction.atomic():
        push = _enqueue(actor, TAKE_OUT, pool, nodes=sorted(wanted))
        audit.record(actor, "pool.take_out", pool, nodes=sorted(wanted), reason=reason)
    return push


def attach(actor: Actor, pool: NodePool, *, instance_ids: Sequence[str], reason: str) -> Push:
    """Let machines that are outside the cluster join an ACK pool; each is set up anew, and its disk is lost."""
    actor.require(Role.OPERATOR, pool.cluster)
    reason = needed(reason, "Say why machines are added: what is on their disks is lost.")
    if pool.cluster.provider != Cluster.Provider.ACK:
        message = "On plain Kubernetes the nodes of the cluster come into a pool; no machine is added."
        raise Invalid.field("instance_ids", message, code="no-machines")
    _check_free(pool)
    wanted = _given("instance_ids", instance_ids)
    if errors := [
        FieldError("instance_ids", "This is not the id of an ECS instance.", "bad-id", each[:80], "i-…")
        for each in wanted
        if not (each.startswith("i-") and each[2:].isalnum())
    ]:
        raise Invalid("These machines cannot be added.", errors=errors)
    with transaction.atomic():
        push = _enqueue(actor, ATTACH, pool, instances=sorted(wanted))
        audit.record(actor, "pool.attach", pool, instances=sorted(wanted), reason=reason)
    return push


def restore(
    actor: Actor, pool: NodePool, *, reason: str, holders: str = ModeChange.Holders.WAIT
) -> ModeChange | OperationRequest | None:
    """Bring nodes back to what their pool wants: a request where a mode would change or a taint ends pods, else at
    once (None). Where the policy wants no second person for a taint, these pods are named in an edit instead.

    ``holders``: what becomes of pods that hold cards where a mode changes, as in any mode change.
    """
    actor.require(Role.OPERATOR, pool.cluster)
    reason = needed(reason, "Say why the nodes are brought back.")
    found = drift.drifted(pool, changefacts.see(pool).nodes)
    if not found:
        raise Conflict(f"No node differs from {pool.name}.", code="no-drift", pool=pool.name)
    if any(each.is_mode for each in found):
        policy = pool.policy or None
        return changes.request(actor, pool, target_mode=pool.mode, target_policy=policy, holders=holders, reason=reason)
    made = pools.edit(actor, pool, update_nodes=True, reason=reason)
    return made if isinstance(made, OperationRequest) else None


def adopt(actor: Actor, pool: NodePool, *, node_name: str, reason: str) -> ModeChange | None:
    """Let a pool want what one of its nodes carries: a request where that is another mode, else at once (None)."""
    actor.require(Role.OPERATOR, pool.cluster)
    reason = needed(reason, "Say why the pool takes this over.")
    node = next((each for each in changefacts.see(pool).nodes if each.name == node_name), None)
    if node is None:
        message, allowed = f"{node_name} is not in {pool.name}.", f"nodes of {pool.name}"
        raise Invalid.field("node_name", message, code="not-a-member", found=node_name, allowed=allowed)
    found = drift.drifted(pool, [node])
    if not found:
        raise Conflict(f"{node_name} does not differ from {pool.name}.", code="no-drift", pool=pool.name)
    if any(each.is_mode for each in found):
        return _adopt_mode(actor, pool, node, reason)
    labels = {**pool.labels, **{each.key: each.found for each in found if each.key in pool.labels and each.found}}
    gone = {each.key for each in found if each.key in pool.labels and not each.found}
    taints = [each for each in pool.taints if not any(d.key == f"taint {each['key']}" for d in found)]
    pools.edit(
        actor,
        pool,
        labels={key: value for key, value in labels.items() if key not in gone},
        taints=taints,
        update_nodes=False,
    )
    return None


def _adopt_mode(actor: Actor, pool: NodePool, node: GpuNode, reason: str) -> ModeChange:
    mode = node.declared
    if mode is None:
        raise Invalid.field(
            "node_name",
            f"{node.name} carries a mode that nobody knows; a pool cannot take it over.",
            code="unknown-mode",
            found=node.labels.get(MODE_LABEL, ""),
        )
    policy = node.labels.get(PLACEMENT_LABEL) or None
    return changes.request(actor, pool, target_mode=mode.value, target_policy=policy, reason=reason)


def _given(field: str, values: Sequence[str]) -> list[str]:
    wanted = sorted({value.strip() for value in values if value.strip()})
    if not wanted:
        raise Invalid.field(field, "Name at least one.", code="required", allowed=f"1 to {MOST_AT_ONCE}")
    if len(wanted) > MOST_AT_ONCE:
        raise Invalid.field(
            field, "These are too many at once.", found=str(len(wanted)), allowed=f"1 to {MOST_AT_ONCE}"
        )
    return wanted


def _check_free(pool: NodePool) -> None:
    if pool.state in (NodePool.State.GONE, NodePool.State.DELETING):
        raise Conflict(f"{pool.name} is {pool.get_state_display().lower()}.", code="gone", pool=pool.name)
    check_not_held([pool])


def _enqueue(actor: Actor, kind: str, pool: NodePool, **payload: list[str]) -> Push:
    return pushes.enqueue(
        actor, kind=kind, cluster=pool.cluster, target=target_of(pool), payload={"pool": pool.pk, **payload}
    )
