"""A real Celery worker is killed again and again while it makes node pools; nothing is lost, nothing made twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from celery import current_app
from django.conf import settings
from django.db import connection

from gpupools.models import AuditEntry, NodePool, Push
from gpupools.services import bell, gateways, pools
from tests.services.work import connected, queue, until
from tests.simulator.harness import SimulatorProcess

ROOT = Path(__file__).resolve().parents[2]
KILLS = 4
POOLS = 8


def database_url() -> str:
    """Return the address of the test database, for processes of their own."""
    found = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{found['NAME']}"
    password = f":{found['PASSWORD']}" if found["PASSWORD"] else ""
    return f"postgresql://{found['USER']}{password}@{found['HOST']}:{found['PORT'] or 5432}/{found['NAME']}"


@contextmanager
def worker(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker on the test's database and broker; killed with all it started at the end."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "DATABASE_URL": database_url(),
        "REDIS_URL": settings.REDIS_URL,
        # Short leases, so that a killed worker is replaced soon.
        "GPUPOOLS_CLUSTER_TIMEOUT_SECONDS": "1",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "console", "worker", "--pool", "threads", "-c", "3"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ring() -> None:
    """What the beat does."""
    current_app.send_task(bell.PUSH_TASK, expires=5, ignore_result=True)


class LosesAnswers(ThreadingHTTPServer):
    """Passes requests on to the ACK API; the answer to the making of a pool is held back until it is told to go on.

    A worker that is killed in the meantime has made a pool and does not know it.
    """

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.endpoint = endpoint
        self.made = threading.Event()
        self.go_on = threading.Event()

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Relay(BaseHTTPRequestHandler):
    server: LosesAnswers
    protocol_version = "HTTP/1.1"

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        upstream = HTTPConnection(self.server.endpoint, timeout=20)
        try:
            # The signature covers the host name that the client spoke to.
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        if self.command == "POST" and self.path.split("?")[0].endswith("/nodepools"):
            self.server.made.set()
            self.server.go_on.wait(timeout=60)
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # whoever asked was killed

    do_GET = do_POST = do_PUT = do_DELETE = _relay

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=20) as running:
        yield running


def create(operator, cluster, name):
    return pools.create(
        operator,
        cluster,
        name=name,
        mode="share",
        instance_types=["ecs.gn7i-c8g1.2xlarge"],
        desired_size=0,
    )


def provider_pools(cluster) -> list[str]:
    with gateways.pools_of(cluster) as (_, provider):
        return sorted(each.name for each in provider.pools())


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(
    empty_redis, operator, tmp_path, simulator
):
    cluster = connected(simulator)
    made = [create(operator, cluster, f"pool-{number}") for number in range(POOLS)]
    for _ in range(KILLS):
        there = len(provider_pools(cluster))
        with worker(tmp_path / "worker.log"):
            # Killed in the middle of things: as soon as one more pool is there, or none is left to make.
            until(lambda there=there: len(provider_pools(cluster)) > min(there, POOLS + 1), doing=ring)
    with worker(tmp_path / "worker.log"):
        until(lambda: not queue(), doing=ring)
    expected = Counter({"default-nodepool": 1, "training": 1, **{pool.name: 1 for pool in made}})
    assert Counter(provider_pools(cluster)) == expected
    assert set(NodePool.objects.filter(name__startswith="pool-").values_list("state", "error")) == {("active", "")}
    assert set(Push.objects.values_list("state", flat=True)) == {"done"}
    assert AuditEntry.objects.filter(action="push.done").count() == POOLS


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_before_acks_answer_came_has_its_pool_found_by_the_next(
    empty_redis, operator, tmp_path, simulator
):
    relay = LosesAnswers(simulator.ack["endpoint"])
    thread = threading.Thread(target=relay.serve_forever, daemon=True)
    thread.start()
    try:
        cluster = connected(simulator, ack={**simulator.ack, "endpoint": relay.address})
        pool = create(operator, cluster, "found-again")
        with worker(tmp_path / "worker.log"):
            until(relay.made.is_set, doing=ring)
        pool.refresh_from_db()
        assert (pool.pool_id, pool.state) == ("", NodePool.State.PENDING)
        relay.go_on.set()
        with worker(tmp_path / "worker.log"):
            until(lambda: not queue(), doing=ring)
        names = provider_pools(cluster)
    finally:
        relay.go_on.set()
        relay.shutdown()
        relay.server_close()
        thread.join(timeout=10)
    pool.refresh_from_db()
    assert (pool.state, pool.error) == (NodePool.State.ACTIVE, "")
    assert names.count("found-again") == 1
