"""Who: users, what they are granted where, and API tokens (stored as digests only)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q


class Role(models.TextChoices):
    """Viewer looks, operator acts, admin approves and connects."""

    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"

    @property
    def rank(self) -> int:
        """A role includes every role of lower rank."""
        return (Role.VIEWER, Role.OPERATOR, Role.ADMIN).index(self)


# Not Q(): an empty Q drops out of an OR, and what should be everything would be the other side alone.
_EVERY_ROW = ~Q(pk__in=())


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows somebody may see, as what SQL can filter by: cluster ids and (cluster id, namespace) pairs.

    ``whole`` holds clusters granted in every namespace, ``part`` (cluster id, namespace) pairs, and
    ``namespaces`` what is granted in every cluster. A cluster that is granted in part is visible as such.
    """

    everything: bool = False
    whole: frozenset[int] = frozenset()
    part: frozenset[tuple[int, str]] = frozenset()
    namespaces: frozenset[str] = frozenset()

    def sees_cluster(self, path: str = "cluster") -> Q:
        """Match rows of a cluster as a whole; ``path`` leads from the row to the cluster's key."""
        if self.everything or self.namespaces:
            return _EVERY_ROW
        return Q(**{f"{path}__in": sorted(self.whole | {cluster for cluster, _ in self.part})})

    def sees_all_of_cluster(self, path: str = "cluster") -> Q:
        """Match rows that speak of every namespace of a cluster: only for those who may see them all."""
        return _EVERY_ROW if self.everything else Q(**{f"{path}__in": sorted(self.whole)})

    def sees_namespace(self, path: str = "cluster", namespace: str = "namespace") -> Q:
        """Match rows that live in one namespace of a cluster."""
        if self.everything:
            return _EVERY_ROW
        visible = Q(**{f"{path}__in": sorted(self.whole)})
        visible |= Q(**{f"{namespace}__in": sorted(self.namespaces)})
        for cluster in sorted({cluster for cluster, _ in self.part}):
            names = sorted(name for owner, name in self.part if owner == cluster)
            visible |= Q(**{path: cluster, f"{namespace}__in": names})
        return visible


class Onlooker(Protocol):
    """Whoever looks at rows. The console's actors are made in services."""

    @property
    def scope(self) -> Scope: ...

    @property
    def user_id(self) -> int | None: ...


class User(AbstractUser):
    """A person or a robot that signs in. What it may do is in its grants, not in Django's permissions."""

    class Meta(AbstractUser.Meta):
        db_table = "gpupools_user"


class Grant(models.Model):
    """A role on one cluster (or all), for one namespace (or all)."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="grants")
    role = models.CharField(max_length=16, choices=Role.choices)
    cluster = models.ForeignKey(
        "gpupools.Cluster", on_delete=models.CASCADE, null=True, blank=True, related_name="grants"
    )
    namespace = models.CharField(max_length=63, blank=True, help_text="Empty: every namespace.")

    class Meta:
        constraints = [
            # Two, since one that counts NULL as a value does not exist on SQLite.
            models.UniqueConstraint(
                fields=["user", "role", "cluster", "namespace"],
                condition=Q(cluster__isnull=False),
                name="one_grant_of_a_kind",
            ),
            models.UniqueConstraint(
                fields=["user", "role", "namespace"],
                condition=Q(cluster__isnull=True),
                name="one_grant_of_a_kind_on_all",
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="grant_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} on {self.cluster or 'every cluster'}"


class ApiToken(models.Model):
    """A key for automation, shown once; only its SHA-256 is kept. Its role caps its owner's grants."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=16, choices=Role.choices)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="one_token_of_a_name_per_user")]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"
