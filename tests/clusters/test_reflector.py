"""The local copy against a server that breaks in every way that field reports name."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from gpupools.clusters.feed import Pace
from gpupools.clusters.kube import KubeClient
from gpupools.clusters.reflector import Reflector
from tests.clusters.scripted import ScriptedServer, node, pod, status

FAST = Pace(silence=0.4, settled=1.0, first_delay=0.01, longest_delay=0.05, ring=0.1)


def until(condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
    """Wait for a condition of another thread; fail with the test when it does not come."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        pause.wait(0.01)


def names(reflector: Reflector) -> set[str]:
    return {p.name for p in reflector.pods()}


def same_as_server(reflector: Reflector, api: ScriptedServer) -> bool:
    with KubeClient(api.connection()) as client:
        nodes = sorted(client.nodes(), key=lambda n: n.uid)
        pods = sorted(client.pods(), key=lambda p: p.uid)
    return (
        sorted(reflector.nodes(), key=lambda n: n.uid) == nodes
        and sorted(reflector.pods(), key=lambda p: p.uid) == pods
    )


def test_first_ring_comes_when_every_kind_is_listed_and_names_all_nodes(api: ScriptedServer) -> None:
    api.put("Node", node("a"))
    api.put("Pod", pod("p", on="b"))
    with Reflector(api.connection(), pace=FAST) as reflector:
        ring = reflector.next_ring(timeout_seconds=10)
        assert reflector.synced
        assert ring == {"a", "b"}
        assert [n.name for n in reflector.nodes()] == ["a"]
        assert reflector.last_seen is not None
        until(lambda: reflector.live)


def test_lists_come_in_pages(api: ScriptedServer) -> None:
    for index in range(1201):
        api.put("Pod", pod(f"p{index}"))
    with Reflector(api.connection(), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        assert len(reflector.pods()) == 1201
    asked = [q for _, path, q, _ in api.requests if path == "/api/v1/pods" and "watch" not in q]
    assert [q.get("continue") for q in asked] == [None, "500", "1000"]
    assert {q["limit"] for q in asked} == {"500"}


def test_an_event_rings_with_the_nodes_before_and_after(api: ScriptedServer) -> None:
    api.put("Pod", pod("p", on="a"))
    with Reflector(api.connection(), pace=FAST) as reflector:
        reflector.next_ring(timeout_seconds=10)
        api.put("Pod", pod("p", on="b"))
        assert reflector.next_ring(timeout_seconds=10) == {"a", "b"}


def test_an_event_that_changes_no_value_does_not_ring(api: ScriptedServer) -> None:
    api.put("Node", node("a"))
    with Reflector(api.connection(), pace=FAST) as reflector:
        reflector.next_ring(timeout_seconds=10)
        heartbeat = node("a")
        heartbeat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-30T10:00:00Z"
        api.put("Node", heartbeat)
        until(lambda: reflector.counts["Node"].events == 1)
        assert reflector.touched() == frozenset()


def test_rings_come_at_most_ten_times_a_second_and_lose_no_name(api: ScriptedServer) -> None:
    with Reflector(api.connection(), pace=FAST) as reflector:
        reflector.next_ring(timeout_seconds=10)
        rung: list[tuple[float, frozenset[str]]] = []

        def listen() -> None:
            rung.extend((time.monotonic(), ring) for ring in reflector.rings())

        thread = threading.Thread(target=listen)
        thread.start()
        for index in range(200):
            api.put("Node", node(f"n{index}"))
        until(lambda: len({name for _, ring in rung for name in ring}) == 200)
        reflector.stop()
        thread.join(5)
        assert not thread.is_alive()
    gaps = [later - earlier for (earlier, _), (later, _) in zip(rung, rung[1:], strict=False)]
    assert all(gap >= 0.095 for gap in gaps)


@pytest.mark.parametrize("fault", ["http-410", "event-410", "garbage"])
def test_a_version_that_is_gone_means_a_new_list(api: ScriptedServer, fault: str) -> None:
    api.put("Pod", pod("old"))
    api.watch_faults.extend([fault])
    with Reflector(api.connection(), ("Pod", "Node"), pace=FAST) as reflector:
        until(lambda: api.lists("Pod") + api.lists("Node") == 3)
        api.put("Pod", pod("new"))
        until(lambda: names(reflector) == {"old", "new"})


def test_while_a_new_list_fails_the_old_values_stay(api: ScriptedServer) -> None:
    api.put("Pod", pod("kept"))
    with Reflector(api.connection(), ("Pod",), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        api.list_faults.extend([status(500, "InternalError", "boom")] * 3)
        api.compact()
        api.put("Pod", pod("other"))
        until(lambda: "boom" in reflector.error or reflector.counts["Pod"].failures > 0)
        assert "kept" in names(reflector)
        until(lambda: names(reflector) == {"kept", "other"})
        until(lambda: reflector.error == "")


def test_a_deletion_during_a_gap_is_found_by_the_new_list(api: ScriptedServer) -> None:
    api.put("Pod", pod("gone", on="a"))
    with Reflector(api.connection(), ("Pod",), pace=FAST) as reflector:
        reflector.next_ring(timeout_seconds=10)
        with api.lock:  # in one piece: the watch must not see the deletion
            api.remove("Pod", "uid-gone")
            api.compact()
            api.wake()
        assert reflector.next_ring(timeout_seconds=10) == {"a"}
        assert reflector.pods() == []


def test_a_watch_that_ends_goes_on_from_its_last_version_without_a_list(api: ScriptedServer) -> None:
    api.watch_faults.append("close")
    with Reflector(api.connection(), ("Pod",), pace=FAST) as reflector:
        api.put("Pod", pod("p"))
        until(lambda: names(reflector) == {"p"})
        until(lambda: api.watches("Pod") >= 2)
    assert api.lists("Pod") == 1


def test_a_watch_that_breaks_in_the_middle_of_an_event_loses_nothing(api: ScriptedServer) -> None:
    api.watch_faults.append("drop")
    with Reflector(api.connection(), ("Pod",), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        api.put("Pod", pod("p"))
        until(lambda: names(reflector) == {"p"})
    assert api.lists("Pod") == 1


def test_a_frozen_stream_is_found_by_its_silence(api: ScriptedServer) -> None:
    api.watch_faults.append("frozen")
    with Reflector(api.connection(), ("Pod",), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        api.put("Pod", pod("p"))
        until(lambda: names(reflector) == {"p"})
        assert api.watches("Pod") >= 2


def test_a_server_that_closes_at_once_is_not_asked_in_a_hot_loop(api: ScriptedServer) -> None:
    api.watch_faults.extend(["close"] * 1000)
    slow = Pace(first_delay=0.2, longest_delay=30.0)
    with Reflector(api.connection(), ("Pod",), pace=slow):
        threading.Event().wait(1.0)
        assert api.watches("Pod") <= 6


def test_a_storm_of_410_is_answered_with_longer_and_longer_pauses(api: ScriptedServer) -> None:
    api.watch_faults.extend(["event-410", "http-410"] * 500)
    slow = Pace(first_delay=0.2, longest_delay=30.0)
    with Reflector(api.connection(), ("Pod",), pace=slow) as reflector:
        threading.Event().wait(1.0)
        assert api.lists("Pod") <= 6
        assert reflector.synced


def test_a_late_delete_of_an_old_uid_does_not_touch_the_new_object_of_that_name(api: ScriptedServer) -> None:
    old = api.put("Pod", pod("p", "first", on="a"))
    with Reflector(api.connection(), ("Pod",), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        with api.lock:
            del api.objects["Pod"]["first"]
        api.put("Pod", pod("p", "second", on="b"))
        with api.lock:
            api.version += 1
            api.tell("Pod", "DELETED", old)
        api.put("Pod", pod("q"))
        until(lambda: names(reflector) == {"p", "q"})
        assert {p.uid for p in reflector.pods()} == {"second", "uid-q"}


def test_replayed_events_of_a_deleted_object_do_not_bring_it_back(api: ScriptedServer) -> None:
    old = api.put("Pod", pod("p", on="a"))
    with Reflector(api.connection(), ("Pod",), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        api.remove("Pod", "uid-p")
        until(lambda: reflector.pods() == [])
        with api.lock:
            api.version += 1
            api.tell("Pod", "MODIFIED", old)
        api.put("Pod", pod("q"))
        until(lambda: "q" in names(reflector))
        assert names(reflector) == {"q"}


def test_one_object_that_cannot_be_read_is_counted_and_skipped(api: ScriptedServer) -> None:
    broken = pod("broken")
    broken["spec"]["containers"] = "none"
    api.put("Pod", broken)
    api.put("Pod", pod("good"))
    with Reflector(api.connection(), ("Pod",), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        assert names(reflector) == {"good"}
        assert reflector.counts["Pod"].skipped == 1
        spoiled = pod("good")
        spoiled["spec"]["containers"] = 7
        api.put("Pod", spoiled)
        until(lambda: reflector.counts["Pod"].skipped == 2)
        assert names(reflector) == {"good"}  # unknown is not gone
        api.remove("Pod", "uid-good")
        until(lambda: names(reflector) == set())


def test_a_kind_that_may_not_be_read_does_not_hold_up_the_others(api: ScriptedServer) -> None:
    api.handlers["GET", "/apis/batch/v1/jobs"] = lambda query, body: status(403, "Forbidden", "jobs are forbidden")
    api.put("Node", node("a"))
    with Reflector(api.connection(), pace=FAST) as reflector:
        assert reflector.next_ring(timeout_seconds=10) == {"a"}
        assert reflector.synced
        assert reflector.error == ""
        assert any("jobs are forbidden" in gap for gap in reflector.gaps)


def test_nodes_that_may_not_be_read_keep_the_copy_unsynced_and_say_why(api: ScriptedServer) -> None:
    api.handlers["GET", "/api/v1/nodes"] = lambda query, body: status(403, "Forbidden", "nodes are forbidden")
    with Reflector(api.connection(), pace=FAST) as reflector:
        until(lambda: "nodes are forbidden" in reflector.error)
        assert not reflector.synced
        assert reflector.last_seen is None


def test_a_topology_report_gives_its_node_links_and_rings_for_it(api: ScriptedServer) -> None:
    api.put("Node", node("a"))
    with Reflector(api.connection(), pace=FAST) as reflector:
        reflector.next_ring(timeout_seconds=10)
        report = {
            "metadata": {"namespace": "kube-system", "name": "a-gputopo-report", "uid": "r"},
            "data": {"nodeName": "a", "bandwidth": "[[0,50],[50,0]]", "devices": '{"0":"Healthy","1":"Sick"}'},
        }
        api.put("ConfigMap", report)
        assert reflector.next_ring(timeout_seconds=10) == {"a"}
        (there,) = reflector.nodes()
        assert there.links == ((0.0, 50.0), (50.0, 0.0))
        assert there.unhealthy == (1,)


def test_a_health_report_takes_a_card_out_and_its_end_brings_it_back(api: ScriptedServer) -> None:
    api.put("Node", node("a"))
    with Reflector(api.connection(), pace=FAST) as reflector:
        reflector.next_ring(timeout_seconds=10)
        sick = "- deviceId: 1\n  deviceType: gpu\n  healthy: false\n"
        meta = {"namespace": "kube-system", "name": "a-device-status", "uid": "h"}
        api.put("ConfigMap", {"metadata": meta, "data": {"devices": sick}})
        assert reflector.next_ring(timeout_seconds=10) == {"a"}
        assert [there.unhealthy for there in reflector.nodes()] == [(1,)]
        api.put("ConfigMap", {"metadata": meta, "data": {"devices": "[]"}})
        assert reflector.next_ring(timeout_seconds=10) == {"a"}
        assert [there.unhealthy for there in reflector.nodes()] == [()]


def test_stop_ends_the_threads_at_once_though_the_streams_are_silent(api: ScriptedServer) -> None:
    api.bookmark_seconds = 60
    before = threading.active_count()
    reflector = Reflector(api.connection(), pace=Pace())
    reflector.start()
    with api.lock:
        assert api.lock.wait_for(lambda: api.open_watches == 5, timeout=10)
    started = time.monotonic()
    reflector.stop()
    assert time.monotonic() - started < 1.5
    mine = [t for t in threading.enumerate() if t.name.startswith("feed-")]
    assert mine == []
    api.wake()
    assert threading.active_count() >= before


def test_the_age_moves_on_with_bookmarks(api: ScriptedServer) -> None:
    with Reflector(api.connection(), ("Node", "Pod"), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        first = reflector.last_seen
        assert first is not None
        until(lambda: reflector.last_seen is not None and reflector.last_seen > first)


@pytest.mark.parametrize("seed", range(3))
def test_after_any_faults_the_copy_equals_a_fresh_list(api: ScriptedServer, seed: int) -> None:
    chance = random.Random(seed)
    api.repeat_events = seed % 2 == 1
    faults = ["500", "http-410", "event-410", "close", "drop", "garbage", "frozen"]
    with Reflector(api.connection(), pace=FAST) as reflector:
        until(lambda: reflector.synced)
        number = 0
        for _ in range(300):
            kind = chance.choice(["Node", "Pod", "Pod"])
            there = list(api.objects[kind])
            what = chance.random()
            if what < 0.05:
                api.compact()
            elif what < 0.12:
                with api.lock:
                    api.watch_faults.append(chance.choice(faults))
                    if chance.random() < 0.3:
                        api.list_faults.append(status(503, "Unavailable", "later"))
                api.kick()
                until(lambda: not api.watch_faults)
            elif what < 0.45 and there:
                api.remove(kind, chance.choice(there))
            elif what < 0.6 and there:
                uid = chance.choice(there)
                changed = api.objects[kind][uid]
                changed = {**changed, "metadata": {**changed["metadata"], "labels": {"n": str(number)}}}
                api.put(kind, changed)
            else:
                number += 1
                name = f"o{chance.randrange(20)}"
                if not any(o["metadata"]["name"] == name for o in api.objects[kind].values()):
                    make = node if kind == "Node" else pod
                    api.put(kind, make(name, f"uid-{number}"))
        with api.lock:
            api.watch_faults.clear()
            api.list_faults.clear()
        until(lambda: same_as_server(reflector, api), seconds=20)
