"""Objects, lists, selectors, pages and versions, as any client may read them."""

from __future__ import annotations

import base64
import json

import pytest

from tests.conformance.wire import PARTIAL, PARTIALS, TABLE, Server, config_map, names, pod


@pytest.fixture
def five(server: Server, maps: str) -> str:
    """ConfigMaps c0 to c4, labelled with number and parity."""
    for number in range(5):
        labels = {"run": "five", "number": str(number), "parity": "odd" if number % 2 else "even"}
        server.post(maps, config_map(f"c{number}", {"a": "1"}, labels=labels)).ok()
    return maps


MINE = {"labelSelector": "run=five"}


def test_an_object_says_its_kind_and_version(server: Server, five: str) -> None:
    found = server.get(f"{five}/c0").ok()
    assert (found["kind"], found["apiVersion"], found["data"]) == ("ConfigMap", "v1", {"a": "1"})


def test_a_missing_object_is_named_in_a_404(server: Server, maps: str) -> None:
    answer = server.get(f"{maps}/nobody")
    assert (answer.status, answer.reason, answer.message) == (404, "NotFound", 'configmaps "nobody" not found')
    assert answer.body["details"] == {"name": "nobody", "kind": "configmaps"}


def test_a_missing_object_of_a_named_group_is_named_with_it(server: Server, jobs: str) -> None:
    answer = server.get(f"{jobs}/nobody")
    assert answer.message == 'jobs.batch "nobody" not found'
    assert answer.body["details"] == {"name": "nobody", "group": "batch", "kind": "jobs"}


def test_a_list_says_its_kind_and_version_and_its_items_do_not(server: Server, five: str) -> None:
    listed = server.get(five, **MINE).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed["metadata"]["resourceVersion"].isdigit()
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])


def test_lists_are_ordered_by_name(server: Server, five: str) -> None:
    assert names(server.get(five, **MINE).ok()) == ["c0", "c1", "c2", "c3", "c4"]


def test_a_list_in_a_namespace_that_is_not_there_is_empty(server: Server) -> None:
    assert server.get("/api/v1/namespaces/no-such-namespace/pods").ok()["items"] == []


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("parity=even", "024"),
        ("parity==even", "024"),
        ("parity!=even,run=five", "13"),
        ("number in (1, 4)", "14"),
        ("number notin (1,4),parity", "023"),
        ("run", "01234"),
        ("run,!parity", ""),
        ("run,nothing notin (x)", "01234"),
        ("number>2", "34"),
        ("number<1", "0"),
    ],
)
def test_label_selectors_select(server: Server, five: str, selector: str, found: str) -> None:
    assert names(server.get(five, labelSelector=selector).ok()) == [f"c{number}" for number in found]


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a>x", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("a@b", "name part must consist of alphanumeric characters"),
        ("a=b@c", "a valid label must be an empty string or consist of alphanumeric characters"),
    ],
)
def test_a_label_selector_that_is_none_is_a_bad_request(server: Server, maps: str, selector: str, said: str) -> None:
    answer = server.get(maps, labelSelector=selector)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert said in answer.message


def test_field_selectors_select_by_name(server: Server, five: str) -> None:
    assert names(server.get(five, fieldSelector="metadata.name=c2").ok()) == ["c2"]
    others = server.get(five, fieldSelector="metadata.name!=c2", **MINE).ok()
    assert names(others) == ["c0", "c1", "c3", "c4"]


def test_field_selectors_select_across_namespaces(server: Server, five: str, namespace: str) -> None:
    found = server.get("/api/v1/configmaps", fieldSelector=f"metadata.namespace={namespace},metadata.name=c1").ok()
    assert names(found) == ["c1"]


def test_a_field_that_cannot_be_selected_on_is_a_bad_request(server: Server, maps: str) -> None:
    answer = server.get(maps, fieldSelector="data.a=1")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.endswith('"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"')


def test_pods_are_selected_by_their_own_fields(server: Server, pods: str) -> None:
    server.post(pods, pod("a", schedulerName="nobody")).ok()
    server.post(pods, pod("b", schedulerName="nobody", restartPolicy="Never")).ok()
    assert names(server.get(pods, fieldSelector="spec.restartPolicy=Never").ok()) == ["b"]
    assert names(server.get(pods, fieldSelector="status.phase=Pending").ok()) == ["a", "b"]
    assert names(server.get(pods, fieldSelector="spec.nodeName=").ok()) == ["a", "b"]
    assert names(server.get(pods, fieldSelector="spec.schedulerName!=nobody").ok()) == []


def test_a_pod_s_field_that_cannot_be_selected_on_is_named(server: Server, pods: str) -> None:
    answer = server.get(pods, fieldSelector="spec.priority=0")
    assert (answer.status, answer.message) == (400, "field label not supported: spec.priority")


def test_nodes_are_selected_by_whether_they_take_pods(server: Server, node: str) -> None:
    name = node.rpartition("/")[2]
    assert name in names(server.get("/api/v1/nodes", fieldSelector="spec.unschedulable=true").ok())
    assert name not in names(server.get("/api/v1/nodes", fieldSelector="spec.unschedulable=false").ok())


def test_events_are_selected_by_what_they_are_about(server: Server, namespace: str) -> None:
    events = f"/api/v1/namespaces/{namespace}/events"
    for name in ("x", "y"):
        about = {"kind": "Pod", "namespace": namespace, "name": name}
        server.post(events, {"metadata": {"name": f"about-{name}"}, "involvedObject": about, "reason": "Test"}).ok()
    found = server.get(events, fieldSelector="involvedObject.name=x,reason=Test,involvedObject.kind=Pod").ok()
    assert names(found) == ["about-x"]


def test_pages_add_up_and_count_what_is_left(server: Server, five: str) -> None:
    first = server.get(five, limit=2, fieldSelector="metadata.name!=kube-root-ca.crt").ok()
    assert names(first) == ["c0", "c1"]
    # Counted only where nothing is selected.
    assert "remainingItemCount" not in first["metadata"]
    assert server.get(five, limit=2).ok()["metadata"]["remainingItemCount"] >= 3
    query = {"limit": 2, "fieldSelector": "metadata.name!=kube-root-ca.crt"}
    second = server.get(five, continue_=first["metadata"]["continue"], **query).ok()
    third = server.get(five, continue_=second["metadata"]["continue"], **query).ok()
    assert names(second) + names(third) == ["c2", "c3", "c4"]
    assert "continue" not in third["metadata"]


def test_pages_show_the_moment_of_the_first(server: Server, five: str) -> None:
    first = server.get(five, limit=2, **MINE).ok()
    server.post(five, config_map("c1b", labels={"run": "five"})).ok()
    server.delete(f"{five}/c4").ok()
    rest = server.get(five, continue_=first["metadata"]["continue"], **MINE).ok()
    assert names(rest) == ["c2", "c3", "c4"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_limit_below_zero_is_none(server: Server, five: str) -> None:
    assert len(server.get(five, limit=-1, **MINE).ok()["items"]) == 5


def test_a_limit_that_is_no_number_is_a_bad_request(server: Server, maps: str) -> None:
    answer = server.get(maps, limit="some")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'strconv.ParseInt: parsing "some": invalid syntax' in answer.message


def test_any_version_is_answered_in_one_page(server: Server, five: str) -> None:
    listed = server.get(five, limit=2, resourceVersion="0", **MINE).ok()
    assert len(listed["items"]) == 5
    assert "continue" not in listed["metadata"]


def test_a_continue_token_that_is_none_is_a_bad_request(server: Server, five: str) -> None:
    answer = server.get(five, limit=2, continue_="bm9uc2Vuc2U")
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_a_continue_token_goes_with_no_version(server: Server, five: str) -> None:
    first = server.get(five, limit=2, **MINE).ok()["metadata"]
    answer = server.get(five, continue_=first["continue"], resourceVersion=first["resourceVersion"], **MINE)
    assert (answer.status, answer.message) == (400, "specifying resource version is not allowed when using continue")


def test_a_token_of_a_forgotten_moment_comes_back_with_one_to_go_on(server: Server, five: str) -> None:
    token = server.get(five, limit=2, **MINE).ok()["metadata"]["continue"]
    said = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    old = base64.urlsafe_b64encode(json.dumps({**said, "rv": 1}).encode()).decode().rstrip("=")
    answer = server.get(five, limit=2, continue_=old, **MINE)
    if answer.status == 200:
        pytest.skip("this server still remembers its first version")
    assert (answer.status, answer.reason) == (410, "Expired")
    assert "The provided continue parameter is too old to display a consistent list result" in answer.message
    rest = server.get(five, continue_=answer.body["metadata"]["continue"], **MINE).ok()
    assert names(rest) == ["c2", "c3", "c4"]


def test_an_exact_version_is_what_was_there_then(server: Server, five: str) -> None:
    then = server.get(five, **MINE).ok()["metadata"]["resourceVersion"]
    server.merge(f"{five}/c0", {"data": {"a": "2"}}).ok()
    server.delete(f"{five}/c4").ok()
    listed = server.get(five, resourceVersion=then, resourceVersionMatch="Exact", **MINE).ok()
    assert (names(listed), listed["metadata"]["resourceVersion"]) == (["c0", "c1", "c2", "c3", "c4"], then)
    assert listed["items"][0]["data"] == {"a": "1"}


def test_a_page_at_a_version_is_exact_unless_told_otherwise(server: Server, five: str) -> None:
    then = server.get(five, **MINE).ok()["metadata"]["resourceVersion"]
    server.delete(f"{five}/c0").ok()
    assert names(server.get(five, resourceVersion=then, limit=2, **MINE).ok()) == ["c0", "c1"]
    query = {"resourceVersion": then, "limit": 2, "resourceVersionMatch": "NotOlderThan", **MINE}
    assert names(server.get(five, **query).ok()) == ["c1", "c2"]


def test_not_older_than_is_what_is_there_now(server: Server, five: str) -> None:
    then = server.get(five, **MINE).ok()["metadata"]["resourceVersion"]
    server.delete(f"{five}/c0").ok()
    listed = server.get(five, resourceVersion=then, resourceVersionMatch="NotOlderThan", **MINE).ok()
    assert int(listed["metadata"]["resourceVersion"]) >= int(then)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            {"resourceVersionMatch": "Near", "resourceVersion": "1"},
            'Unsupported value: "Near": supported values: "Exact", "NotOlderThan", ""',
        ),
        ({"sendInitialEvents": "true"}, "sendInitialEvents is forbidden for list"),
    ],
)
def test_options_of_a_list_that_contradict_are_invalid(server: Server, maps: str, query: dict, said: str) -> None:
    answer = server.get(maps, **query)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('ListOptions.meta.k8s.io "" is invalid: ')
    assert said in answer.message
    assert answer.body["details"]["kind"] == "ListOptions"


def test_a_version_that_is_no_number_is_a_bad_request(server: Server, maps: str) -> None:
    answer = server.get(maps, resourceVersion="None")
    assert answer.status == 400
    assert 'strconv.ParseUint: parsing "None": invalid syntax' in answer.message


def test_a_version_from_the_future_is_too_large(server: Server, maps: str) -> None:
    answer = server.get(maps, resourceVersion=str(10**15), resourceVersionMatch="NotOlderThan")
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.startswith(f"Timeout: Too large resource version: {10**15}, current: ")
    assert answer.causes == [("ResourceVersionTooLarge", "")]


def test_a_table_has_columns_and_a_row_for_each_object(server: Server, five: str) -> None:
    table = server.get(five, accept=TABLE, **MINE).ok()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert [row["cells"][:2] for row in table["rows"]] == [[f"c{number}", 1] for number in range(5)]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_a_table_s_rows_hold_whole_objects_when_asked(server: Server, five: str) -> None:
    table = server.get(five, accept=TABLE, includeObject="Object", **MINE).ok()
    assert table["rows"][0]["object"]["data"] == {"a": "1"}
    assert server.get(five, accept=TABLE, includeObject="None", **MINE).ok()["rows"][0].get("object") is None


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/pods", ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node",
                          "Readiness Gates"]),
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image",
                           "Kernel-Version", "Container-Runtime"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen",
                            "Count", "Name"]),
        ("/apis/batch/v1/jobs", ["Name", "Status", "Completions", "Duration", "Age", "Containers", "Images",
                                 "Selector"]),
        ("/apis/apps/v1/daemonsets", ["Name", "Desired", "Current", "Ready", "Up-to-date", "Available",
                                      "Node Selector", "Age", "Containers", "Images", "Selector"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
    ],
)  # fmt: skip
def test_tables_have_the_columns_of_their_kind(server: Server, path: str, columns: list[str]) -> None:
    table = server.get(path, accept=TABLE, limit=1).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == columns


def test_metadata_alone_can_be_had(server: Server, five: str) -> None:
    one = server.get(f"{five}/c0", accept=PARTIAL).ok()
    assert (one["kind"], one["apiVersion"], "data" in one) == ("PartialObjectMetadata", "meta.k8s.io/v1", False)
    listed = server.get(five, accept=PARTIALS, **MINE).ok()
    assert listed["kind"] == "PartialObjectMetadataList"
    assert names(listed) == [f"c{number}" for number in range(5)]
    assert all("data" not in item for item in listed["items"])


def test_a_media_type_that_is_not_served_is_not_acceptable(server: Server, maps: str) -> None:
    answer = server.get(maps, accept="text/html")
    assert (answer.status, answer.reason) == (406, "NotAcceptable")
    assert answer.message.startswith("only the following media types are accepted: application/json")
