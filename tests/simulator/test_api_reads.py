"""Reading over the wire with the official client: lists, selectors, pages, watches."""

from __future__ import annotations

import base64
import json
import threading

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException


def config_map(name: str, **labels: str) -> dict:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}}


@pytest.fixture
def five(core: client.CoreV1Api, namespace: str) -> str:
    """A namespace with config maps c0 to c4, the even ones labelled so."""
    for number in range(5):
        labels = {"parity": "odd" if number % 2 else "even", "number": str(number)}
        core.create_namespaced_config_map(namespace, config_map(f"c{number}", **labels))
    return namespace


def names(listed: object) -> list[str]:
    return [item.metadata.name for item in listed.items]


def test_the_version_is_the_fleet_s(api: client.ApiClient) -> None:
    assert client.VersionApi(api).get_code().git_version == "v1.34.3"


def test_every_served_kind_is_discovered(api: client.ApiClient) -> None:
    found = {resource.name for resource in client.CoreV1Api(api).get_api_resources().resources}
    assert {"nodes", "pods", "pods/log", "pods/eviction", "pods/binding", "nodes/status", "secrets"} <= found
    assert "jobs" in {resource.name for resource in client.BatchV1Api(api).get_api_resources().resources}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("parity=even", ["c0", "c2", "c4"]),
        ("parity!=even", ["c1", "c3"]),
        ("number in (1, 4)", ["c1", "c4"]),
        ("number notin (1,4),parity=even", ["c0", "c2"]),
        ("parity", ["c0", "c1", "c2", "c3", "c4"]),
        ("!parity", []),
        ("number>2", ["c3", "c4"]),
    ],
)
def test_label_selectors_select(core: client.CoreV1Api, five: str, selector: str, expected: list[str]) -> None:
    assert names(core.list_namespaced_config_map(five, label_selector=selector)) == expected


def test_a_selector_that_is_none_is_refused(core: client.CoreV1Api, five: str) -> None:
    with pytest.raises(ApiException) as refused:
        core.list_namespaced_config_map(five, label_selector="a=b=c")
    assert refused.value.status == 400


def test_a_field_selector_takes_one_object_by_name(core: client.CoreV1Api, five: str) -> None:
    assert names(core.list_namespaced_config_map(five, field_selector="metadata.name=c3")) == ["c3"]


def test_pods_are_selected_by_node_and_phase(core: client.CoreV1Api) -> None:
    nodes = {pod.spec.node_name for pod in core.list_namespaced_pod("kube-system").items if pod.spec.node_name}
    node = sorted(nodes)[0]
    found = core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={node},status.phase!=Failed").items
    assert found
    assert {pod.spec.node_name for pod in found} == {node}


def test_a_field_that_cannot_be_selected_is_named(core: client.CoreV1Api, five: str) -> None:
    with pytest.raises(ApiException) as refused:
        core.list_namespaced_pod(five, field_selector="spec.image=x")
    assert refused.value.status == 400
    assert json.loads(refused.value.body)["message"] == "field label not supported: spec.image"


def test_pages_are_cut_from_one_moment(core: client.CoreV1Api, five: str) -> None:
    first = core.list_namespaced_config_map(five, limit=2)
    assert names(first) == ["c0", "c1"]
    assert first.metadata.remaining_item_count == 4 - 1
    core.create_namespaced_config_map(five, config_map("c1b"))
    core.delete_namespaced_config_map("c4", five)
    second = core.list_namespaced_config_map(five, limit=2, _continue=first.metadata._continue)
    third = core.list_namespaced_config_map(five, limit=2, _continue=second.metadata._continue)
    assert names(second) + names(third) == ["c2", "c3", "c4"]
    assert third.metadata._continue is None
    assert first.metadata.resource_version == third.metadata.resource_version


def test_a_foreign_continue_token_is_refused(core: client.CoreV1Api, five: str) -> None:
    with pytest.raises(ApiException) as refused:
        core.list_namespaced_config_map(five, limit=2, _continue="bm9uc2Vuc2U")
    assert refused.value.status == 400


def test_an_expired_continue_token_is_410_with_a_token_to_go_on(core: client.CoreV1Api, five: str) -> None:
    first = core.list_namespaced_config_map(five, limit=2)
    # The same place in a list of long ago.
    said = json.loads(base64.urlsafe_b64decode(first.metadata._continue + "=="))
    old = base64.urlsafe_b64encode(json.dumps({**said, "rv": 1}).encode()).decode().rstrip("=")
    with pytest.raises(ApiException) as gone:
        core.list_namespaced_config_map(five, limit=2, _continue=old)
    body = json.loads(gone.value.body)
    assert (gone.value.status, body["reason"]) == (410, "Expired")
    rest = core.list_namespaced_config_map(five, _continue=body["metadata"]["continue"])
    assert names(rest) == ["c2", "c3", "c4"]


def test_a_version_from_the_future_is_told_so(core: client.CoreV1Api, five: str) -> None:
    with pytest.raises(ApiException) as refused:
        core.list_namespaced_config_map(five, resource_version="9999999999999999")
    assert refused.value.status == 504
    assert json.loads(refused.value.body)["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_an_exact_old_version_is_what_was_there_then(core: client.CoreV1Api, five: str) -> None:
    old = core.list_namespaced_config_map(five).metadata.resource_version
    core.patch_namespaced_config_map("c0", five, {"data": {"a": "2"}})
    core.create_namespaced_config_map(five, config_map("later"))
    core.delete_namespaced_config_map("c4", five)
    then = core.list_namespaced_config_map(five, resource_version=old, resource_version_match="Exact")
    assert (names(then), then.metadata.resource_version) == ([f"c{number}" for number in range(5)], old)
    assert then.items[0].data == {"a": "1"}
    page = core.list_namespaced_config_map(five, resource_version=old, limit=2)
    rest = core.list_namespaced_config_map(five, _continue=page.metadata._continue)
    assert names(page) + names(rest) == [f"c{number}" for number in range(5)]


def test_an_exact_version_that_was_forgotten_is_410(core: client.CoreV1Api, five: str) -> None:
    with pytest.raises(ApiException) as gone:
        core.list_namespaced_config_map(five, resource_version="1", resource_version_match="Exact")
    assert gone.value.status == 410
    assert "The resourceVersion for the provided list is too old." in gone.value.body


def test_any_version_is_one_page(core: client.CoreV1Api, five: str) -> None:
    assert len(names(core.list_namespaced_config_map(five, resource_version="0", limit=2))) == 5
    assert len(names(core.list_namespaced_config_map(five, limit=-1))) == 5


def test_missing_objects_are_404(core: client.CoreV1Api, namespace: str) -> None:
    with pytest.raises(ApiException) as missing:
        core.read_namespaced_pod("nobody", namespace)
    body = json.loads(missing.value.body)
    assert (missing.value.status, body["message"]) == (404, 'pods "nobody" not found')
    assert body["details"] == {"name": "nobody", "kind": "pods"}


def test_a_watch_tells_what_happens_after_a_list(core: client.CoreV1Api, five: str) -> None:
    version = core.list_namespaced_config_map(five).metadata.resource_version
    core.create_namespaced_config_map(five, config_map("new"))
    core.patch_namespaced_config_map("new", five, {"data": {"a": "2"}})
    core.delete_namespaced_config_map("new", five)
    stream = watch.Watch().stream(core.list_namespaced_config_map, five, resource_version=version, timeout_seconds=1)
    seen = [(event["type"], event["object"].metadata.name) for event in stream]
    assert seen == [("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "new")]


def test_a_watch_without_a_version_starts_with_what_is_there(core: client.CoreV1Api, five: str) -> None:
    stream = watch.Watch().stream(core.list_namespaced_config_map, five, timeout_seconds=1)
    mine = [event for event in stream if event["object"].metadata.name.startswith("c")]
    assert [(event["type"], event["object"].metadata.name) for event in mine] == [
        ("ADDED", f"c{number}") for number in range(5)
    ]


def lines_of(core: client.CoreV1Api, namespace: str, **query: object) -> list[dict]:
    """Return the raw events of a watch that ends by itself."""
    answer = core.list_namespaced_config_map(namespace, watch=True, _preload_content=False, **query)
    return [json.loads(line) for line in answer.data.splitlines()]


def test_a_selected_watch_sees_objects_come_and_go_as_they_match(core: client.CoreV1Api, five: str) -> None:
    version = core.list_namespaced_config_map(five).metadata.resource_version
    core.patch_namespaced_config_map("c0", five, {"metadata": {"labels": {"parity": "odd"}}})
    core.patch_namespaced_config_map("c0", five, {"data": {"a": "5"}})
    core.patch_namespaced_config_map("c0", five, {"metadata": {"labels": {"parity": "even"}}})
    events = lines_of(core, five, label_selector="parity=odd", resource_version=version, timeout_seconds=1)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[-1]["object"]["metadata"]["labels"]["parity"] == "even"


def test_a_watch_ends_with_a_bookmark_when_asked_to(core: client.CoreV1Api, five: str) -> None:
    version = core.list_namespaced_config_map(five).metadata.resource_version
    events = lines_of(core, five, resource_version=version, allow_watch_bookmarks=True, timeout_seconds=1)
    assert events[-1]["type"] == "BOOKMARK"
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= int(version)


def test_initial_events_end_with_a_marked_bookmark(core: client.CoreV1Api, five: str) -> None:
    events = lines_of(
        core,
        five,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        label_selector="parity",
        timeout_seconds=1,
    )
    assert [event["type"] for event in events[:6]] == ["ADDED"] * 5 + ["BOOKMARK"]
    assert events[5]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_initial_events_need_a_version_match(core: client.CoreV1Api, five: str) -> None:
    with pytest.raises(ApiException) as refused:
        core.list_namespaced_config_map(five, watch=True, send_initial_events=True, timeout_seconds=1)
    assert refused.value.status == 422


def test_a_watch_from_before_the_log_gets_an_error_event(core: client.CoreV1Api, five: str) -> None:
    events = lines_of(core, five, resource_version="1", timeout_seconds=5)
    assert [event["type"] for event in events] == ["ERROR"]
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


def test_a_client_that_leaves_a_watch_leaves_the_server_well(core: client.CoreV1Api, five: str) -> None:
    answer = core.list_namespaced_config_map(five, watch=True, _preload_content=False)
    assert answer.stream(1, decode_content=False)
    next(answer.stream(1))
    answer.close()
    answer.release_conn()
    assert names(core.list_namespaced_config_map(five, label_selector="parity=odd")) == ["c1", "c3"]


def test_every_watcher_gets_every_event_in_order(core: client.CoreV1Api, five: str) -> None:
    version = core.list_namespaced_config_map(five).metadata.resource_version
    seen: list[list[str]] = [[] for _ in range(5)]

    def follow(mine: list[str]) -> None:
        for event in lines_of(
            core, five, resource_version=version, field_selector="metadata.name=c1", timeout_seconds=3
        ):
            mine.append(event["object"]["data"]["a"])

    threads = [threading.Thread(target=follow, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for number in range(50):
        core.patch_namespaced_config_map("c1", five, {"data": {"a": f"n{number}"}})
    for thread in threads:
        thread.join()
    assert seen == [[f"n{number}" for number in range(50)]] * 5


def test_events_are_read_in_the_newer_words_too(api: client.ApiClient, core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_event(
        namespace,
        {
            "metadata": {"name": "e1"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
            "reason": "Testing",
            "message": "said",
            "type": "Normal",
        },
    )
    newer = client.EventsV1Api(api).read_namespaced_event("e1", namespace, _preload_content=False)
    body = json.loads(newer.data)
    assert (body["apiVersion"], body["note"], body["regarding"]["name"]) == ("events.k8s.io/v1", "said", "p")
    selected = core.list_namespaced_event(namespace, field_selector="involvedObject.name=p,reason=Testing")
    assert [event.metadata.name for event in selected.items] == ["e1"]


def test_metadata_alone_is_answered_when_asked_for(api: client.ApiClient, five: str) -> None:
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    answer = api.call_api(
        *api.param_serialize(
            "GET",
            f"/api/v1/namespaces/{five}/configmaps",
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
        )
    )
    body = json.loads(answer.read())
    assert body["kind"] == "PartialObjectMetadataList"
    assert {tuple(item) for item in body["items"]} == {("kind", "apiVersion", "metadata")}
