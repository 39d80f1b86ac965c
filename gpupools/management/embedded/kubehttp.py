"""A Kubernetes API over HTTP for commands that load or measure one: a kubeconfig in, JSON out, many threads at once."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import urllib3
import yaml

CONNECTIONS = 64


class ApiRefusal(Exception):
    """An answer other than success; the message says what the server said."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"{status}: {message}")


class KubeHttp:
    """One API server, as the current context of a kubeconfig has it."""

    def __init__(self, kubeconfig: Path, *, token: str = "") -> None:
        config = yaml.safe_load(kubeconfig.read_text("utf-8"))
        named = {entry["name"]: entry["context"] for entry in config["contexts"]}
        context = named[config["current-context"]]
        cluster = next(entry["cluster"] for entry in config["clusters"] if entry["name"] == context["cluster"])
        user = next(entry["user"] for entry in config["users"] if entry["name"] == context["user"])
        self.server: str = cluster["server"].rstrip("/")
        self._headers = {"Authorization": f"Bearer {token or user['token']}"}
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        secure = ssl.create_default_context(cadata=authority)
        self._pool = urllib3.PoolManager(num_pools=2, maxsize=CONNECTIONS, ssl_context=secure, retries=False)

    def close(self) -> None:
        """Close every connection."""
        self._pool.clear()

    def raw(self, method: str, path: str, body: Any = None, *, media: str = "application/json") -> bytes:
        """Return the body of an answer; raise ApiRefusal for anything but 2xx."""
        sent = msgspec.json.encode(body) if body is not None else None
        headers = {**self._headers, **({"Content-Type": media} if sent is not None else {})}
        answer = self._pool.request(method, self.server + path, body=sent, headers=headers, timeout=120.0)
        if answer.status >= 300:
            raise ApiRefusal(answer.status, answer.data[:500].decode("utf-8", "replace"))
        return answer.data

    def call(self, method: str, path: str, body: Any = None, *, media: str = "application/json") -> Any:
        """Return the decoded JSON of an answer, None when it has none."""
        data = self.raw(method, path, body, media=media)
        return msgspec.json.decode(data) if data else None

    def watch(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the lines of a watch until it ends."""
        fields = {"watch": "true", **{name: str(value) for name, value in query.items()}}
        answer = self._pool.request(
            "GET", self.server + path, fields=fields, headers=self._headers, preload_content=False, timeout=120.0
        )
        rest = b""
        try:
            for chunk in answer.stream(65536, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        finally:
            answer.close()
