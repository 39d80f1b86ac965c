"""Who acts, and what they may do where. Roles come from grants alone, capped by the API token in use.

Every service function takes an actor; nothing else in the house decides on permission.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gpupools.errors import Missing, NotAllowed
from gpupools.models import ApiToken, Cluster, Grant, Role, Scope, User

SYSTEM_NAME = "system"


@dataclass(frozen=True)
class Actor:
    """A user, perhaps by way of an API token; or the console itself. Lives for one request or task.

    The grants are read once. An actor without a user has no grants, unless it is the system.
    """

    user: User | None
    token: ApiToken | None = None
    is_system: bool = False

    @property
    def name(self) -> str:
        """What audit entries call the actor."""
        return self.user.get_username() if self.user else SYSTEM_NAME

    @property
    def via(self) -> str:
        """The name of the API token in use, empty for a session."""
        return self.token.name if self.token else ""

    @property
    def user_id(self) -> int | None:
        """The key of the user, None for the system."""
        return self.user.pk if self.user else None

    @cached_property
    def _grants(self) -> tuple[Grant, ...]:
        if self.user is None or not self.user.is_active or self.user.pk is None:
            return ()
        return tuple(Grant.objects.filter(user=self.user))

    def _capped(self, role: str) -> Role:
        granted = Role(role)
        if self.token is None:
            return granted
        return min(granted, Role(self.token.role), key=lambda each: each.rank)

    def _roles(self, cluster: Cluster | None, namespace: str) -> Iterator[Role]:
        for grant in self._grants:
            if grant.cluster_id is not None and (cluster is None or grant.cluster_id != cluster.pk):
                continue
            if not grant.namespace or grant.namespace == namespace:
                yield self._capped(grant.role)
            elif not namespace and cluster is not None:
                # Nodes, pools and components belong to all namespaces: whoever works in one may look.
                yield Role.VIEWER

    def role_on(self, cluster: Cluster | None, namespace: str = "") -> Role | None:
        """Return the highest role that some grant gives, None without any.

        Without a namespace, the cluster's shared things are meant: there a grant in one namespace lets look.
        Without a cluster, the whole console is meant: only grants on every cluster and namespace count.
        """
        if self.is_system:
            return Role.ADMIN
        return max(self._roles(cluster, namespace), key=lambda role: role.rank, default=None)

    def can(self, role: Role, cluster: Cluster | None = None, namespace: str = "") -> bool:
        """Tell whether ``require`` would let the actor through."""
        held = self.role_on(cluster, namespace)
        return held is not None and held.rank >= role.rank

    def require(self, role: Role, cluster: Cluster | None = None, namespace: str = "") -> None:
        """Let pass or raise: Missing for a cluster the actor may not see, NotAllowed for a low role."""
        if self.can(role, cluster, namespace):
            return
        if cluster is not None and self.role_on(cluster) is None:
            raise Missing("There is no such cluster.", code="no-such-cluster")
        where = f"cluster {cluster.name}" if cluster else "the whole console"
        if namespace:
            where = f"namespace {namespace} of {where}"
        held = self.role_on(cluster, namespace)
        has = f"you have {held.label}" if held else "you have no role there"
        raise NotAllowed(
            f"This needs the role {role.label} on {where}; {has}.",
            code="role-too-low",
            needed=role.value,
            held=held.value if held else "",
            cluster=cluster.name if cluster else "",
            namespace=namespace,
        )

    def namespaces(self, cluster: Cluster, role: Role = Role.VIEWER) -> frozenset[str] | None:
        """Return the namespaces in which the actor has at least that role; None stands for all."""
        if self.is_system:
            return None
        here = [
            grant
            for grant in self._grants
            if grant.cluster_id in (None, cluster.pk) and self._capped(grant.role).rank >= role.rank
        ]
        if any(not grant.namespace for grant in here):
            return None
        return frozenset(grant.namespace for grant in here)

    @cached_property
    def scope(self) -> Scope:
        """What querysets narrow by: see ``visible_to`` of the models."""
        grants = self._grants
        return Scope(
            everything=self.is_system or any(not g.cluster_id and not g.namespace for g in grants),
            whole=frozenset(g.cluster_id for g in grants if g.cluster_id and not g.namespace),
            part=frozenset((g.cluster_id, g.namespace) for g in grants if g.cluster_id and g.namespace),
            namespaces=frozenset(g.namespace for g in grants if not g.cluster_id and g.namespace),
        )


# The console itself, in tasks: it may do everything, and audit entries say that nobody asked for it.
SYSTEM = Actor(None, is_system=True)
