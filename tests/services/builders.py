"""Rows and actors that tests of services start from; each shows only what matters to its test."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from gpupools.clusters.port import AckAccess, Connection
from gpupools.models import ApiToken, Cluster, ComponentState, Grant, NodePool, Role, User
from gpupools.services import credentials
from gpupools.services.access import Actor

# Nothing listens on port 1 of the loopback address, so a call there fails at once.
NOWHERE = "https://127.0.0.1:1"


def a_user(name: str, *grants: tuple[Role, Cluster | None, str]) -> User:
    """Make an account with grants, each (role, cluster or None for all, namespace or "")."""
    user = User.objects.create_user(username=name, password="a long enough password")
    for role, cluster, namespace in grants:
        Grant.objects.create(user=user, role=role, cluster=cluster, namespace=namespace)
    return user


def an_actor(role: Role | None = None, cluster: Cluster | None = None, namespace: str = "", *, name: str = "") -> Actor:
    """Make somebody with one grant (or none), signed in."""
    grants = [(role, cluster, namespace)] if role else []
    return Actor(a_user(name or f"{role or 'nobody'}-{User.objects.count()}", *grants))


def with_token(actor: Actor, role: Role) -> Actor:
    """Return the same person by way of an API token of a role."""
    token = ApiToken.objects.create(
        user=actor.user, name=f"{role}-token", digest=f"digest of {role}", role=role, created_at=timezone.now()
    )
    return Actor(actor.user, token)


def a_connection(*, ack: bool = False, server: str = NOWHERE) -> Connection:
    """Return a way into a cluster that is not there."""
    access = AckAccess("c123", "cn-test", "AKID", "not a real secret", "127.0.0.1:1", "http") if ack else None
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {"token": "not-a-real-token"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    return Connection(server, kubeconfig, "test", access, 1.0)


def a_cluster(name: str = "lab", *, provider: str = Cluster.Provider.KUBERNETES, **columns: Any) -> Cluster:
    """Make the row of a cluster that does not answer."""
    connection = a_connection(ack=provider == Cluster.Provider.ACK)
    return Cluster.objects.create(
        **{
            "name": name,
            "provider": provider,
            "server": connection.server,
            "credentials": credentials.seal(connection),
            "state": Cluster.State.CONNECTED,
            "created_at": timezone.now(),
            **columns,
        }
    )


def a_pool(cluster: Cluster, name: str = "shared", **columns: Any) -> NodePool:
    """Make the row of an active pool."""
    return NodePool.objects.create(
        **{
            "cluster": cluster,
            "name": name,
            "pool_id": name,
            "mode": "cgpu",
            "policy": "binpack",
            "state": NodePool.State.ACTIVE,
            "created_at": timezone.now(),
            **columns,
        }
    )


def a_component(cluster: Cluster, name: str, state: str = ComponentState.State.INSTALLED) -> ComponentState:
    """Make what a check found of a component."""
    return ComponentState.objects.create(cluster=cluster, name=name, state=state, checked_at=timezone.now())
