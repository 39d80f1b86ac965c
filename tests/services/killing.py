"""Workers that are killed at chosen moments: what each is about to do arrives here and waits for the word.

A relay stands between worker and cluster, so that a worker can die before a request gets there, or after it was carried
out and before the answer came back. The worker itself (mortal.py) tells when it is about to store what it learned.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120.0
# Headers of one connection, which a relay makes itself.
_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Stop:
    """Something that a worker is about to do, or that has just been done for it.

    ``what``: claimed (a row of the queue), asks (a request on its way to the cluster), answered (carried out there, the
    answer held back), settling and settled (an outcome in the console's own rows), ran (all that was due), idle, born,
    ended. ``word`` lets it go on, or drops it.
    """

    what: str
    method: str = ""
    path: str = ""
    status: int = 0
    detail: str = ""
    number: int = 0
    word: Future[bool] = field(default_factory=Future)

    @property
    def is_write(self) -> bool:
        """Whether a request changes something in the cluster."""
        return self.method not in ("", "GET") and not self.path.endswith("reviews")


class Gate:
    """Where all stops arrive, one after the other. While it is open, requests pass without a word."""

    def __init__(self) -> None:
        self.stops: queue.Queue[Stop] = queue.Queue()
        self.is_open = True

    def passes(self, stop: Stop) -> bool:
        """Wait for the word; False when whoever asked is dead."""
        if self.is_open:
            return True
        self.stops.put(stop)
        return stop.word.result(timeout=SECONDS)

    def next(self) -> Stop:
        """Return the next stop; fail when there is none for long."""
        try:
            return self.stops.get(timeout=SECONDS)
        except queue.Empty:
            raise AssertionError(f"the worker did nothing for {SECONDS:g} s") from None


class Relay(ThreadingHTTPServer):
    """Passes requests on to a cluster, each by way of the gate."""

    daemon_threads = True

    def __init__(self, upstream: Callable[[], HTTPConnection], gate: Gate) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.gate = gate

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.upstream = self.server.upstream()

    def finish(self) -> None:
        self.upstream.close()
        super().finish()

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, gate = self.path.partition("?")[0], self.server.gate
        if not gate.passes(Stop("asks", self.command, path)):
            self.close_connection = True
            return
        # The signature of ACK's requests covers the host name that the client spoke to.
        self.upstream.request(self.command, self.path, body or None, dict(self.headers))
        answer = self.upstream.getresponse()
        content = answer.read()
        if not gate.passes(Stop("answered", self.command, path, answer.status)):
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _relay

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def to_server(server: str, authority: Path | None) -> Callable[[], HTTPConnection]:
    """Return how to open a connection to a server, by TLS where its address says so."""
    parts = urlsplit(server if "//" in server else f"http://{server}")
    host, port = parts.hostname or "", parts.port
    if parts.scheme != "https":
        return lambda: HTTPConnection(host, port, timeout=20)
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return lambda: HTTPSConnection(host, port, timeout=20, context=context)


@contextmanager
def relayed(upstream: Callable[[], HTTPConnection], gate: Gate) -> Iterator[str]:
    """Run a relay; yields its host:port."""
    relay = Relay(upstream, gate)
    thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield relay.address
    finally:
        relay.shutdown()
        relay.server_close()
        thread.join(timeout=10)


class Workers:
    """Makes mortal workers, one at a time, and kills them with SIGKILL."""

    def __init__(self, gate: Gate, *, database: str, broker: str, log: Path) -> None:
        self._gate = gate
        self._pid = 0
        self._log = log
        self._environment = {
            **os.environ,
            "DATABASE_URL": database,
            "REDIS_URL": broker,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            # Whoever is held up here does not give up by itself; leases are ended by hand.
            "GPUPOOLS_CLUSTER_TIMEOUT_SECONDS": str(int(SECONDS)),
        }
        self._nursery: subprocess.Popen[bytes] | None = None

    def _open(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as errors:
            nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.services.mortal"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._reader = threading.Thread(target=self._read, args=(nursery.stdout,), daemon=True)
        self._reader.start()
        return nursery

    def _read(self, said_by_workers: IO[bytes]) -> None:
        for line in said_by_workers:
            said = json.loads(line)
            stop = Stop(said["what"], detail=said.get("detail", ""), number=said.get("pid", said.get("code", 0)))
            self._gate.stops.put(stop)
            if stop.what not in ("born", "ended"):
                stop.word.add_done_callback(lambda word: self._write() if word.result() else None)

    def _write(self) -> None:
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(b"on\n")
        self._nursery.stdin.flush()

    def start(self) -> None:
        """Start a worker; it works from now on."""
        self._nursery = self._nursery or self._open()
        self._write()
        stop = self._gate.next()
        assert stop.what == "born", f"the worker did not start: {stop}"
        self._pid = stop.number

    @property
    def is_working(self) -> bool:
        """Whether a worker lives."""
        return bool(self._pid)

    def kill(self) -> None:
        """Kill the worker as it is, if there is one, and wait until it is gone."""
        if not self._pid:
            return
        os.kill(self._pid, signal.SIGKILL)
        self._pid = 0
        while (stop := self._gate.next()).what != "ended":
            stop.word.set_result(False)
        assert stop.number == -signal.SIGKILL

    def close(self) -> None:
        """End everything that was started here."""
        if self._nursery is None:
            return
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait(timeout=SECONDS)
        self._reader.join(timeout=10)
        self._nursery.stdout.close()
