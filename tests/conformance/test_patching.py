"""JSON patch, merge patch, strategic merge patch: merge keys, directives, and what they refuse."""

from __future__ import annotations

import pytest

from tests.conformance.wire import Server, config_map, job, pod


@pytest.fixture
def one(server: Server, maps: str) -> str:
    """A ConfigMap with two keys."""
    server.post(maps, config_map("a", {"k": "v", "l": "w"}, labels={"x": "1"})).ok()
    return f"{maps}/a"


@pytest.fixture
def template(server: Server, jobs: str) -> str:
    """A suspended Job whose template still may get another place to run."""
    server.post(jobs, job(suspend=True)).ok()
    return f"{jobs}/j"


def test_json_patch_adds_replaces_and_removes(server: Server, one: str) -> None:
    after = server.json_patch(
        one,
        {"op": "add", "path": "/data/m", "value": "x"},
        {"op": "replace", "path": "/data/k", "value": "y"},
        {"op": "remove", "path": "/data/l"},
    ).ok()
    assert after["data"] == {"k": "y", "m": "x"}


def test_json_patch_copies_and_moves(server: Server, one: str) -> None:
    after = server.json_patch(
        one,
        {"op": "copy", "from": "/data/k", "path": "/data/m"},
        {"op": "move", "from": "/data/l", "path": "/data/n"},
    ).ok()
    assert after["data"] == {"k": "v", "m": "v", "n": "w"}


def test_json_patch_reads_escaped_names(server: Server, one: str) -> None:
    after = server.json_patch(one, {"op": "add", "path": "/metadata/labels/example.com~1a", "value": "b"}).ok()
    assert after["metadata"]["labels"] == {"x": "1", "example.com/a": "b"}


def test_json_patch_puts_into_lists(server: Server, one: str) -> None:
    server.json_patch(one, {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]}).ok()
    after = server.json_patch(one, {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b"}).ok()
    assert after["metadata"]["finalizers"] == ["example.com/a", "example.com/b"]
    after = server.json_patch(one, {"op": "remove", "path": "/metadata/finalizers/0"}).ok()
    assert after["metadata"]["finalizers"] == ["example.com/b"]
    server.merge(one, {"metadata": {"finalizers": None}}).ok()


def test_json_patch_tests_first(server: Server, one: str) -> None:
    held = {"op": "test", "path": "/data/k", "value": "v"}
    assert server.json_patch(one, held, {"op": "remove", "path": "/data/k"}).ok()["data"] == {"l": "w"}
    answer = server.json_patch(one, held, {"op": "remove", "path": "/data/l"})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == "the server rejected our request due to an error in our request"
    assert server.get(one).ok()["data"] == {"l": "w"}


def test_json_patch_of_what_is_not_there_is_refused(server: Server, one: str) -> None:
    assert server.json_patch(one, {"op": "remove", "path": "/data/nothing"}).status == 422
    assert server.json_patch(one, {"op": "replace", "path": "/data/nothing", "value": "x"}).status == 422
    assert server.json_patch(one, {"op": "add", "path": "/nothing/at/all", "value": "x"}).status == 422


def test_json_patch_is_a_list(server: Server, one: str) -> None:
    answer = server.raw("PATCH", one, b'{"op":"remove","path":"/data/k"}', "application/json-patch+json")
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_merge_patch_merges_maps_and_removes_with_null(server: Server, one: str) -> None:
    assert server.merge(one, {"data": {"k": None, "m": "x"}}).ok()["data"] == {"l": "w", "m": "x"}


def test_merge_patch_replaces_lists(server: Server, template: str) -> None:
    spec = {"containers": [{"name": "main", "image": "x"}], "tolerations": [{"operator": "Exists"}]}
    after = server.merge(template, {"spec": {"template": {"spec": {"tolerations": spec["tolerations"]}}}}).ok()
    assert after["spec"]["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    after = server.merge(template, {"spec": {"template": {"spec": {"tolerations": [{"key": "a"}]}}}}, dryRun="All")
    assert after.status == 422 or after.ok()["spec"]["template"]["spec"]["tolerations"] == [{"key": "a"}]


def test_a_patch_that_is_no_object_is_a_bad_request(server: Server, one: str) -> None:
    assert server.merge(one, ["a"]).status == 400
    assert server.strategic(one, ["a"]).status == 400


def test_a_patch_type_that_is_none_is_not_supported(server: Server, one: str) -> None:
    answer = server.ask("PATCH", one, {}, content_type="application/json")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    assert "application/json-patch+json, application/merge-patch+json" in answer.message


def test_a_patch_of_what_is_not_there_is_not_found(server: Server, maps: str) -> None:
    assert server.merge(f"{maps}/nobody", {"data": {}}).status == 404


def test_a_patch_keeps_the_name(server: Server, one: str) -> None:
    answer = server.merge(one, {"metadata": {"name": "b"}})
    assert answer.status in (400, 422)
    assert "name" in answer.message


def test_a_patch_that_changes_nothing_makes_no_version(server: Server, one: str) -> None:
    before = server.get(one).ok()["metadata"]["resourceVersion"]
    assert server.merge(one, {"data": {"k": "v"}}).ok()["metadata"]["resourceVersion"] == before


def test_a_patch_to_a_value_of_the_wrong_type_is_invalid(server: Server, one: str) -> None:
    answer = server.merge(one, {"data": {"k": 4}})
    assert (answer.status, answer.reason, answer.causes) == (422, "Invalid", [("FieldValueInvalid", "patch")])
    assert "json: cannot unmarshal number into Go struct field" in answer.message


def test_force_is_for_apply_alone(server: Server, one: str) -> None:
    answer = server.merge(one, {"data": {"k": "x"}}, force="true")
    assert (answer.status, answer.causes) == (422, [("FieldValueForbidden", "force")])


def test_strategic_merge_merges_containers_by_name(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    patch = {"spec": {"containers": [{"name": "main", "image": "registry.example.com/y:2"}]}}
    (container,) = server.strategic(f"{pods}/p", patch).ok()["spec"]["containers"]
    assert (container["image"], container["command"]) == ("registry.example.com/y:2", ["sleep", "infinity"])


def test_strategic_merge_merges_conditions_by_type(server: Server, node: str) -> None:
    def condition(kind: str, value: str) -> dict:
        return {"status": {"conditions": [{"type": kind, "status": value, "reason": "Test"}]}}

    server.strategic(f"{node}/status", condition("Hot", "True")).ok()
    server.strategic(f"{node}/status", condition("Loud", "True")).ok()
    after = server.strategic(f"{node}/status", condition("Hot", "False")).ok()
    found = {entry["type"]: entry["status"] for entry in after["status"]["conditions"]}
    assert (found["Hot"], found["Loud"]) == ("False", "True")


def test_strategic_merge_replaces_taints(server: Server, node: str) -> None:
    for key in ("a", "b"):
        patch = {"spec": {"taints": [{"key": key, "effect": "PreferNoSchedule"}]}}
        after = server.strategic(node, patch).ok()
    assert "b" in [taint["key"] for taint in after["spec"]["taints"]]
    assert "a" not in [taint["key"] for taint in after["spec"]["taints"]]


def test_strategic_merge_adds_to_sets(server: Server, one: str) -> None:
    server.strategic(one, {"metadata": {"finalizers": ["example.com/a"]}}).ok()
    after = server.strategic(one, {"metadata": {"finalizers": ["example.com/b"]}}).ok()
    assert sorted(after["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    assert server.strategic(one, gone).ok()["metadata"]["finalizers"] == ["example.com/b"]
    server.merge(one, {"metadata": {"finalizers": None}}).ok()


def owner(number: int) -> dict:
    uid = f"00000000-0000-0000-0000-00000000000{number}"
    return {"apiVersion": "example.com/v1", "kind": "Thing", "name": f"t{number}", "uid": uid}


def test_strategic_merge_deletes_an_item_by_its_key(server: Server, node: str) -> None:
    for kind in ("InternalIP", "Hostname"):
        server.strategic(f"{node}/status", {"status": {"addresses": [{"type": kind, "address": "1.2.3.4"}]}}).ok()
    gone = {"status": {"addresses": [{"type": "Hostname", "$patch": "delete"}]}}
    after = server.strategic(f"{node}/status", gone).ok()
    assert [entry["type"] for entry in after["status"]["addresses"]] == ["InternalIP"]


def test_strategic_merge_replaces_a_list_when_told(server: Server, node: str) -> None:
    for kind in ("InternalIP", "Hostname"):
        server.strategic(f"{node}/status", {"status": {"addresses": [{"type": kind, "address": "1.2.3.4"}]}}).ok()
    entries = [{"type": "ExternalIP", "address": "1.2.3.5"}, {"$patch": "replace"}]
    after = server.strategic(f"{node}/status", {"status": {"addresses": entries}}).ok()
    assert after["status"]["addresses"] == [{"type": "ExternalIP", "address": "1.2.3.5"}]


def test_strategic_merge_replaces_a_map_when_told(server: Server, one: str) -> None:
    after = server.strategic(one, {"data": {"$patch": "replace", "m": "x"}}).ok()
    assert after["data"] == {"m": "x"}


def test_strategic_merge_orders_as_told(server: Server, node: str) -> None:
    for kind in ("InternalIP", "Hostname"):
        server.strategic(f"{node}/status", {"status": {"addresses": [{"type": kind, "address": "1.2.3.4"}]}}).ok()
    order = {"status": {"$setElementOrder/addresses": [{"type": "Hostname"}, {"type": "InternalIP"}]}}
    after = server.strategic(f"{node}/status", order).ok()
    assert [entry["type"] for entry in after["status"]["addresses"]] == ["Hostname", "InternalIP"]


def test_strategic_merge_keeps_only_the_keys_told(server: Server, pods: str) -> None:
    volume = {"name": "v", "emptyDir": {"medium": "Memory"}}
    server.post(pods, pod(schedulerName="nobody", volumes=[volume])).ok()
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/a"}}]}}
    # A pod's volumes may not change, which is only found out once they were merged.
    answer = server.strategic(f"{pods}/p", patch)
    assert answer.status == 422
    assert "may not specify more than 1 volume type" not in answer.message


def test_strategic_merge_needs_the_key(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    answer = server.strategic(f"{pods}/p", {"spec": {"containers": [{"image": "x"}]}})
    assert answer.status == 500
    assert "map: map[image:x] does not contain declared merge key: name" in answer.message


def test_owners_merge_by_uid(server: Server, one: str) -> None:
    server.strategic(one, {"metadata": {"ownerReferences": [owner(1)]}}, dryRun="All").ok()
    both = server.strategic(one, {"metadata": {"ownerReferences": [owner(1), owner(2)]}}, dryRun="All").ok()
    assert [entry["name"] for entry in both["metadata"]["ownerReferences"]] == ["t1", "t2"]
