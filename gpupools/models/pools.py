"""Node pools: wanted state (ours on plain Kubernetes, ACK's cached on ``ack``) beside what was last seen."""

from __future__ import annotations

from django.db import models

from gpupools.models.access import Onlooker
from gpupools.models.clusters import Cluster


class NodePoolQuerySet(models.QuerySet["NodePool"]):
    """Node pools."""

    def visible_to(self, actor: Onlooker) -> NodePoolQuerySet:
        """Narrow to the clusters in which the actor has any grant."""
        return self.filter(actor.scope.sees_cluster())


class NodePool(models.Model):
    """A named group of nodes. ``mode`` is empty while no mode was ever declared for it.

    ``labels`` holds the free labels (JSON object), ``taints`` a list of {key, value, effect};
    ``seen`` what the provider reported last: {labels, taints, state, total_nodes, healthy_nodes,
    failed_nodes}.
    """

    class State(models.TextChoices):
        PENDING = "pending", "Waiting to be created"
        CREATING = "creating", "Creating"
        ACTIVE = "active", "Active"
        UPDATING = "updating", "Updating"
        DELETING = "deleting", "Deleting"
        FAILED = "failed", "Failed"
        GONE = "gone", "Gone from the cluster"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pools")
    name = models.CharField(max_length=63)
    pool_id = models.CharField(max_length=128, blank=True, help_text="The provider's id; the name on Kubernetes.")
    mode = models.CharField(max_length=16, blank=True)
    policy = models.CharField(max_length=16, blank=True)
    instance_types = models.JSONField(default=list)
    vswitch_ids = models.JSONField(default=list)
    desired_size = models.PositiveIntegerField(default=0)
    auto_scaling = models.JSONField(default=dict, help_text="On ACK: {enable, min_instances, max_instances, type}.")
    cpu_policy = models.CharField(max_length=16, blank=True, help_text="The kubelet's, where the provider says it.")
    labels = models.JSONField(default=dict)
    taints = models.JSONField(default=list)
    node_names = models.JSONField(default=list)
    state = models.CharField(max_length=16, choices=State.choices, default=State.PENDING)
    seen = models.JSONField(default=dict)
    error = models.CharField(max_length=500, blank=True)
    synced_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    version = models.PositiveIntegerField(default=1, help_text="Counts edits; the ETag of the REST API.")

    objects = NodePoolQuerySet.as_manager()

    class Meta:
        ordering = ["cluster_id", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="pool_name_is_taken_once")]

    def __str__(self) -> str:
        return self.name
