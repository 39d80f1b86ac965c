"""Cluster credentials at rest: encrypted by the key from the environment, never logged, never shown again."""

from __future__ import annotations

import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from gpupools.clusters.port import AckAccess, Connection
from gpupools.errors import Unreachable
from gpupools.models import Cluster

_HOW_TO_MAKE_A_KEY = (
    "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())' makes one."
)


def _fernet() -> Fernet:
    key = settings.GPUPOOLS_CREDENTIALS_KEY
    if not key:
        raise Unreachable(
            f"GPUPOOLS_CREDENTIALS_KEY is not set, so cluster credentials cannot be kept. {_HOW_TO_MAKE_A_KEY}",
            code="credentials-key",
        )
    try:
        return Fernet(key)
    except ValueError:
        # Without the cause: its message may quote the key.
        raise Unreachable(
            f"GPUPOOLS_CREDENTIALS_KEY is not a Fernet key (32 bytes, URL-safe base64). {_HOW_TO_MAKE_A_KEY}",
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
            "Put that key back, or connect the cluster again.",
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
            },
        }
    )


def connection_of(cluster: Cluster) -> Connection:
    """Return the way into a connected cluster; the time-out is the setting's of today."""
    kept = decrypt(cluster.credentials)
    return Connection(
        server=kept["server"],
        kubeconfig=kept["kubeconfig"],
        context=kept["context"],
        ack=AckAccess(**kept["ack"]) if kept["ack"] else None,
        timeout_seconds=float(settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS),
    )
