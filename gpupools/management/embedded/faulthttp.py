"""The control endpoint of an embedded cluster, by the files that it keeps in its directory."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import msgspec
import urllib3


class FaultRefusal(Exception):
    """The endpoint said no; the message says why."""


class FaultHttp:
    """Begins, lists and ends faults. ``directory`` is the embedded cluster's."""

    def __init__(self, directory: Path) -> None:
        try:
            access = msgspec.json.decode((directory / "control.json").read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            raise FaultRefusal(f"No embedded cluster has run in {directory}: there is no control.json.") from None
        self._url = f"{access['server']}/simulator/v1"
        self._headers = {"Authorization": f"Bearer {access['token']}", "Content-Type": "application/json"}
        secure = ssl.create_default_context(cafile=access["certificate_authority"])
        self._pool = urllib3.PoolManager(ssl_context=secure, retries=False)

    def close(self) -> None:
        """Close every connection."""
        self._pool.clear()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded answer; raise FaultRefusal for anything but 2xx."""
        sent = msgspec.json.encode(body) if body is not None else None
        try:
            answer = self._pool.request(method, self._url + path, body=sent, headers=self._headers, timeout=30.0)
        except urllib3.exceptions.HTTPError as error:
            raise FaultRefusal(f"The embedded cluster does not answer: {error}") from error
        decoded = msgspec.json.decode(answer.data)
        if answer.status >= 300:
            raise FaultRefusal(str(decoded.get("message", answer.status)))
        return decoded
