"""Requests for dangerous operations that are no mode change: what will be done, who is hit, and the decision."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from gpupools.domain.changes import State
from gpupools.domain.requests import STATES, TITLES, Kind
from gpupools.models.access import Onlooker, User
from gpupools.models.clusters import Cluster
from gpupools.models.pools import NodePool
from gpupools.models.pushes import Push


class OperationRequestQuerySet(models.QuerySet["OperationRequest"]):
    """Requests for operations."""

    def visible_to(self, actor: Onlooker) -> OperationRequestQuerySet:
        """Narrow to the clusters seen whole: the blast radius names pods of every namespace."""
        return self.filter(actor.scope.sees_all_of_cluster())


class OperationRequest(models.Model):
    """A request that a second person approves or rejects. At most one of a kind waits for the same target.

    ``params`` is what will be carried out, ``diff`` the same for people: [{what, old, new}]; ``blast_radius`` holds
    {nodes: [{uid, name}], pods: [...], pools: [names]}; ``facts`` what an approval is bound to, never pods.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="operation_requests")
    kind = models.CharField(max_length=24, choices=[(kind.value, kind.value) for kind in Kind])
    pool = models.ForeignKey(
        NodePool, on_delete=models.CASCADE, null=True, blank=True, related_name="operation_requests"
    )
    component = models.CharField(max_length=64, blank=True)
    target = models.CharField(max_length=64, help_text="The name of the pool or component, kept as text.")
    params = models.JSONField(default=dict)
    diff = models.JSONField(default=list)
    blast_radius = models.JSONField(default=dict)
    warnings = models.JSONField(default=list)
    facts = models.JSONField(default=dict)
    fingerprint = models.CharField(max_length=64)
    state = models.CharField(
        max_length=16, choices=[(state.value, state.value) for state in STATES], default=State.PENDING.value
    )
    reason = models.TextField()
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="operation_requests")
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_by = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, blank=True, related_name="decided_operations"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it stopped waiting, for whatever cause.")
    note = models.TextField(blank=True, help_text="Why it lapsed or expired, or who approved their own.")
    push = models.OneToOneField(
        Push, on_delete=models.SET_NULL, null=True, blank=True, related_name="operation_request"
    )

    objects = OperationRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-requested_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "target"],
                condition=Q(state=State.PENDING.value),
                name="one_pending_request_of_a_kind",
            ),
            models.CheckConstraint(condition=Q(kind__in=[kind.value for kind in Kind]), name="request_kind_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.title} on {self.cluster}"

    @property
    def title(self) -> str:
        """What is asked for, as a few words."""
        return TITLES[Kind(self.kind)].format(target=self.target)
