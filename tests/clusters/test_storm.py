"""The local copy through a thousand faults of the embedded cluster's own process, and what that costs in memory."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from gpupools.clusters import kubeconfig
from gpupools.clusters.channel import MERGE_PATCH, Channel
from gpupools.clusters.feed import Pace
from gpupools.clusters.kube import KubeClient
from gpupools.clusters.port import Connection
from gpupools.clusters.reflector import Reflector
from gpupools.domain.modes import MODE_LABEL
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.harness import SimulatorProcess

# A silence counts after one second, so that no test waits for minutes.
PACE = Pace(silence=1.0, settled=0.5, first_delay=0.01, longest_delay=0.1, ring=0.05)
FAULTS = 1000
MOST_MIB = 4.0


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=50) as running:
        yield running


@pytest.fixture
def breaker(simulator: SimulatorProcess) -> Iterator[Breaker]:
    with breaking(simulator) as found:
        yield found


@pytest.fixture
def connection(simulator: SimulatorProcess) -> Connection:
    return kubeconfig.parse(simulator.kubeconfig.read_text(), allow_loopback=True, timeout_seconds=5.0)


def until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        pause.wait(0.02)


def mend(breaker: Breaker) -> None:
    breaker.http.call("DELETE", "/faults")


def same(reflector: Reflector, client: KubeClient) -> bool:
    def sorted_by_uid(values):
        return sorted(values, key=lambda value: value.uid)

    pairs = ((reflector.nodes, client.nodes), (reflector.pods, client.pods), (reflector.workloads, client.workloads))
    return all(sorted_by_uid(mine()) == sorted_by_uid(theirs()) for mine, theirs in pairs)


class Traffic:
    """Changes in the cluster that have to be seen: node labels, and pods that come and go."""

    def __init__(self, connection: Connection) -> None:
        self._channel = Channel(connection)
        self._numbers = itertools.count()

    def stir(self) -> None:
        number = next(self._numbers)
        try:
            path = f"/api/v1/nodes/gpu-0{number % 9 + 1}"
            body = {"metadata": {"labels": {"storm": str(number)}}}
            self._channel.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            pods = "/api/v1/namespaces/default/pods"
            container = {"name": "main", "image": "busybox", "command": ["true"]}
            pod = {
                "metadata": {"name": f"storm-{number}", "labels": {"app": "storm"}},
                "spec": {"restartPolicy": "Never", "containers": [container], "nodeSelector": {MODE_LABEL: "default"}},
            }
            self._channel.request("POST", pods, body={"apiVersion": "v1", "kind": "Pod", **pod})
            if number >= 5:
                self._channel.request("DELETE", f"{pods}/storm-{number - 5}", body={"gracePeriodSeconds": 0})
        except Exception as error:  # noqa: BLE001  # a request may be hit by the fault of this moment, as others are
            assert type(error).__name__ in {"Unreachable", "Refused", "Conflict"}, error

    def close(self) -> None:
        self._channel.close()


KINDS = (
    ("watch-drop", {}),
    ("compaction", {}),
    ("compaction", {"status": True}),
    ("error", {"status": 429, "retry_after_seconds": 1, "verbs": ["list", "watch"], "times": 1}),
    ("error", {"status": 500, "verbs": ["list", "watch"], "times": 2}),
    ("error", {"status": 503, "verbs": ["watch"], "times": 1}),
    ("watch-freeze", {}),
    ("watch-duplicate", {}),
    ("latency", {"seconds": 0.02, "verbs": ["list"], "times": 2}),
)


def test_after_a_thousand_faults_the_copy_is_a_fresh_list_and_memory_is_where_it_was(
    breaker: Breaker, connection: Connection
) -> None:
    chance = random.Random(6)
    traffic = Traffic(connection)
    with Reflector(connection, pace=PACE) as reflector, KubeClient(connection) as client:
        until(lambda: reflector.live)
        injected = 0

        def storm(count: int) -> None:
            nonlocal injected
            for number in range(count):
                kind, fields = chance.choice(KINDS)
                breaker.begin(kind, **fields)
                injected += 1
                if number % 10 == 0:
                    traffic.stir()
                if number % 4 == 3:
                    mend(breaker)
            mend(breaker)

        storm(FAULTS // 5)  # whatever is allocated once is allocated by now
        until(lambda: reflector.live and same(reflector, client))
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        storm(FAULTS - FAULTS // 5)
        until(lambda: reflector.live and same(reflector, client))
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        counts = reflector.counts
    traffic.close()
    assert injected == FAULTS
    assert sum(each.lists for each in counts.values()) > 50, counts
    assert (after - before) / 2**20 < MOST_MIB
    assert (peak - before) / 2**20 < 8 * MOST_MIB
    assert all(each.skipped == 0 for each in counts.values())


def test_a_storm_of_410_holds_no_second_copy(breaker: Breaker, connection: Connection) -> None:
    with Reflector(connection, pace=PACE) as reflector, KubeClient(connection) as client:
        until(lambda: reflector.live)
        listed = reflector.counts["Node"].lists
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20):
            # What happens while the stream is frozen is not seen, so the version to go on from is an old one.
            breaker.begin("watch-freeze")
            client.label_node("gpu-09", labels={"storm": str(number)}, op_id=f"storm-{number}-{time.time()}")
            breaker.begin("compaction", status=bool(number % 2))
            breaker.begin("watch-drop")
            mend(breaker)
            until(lambda: reflector.live)
        until(lambda: reflector.counts["Node"].lists > listed + 5 and same(reflector, client))
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (after - before) / 2**20 < MOST_MIB
    assert (peak - before) / 2**20 < 2 * MOST_MIB


def test_a_stream_that_is_open_and_silent_is_found_and_opened_again(breaker: Breaker, connection: Connection) -> None:
    with Reflector(connection, ("Node", "Pod"), pace=PACE) as reflector, KubeClient(connection) as client:
        until(lambda: reflector.live)
        opened = reflector.counts["Node"].watches
        breaker.begin("watch-freeze")
        client.label_node("gpu-09", labels={"frozen": "yes"}, op_id=f"f-{time.time()}")
        until(lambda: reflector.counts["Node"].watches > opened)
        mend(breaker)
        until(lambda: same_label(reflector, "gpu-09", "frozen", "yes"))
        client.label_node("gpu-09", labels={"frozen": None}, op_id=f"g-{time.time()}")


def same_label(reflector: Reflector, name: str, key: str, value: str) -> bool:
    return any(node.name == name and node.labels.get(key) == value for node in reflector.nodes())


def test_while_the_server_refuses_everything_the_values_and_their_age_stay(
    breaker: Breaker, connection: Connection
) -> None:
    with Reflector(connection, pace=PACE) as reflector:
        until(lambda: reflector.live)
        before = {node.name for node in reflector.nodes()}
        breaker.begin("error", status=503, verbs=["list", "watch", "get"])
        breaker.begin("compaction")
        breaker.begin("watch-drop")
        until(lambda: bool(reflector.error))
        seen = reflector.last_seen
        assert {node.name for node in reflector.nodes()} == before, "never cleared first"
        watches = sum(each.watches + each.lists for each in reflector.counts.values())
        time_before = time.monotonic()
        until(lambda: time.monotonic() - time_before > 1.0)
        asked = sum(each.failures for each in reflector.counts.values())
        assert asked < 400, "a refused feed waits longer and longer"
        assert reflector.last_seen == seen
        mend(breaker)
        until(lambda: reflector.live)
        assert sum(each.watches + each.lists for each in reflector.counts.values()) > watches


def test_events_that_come_twice_and_late_count_once(breaker: Breaker, connection: Connection) -> None:
    with Reflector(connection, pace=PACE) as reflector, KubeClient(connection) as client:
        until(lambda: reflector.live)
        breaker.begin("watch-duplicate")
        traffic = Traffic(connection)
        for _ in range(12):
            traffic.stir()
        traffic.close()
        mend(breaker)
        until(lambda: same(reflector, client))
        uids = [pod.uid for pod in reflector.pods()]
        assert len(uids) == len(set(uids))
