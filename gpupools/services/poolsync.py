"""Keeping pool rows in step with the provider: counts everywhere; on ACK, which owns its pools, everything.

On plain Kubernetes our rows are what is wanted, so only what was seen is refreshed. A row that an operation of
ours is on its way to, or has just reached, is left alone: what was read may be older than what was written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.utils import timezone

from gpupools.clusters.port import PoolFacts
from gpupools.errors import Refused, Unreachable
from gpupools.models import Cluster, NodePool, Push
from gpupools.services import audit, bell
from gpupools.services.access import SYSTEM
from gpupools.services.gateways import pools_of
from gpupools.services.poolpushes import seen_of
from gpupools.services.poolspecs import free_labels, mode_and_policy, scaling_to_json, taints_to_json

logger = logging.getLogger(__name__)

# What ACK calls a pool's state -> ours.
_STATES = {
    "scaling": NodePool.State.UPDATING,
    "updating": NodePool.State.UPDATING,
    "removing": NodePool.State.UPDATING,
    "deleting": NodePool.State.DELETING,
    "failed": NodePool.State.FAILED,
}


def sync(cluster: Cluster) -> None:
    """Read the provider's pools and bring the rows of one cluster up to date.

    Raises Unreachable or Refused when the provider does not say; the rows then keep what was last known.
    """
    started = timezone.now()
    # Read before the provider is asked: whatever is written to a row from here on makes its version another.
    rows = list(NodePool.objects.filter(cluster=cluster).select_related("cluster"))
    with pools_of(cluster) as (_, provider):
        facts = provider.pools()
        owned_by_provider = provider.owns_nodes
        known = {row.pool_id for row in rows} | {row.name for row in rows}
        strange = [] if owned_by_provider else [each for each in facts if each.pool_id not in known]
        members = {each.pool_id: provider.node_names(each.pool_id) for each in strange}
    if _reconcile(cluster, rows, facts, members, started=started, owned_by_provider=owned_by_provider):
        with transaction.atomic():
            bell.ring_cluster(cluster.pk)


def _reconcile(
    cluster: Cluster,
    rows: list[NodePool],
    facts: list[PoolFacts],
    members: dict[str, list[str]],
    *,
    started: datetime,
    owned_by_provider: bool,
) -> bool:
    """Bring rows as they were read in step with facts that were read after them; tell whether anything is new."""
    untouchable = _targets_since(cluster, started)
    made_by_us = _made_by_us(cluster, facts) if owned_by_provider else {}
    by_id = {row.pool_id: row for row in rows if row.pool_id}
    by_key = {row.pk: row for row in rows}
    seen: set[int] = set()
    changed = False
    for each in facts:
        row = by_id.get(each.pool_id) or by_key.get(made_by_us.get(each.op_id, 0))
        if row is None and not owned_by_provider:
            row = next((known for known in rows if known.name == each.name), None)
        if row is None and each.op_id in made_by_us:
            continue  # made by us since the rows were read
        if row is None:
            changed |= _add(cluster, each, members.get(each.pool_id, []))
            continue
        seen.add(row.pk)
        if f"pool:{row.pk}" not in untouchable:
            changed |= _refresh(row, each, owned_by_provider=owned_by_provider)
    for row in rows:
        if row.pk in seen or f"pool:{row.pk}" in untouchable or row.state == NodePool.State.GONE:
            continue
        if not owned_by_provider:
            changed |= _update(row, seen={**row.seen, "total_nodes": 0, "healthy_nodes": 0, "failed_nodes": 0})
        elif row.pool_id:
            changed |= _lose(row)
    return changed


def sync_all() -> None:
    """Sync every cluster that answers; one that does not is the probe's business."""
    for cluster in Cluster.objects.exclude(state=Cluster.State.UNREACHABLE):
        try:
            sync(cluster)
        except (Unreachable, Refused) as error:
            logger.warning("The node pools of %s were not read: %s", cluster.name, error.message)


def _targets_since(cluster: Cluster, started: datetime) -> set[str]:
    """Return the targets with an operation on its way, or ended since then."""
    live = Q(state=Push.State.QUEUED) | Q(finished_at__gte=started)
    return set(Push.objects.filter(live, cluster=cluster, target__startswith="pool:").values_list("target", flat=True))


def _made_by_us(cluster: Cluster, facts: Iterable[PoolFacts]) -> dict[str, int]:
    """Map operation ids that pools carry to the rows whose creation they were."""
    op_ids = _uuids(each.op_id for each in facts)
    made = Push.objects.filter(cluster=cluster, kind="pool.create", op_id__in=op_ids)
    return {str(push.op_id): int(push.payload["pool"]) for push in made}


def _uuids(texts: Iterable[str]) -> list[str]:
    # Anybody may write the label on ACK, and a word that is no UUID would stop the query.
    return [text for text in texts if len(text) == 36 and set(text) <= set("0123456789abcdef-")]


_LEFT_OPEN: Final[tuple[Any, ...]] = ("", [], {})


def _wishes(facts: PoolFacts) -> dict[str, Any]:
    mode, policy = mode_and_policy(facts.labels)
    return {
        "mode": mode,
        "policy": policy,
        "labels": free_labels(facts.labels),
        "taints": taints_to_json(facts.taints),
        "instance_types": list(facts.instance_types),
        "desired_size": facts.desired_size,
        "auto_scaling": scaling_to_json(facts.auto_scaling),
        "cpu_policy": facts.cpu_policy,
    }


def _refresh(row: NodePool, facts: PoolFacts, *, owned_by_provider: bool) -> bool:
    columns: dict[str, Any] = {"seen": seen_of(facts), "pool_id": facts.pool_id}
    if not owned_by_provider:
        # Nodes are there again, or still; whether our last operation failed is not theirs to say.
        return _update(row, **columns)
    wishes = _wishes(facts)
    state = _STATES.get(facts.state, NodePool.State.ACTIVE)
    edited = {key: value for key, value in wishes.items() if getattr(row, key) != value}
    columns |= edited
    if any(row.synced_at is not None or getattr(row, key) not in _LEFT_OPEN for key in edited):
        # Not when the first look at a new pool fills in what its provider chose: nobody has edited it.
        columns["version"] = F("version") + 1
    if row.name != facts.name[:63] and not _is_taken(row, facts.name):
        columns["name"] = facts.name[:63]
    if row.state in (NodePool.State.FAILED, NodePool.State.GONE) and state == NodePool.State.ACTIVE:
        columns["error"] = ""
    return _update(row, state=state, **columns)


def _is_taken(row: NodePool, name: str) -> bool:
    return NodePool.objects.filter(cluster=row.cluster, name=name[:63]).exclude(pk=row.pk).exists()


def _update(row: NodePool, **columns: Any) -> bool:
    """Write what was read, unless the row was edited since; tell whether anything is new."""
    new = any(isinstance(value, F) or getattr(row, key) != value for key, value in columns.items())
    with transaction.atomic():
        moved = NodePool.objects.filter(pk=row.pk, version=row.version).update(synced_at=timezone.now(), **columns)
    return bool(moved) and new


def _add(cluster: Cluster, facts: PoolFacts, node_names: list[str]) -> bool:
    name = facts.name[:63]
    if NodePool.objects.filter(cluster=cluster, name=name).exists():
        # ACK lets two pools have one name; our pages and URLs do not.
        name = f"{name[:50]}-{facts.pool_id[-12:]}".lower()
    now = timezone.now()
    columns = {**_wishes(facts), "node_names": sorted(node_names)}
    try:
        with transaction.atomic():
            pool = NodePool.objects.create(
                cluster=cluster,
                name=name,
                pool_id=facts.pool_id,
                state=_STATES.get(facts.state, NodePool.State.ACTIVE),
                seen=seen_of(facts),
                synced_at=now,
                created_at=now,
                **columns,
            )
            audit.record(SYSTEM, "pool.found", pool, pool_id=facts.pool_id, mode=pool.mode)
    except IntegrityError:
        # Another sync, or a person, made the row meanwhile; the next round finds it.
        return False
    return True


@transaction.atomic
def _lose(row: NodePool) -> bool:
    moved = NodePool.objects.filter(pk=row.pk, version=row.version).update(
        state=NodePool.State.GONE, seen={}, synced_at=timezone.now(), version=F("version") + 1
    )
    if moved:
        audit.record(SYSTEM, "pool.gone", row, pool_id=row.pool_id)
    return bool(moved)
