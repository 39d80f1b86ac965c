"""Writing over the wire with the official client: create, update, the four patches, delete, dry runs, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.simulator.calls import APPLY, JSON, MERGE, STRATEGIC, call


def test_a_created_object_gets_its_bookkeeping(api: client.ApiClient, here: str) -> None:
    status, body = call(
        api, "POST", f"{here}?fieldManager=me", {"metadata": {"generateName": "g-"}, "data": {"k": "v"}}
    )
    meta = body["metadata"]
    assert status == 201
    assert meta["name"].startswith("g-")
    assert len(meta["name"]) == 7
    assert {"uid", "creationTimestamp", "resourceVersion"} <= meta.keys()
    assert meta["managedFields"][0] | {"time": ""} == {
        "manager": "me",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {".": {}, "f:k": {}}, "f:metadata": {"f:generateName": {}}},
    }


def test_a_taken_name_is_409(api: client.ApiClient, here: str, one: str) -> None:
    status, body = call(api, "POST", here, {"metadata": {"name": "a"}})
    assert (status, body["reason"], body["message"]) == (409, "AlreadyExists", 'configmaps "a" already exists')


def test_a_missing_namespace_is_404(api: client.ApiClient) -> None:
    status, body = call(api, "POST", "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})
    assert (status, body["message"]) == (404, 'namespaces "nowhere" not found')


def test_a_stale_update_is_409(api: client.ApiClient, one: str) -> None:
    _, first = call(api, "GET", one)
    _, second = call(api, "PUT", one, {**first, "data": {"k": "new"}})
    status, body = call(api, "PUT", one, {**first, "data": {"k": "late"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"].endswith("please apply your changes to the latest version and try again")
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]


def test_an_update_that_changes_nothing_makes_no_version(api: client.ApiClient, one: str) -> None:
    _, first = call(api, "GET", one)
    _, second = call(api, "PUT", one, first)
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_name_that_is_not_the_url_s_is_refused(api: client.ApiClient, one: str) -> None:
    status, body = call(api, "PUT", one, {"metadata": {"name": "b"}})
    assert status == 400
    assert body["message"] == "the name of the object (b) does not match the name on the URL (a)"


def test_a_merge_patch_merges_and_removes(api: client.ApiClient, one: str) -> None:
    patch = {"metadata": {"labels": {"x": None, "y": "2"}}, "data": {"l": "w"}}
    status, body = call(api, "PATCH", one, patch, MERGE)
    assert (status, body["metadata"]["labels"], body["data"]) == (200, {"y": "2"}, {"k": "v", "l": "w"})


def test_a_json_patch_tests_before_it_changes(api: client.ApiClient, one: str) -> None:
    good = [{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "w"}]
    assert call(api, "PATCH", one, good, JSON)[1]["data"] == {"k": "w"}
    status, body = call(api, "PATCH", one, good, JSON)
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"] == "the server rejected our request due to an error in our request"


def test_a_patch_with_a_stale_version_is_409(api: client.ApiClient, one: str) -> None:
    _, first = call(api, "GET", one)
    call(api, "PATCH", one, {"data": {"k": "w"}}, MERGE)
    version = first["metadata"]["resourceVersion"]
    status, _ = call(api, "PATCH", one, {"metadata": {"resourceVersion": version}, "data": {"k": "z"}}, MERGE)
    assert status == 409


def test_a_strategic_patch_merges_containers_by_name(api: client.ApiClient, namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    containers = [{"name": "one", "image": "a"}, {"name": "two", "image": "b"}]
    job = {
        "metadata": {"name": "j"},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": containers}}},
    }
    assert call(api, "POST", jobs, job)[0] == 201
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "two", "image": "c"}]}}}}
    status, body = call(api, "PATCH", f"{jobs}/j", patch, STRATEGIC)
    # Merged right, and then refused: a Job's template is fixed. Its refusal shows what was merged.
    assert status == 422
    assert body["message"].startswith('Job.batch "j" is invalid: spec.template: Invalid value:')
    assert body["message"].endswith("field is immutable")
    assert '"name":"one","image":"a"' in body["message"]
    assert '"name":"two","image":"c"' in body["message"]


def test_an_unknown_patch_type_is_415(api: client.ApiClient, one: str) -> None:
    status, body = call(api, "PATCH", one, {"data": {}}, "application/json")
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")


def apply(api: client.ApiClient, path: str, manager: str, body: dict, *, force: bool = False) -> Any:
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **body}
    query = f"fieldManager={manager}" + ("&force=true" if force else "")
    return call(api, "PATCH", f"{path}?{query}", whole, APPLY)


def test_apply_creates_what_is_not_there(api: client.ApiClient, here: str) -> None:
    status, body = apply(api, f"{here}/a", "me", {"data": {"k": "v"}})
    assert status == 201
    entry = body["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:k": {}}}


def test_apply_needs_a_field_manager(api: client.ApiClient, here: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    status, answer = call(api, "PATCH", f"{here}/a", body, APPLY)
    assert status == 422
    assert "fieldManager: Required value: is required for apply patch" in answer["message"]


def test_apply_takes_back_what_it_no_longer_says(api: client.ApiClient, here: str) -> None:
    apply(api, f"{here}/a", "me", {"data": {"k": "v", "l": "w"}})
    _, body = apply(api, f"{here}/a", "me", {"data": {"l": "w"}})
    assert body["data"] == {"l": "w"}


def test_apply_leaves_what_others_own_too(api: client.ApiClient, here: str) -> None:
    apply(api, f"{here}/a", "me", {"data": {"k": "v"}})
    apply(api, f"{here}/a", "you", {"data": {"k": "v"}})
    _, body = apply(api, f"{here}/a", "me", {})
    assert body["data"] == {"k": "v"}


def test_apply_over_another_s_field_is_a_conflict_unless_forced(api: client.ApiClient, here: str) -> None:
    apply(api, f"{here}/a", "me", {"data": {"k": "v"}})
    call(api, "PATCH", f"{here}/a?fieldManager=hand", {"data": {"k": "by hand"}}, MERGE)
    status, body = apply(api, f"{here}/a", "me", {"data": {"k": "v"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.k'
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "hand" using v1', "field": ".data.k"}
    ]
    status, body = apply(api, f"{here}/a", "me", {"data": {"k": "v"}}, force=True)
    assert (status, body["data"]) == (200, {"k": "v"})
    assert [entry["manager"] for entry in body["metadata"]["managedFields"]] == ["me"]


def test_apply_to_a_label_of_a_node_owns_that_label_alone(api: client.ApiClient) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-09", "labels": {"team": "a"}}}
    status, body = call(api, "PATCH", "/api/v1/nodes/gpu-09?fieldManager=pools", node, APPLY)
    assert status == 200
    assert "kubernetes.io/hostname" in body["metadata"]["labels"]
    mine = [entry for entry in body["metadata"]["managedFields"] if entry["manager"] == "pools"]
    assert mine[0]["fieldsV1"] == {"f:metadata": {"f:labels": {"f:team": {}}}}
    del node["metadata"]["labels"]
    _, body = call(api, "PATCH", "/api/v1/nodes/gpu-09?fieldManager=pools", node, APPLY)
    assert "team" not in body["metadata"]["labels"]
    assert "kubernetes.io/hostname" in body["metadata"]["labels"]


def test_a_dry_run_answers_and_stores_nothing(api: client.ApiClient, here: str, one: str) -> None:
    status, body = call(api, "POST", f"{here}?dryRun=All", {"metadata": {"name": "dry"}})
    assert (status, body["metadata"]["name"]) == (201, "dry")
    assert call(api, "GET", f"{here}/dry")[0] == 404
    assert call(api, "PATCH", f"{one}?dryRun=All", {"data": {"k": "dry"}}, MERGE)[1]["data"] == {"k": "dry"}
    assert call(api, "DELETE", f"{one}?dryRun=All")[0] == 200
    assert call(api, "GET", one)[1]["data"] == {"k": "v"}
    assert call(api, "POST", f"{here}?dryRun=Some", {"metadata": {"name": "dry"}})[0] == 422


def test_status_is_written_through_its_own_door_only(api: client.ApiClient) -> None:
    path = "/api/v1/nodes/gpu-08"
    _, before = call(api, "GET", path)
    _, body = call(api, "PATCH", path, {"status": {"allocatable": {"x.io/y": "1"}}}, MERGE)
    assert "x.io/y" not in body["status"]["allocatable"]
    patch = {"status": {"allocatable": {"x.io/y": "1"}}, "spec": {"unschedulable": True}}
    _, body = call(api, "PATCH", f"{path}/status", patch, MERGE)
    assert body["status"]["allocatable"]["x.io/y"] == "1"
    assert body["spec"] == before["spec"]
    _, body = call(api, "PATCH", f"{path}/status", {"status": {"allocatable": {"x.io/y": None}}}, MERGE)
    assert "x.io/y" not in body["status"]["allocatable"]


def test_preconditions_hold_a_delete_back(api: client.ApiClient, one: str) -> None:
    status, body = call(api, "DELETE", one, {"preconditions": {"uid": "another"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert "the UID in the precondition (another) does not match the UID in record" in body["message"]
    status, body = call(api, "DELETE", one)
    assert (status, body["status"]) == (200, "Success")


def test_finalizers_hold_an_object_until_they_are_gone(api: client.ApiClient, one: str) -> None:
    call(api, "PATCH", one, {"metadata": {"finalizers": ["test.io/wait"]}}, MERGE)
    status, body = call(api, "DELETE", one)
    assert status == 200
    assert body["metadata"]["deletionTimestamp"]
    assert call(api, "GET", one)[0] == 200
    added = {"metadata": {"finalizers": ["test.io/wait", "test.io/more"]}}
    assert call(api, "PATCH", one, added, MERGE)[0] == 422
    call(api, "PATCH", one, {"metadata": {"finalizers": None}}, MERGE)
    assert call(api, "GET", one)[0] == 404


def test_a_collection_is_deleted_by_selector(api: client.ApiClient, here: str, one: str) -> None:
    call(api, "POST", here, {"metadata": {"name": "b", "labels": {"x": "2"}}})
    status, body = call(api, "DELETE", f"{here}?labelSelector=x%3D1")
    assert (status, [item["metadata"]["name"] for item in body["items"]]) == (200, ["a"])
    assert call(api, "GET", f"{here}/b")[0] == 200


def test_a_namespace_takes_its_content_with_it(api: client.ApiClient, core: client.CoreV1Api) -> None:
    core.create_namespace({"metadata": {"name": "short-lived"}})
    core.create_namespaced_config_map("short-lived", {"metadata": {"name": "a"}})
    version = core.read_namespace("short-lived").metadata.resource_version
    core.delete_namespace("short-lived")
    query = f"watch=1&fieldSelector=metadata.name%3Dshort-lived&resourceVersion={version}&timeoutSeconds=20"
    sent = api.param_serialize("GET", f"/api/v1/namespaces?{query}", auth_settings=["BearerToken"])
    answer = api.call_api(*sent)
    for line in answer.response.stream(decode_content=True):
        if b'"DELETED"' in line:
            break
    answer.response.close()
    with pytest.raises(ApiException):
        core.read_namespaced_config_map("a", "short-lived")
