"""What was done, by whom, to what; and the memory of POSTs that carried an Idempotency-Key."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from gpupools.models.access import Onlooker, User
from gpupools.models.clusters import Cluster


class AuditEntryQuerySet(models.QuerySet["AuditEntry"]):
    """What was done."""

    def visible_to(self, actor: Onlooker) -> AuditEntryQuerySet:
        """Narrow to the actor's own deeds and to clusters seen whole; the rest needs a grant on all."""
        own = Q(actor=actor.user_id) if actor.user_id else Q(pk__in=())
        return self.filter(actor.scope.sees_all_of_cluster() | own)


class AuditEntry(models.Model):
    """Append-only. Names are kept as text, so an entry outlives its objects; ``data`` holds no secret."""

    at = models.DateTimeField(db_index=True)
    actor = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, db_constraint=False)
    actor_name = models.CharField(max_length=150)
    via = models.CharField(max_length=120, blank=True, help_text="Name of the API token, empty for a session.")
    action = models.CharField(max_length=64)
    cluster = models.ForeignKey(Cluster, on_delete=models.SET_NULL, null=True, blank=True, db_constraint=False)
    cluster_name = models.CharField(max_length=63, blank=True)
    object_type = models.CharField(max_length=32)
    object_id = models.CharField(max_length=64)
    object_label = models.CharField(max_length=300)
    data = models.JSONField(default=dict)

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-pk"]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.object_label}"


class IdempotencyKey(models.Model):
    """The answer that a POST with this key got; a replay gets it again."""

    user = models.ForeignKey(User, on_delete=models.CASCADE)
    key = models.CharField(max_length=128)
    digest = models.CharField(max_length=64, help_text="SHA-256 of method, path and body.")
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    body = models.JSONField(default=dict)
    location = models.CharField(max_length=200, blank=True, help_text="Where what it made is, where it said so.")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_is_used_once")]

    def __str__(self) -> str:
        return self.key
