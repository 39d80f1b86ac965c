"""Writing down who did what to which object, in the transaction of the change itself. No secret gets in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db import models, transaction
from django.utils import timezone

from gpupools.models import AuditEntry, Cluster
from gpupools.services.access import Actor

# action -> what it says, in the words of the audit page.
ACTIONS: dict[str, str] = {
    "cluster.connect": "Connected a cluster",
    "cluster.refresh": "Refreshed a cluster's credentials",
    "cluster.rotate": "Encrypted a cluster's credentials anew",
    "cluster.disconnect": "Disconnected a cluster",
    "pool.create": "Created a node pool",
    "pool.edit": "Edited a node pool",
    "pool.scale": "Scaled a node pool",
    "pool.delete": "Deleted a node pool",
    "pool.take_out": "Took nodes out of a node pool",
    "pool.attach": "Added machines to a node pool",
    "pool.found": "Found a node pool made elsewhere",
    "pool.gone": "Found a node pool gone",
    "component.install": "Installed a component",
    "component.upgrade": "Upgraded or configured a component",
    "component.uninstall": "Uninstalled a component",
    "template.create": "Created a job template",
    "template.edit": "Edited a job template",
    "template.delete": "Deleted a job template",
    "submission.create": "Submitted a manifest",
    "submission.delete": "Deleted a submitted object",
    "change.request": "Asked for a mode change",
    "change.approve": "Approved a mode change",
    "change.reject": "Rejected a mode change",
    "change.withdraw": "Withdrew a mode change",
    "change.expire": "Let a mode change expire",
    "change.lapse": "Let a mode change lapse",
    "change.start": "Started a mode change",
    "change.step": "Carried out a step of a mode change",
    "change.pause": "Paused a mode change",
    "change.resume": "Resumed a mode change",
    "change.applied": "Finished a mode change",
    "change.failed": "Failed to carry out a mode change",
    "change.retry": "Retried a mode change",
    "change.roll_back": "Started to roll a mode change back",
    "change.rolled_back": "Rolled a mode change back",
    "change.abandon": "Abandoned a mode change",
    "change.release": "Asked to give back what a mode change still holds",
    "change.released": "Gave back what a mode change held",
    "change.confirm": "Confirmed a step done by hand",
    "request.make": "Asked for a dangerous operation",
    "request.approve": "Approved a dangerous operation",
    "request.reject": "Rejected a dangerous operation",
    "request.withdraw": "Withdrew a request for a dangerous operation",
    "request.expire": "Let a request for a dangerous operation expire",
    "request.lapse": "Let a request for a dangerous operation lapse",
    "push.done": "Carried out an operation on a cluster",
    "push.failed": "Failed to carry out an operation on a cluster",
    "token.issue": "Issued an API token",
    "token.revoke": "Revoked an API token",
    "user.create": "Created a user",
    "user.deactivate": "Deactivated a user",
    "user.activate": "Activated a user",
    "user.password": "Changed a password",
    "user.grant": "Granted a role",
    "user.revoke": "Revoked a role",
    "session.sign_in": "Signed in",
    "session.sign_out": "Signed out",
    "session.refused": "Refused a sign-in",
}

# Keys that only ever name a secret; a caller that passes one has a bug that must not reach the table.
_FORBIDDEN_KEYS = frozenset(
    {"access_key_secret", "credentials", "digest", "kubeconfig", "password", "plaintext", "secret", "token"}
)


@dataclass(frozen=True, slots=True)
class Named:
    """An object that has no row of its own, such as a component in a cluster."""

    type: str
    id: str
    label: str


def record(
    actor: Actor, action: str, obj: models.Model | Named, *, cluster: Cluster | None = None, **data: object
) -> AuditEntry:
    """Write one entry; must be called inside the transaction that makes the change.

    ``cluster`` is found on the object when it has one. ``data`` must be JSON and must not name a secret.
    """
    if action not in ACTIONS:
        raise ValueError(f"{action!r} is not a registered audit action.")
    if bad := _FORBIDDEN_KEYS.intersection(_keys(data)):
        raise ValueError(f"Audit data of {action} may not hold {', '.join(sorted(bad))}.")
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError(f"{action}: record it in the transaction of the change.")
    named = obj if isinstance(obj, Named) else Named(obj._meta.model_name or "", str(obj.pk), str(obj))
    where = cluster or _cluster_of(obj)
    return AuditEntry.objects.create(
        at=timezone.now(),
        actor=actor.user,
        actor_name=actor.name,
        via=actor.via,
        action=action,
        cluster=where,
        cluster_name=where.name if where else "",
        object_type=named.type,
        object_id=named.id[:64],
        object_label=named.label[:300],
        data=data,
    )


def _cluster_of(obj: object) -> Cluster | None:
    if isinstance(obj, Cluster):
        return obj
    for holder in (obj, getattr(obj, "pool", None)):
        cluster = getattr(holder, "cluster", None)
        if isinstance(cluster, Cluster):
            return cluster
    return None


def _keys(data: object) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield str(key)
            yield from _keys(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _keys(value)
