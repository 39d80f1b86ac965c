"""Job templates (versioned YAML with typed parameters) and manifests that were sent to clusters."""

from __future__ import annotations

from django.db import models

from gpupools.models.access import Onlooker, User
from gpupools.models.clusters import Cluster


class JobTemplate(models.Model):
    """A versioned manifest. ``parameters``: list of {name, title, kind, default, required, help, choices}."""

    slug = models.SlugField(max_length=63)
    version = models.PositiveIntegerField(default=1)
    title = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    yaml = models.TextField()
    parameters = models.JSONField(default=list)
    is_builtin = models.BooleanField(default=False)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["slug", "-version"]
        constraints = [models.UniqueConstraint(fields=["slug", "version"], name="one_template_per_version")]

    def __str__(self) -> str:
        return f"{self.title} (v{self.version})"


class SubmissionQuerySet(models.QuerySet["Submission"]):
    """Manifests that were sent."""

    def visible_to(self, actor: Onlooker) -> SubmissionQuerySet:
        """Narrow to the namespaces in which the actor has any grant."""
        return self.filter(actor.scope.sees_namespace())


class Submission(models.Model):
    """One manifest sent to one cluster: who, when, and what became of it."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        SUBMITTED = "submitted", "Submitted"
        FAILED = "failed", "Not accepted"
        DELETING = "deleting", "Deleting"
        DELETED = "deleted", "Deleted"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="submissions")
    template = models.ForeignKey(JobTemplate, on_delete=models.SET_NULL, null=True, blank=True)
    kind = models.CharField(max_length=16)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    yaml = models.TextField()
    manifest = models.JSONField(default=dict)
    findings = models.JSONField(default=list)
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    object_uid = models.CharField(max_length=64, blank=True)
    error = models.CharField(max_length=1000, blank=True)
    submitted_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="submissions")
    submitted_at = models.DateTimeField()

    objects = SubmissionQuerySet.as_manager()

    class Meta:
        ordering = ["-submitted_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
