"""What every card holds: reading the current picture, the full list that beat polls, and the history of totals.

The picture is read from Redis, never from a cluster, to answer a page. Unknown is None here, and never zero.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypedDict

from django.conf import settings
from django.utils import timezone

from gpupools.domain import allocation as ledger
from gpupools.domain.gpus import UNKNOWN, NodeAllocation, Picture
from gpupools.domain.totals import totals
from gpupools.errors import Unreachable
from gpupools.models import AllocationPoint, Cluster
from gpupools.services import drift, gateways, leases, pictures
from gpupools.services.publishing import Copy, LeaseLost, Publisher
from gpupools.services.rows import NodeRow, TotalsRow, masked_all, node_row, timestamp, totals_row

logger = logging.getLogger(__name__)

KEEP_HISTORY: Final = timedelta(days=7)


class View(TypedDict):
    """The whole of a cluster on the wire. ``taken_at`` and ``totals`` are None while nothing is known."""

    type: str
    cluster: str
    epoch: int
    sequence: int
    taken_at: str | None
    error: str
    nodes: list[NodeRow]
    totals: TotalsRow | None


@dataclass(frozen=True, slots=True)
class Polled:
    """What a poll found. ``differs``: nodes whose fold is not what a watcher has published."""

    nodes: int
    published: bool
    differs: tuple[str, ...]


def current(cluster: Cluster) -> Picture | None:
    """Return the current picture of a cluster; None when nobody has published one yet.

    ``taken_at`` is the instant up to which the numbers are known to be true. Raises Unreachable when the broker
    is away.
    """
    stored = pictures.load(cluster.pk)
    return stored.picture if stored else None


def allocations(picture: Picture) -> dict[str, NodeAllocation]:
    """Fold the holders of every GPU node, by node name."""
    return folds_of(picture, None)


def folds_of(picture: Picture, names: Iterable[str] | None) -> dict[str, NodeAllocation]:
    """Fold the holders of some GPU nodes (None: all), by node name."""
    if names is None:
        return ledger.fold_all(picture.nodes, picture.pods)
    wanted = set(names)
    return ledger.fold_all(
        [node for node in picture.nodes if node.name in wanted],
        [pod for pod in picture.pods if pod.node in wanted],
    )


def view(cluster: Cluster, namespaces: frozenset[str] | None = None) -> View:
    """Return the whole of a cluster as pages and the API show it; holders of other namespaces have no name.

    ``namespaces`` None stands for all. Raises Unreachable when the broker is away.
    """
    stored = pictures.load(cluster.pk)
    if stored is None:
        return {
            "type": "snapshot",
            "cluster": cluster.name,
            "epoch": 0,
            "sequence": 0,
            "taken_at": None,
            "error": "",
            "nodes": [],
            "totals": None,
        }
    picture = stored.picture
    folds = allocations(picture)
    pools, label = drift.pools_by_id(cluster), drift.pool_label(cluster)
    being_written = drift.writings(cluster)
    rows = [
        node_row(node, folds[node.name], pools.get(node.labels.get(label, "")), being_written)
        for node in sorted(picture.nodes, key=lambda node: node.name)
        if node.name in folds
    ]
    return {
        "type": "snapshot",
        "cluster": cluster.name,
        "epoch": picture.epoch,
        "sequence": picture.sequence,
        "taken_at": timestamp(picture.taken_at),
        "error": stored.error,
        "nodes": masked_all(rows, namespaces),
        "totals": totals_row(folds.values()),
    }


def poll(cluster: Cluster) -> Polled:
    """List a cluster in full, write the history, compare with what is published, and publish where nobody watches.

    Raises Unreachable when the cluster does not answer: the last numbers then stay, and get older.
    """
    taken_at = time.time()
    with gateways.kubernetes_of(cluster) as kubernetes:
        copy = Copy(kubernetes.nodes(), kubernetes.pods(), kubernetes.workloads(), taken_at)
    found = Picture(0, 0, taken_at, tuple(copy.nodes), tuple(copy.pods), tuple(copy.workloads))
    folds = allocations(found)
    _write_history(cluster, folds.values(), timezone.now())
    try:
        stored = pictures.load(cluster.pk)
        lease = leases.take(cluster, leases.POLLER)
        if lease is not None:
            published = _publish(cluster, lease, stored.picture if stored else None, copy)
            return Polled(len(folds), published, ())
        return Polled(len(folds), False, _compare(cluster, stored, folds, taken_at))
    except Unreachable as error:
        # The history is written; the numbers of the pages wait for the broker.
        logger.warning("Cluster %s was polled but not published: %s", cluster.name, error.message)
        return Polled(len(folds), False, ())


def _publish(cluster: Cluster, lease: leases.Lease, before: Picture | None, copy: Copy) -> bool:
    publisher = Publisher(cluster, lease)
    if before is not None:
        publisher.go_on_from(before)
    try:
        publisher.publish(copy)
    except LeaseLost:
        return False
    return True


def _compare(
    cluster: Cluster, stored: pictures.Stored | None, folds: dict[str, NodeAllocation], taken_at: float
) -> tuple[str, ...]:
    """Compare the list with what the watcher publishes; equal numbers are confirmed, and so are young again."""
    if stored is None:
        return ()
    differs = tuple(sorted(ledger.difference(allocations(stored.picture), folds)))
    if not differs:
        if not stored.error:
            pictures.confirm(cluster.pk, epoch=stored.picture.epoch, taken_at=taken_at)
    else:
        # Between two readings of a busy cluster this is normal; for the same nodes again and again it is not.
        logger.info("Cluster %s: %s nodes differ between list and watch.", cluster.name, len(differs))
    return differs


def _write_history(cluster: Cluster, folds: Iterable[NodeAllocation], now: datetime) -> None:
    # A second beat must not double the points.
    recent = now - timedelta(seconds=settings.GPUPOOLS_POLL_SECONDS / 2)
    points = AllocationPoint.objects.filter(cluster=cluster)
    if not points.filter(taken_at__gt=recent).exists():
        AllocationPoint.objects.bulk_create(
            AllocationPoint(
                cluster=cluster,
                taken_at=now,
                mode=each.mode or UNKNOWN,
                nodes=each.nodes,
                cards=each.cards,
                cards_used=each.cards_used,
                memory_units=each.memory_units,
                memory_units_used=each.memory_units_used,
                memory_units_pending=each.memory_units_pending,
                memory_units_orphan=each.memory_units_orphan,
                core_percent=each.core_percent,
                core_percent_used=each.core_percent_used,
            )
            for each in totals(folds).modes
        )
    points.filter(taken_at__lt=now - KEEP_HISTORY).delete()


def history(cluster: Cluster, since: datetime) -> list[AllocationPoint]:
    """Return the totals per mode of every poll since then, oldest first. A gap means that nothing was known."""
    return list(AllocationPoint.objects.filter(cluster=cluster, taken_at__gte=since).order_by("taken_at", "mode"))
