"""Cluster credentials at rest: encrypted by the key from the environment, never logged, never shown again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import transaction

from gpupools.clusters import incluster
from gpupools.clusters.port import AckAccess, Connection
from gpupools.errors import Unreachable
from gpupools.models import Cluster
from gpupools.services import audit
from gpupools.services.access import SYSTEM

_HOW_TO_MAKE_A_KEY = (
    "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())' makes one."
)


def _fernet() -> MultiFernet:
    """Return the keys: the first writes, all of them read."""
    if not settings.GPUPOOLS_CREDENTIALS_KEY:
        raise Unreachable(
            f"GPUPOOLS_CREDENTIALS_KEY is not set, so cluster credentials cannot be kept. {_HOW_TO_MAKE_A_KEY}",
            code="credentials-key",
        )
    keys = [settings.GPUPOOLS_CREDENTIALS_KEY, *settings.GPUPOOLS_OLD_CREDENTIALS_KEYS]
    name = ""
    try:
        fernets = []
        for index, key in enumerate(keys):
            name = "an entry of GPUPOOLS_OLD_CREDENTIALS_KEYS" if index else "GPUPOOLS_CREDENTIALS_KEY"
            fernets.append(Fernet(key))
        return MultiFernet(fernets)
    except ValueError:
        # Without the cause: its message may quote the key.
        raise Unreachable(
            f"{name} is not a Fernet key (32 bytes, URL-safe base64). {_HOW_TO_MAKE_A_KEY}",
            code="credentials-key",
        ) from None


def encrypt(secrets: dict[str, Any]) -> str:
    """Encrypt a JSON object; raises Unreachable (code ``credentials-key``) without a usable key."""
    return _fernet().encrypt(json.dumps(secrets).encode()).decode()


def decrypt(text: str) -> dict[str, Any]:
    """Decrypt what ``encrypt`` made; raises Unreachable (code ``credentials-key``) when the key is another one."""
    try:
        plain = json.loads(_fernet().decrypt(text.encode()))
    except InvalidToken:
        raise Unreachable(
            "These cluster credentials were encrypted with another GPUPOOLS_CREDENTIALS_KEY. "
            "Put that key back, name it in GPUPOOLS_OLD_CREDENTIALS_KEYS, or give the cluster new credentials.",
            code="credentials-key",
        ) from None
    return dict(plain)


def seal(connection: Connection) -> str:
    """Encrypt a checked connection for the row of its cluster."""
    ack = connection.ack
    return encrypt(
        {
            "server": connection.server,
            "context": connection.context,
            "kubeconfig": dict(connection.kubeconfig),
            "ack": None
            if ack is None
            else {
                "cluster_id": ack.cluster_id,
                "region": ack.region,
                "access_key_id": ack.access_key_id,
                "secret": ack.secret,
                "endpoint": ack.endpoint,
                "protocol": ack.protocol,
                "ram_role": ack.ram_role,
            },
        }
    )


def connection_of(cluster: Cluster) -> Connection:
    """Return the way into a connected cluster; the time-out is the setting's of today."""
    kept = decrypt(cluster.credentials)
    timeout_seconds = float(settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS)
    if cluster.in_cluster:
        return own_cluster()
    if not settings.GPUPOOLS_ALLOW_INSECURE_TLS and _is_insecure(kept["kubeconfig"]):
        raise Unreachable(
            "This cluster was connected without a check of its certificate, and GPUPOOLS_ALLOW_INSECURE_TLS is off "
            "now: give it new credentials.",
            code="insecure",
        )
    return Connection(
        server=kept["server"],
        kubeconfig=kept["kubeconfig"],
        context=kept["context"],
        ack=AckAccess(**kept["ack"]) if kept["ack"] else None,
        timeout_seconds=timeout_seconds,
        denied=tuple(settings.GPUPOOLS_DENIED_ADDRESSES),
    )


def own_cluster() -> Connection:
    """Return the way into the cluster that the console runs in. Raises Invalid where it runs in none."""
    connection = incluster.connection(
        settings.GPUPOOLS_SERVICE_ACCOUNT_DIR, timeout_seconds=float(settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS)
    )
    return replace(connection, denied=tuple(settings.GPUPOOLS_DENIED_ADDRESSES))


def _is_insecure(kubeconfig: Mapping[str, Any]) -> bool:
    return any(each["cluster"].get("insecure-skip-tls-verify") for each in kubeconfig["clusters"])


@dataclass(frozen=True, slots=True)
class Rotated:
    """What a rotation did: clusters written anew, and those whose credentials no key reads."""

    written: tuple[str, ...]
    unreadable: tuple[str, ...]


def rotate() -> Rotated:
    """Write the credentials of every cluster anew with the present key; what no key reads stays as it is.

    Each row is written only if nobody else wrote it meanwhile, so consoles may run on all the while, with both keys.
    Raises Unreachable (code ``credentials-key``) without a usable key.
    """
    keys = _fernet()
    written, unreadable = [], []
    for cluster in Cluster.objects.order_by("name"):
        try:
            anew = keys.rotate(cluster.credentials.encode()).decode()
        except InvalidToken:
            unreadable.append(cluster.name)
            continue
        with transaction.atomic():
            if Cluster.objects.filter(pk=cluster.pk, credentials=cluster.credentials).update(credentials=anew):
                audit.record(SYSTEM, "cluster.rotate", cluster)
        written.append(cluster.name)
    return Rotated(tuple(written), tuple(unreadable))
