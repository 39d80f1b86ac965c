"""A real Celery worker is killed again and again while it makes node pools; nothing is lost, nothing made twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(empty_redis, operator, tmp_path):
    with SimulatorProcess(fleet="demo", ack=True, speed=20) as simulator:
        cluster = connected(simulator)
        log = tmp_path / "worker.log"
        made = [
            pools.create(
                operator,
                cluster,
                name=f"pool-{number}",
                mode="share",
                instance_types=["ecs.gn7i-c8g1.2xlarge"],
                desired_size=0,
            )
            for number in range(POOLS)
        ]
        for _ in range(KILLS):
            there = len(provider_pools(cluster))
            with worker(log):
                # Killed in the middle of things: as soon as one more pool is there, or none is left to make.
                until(lambda there=there: len(provider_pools(cluster)) > min(there, POOLS + 1), doing=ring)
        with worker(log):
            until(lambda: not queue(), doing=ring)
        names = provider_pools(cluster)
    assert Counter(names) == Counter({"default-nodepool": 1, "training": 1, **{pool.name: 1 for pool in made}})
    assert set(NodePool.objects.filter(name__startswith="pool-").values_list("state", "error")) == {("active", "")}
    assert set(Push.objects.values_list("state", flat=True)) == {"done"}
    assert AuditEntry.objects.filter(action="push.done").count() == POOLS


def provider_pools(cluster) -> list[str]:
    with gateways.pools_of(cluster) as (_, provider):
        return sorted(each.name for each in provider.pools())
