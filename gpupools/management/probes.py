"""Questions that tell whether a process is ready: put to it or to what it has made, never to a clock."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError

ANSWER_SECONDS = 2.0
PICTURES = "gpupools:picture:*"


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def broker_answers(url: str) -> bool:
    """Whether the broker answers PING; false while it still loads its file."""
    try:
        with Redis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS) as client:
            return bool(client.ping())
    except RedisError:
        return False


def pictures(url: str) -> Mapping[bytes, bytes | None]:
    """Return what the broker holds about the clusters' allocation now, as it is."""
    try:
        with Redis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS) as client:
            return {key: client.get(key) for key in client.scan_iter(PICTURES)}
    except RedisError:
        return {}


def worker_answers(url: str, node: str) -> bool:
    """Whether the worker of that name answers a ping through the broker."""
    try:
        with Celery("probe", broker=url, set_as_current=False) as app:
            return bool(app.control.ping(destination=[node], timeout=ANSWER_SECONDS / 2, limit=1))
    except (OperationalError, RedisError, OSError):
        return False


def read_json(path: Path) -> dict[str, object]:
    """Return what a process has written for others to read, or nothing while it is not there whole."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def web_is_ready(host: str, port: int) -> bool:
    """Whether the web server says that it can serve: database, broker and migrations included."""
    connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS * 3)
    try:
        connection.request("GET", "/readyz", headers={"Host": f"127.0.0.1:{port}"})
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
