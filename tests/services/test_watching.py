"""The watcher as the process that it is: follows clusters as they come and go, and gives way cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from redis import Redis
from redis.exceptions import RedisError

from gpupools.management.broker import broker_program
from gpupools.models import AllocationPoint, Cluster, WatchLease
from gpupools.services import allocation, clusters, leases, pictures, watching
from gpupools.services.access import Actor
from tests.conftest import free_port
from tests.services.driving import a_sleeper, connected, opened, until
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("empty_redis")]
ROOT = Path(__file__).resolve().parents[2]


class Watcher:
    """``manage.py watchclusters`` on the test's database and broker."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **environ: str) -> None:
        database = connection.settings_dict
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings", **environ}
        if connection.vendor == "sqlite":
            environment["DATABASE_URL"] = f"sqlite:///{database['NAME']}"
        else:
            environment["DATABASE_URL"] = (
                f"postgresql://{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT'] or 5432}"
                f"/{database['NAME']}"
            )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "watchclusters"], cwd=ROOT, env=environment, stdout=log, stderr=log
            )

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=15)


@pytest.fixture
def watcher(tmp_path: Path, redis_url: str) -> Iterator[Watcher]:
    watcher = Watcher(tmp_path / "log")
    watcher.start()
    yield watcher
    if watcher.process is not None and watcher.process.poll() is None:
        watcher.process.kill()
        watcher.process.wait()


@pytest.fixture
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=20.0) as running:
        yield running


def published(cluster: Cluster) -> pictures.Stored:
    until(lambda: pictures.load(cluster.pk) is not None, what="a picture")
    stored = pictures.load(cluster.pk)
    assert stored is not None
    return stored


def test_a_cluster_that_is_connected_later_is_watched_and_one_that_goes_is_forgotten(
    watcher: Watcher, simulator: SimulatorProcess, admin: Actor
) -> None:
    cluster = connected(simulator)
    assert len(published(cluster).picture.nodes) == 11
    key = cluster.pk
    clusters.disconnect(admin, cluster, reason="no longer ours")
    until(lambda: pictures.load(key) is None, what="a forgotten picture")


def test_what_happens_in_the_cluster_is_in_the_picture_at_once(
    watcher: Watcher, simulator: SimulatorProcess, admin: Actor
) -> None:
    cluster = connected(simulator)
    published(cluster)
    with opened(cluster) as kubernetes:
        until(
            lambda: all(n.allocatable.get("nvidia.com/gpu") for n in kubernetes.nodes() if n.name.startswith("gpu")),
            what="nodes that report cards",
        )
        kubernetes.create(a_sleeper("busy", seconds=10_000, limits={"nvidia.com/gpu": 2}, node="gpu-03"), op_id="busy")

    def used() -> int:
        picture = allocation.current(cluster)
        assert picture is not None
        fold = allocation.allocations(picture).get("gpu-03")
        return fold.cards_used if fold else 0

    until(lambda: used() == 2, what="two cards in use")


def test_it_stops_at_once_and_gives_its_lease_back(watcher: Watcher, simulator: SimulatorProcess, admin: Actor) -> None:
    cluster = connected(simulator)
    published(cluster)
    assert leases.is_watched(cluster)
    began = time.monotonic()
    assert watcher.stop() == 0, watcher.log.read_text()
    assert time.monotonic() - began < 5
    assert not leases.is_watched(cluster)
    assert "Traceback" not in watcher.log.read_text()


def test_after_a_crash_the_next_watcher_publishes_with_a_new_epoch(
    watcher: Watcher, simulator: SimulatorProcess, admin: Actor
) -> None:
    cluster = connected(simulator)
    before = published(cluster).picture.epoch
    watcher.stop(signal.SIGKILL)
    watcher.start()

    def epoch() -> int:
        return published(cluster).picture.epoch

    until(lambda: epoch() == before + 1, what="a new epoch", seconds=leases.LEASE_SECONDS + 20)


def test_a_cluster_that_goes_away_keeps_its_numbers_with_their_age_and_the_reason(
    watcher: Watcher, simulator: SimulatorProcess, admin: Actor, empty_redis: Redis
) -> None:
    cluster = connected(simulator)
    published(cluster)
    simulator.kill()
    until(lambda: published(cluster).error, what="a reason")
    stored = published(cluster)
    assert "did not answer" in stored.error
    cluster.refresh_from_db()
    assert cluster.state == Cluster.State.UNREACHABLE, "the row says so as soon as the numbers do"
    assert cluster.last_error
    while empty_redis.rpop(settings.CELERY_TASK_DEFAULT_QUEUE):
        pass
    assert len(stored.picture.nodes) == 11, "unknown is not zero"
    again = published(cluster)
    assert again.picture.taken_at == stored.picture.taken_at
    simulator.start()
    until(lambda: not published(cluster).error, what="numbers that follow the cluster again")
    assert published(cluster).picture.taken_at > stored.picture.taken_at
    rung = empty_redis.lrange(settings.CELERY_TASK_DEFAULT_QUEUE, 0, -1)
    asked = [json.loads(each)["headers"] for each in rung]
    assert [(each["task"], each["argsrepr"]) for each in asked] == [("gpupools.probe_cluster", f"({cluster.pk},)")], (
        "it is probed when it is seen again, and not at the next beat"
    )


def test_a_cluster_that_hangs_is_noticed_though_its_connections_stay_open(
    watcher: Watcher, simulator: SimulatorProcess, admin: Actor
) -> None:
    cluster = connected(simulator)
    published(cluster)
    simulator.signal(signal.SIGSTOP)
    try:
        until(lambda: published(cluster).error, what="a reason", seconds=30)
    finally:
        simulator.signal(signal.SIGCONT)
    until(lambda: not published(cluster).error, what="numbers that follow the cluster again")


def test_a_quiet_cluster_stays_young(watcher: Watcher, simulator: SimulatorProcess, admin: Actor) -> None:
    cluster = connected(simulator)
    first = published(cluster).picture.taken_at
    until(lambda: published(cluster).picture.taken_at > first + watching.PROOF_SECONDS, what="a younger picture")
    assert time.time() - published(cluster).picture.taken_at < watching.PROOF_SECONDS + watching.PULSE_SECONDS + 3


def test_a_cluster_whose_credentials_cannot_be_read_holds_up_no_other(
    watcher: Watcher, simulator: SimulatorProcess, admin: Actor
) -> None:
    Cluster.objects.create(
        name="broken", provider="kubernetes", server="https://127.0.0.1:1", credentials="x", created_at=timezone.now()
    )
    published(connected(simulator))


def test_a_broker_that_lost_everything_is_filled_again(
    watcher: Watcher, simulator: SimulatorProcess, admin: Actor, empty_redis: Redis
) -> None:
    cluster = connected(simulator)
    published(cluster)
    empty_redis.flushdb()
    published(cluster)


def test_a_broker_that_is_restarted_is_filled_again(simulator: SimulatorProcess, admin: Actor, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "broker.log"
    watcher = Watcher(tmp_path / "log")

    def start_broker() -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return subprocess.Popen(
                [broker_program(), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(tmp_path), "--save", ""],
                stdout=file,
                stderr=file,
            )

    def has_picture() -> bool:
        try:
            with Redis(port=port, socket_timeout=2, socket_connect_timeout=2) as client:
                return bool(client.exists(f"gpupools:picture:{cluster.pk}"))
        except RedisError:
            return False

    cluster = connected(simulator)
    broker = start_broker()
    try:
        watcher.start(REDIS_URL=f"redis://127.0.0.1:{port}/0")
        until(has_picture, what="a picture")
        broker.kill()
        broker.wait()
        until(lambda: "cannot be published" in watcher.log.read_text(), what="a watcher that says what is missing")
        broker = start_broker()
        until(has_picture, what="a picture in the new broker")
        assert watcher.stop() == 0
        assert "Traceback" not in watcher.log.read_text()
    finally:
        broker.kill()
        broker.wait()
        if watcher.process is not None and watcher.process.poll() is None:
            watcher.process.kill()
            watcher.process.wait()


def test_an_epoch_left_over_from_another_database_is_overcome(
    watcher: Watcher, simulator: SimulatorProcess, admin: Actor, empty_redis: Redis
) -> None:
    cluster = connected(simulator)
    published(cluster)
    empty_redis.hset(f"gpupools:head:{cluster.pk}", "epoch", 900)
    until(lambda: published(cluster).picture.epoch > 900, what="an epoch above the one that was left")


# -- The poll beside it


def test_where_nobody_watches_the_poll_publishes_and_writes_history(simulator: SimulatorProcess, admin: Actor) -> None:
    cluster = connected(simulator)
    first = allocation.poll(cluster)
    assert (first.nodes, first.published) == (9, True)
    stored = published(cluster)
    second = allocation.poll(cluster)
    assert second.published
    assert published(cluster).picture.epoch == stored.picture.epoch, "pages need not begin anew with every poll"
    assert published(cluster).picture.sequence == stored.picture.sequence + 1
    [point] = allocation.history(cluster, timezone.now() - timedelta(hours=1))
    assert (point.mode, point.nodes) == ("exclusive", 9)


def test_a_second_beat_writes_no_second_point_and_old_points_go(simulator: SimulatorProcess, admin: Actor) -> None:
    cluster = connected(simulator)
    allocation.poll(cluster)
    allocation.poll(cluster)
    assert AllocationPoint.objects.count() == 1
    old = timezone.now() - allocation.KEEP_HISTORY - timedelta(minutes=1)
    AllocationPoint.objects.update(taken_at=old)
    allocation.poll(cluster)
    assert AllocationPoint.objects.filter(taken_at__lte=old).count() == 0
    assert AllocationPoint.objects.count() == 1


def test_a_watchers_numbers_are_compared_and_made_younger_by_the_poll(
    simulator: SimulatorProcess, admin: Actor
) -> None:
    cluster = connected(simulator)
    allocation.poll(cluster)
    WatchLease.objects.filter(cluster=cluster).update(holder="a watcher", until=timezone.now() + timedelta(minutes=1))
    before = published(cluster).picture

    def agrees() -> bool:
        polled = allocation.poll(cluster)
        assert not polled.published
        return polled.differs == ()

    # The nodes may have reported their cards only now: then the poll sees what the watcher's copy lacks.
    if not agrees():
        WatchLease.objects.filter(cluster=cluster).update(holder=leases.POLLER)
        allocation.poll(cluster)
        WatchLease.objects.filter(cluster=cluster).update(holder="a watcher")
        until(agrees, what="equal numbers")
    assert published(cluster).picture.taken_at > before.taken_at


def test_a_cluster_that_does_not_answer_leaves_a_gap_and_the_old_numbers(
    simulator: SimulatorProcess, admin: Actor
) -> None:
    cluster = connected(simulator)
    allocation.poll(cluster)
    before = published(cluster)
    AllocationPoint.objects.all().delete()
    simulator.kill()
    with pytest.raises(allocation.Unreachable):
        allocation.poll(cluster)
    assert published(cluster) == before
    assert not AllocationPoint.objects.exists()


def test_history_is_written_though_the_broker_is_away(
    simulator: SimulatorProcess, admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = connected(simulator)
    monkeypatch.setattr(settings, "REDIS_URL", "redis://127.0.0.1:1/0")
    assert not allocation.poll(cluster).published
    assert AllocationPoint.objects.count() == 1
