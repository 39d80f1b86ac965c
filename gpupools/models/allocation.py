"""The history of allocation, and the lease that lets exactly one watcher publish for a cluster."""

from __future__ import annotations

from django.db import models

from gpupools.models.clusters import Cluster


class AllocationPoint(models.Model):
    """Totals of one mode in one cluster at one poll, in that mode's units: memory units, core %, cards."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="history")
    taken_at = models.DateTimeField()
    mode = models.CharField(max_length=16)
    nodes = models.PositiveIntegerField()
    cards = models.PositiveIntegerField()
    cards_used = models.PositiveIntegerField()
    memory_units = models.PositiveIntegerField()
    memory_units_used = models.PositiveIntegerField()
    memory_units_pending = models.PositiveIntegerField()
    memory_units_orphan = models.PositiveIntegerField()
    core_percent = models.PositiveIntegerField()
    core_percent_used = models.PositiveIntegerField()

    class Meta:
        ordering = ["-taken_at", "mode"]
        indexes = [models.Index(fields=["cluster", "taken_at"])]

    def __str__(self) -> str:
        return f"{self.mode} of {self.cluster_id} at {self.taken_at:%Y-%m-%dT%H:%M:%SZ}"


class WatchLease(models.Model):
    """Who publishes a cluster's allocation. A new holder takes a new epoch."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="watch_lease")
    holder = models.CharField(max_length=64, blank=True)
    epoch = models.PositiveBigIntegerField(default=0)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.holder} until {self.until}"
