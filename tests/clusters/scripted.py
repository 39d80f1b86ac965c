"""A tiny API server of plain dicts for what the embedded cluster cannot be asked to do: break in the middle.

It speaks list (with pages), watch and the writes that the tests need, over loopback HTTP, and misbehaves on order.
"""

from __future__ import annotations

import copy
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gpupools.clusters.port import Connection

Object = dict[str, Any]
Answer = tuple[int, Any]
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Job": "/apis/batch/v1/jobs",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "ConfigMap": "/api/v1/namespaces/kube-system/configmaps",
}


def status(code: int, reason: str, message: str) -> Answer:
    """Return an answer with a Status object."""
    return code, {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}


class ScriptedServer:
    """Objects by kind and UID, an event log with a floor, and faults that hit the next requests."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in PATHS}
        self.log: list[tuple[int, str, Object]] = []  # version, kind, event
        self.version = 100
        self.floor = 0
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.headers: list[dict[str, str]] = []
        self.handlers: dict[tuple[str, str], Callable[[dict[str, str], Any], Answer]] = {}
        self.list_faults: deque[Answer] = deque()
        self.watch_faults: deque[str] = deque()
        self.bookmark_seconds = 0.05
        self.repeat_events = False
        self.closing = False
        self.generation = 0
        self.open_watches = 0
        self.bookmarks_sent = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def connection(self, *, timeout_seconds: float = 5.0) -> Connection:
        """Return a way in, as ``kubeconfig.parse`` would make it."""
        config = {
            "clusters": [{"name": "c", "cluster": {"server": self.address}}],
            "users": [{"name": "u", "user": {"token": "scripted-token"}}],
        }
        return Connection(self.address, config, timeout_seconds=timeout_seconds)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self.lock:
            self.closing = True
            self.lock.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    # -- What a test does to the cluster

    def put(self, kind: str, obj: Object) -> Object:
        """Create or change an object; its UID says which."""
        with self.lock:
            self.version += 1
            obj = copy.deepcopy(obj)
            obj.setdefault("metadata", {})["resourceVersion"] = str(self.version)
            uid = obj["metadata"]["uid"]
            type_ = "MODIFIED" if uid in self.objects[kind] else "ADDED"
            self.objects[kind][uid] = obj
            self._tell(kind, type_, obj)
            return obj

    def remove(self, kind: str, uid: str) -> None:
        with self.lock:
            self.version += 1
            obj = self.objects[kind].pop(uid)
            obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
            self._tell(kind, "DELETED", obj)

    def tell(self, kind: str, type_: str, obj: Object) -> None:
        """Put an event into the log as it is, whatever the objects say."""
        with self.lock:
            self._tell(kind, type_, obj)

    def compact(self) -> None:
        """Forget the log: watches from an older version are gone."""
        with self.lock:
            self.version += 1
            self.floor = self.version
            self.log = []
            self.lock.notify_all()

    def kick(self) -> None:
        """Break all open watches."""
        with self.lock:
            self.generation += 1
            self.lock.notify_all()

    def wake(self) -> None:
        with self.lock:
            self.lock.notify_all()

    def watches(self, kind: str) -> int:
        """Count the watch requests of a kind so far."""
        with self.lock:
            return sum(1 for _, path, query, _ in self.requests if path == PATHS[kind] and "watch" in query)

    def lists(self, kind: str) -> int:
        """Count the lists of a kind so far, by their first pages."""
        with self.lock:
            return sum(
                1
                for method, path, query, _ in self.requests
                if method == "GET" and path == PATHS[kind] and "watch" not in query and "continue" not in query
            )

    def _tell(self, kind: str, type_: str, obj: Object) -> None:
        self.log.append((self.version, kind, {"type": type_, "object": obj}))
        self.lock.notify_all()

    # -- HTTP

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

            def answer(self) -> None:
                parts = urlsplit(self.path)
                query = dict(parse_qsl(parts.query))
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                body = json.loads(raw) if raw else None
                with server.lock:
                    server.requests.append((self.command, parts.path, query, body))
                    server.headers.append({name.lower(): value for name, value in self.headers.items()})
                handler = server.handlers.get((self.command, parts.path))
                kind = next((k for k, path in PATHS.items() if path == parts.path), "")
                if handler:
                    self.send(*handler(query, body))
                elif self.command == "GET" and kind and "watch" in query:
                    self.watch(kind, query)
                elif self.command == "GET" and kind:
                    self.send(*server._list(kind, query))
                else:
                    self.send(*status(404, "NotFound", f"no {parts.path} here"))

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

            def send(self, code: int, answer: Any) -> None:
                headers = {}
                if isinstance(answer, tuple):
                    answer, headers = answer
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def chunk(self, data: bytes) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

            def watch(self, kind: str, query: dict[str, str]) -> None:
                with server.lock:
                    fault = server.watch_faults.popleft() if server.watch_faults else ""
                    since = int(query["resourceVersion"])
                    gone = since < server.floor
                if fault == "500":
                    return self.send(*status(500, "InternalError", "out of order"))
                if fault == "http-410" or gone and not fault:
                    return self.send(*status(410, "Expired", "too old resource version"))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with server.lock:
                    server.open_watches += 1
                    server.lock.notify_all()
                try:
                    self.stream(kind, since, fault)
                except OSError:
                    return None  # the client hung up
                finally:
                    with server.lock:
                        server.open_watches -= 1
                return None

            def stream(self, kind: str, since: int, fault: str) -> None:
                with server.lock:
                    generation = server.generation
                if fault == "close":
                    return self.chunk_end()
                if fault == "event-410":
                    error = status(410, "Expired", "too old resource version")[1]
                    self.chunk(json.dumps({"type": "ERROR", "object": error}).encode() + b"\n")
                    return self.chunk_end()
                if fault == "garbage":
                    self.chunk(b"{this is no event\n")
                    return self.chunk_end()
                if fault == "frozen":
                    with server.lock:
                        server.lock.wait_for(lambda: server.closing or server.generation != generation)
                    self.close_connection = True
                    return None
                while True:
                    with server.lock:
                        due = server._due(kind, since)
                        if not due and not server.closing:
                            server.lock.wait(server.bookmark_seconds)
                            due = server._due(kind, since)
                        if server.closing or server.generation != generation:
                            self.close_connection = True
                            return None
                        current = server.version
                    if not due:
                        meta = {"resourceVersion": str(current), "creationTimestamp": None}
                        line = json.dumps({"type": "BOOKMARK", "object": {"kind": kind, "metadata": meta}})
                        self.chunk(line.encode() + b"\n")
                        since = current
                        with server.lock:
                            server.bookmarks_sent += 1
                            server.lock.notify_all()
                    for version, event in due:
                        data = json.dumps(event).encode() + b"\n"
                        # In two pieces: a line need not arrive in one read.
                        self.chunk(data[:20])
                        if fault == "drop":
                            self.close_connection = True
                            return None
                        self.chunk(data[20:])
                        if server.repeat_events:
                            self.chunk(data)
                        since = max(since, version)
                        if event["type"] == "ERROR":
                            return self.chunk_end()

            def chunk_end(self) -> None:
                self.wfile.write(b"0\r\n\r\n")
                self.wfile.flush()

        return Handler

    def _due(self, kind: str, since: int) -> list[tuple[int, Object]]:
        """Return the events after a version; the lock is held."""
        if since < self.floor:
            return [(0, {"type": "ERROR", "object": status(410, "Expired", "too old resource version")[1]})]
        return [(version, event) for version, k, event in self.log if version > since and k == kind]

    def _list(self, kind: str, query: dict[str, str]) -> Answer:
        with self.lock:
            if self.list_faults:
                return self.list_faults.popleft()
            start = int(query.get("continue", "0"))
            items = list(self.objects[kind].values())
            if field := query.get("fieldSelector", ""):
                wanted = field.partition("=")[2]
                items = [item for item in items if item.get("spec", {}).get("nodeName") == wanted]
            end = start + int(query.get("limit", "500"))
            meta = {"resourceVersion": str(self.version), "continue": str(end) if end < len(items) else ""}
            return 200, {"kind": f"{kind}List", "metadata": meta, "items": items[start:end]}


@contextmanager
def scripted() -> Iterator[ScriptedServer]:
    """Run a scripted server on a free port."""
    server = ScriptedServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def node(name: str, uid: str = "", **labels: str) -> Object:
    """Return a node with one card and these labels."""
    return {
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": labels},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "8", "nvidia.com/gpu": "1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def pod(name: str, uid: str = "", *, on: str = "", phase: str = "Running") -> Object:
    """Return a pod that asks for one card."""
    container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": uid or f"uid-{name}"},
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": phase},
    }
