"""Clusters that the console is connected to, and what is known of their components."""

from __future__ import annotations

from django.db import models

from gpupools.models.access import Onlooker


class ClusterQuerySet(models.QuerySet["Cluster"]):
    """Clusters."""

    def visible_to(self, actor: Onlooker) -> ClusterQuerySet:
        """Narrow to the clusters in which the actor has any grant."""
        return self.filter(actor.scope.sees_cluster("pk"))


class Cluster(models.Model):
    """A connected cluster. ``credentials`` is encrypted, ``is_embedded`` is for presentation alone."""

    class Provider(models.TextChoices):
        ACK = "ack", "Alibaba Cloud ACK"
        KUBERNETES = "kubernetes", "Kubernetes"

    class State(models.TextChoices):
        NEW = "new", "Not probed yet"
        CONNECTED = "connected", "Connected"
        UNREACHABLE = "unreachable", "Unreachable"

    name = models.SlugField(max_length=63, unique=True)
    provider = models.CharField(max_length=16, choices=Provider.choices)
    is_embedded = models.BooleanField(default=False)
    server = models.CharField(max_length=300)
    context = models.CharField(max_length=253, blank=True)
    credentials = models.TextField(help_text="Encrypted JSON: kubeconfig context and ACK access.")
    ack_cluster_id = models.CharField(max_length=64, blank=True)
    region = models.CharField(max_length=64, blank=True)
    spec = models.CharField(max_length=64, blank=True, help_text="ACK cluster_spec; Pro modes need ack.pro.*")
    version = models.CharField(max_length=64, blank=True)
    abilities = models.JSONField(
        default=list, help_text="What the identity leaves of the console: code, title, allowed, missing rights."
    )
    in_cluster = models.BooleanField(default=False, help_text="Reached by the console's own service account.")
    state = models.CharField(max_length=16, choices=State.choices, default=State.NEW)
    last_error = models.CharField(max_length=500, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    unreachable_since = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    objects = ClusterQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def can_all(self) -> bool:
        """Whether the identity leaves every function of the console."""
        return bool(self.abilities) and all(each["allowed"] for each in self.abilities)

    @property
    def edition(self) -> str:
        """``Pro``, ``standard`` or another word of ACK's for the kind of cluster; empty where nobody says."""
        words = self.spec.removeprefix("ack.").split(".")
        return "" if not self.spec else "Pro" if "pro" in words else words[0]


class ComponentStateQuerySet(models.QuerySet["ComponentState"]):
    """What checks found of components."""

    def visible_to(self, actor: Onlooker) -> ComponentStateQuerySet:
        """Narrow to the clusters in which the actor has any grant."""
        return self.filter(actor.scope.sees_cluster())


class ComponentState(models.Model):
    """What the last check found of one component in one cluster. A missing row means: not checked yet."""

    class State(models.TextChoices):
        ABSENT = "absent", "Not installed"
        INSTALLING = "installing", "Installing"
        INSTALLED = "installed", "Installed"
        DEGRADED = "degraded", "Degraded"
        REMOVING = "removing", "Removing"
        FAILED = "failed", "Failed"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="components")
    name = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=State.choices)
    version = models.CharField(max_length=64, blank=True)
    found_by = models.CharField(max_length=64, blank=True, help_text="add-on or DaemonSets")
    desired = models.IntegerField(null=True, blank=True)
    ready = models.IntegerField(null=True, blank=True)
    detail = models.CharField(max_length=500, blank=True)
    checked_at = models.DateTimeField()

    objects = ComponentStateQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="one_state_per_component")]

    def __str__(self) -> str:
        return f"{self.name} on {self.cluster}: {self.state}"
