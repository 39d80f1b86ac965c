"""The queue of changes to clusters: one row per push. A worker claims it by a conditional UPDATE."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from gpupools.models.access import Onlooker, User
from gpupools.models.clusters import Cluster


class PushQuerySet(models.QuerySet["Push"]):
    """The queue."""

    def visible_to(self, actor: Onlooker) -> PushQuerySet:
        """Narrow to the actor's own pushes and to clusters seen whole: a payload may name any namespace."""
        own = Q(requested_by=actor.user_id) if actor.user_id else Q(pk__in=())
        return self.filter(actor.scope.sees_all_of_cluster() | own)


class Push(models.Model):
    """One operation on a cluster, claimed with a lease and a fence; ``op_id`` travels into the cluster.

    ``learned`` keeps what a try found out (task ids, pool ids) before anything waits on it.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    op_id = models.UUIDField(default=uuid.uuid4, unique=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pushes")
    kind = models.CharField(max_length=32)
    target = models.CharField(max_length=100, help_text="What is written to, e.g. pool:7; one push at a time each.")
    payload = models.JSONField(default=dict)
    learned = models.JSONField(default=dict)
    state = models.CharField(max_length=8, choices=State.choices, default=State.QUEUED)
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(db_index=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    fence = models.PositiveBigIntegerField(default=0)
    error = models.CharField(max_length=1000, blank=True)
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = PushQuerySet.as_manager()

    class Meta:
        ordering = ["due_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "target"],
                condition=Q(state="queued"),
                name="one_push_in_flight_per_target",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"
