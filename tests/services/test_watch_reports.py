"""What a watcher counts reaches the API: age, relists, lag, failures; and it is gone when nobody watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from rest_framework.test import APIClient

from gpupools.models import Role
from gpupools.services import gateways, watching, watchreports
from tests.services.builders import an_actor
from tests.services.work import connected, until
from tests.simulator.breaking import breaking
from tests.simulator.harness import SimulatorProcess

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=20) as running:
        yield running


def test_a_watchers_numbers_can_be_read_over_the_api(simulator, empty_redis):
    cluster = connected(simulator)
    client = APIClient()
    client.force_authenticate(an_actor(Role.VIEWER, name="vera").user)
    address = f"/api/v1/clusters/{cluster.name}/watch/"
    assert client.get(address).status_code == 404
    stopping = threading.Event()
    thread = threading.Thread(target=watching.watch_all, args=(stopping,))
    thread.start()
    try:
        with breaking(simulator) as breaker:
            until(lambda: client.get(address).json().get("live") is True)
            with gateways.kubernetes_of(cluster) as kubernetes:
                kubernetes.label_node("gpu-01", labels={"seen": "yes"}, op_id="seen")
            until(lambda: client.get(address).json()["lag_seconds"] is not None)
            body = client.get(address).json()
            assert (body["publishes"], body["synced"], body["error"], body["gaps"]) == (True, True, "", [])
            assert 0 <= body["lag_seconds"] < 30
            assert 0 <= body["age_seconds"] < 30
            assert body["kinds"]["Node"]["relists"] == 0
            breaker.begin("error", status=503, verbs=["watch"], times=3)
            breaker.begin("watch-drop")
            until(lambda: sum(each["failures"] for each in client.get(address).json()["kinds"].values()) > 0)
    finally:
        stopping.set()
        thread.join(20)
    assert not thread.is_alive()


def test_a_report_of_a_minute_ago_is_no_report(lab, empty_redis):
    report = watchreports.WatchReport("me", time.time(), False, True, True, 1.0, None, "", (), {})
    watchreports.store(lab.pk, report)
    assert watchreports.load(lab.pk) == report
    assert 0 < empty_redis.ttl(f"gpupools:watch:{lab.pk}") <= watchreports.KEEP_SECONDS
    empty_redis.set(f"gpupools:watch:{lab.pk}", b"of another version")
    assert watchreports.load(lab.pk) is None
