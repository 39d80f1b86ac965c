"""Connecting clusters, probing them, letting them go. Credentials go in here and never come out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from gpupools.clusters import addons as addons_of
from gpupools.clusters import connect as kubernetes_of
from gpupools.clusters import kubeconfig as kubeconfigs
from gpupools.clusters.port import AckAccess, ClusterFacts, Connection
from gpupools.domain.abilities import Ability
from gpupools.domain.changes import OPEN
from gpupools.domain.labels import check_pool_name
from gpupools.errors import Conflict, ConsoleError, FieldError, Invalid, Refused, Unreachable
from gpupools.models import Cluster, ModeChange, Push, Role
from gpupools.services import audit, bell, credentials, reaching
from gpupools.services.access import Actor

logger = logging.getLogger(__name__)

_ROLE_KEYS = ("cluster_id", "region")
_ACK_KEYS = {
    "cluster_id": "the cluster's id, as on its page of the ACK console",
    "region": "the region's id, for instance cn-hangzhou",
    "access_key_id": "the id of a RAM user's AccessKey",
    "access_key_secret": "the secret of that AccessKey",
}
# Without these the console could show nothing; everything else is asked for when it is needed.
_NEEDED = (("list", "", "nodes"), ("list", "", "pods"))


@dataclass(frozen=True, slots=True)
class _Way:
    """A connection that answered, and what it said."""

    connection: Connection
    facts: ClusterFacts
    abilities: list[Ability]
    in_cluster: bool = False


def connect(
    actor: Actor,
    *,
    name: str,
    provider: str,
    kubeconfig: str,
    context: str = "",
    ack: Mapping[str, str] | None = None,
    in_cluster: bool = False,
    is_embedded: bool = False,
) -> Cluster:
    """Check the credentials, ask the cluster for its version, and keep both.

    ``ack`` has the keys cluster_id, region, and access_key_id with access_key_secret, or ram_role (of the machine that
    the console runs on); perhaps endpoint and protocol. On ``ack`` the kubeconfig may be empty: ACK then gives one.
    ``in_cluster``: by the service account of the console's own pod, without a kubeconfig. Raises Invalid with field
    errors, Unreachable when the cluster does not answer.
    """
    actor.require(Role.ADMIN)
    errors = [replace(each, message=each.message.replace("node pool", "cluster")) for each in check_pool_name(name)]
    if not errors and Cluster.objects.filter(name=name).exists():
        errors.append(FieldError("name", "There is a cluster of this name.", "taken", name))
    if provider not in Cluster.Provider.values:
        allowed = ", ".join(Cluster.Provider.values)
        errors.append(FieldError("provider", "There is no such provider.", "unknown", provider, allowed))
    if errors:
        raise Invalid("The cluster cannot be connected like this.", errors=errors)
    way = _open(provider, kubeconfig, context, ack, in_cluster)
    now = timezone.now()
    try:
        with transaction.atomic():
            cluster = Cluster.objects.create(
                name=name,
                provider=provider,
                is_embedded=is_embedded,
                created_at=now,
                last_seen_at=now,
                state=Cluster.State.CONNECTED,
                **_columns(way),
            )
            audit.record(actor, "cluster.connect", cluster, provider=provider, server=cluster.server)
            bell.ring_cluster(cluster.pk)
    except IntegrityError as error:
        raise Conflict("A cluster of this name was connected meanwhile.", code="taken") from error
    return cluster


def refresh(
    actor: Actor,
    cluster: Cluster,
    *,
    kubeconfig: str,
    context: str = "",
    ack: Mapping[str, str] | None = None,
    in_cluster: bool = False,
    provider: str = "",
) -> Cluster:
    """Put new credentials in the place of the old ones; the cluster keeps its name, pools and history.

    The old ones serve until the new ones have answered, so nothing stands still.
    """
    actor.require(Role.ADMIN, cluster)
    provider = provider or cluster.provider
    way = _open(provider, kubeconfig, context, ack, in_cluster)
    now = timezone.now()
    with transaction.atomic():
        if provider != cluster.provider or not _is_kept(cluster, way.connection):
            audit.record(actor, "cluster.refresh", cluster, provider=provider, server=way.connection.server)
        Cluster.objects.filter(pk=cluster.pk).update(
            provider=provider,
            state=Cluster.State.CONNECTED,
            last_seen_at=now,
            last_error="",
            unreachable_since=None,
            **_columns(way),
        )
        bell.ring_cluster(cluster.pk)
    cluster.refresh_from_db()
    return cluster


def probe(cluster: Cluster) -> None:
    """Ask a cluster for its version and note that it answered, or since when and why it does not."""
    now = timezone.now()
    rows = Cluster.objects.filter(pk=cluster.pk)
    try:
        connection = credentials.connection_of(cluster)
        facts = _facts(connection)
        found = _abilities(connection)
    except (Unreachable, Refused, Invalid) as error:
        reaching.note_silence(cluster.pk, error.message, asked_at=now)
    else:
        rows.update(
            state=Cluster.State.CONNECTED,
            last_error="",
            last_seen_at=timezone.now(),
            unreachable_since=None,
            version=facts.version[:64],
            spec=facts.spec[:64],
            abilities=_as_json(found),
        )
    before = cluster.state
    cluster.refresh_from_db()
    if cluster.state != before:
        logger.info("Cluster %s is %s now. %s", cluster.name, cluster.state, cluster.last_error)
        if cluster.state == Cluster.State.CONNECTED:
            bell.ring_cluster(cluster.pk)


@transaction.atomic
def disconnect(actor: Actor, cluster: Cluster, *, reason: str) -> None:
    """Forget a cluster with its pools, submissions and history; nothing is changed in the cluster itself.

    Refused with Conflict while an operation is queued or a mode change is open: both would be torn off half-way.
    """
    actor.require(Role.ADMIN, cluster)
    if not reason.strip():
        raise Invalid.field("reason", "Say why the cluster is disconnected.", code="required")
    queued = Push.objects.filter(cluster=cluster, state=Push.State.QUEUED).count()
    if queued:
        raise Conflict(
            f"{queued} operations on {cluster.name} are under way; wait until they are done.",
            code="busy",
            queued=queued,
        )
    pools = ModeChange.objects.filter(pool__cluster=cluster, state__in=[state.value for state in OPEN])
    if names := sorted(pools.values_list("pool__name", flat=True)):
        raise Conflict(
            f"Mode changes are open for {', '.join(names)}; finish, reject or abandon them first.",
            code="change-open",
            pools=names,
        )
    audit.record(actor, "cluster.disconnect", cluster, reason=reason.strip(), server=cluster.server)
    bell.ring_cluster(cluster.pk)
    cluster.delete()


def _open(provider: str, kubeconfig: str, context: str, ack: Mapping[str, str] | None, in_cluster: bool) -> _Way:
    access = _ack_access(provider, ack or {})
    if in_cluster:
        # What a pod finds beside itself is no text from outside: only the deny list is asked.
        if kubeconfig.strip() or access is not None:
            raise Invalid.field(
                "in_cluster", "The console's own cluster needs no kubeconfig and no ACK access.", code="unexpected"
            )
        return _tried(credentials.own_cluster(), in_cluster=True)
    allow_loopback = settings.GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS
    timeout_seconds = float(settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS)
    denied = tuple(settings.GPUPOOLS_DENIED_ADDRESSES)
    if access is not None and not kubeconfig.strip():
        kubeconfigs.check_ack(access, allow_loopback=allow_loopback, denied=denied)
        kubeconfig = _kubeconfig_from_ack(Connection("", {}, ack=access, timeout_seconds=timeout_seconds))
    connection = kubeconfigs.parse(
        kubeconfig,
        context=context,
        allow_loopback=allow_loopback,
        allow_insecure=settings.GPUPOOLS_ALLOW_INSECURE_TLS,
        denied=denied,
        timeout_seconds=timeout_seconds,
        ack=access,
    )
    return _tried(connection)


def _tried(connection: Connection, *, in_cluster: bool = False) -> _Way:
    try:
        facts = _facts(connection)
        _check_permissions(connection)
        found = _abilities(connection)
    except Refused as error:
        raise Invalid.field(
            "kubeconfig", f"The cluster refused these credentials: {error.message}", code="refused"
        ) from error
    return _Way(connection, facts, found, in_cluster)


def _ack_access(provider: str, ack: Mapping[str, str]) -> AckAccess | None:
    given = {key: value.strip() for key, value in ack.items() if value and value.strip()}
    if provider != Cluster.Provider.ACK:
        if given:
            raise Invalid.field(
                "ack", "Only a cluster of provider ack has ACK access.", code="unexpected", allowed="nothing"
            )
        return None
    role = given.get("ram_role", "")
    if role and (given.get("access_key_id") or given.get("access_key_secret")):
        raise Invalid.field(
            "ack.ram_role", "Give either a RAM role or an AccessKey.", code="unexpected", allowed="one of the two"
        )
    errors = [
        FieldError(f"ack.{key}", "This is needed to reach the ACK API.", "required", allowed=allowed)
        for key, allowed in _ACK_KEYS.items()
        if key not in given and (not role or key in _ROLE_KEYS)
    ]
    if errors:
        raise Invalid("The access to the ACK API is incomplete.", errors=errors)
    return AckAccess(
        cluster_id=given["cluster_id"],
        region=given["region"],
        access_key_id=given.get("access_key_id", ""),
        secret=given.get("access_key_secret", ""),
        ram_role=role,
        endpoint=given.get("endpoint", ""),
        protocol=given.get("protocol", "https"),
    )


def _kubeconfig_from_ack(connection: Connection) -> str:
    provider = addons_of(connection)
    if provider is None:
        raise Invalid.field("kubeconfig", "A kubeconfig is needed.", code="required")
    try:
        return provider.kubeconfig()
    except Refused as error:
        raise Invalid.field("ack.access_key_id", f"ACK gave no kubeconfig: {error.message}", code="refused") from error


def _facts(connection: Connection) -> ClusterFacts:
    version = kubernetes_of(connection).version()
    provider = addons_of(connection)
    if provider is None:
        return ClusterFacts(version)
    try:
        return replace(provider.cluster(), version=version)
    except ConsoleError as error:
        # Which of the two doors is shut matters to whoever must open it.
        raise type(error)(f"The ACK API: {error.message}", code=error.code) from error


def _check_permissions(connection: Connection) -> None:
    kubernetes = kubernetes_of(connection)
    missing = [f"{verb} {resource}" for verb, group, resource in _NEEDED if not kubernetes.may(verb, group, resource)]
    if missing:
        raise Invalid.field(
            "kubeconfig",
            f"These credentials may not {' or '.join(missing)} in the whole cluster.",
            code="too-few-rights",
            allowed="a user or service account that may",
        )


def _abilities(connection: Connection) -> list[Ability]:
    try:
        return kubernetes_of(connection).abilities()
    except Refused as error:
        # A server without that review says nothing of rights; the functions then say so themselves when they fail.
        logger.info("What %s allows cannot be asked: %s", connection.server, error.message)
        return []


def _as_json(found: list[Ability]) -> list[dict[str, Any]]:
    return [{**msgspec.to_builtins(each), "missing": list(each.missing)} for each in found]


def _columns(way: _Way) -> dict[str, Any]:
    ack = way.connection.ack
    return {
        "server": way.connection.server,
        "context": way.connection.context,
        "credentials": credentials.seal(way.connection),
        "ack_cluster_id": ack.cluster_id if ack else "",
        "region": ack.region if ack else "",
        "version": way.facts.version[:64],
        "spec": way.facts.spec[:64],
        "abilities": _as_json(way.abilities),
        "in_cluster": way.in_cluster,
    }


def _is_kept(cluster: Cluster, connection: Connection) -> bool:
    try:
        return credentials.connection_of(cluster) == connection
    except Unreachable:
        return False
