"""Who may publish a cluster: one holder at a time, by a conditional UPDATE. Each new holder has a new epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from gpupools.models import Cluster, WatchLease

# Long enough to live through a slow disk, short enough that a killed watcher is soon replaced.
LEASE_SECONDS: Final = 10.0
RENEW_SECONDS: Final = 3.0
# The poller publishes only while nobody watches, so any watcher may take over from it at once.
POLLER: Final = "poller"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to publish a cluster with this epoch."""

    cluster_id: int
    holder: str
    epoch: int


def take(cluster: Cluster, holder: str) -> Lease | None:
    """Take the lease of a cluster when nobody holds it; None when somebody does.

    The poller holds nothing against a watcher, and keeps its epoch from poll to poll.
    """
    now = timezone.now()
    row, _ = WatchLease.objects.get_or_create(
        cluster=cluster, defaults={"until": now - timedelta(seconds=1), "holder": ""}
    )
    until = now + timedelta(seconds=LEASE_SECONDS)
    free = Q(until__lte=now)
    if holder == POLLER:
        kept = WatchLease.objects.filter(pk=row.pk, holder=POLLER).update(until=until)
        if kept:
            row.refresh_from_db()
            return Lease(cluster.pk, holder, row.epoch) if row.holder == holder else None
    else:
        free |= Q(holder=POLLER)
    # Naming the epoch that was read makes the new one known without reading again.
    taken = WatchLease.objects.filter(free, pk=row.pk, epoch=row.epoch).update(
        holder=holder, epoch=row.epoch + 1, until=until
    )
    return Lease(cluster.pk, holder, row.epoch + 1) if taken else None


def renew(lease: Lease) -> bool:
    """Hold the lease for longer; False when somebody else has taken it."""
    until = timezone.now() + timedelta(seconds=LEASE_SECONDS)
    return bool(_mine(lease).update(until=until))


def outrank(lease: Lease, epoch: int) -> Lease | None:
    """Give the holder an epoch above one that was found published; None when the lease is lost.

    The rows decide who holds the lease. A higher epoch in the broker with the lease in hand is a leftover of
    another database, and would otherwise keep this cluster's numbers out for ever.
    """
    if not _mine(lease).update(epoch=epoch + 1):
        return None
    return Lease(lease.cluster_id, lease.holder, epoch + 1)


def release(lease: Lease) -> None:
    """Give the lease back, so that a successor need not wait for it to run out."""
    _mine(lease).update(until=timezone.now())


def is_watched(cluster: Cluster) -> bool:
    """Tell whether a watcher, not the poller, holds the lease now."""
    held = WatchLease.objects.filter(cluster=cluster, until__gt=timezone.now())
    return held.exclude(holder__in=("", POLLER)).exists()


def _mine(lease: Lease) -> QuerySet[WatchLease]:
    return WatchLease.objects.filter(cluster_id=lease.cluster_id, holder=lease.holder, epoch=lease.epoch)
