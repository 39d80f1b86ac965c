"""Watches: from a version, after what is there, filtered, in other shapes, and how they end."""

from __future__ import annotations

import pytest

from tests.conformance.wire import PARTIAL, TABLE, Server, config_map, told


def version_of(server: Server, path: str) -> str:
    return str(server.get(path).ok()["metadata"]["resourceVersion"])


MINE = {"labelSelector": "run=watch"}


def mine(name: str, data: dict[str, str] | None = None) -> dict:
    return config_map(name, data, labels={"run": "watch"})


def test_a_watch_tells_what_happens_after_a_version(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    server.post(maps, mine("a")).ok()
    server.merge(f"{maps}/a", {"data": {"k": "v"}}).ok()
    server.delete(f"{maps}/a").ok()
    events = server.watch(maps, resourceVersion=since, **MINE)
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(since)


def test_a_watch_can_go_on_from_any_event(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    for name in ("a", "b", "c"):
        server.post(maps, mine(name)).ok()
    first = server.watch(maps, resourceVersion=since, **MINE)[0]
    events = server.watch(maps, resourceVersion=first["object"]["metadata"]["resourceVersion"], **MINE)
    assert told(events) == [("ADDED", "b"), ("ADDED", "c")]


@pytest.mark.parametrize("version", ["", "0"])
def test_a_watch_without_a_version_begins_with_what_is_there(server: Server, maps: str, version: str) -> None:
    server.post(maps, mine("a")).ok()
    server.post(maps, mine("b")).ok()
    assert sorted(told(server.watch(maps, resourceVersion=version, **MINE))) == [("ADDED", "a"), ("ADDED", "b")]


def test_events_arrive_while_the_stream_is_open(server: Server, maps: str) -> None:
    with server.watching(maps, resourceVersion=version_of(server, maps), **MINE) as events:
        server.post(maps, mine("now")).ok()
        event = next(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "now")
    assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("ConfigMap", "v1")


def test_a_deleted_object_is_told_with_its_last_form(server: Server, maps: str) -> None:
    server.post(maps, mine("a", {"k": "v"})).ok()
    since = version_of(server, maps)
    server.delete(f"{maps}/a").ok()
    (event,) = server.watch(maps, resourceVersion=since, **MINE)
    assert (event["type"], event["object"]["data"]) == ("DELETED", {"k": "v"})
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(since)


def test_objects_enter_and_leave_a_selection(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    server.post(maps, config_map("a")).ok()
    server.merge(f"{maps}/a", {"metadata": {"labels": {"run": "watch"}}}).ok()
    server.merge(f"{maps}/a", {"data": {"k": "v"}}).ok()
    server.merge(f"{maps}/a", {"metadata": {"labels": {"run": None}}}).ok()
    events = server.watch(maps, resourceVersion=since, **MINE)
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_one_object_can_be_watched_by_its_name(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    server.post(maps, mine("a")).ok()
    server.post(maps, mine("b")).ok()
    events = server.watch(maps, resourceVersion=since, fieldSelector="metadata.name=b")
    assert told(events) == [("ADDED", "b")]


def test_the_old_watch_path_still_watches(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    server.post(maps, mine("a")).ok()
    old = maps.replace("/api/v1/", "/api/v1/watch/")
    assert told(server.watch(old, resourceVersion=since, **MINE)) == [("ADDED", "a")]


def test_what_is_outside_the_namespace_is_not_told(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    server.post("/api/v1/namespaces/default/configmaps", mine("conformance-elsewhere"), dryRun="All").ok()
    elsewhere = server.post("/api/v1/namespaces/default/configmaps", config_map("", generateName="conformance-")).ok()
    server.delete(f"/api/v1/namespaces/default/configmaps/{elsewhere['metadata']['name']}").ok()
    assert told(server.watch(maps, resourceVersion=since, **MINE)) == []


def test_a_list_of_what_is_there_can_come_as_a_stream(server: Server, maps: str) -> None:
    server.post(maps, mine("a")).ok()
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with server.watching(maps, **query, **MINE) as events:
        first, mark = next(events), next(events)
        server.post(maps, mine("b")).ok()
        then = next(event for event in events if event["type"] != "BOOKMARK")
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(first["object"]["metadata"]["resourceVersion"])
    assert told([then]) == [("ADDED", "b")]


def test_what_is_there_can_be_left_out(server: Server, maps: str) -> None:
    server.post(maps, mine("a")).ok()
    query = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    with server.watching(maps, 5, **query, **MINE) as events:
        server.post(maps, mine("b")).ok()
        assert told([next(events)]) == [("ADDED", "b")]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"sendInitialEvents": "true"}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (
            {"resourceVersionMatch": "NotOlderThan"},
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            {"resourceVersionMatch": "Exact", "sendInitialEvents": "true"},
            'Unsupported value: "Exact": supported values: "NotOlderThan"',
        ),
    ],
)
def test_options_of_a_watch_that_contradict_are_invalid(server: Server, maps: str, query: dict, said: str) -> None:
    answer = server.get(maps, watch="true", **query)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert said in answer.message


def test_bookmarks_tell_how_far_a_quiet_watch_has_come(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    with server.watching(maps, 5, resourceVersion=since, allowWatchBookmarks="true", **MINE) as events:
        marks = [event for event in events if event["type"] == "BOOKMARK"]
    assert marks
    assert int(marks[-1]["object"]["metadata"]["resourceVersion"]) >= int(since)
    assert set(marks[-1]["object"]["metadata"]) <= {"resourceVersion", "creationTimestamp"}
    assert marks[-1]["object"]["kind"] == "ConfigMap"


def test_nobody_gets_bookmarks_who_did_not_ask(server: Server, maps: str) -> None:
    assert all(event["type"] != "BOOKMARK" for event in server.watch(maps, 3, resourceVersion=version_of(server, maps)))


def test_a_watch_from_a_forgotten_version_is_told_so_in_the_stream(server: Server, maps: str) -> None:
    (event,) = server.watch(maps, 5, resourceVersion="1")
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


def test_a_watch_from_a_version_that_is_no_number_fails(server: Server, maps: str) -> None:
    answer = server.get(maps, watch="true", resourceVersion="None")
    assert answer.status == 500
    assert answer.message == 'resourceVersion: Invalid value: "None": strconv.ParseUint: parsing "None": invalid syntax'


def test_a_watch_ends_after_the_time_asked_for(server: Server, maps: str) -> None:
    assert server.watch(maps, 1, resourceVersion=version_of(server, maps)) == []


def test_a_watch_can_tell_rows_of_a_table(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    server.post(maps, mine("a", {"k": "v"})).ok()
    server.post(maps, mine("b")).ok()
    with server.watching(maps, 1, accept=TABLE, resourceVersion=since, **MINE) as events:
        first, second = list(events)
    assert first["object"]["kind"] == "Table"
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert first["object"]["rows"][0]["cells"][:2] == ["a", 1]
    # Told once; the columns stay the same.
    assert not second["object"].get("columnDefinitions")


def test_a_watch_can_tell_metadata_alone(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    server.post(maps, mine("a", {"k": "v"})).ok()
    with server.watching(maps, 1, accept=PARTIAL, resourceVersion=since, **MINE) as events:
        (event,) = list(events)
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in event["object"]


def test_many_watchers_see_the_same(server: Server, maps: str) -> None:
    since = version_of(server, maps)
    for number in range(20):
        server.post(maps, mine(f"c{number}")).ok()
    seen = [told(server.watch(maps, resourceVersion=since, **MINE)) for _ in range(2)]
    assert seen[0] == seen[1] == [("ADDED", f"c{number}") for number in range(20)]
