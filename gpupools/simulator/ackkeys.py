"""The identity of the embedded ACK cluster: its id and one access key, made once and kept in its directory."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from gpupools.simulator.files import write_atomically

_FILE = "ack-key.json"


class AckKeys(msgspec.Struct, frozen=True):
    """Who may speak to the OpenAPI, and about which cluster. The secret appears in no repr."""

    cluster_id: str
    access_key_id: str
    access_key_secret: str

    def __repr__(self) -> str:
        return f"AckKeys(cluster_id={self.cluster_id!r}, access_key_id={self.access_key_id!r})"


def kept(directory: Path, *, cluster_id: str = "") -> AckKeys:
    """Return the keys of a directory, making them the first time; a given cluster id wins over the kept one."""
    path = directory / _FILE
    if path.exists():
        keys = msgspec.json.decode(path.read_bytes(), type=AckKeys)
    else:
        keys = AckKeys(
            cluster_id=cluster_id or f"c{secrets.token_hex(16)}",
            access_key_id=f"LTAI5t{secrets.token_hex(9)}",
            access_key_secret=secrets.token_urlsafe(24),
        )
        write_atomically(path, msgspec.json.encode(keys))
    if cluster_id and cluster_id != keys.cluster_id:
        keys = msgspec.structs.replace(keys, cluster_id=cluster_id)
        write_atomically(path, msgspec.json.encode(keys))
    return keys
