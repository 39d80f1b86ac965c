"""Creating and replacing: bookkeeping, locking, dry runs, validation of fields, subresources."""

from __future__ import annotations

import re

import pytest

from tests.conformance.wire import Server, config_map, job, pod


def test_a_created_object_gets_its_bookkeeping(server: Server, maps: str, namespace: str) -> None:
    answer = server.post(maps, config_map("a", {"k": "v"}))
    meta = answer.ok()["metadata"]
    assert answer.status == 201
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert (meta["namespace"], meta["resourceVersion"].isdigit()) == (namespace, True)


def test_a_name_that_is_taken_is_a_conflict(server: Server, maps: str) -> None:
    server.post(maps, config_map("a")).ok()
    answer = server.post(maps, config_map("a"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "a" already exists'


def test_a_name_is_made_from_its_beginning(server: Server, maps: str) -> None:
    made = server.post(maps, {"metadata": {"generateName": "made-"}}).ok()["metadata"]
    assert re.fullmatch(r"made-[bcdfghjklmnpqrstvwxz2456789]{5}", made["name"])
    assert made["generateName"] == "made-"
    assert server.post(maps, {"metadata": {"generateName": "made-"}}).ok()["metadata"]["name"] != made["name"]


def test_what_only_the_server_may_say_is_not_taken_from_a_client(server: Server, maps: str) -> None:
    said = {"uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7}
    meta = server.post(maps, config_map("a", **said)).ok()["metadata"]
    assert meta["uid"] != "mine"
    assert not meta["creationTimestamp"].startswith("2020")


def test_a_new_object_brings_no_version_along(server: Server, maps: str) -> None:
    answer = server.post(maps, config_map("a", resourceVersion="12"))
    assert (answer.status, answer.message) == (500, "resourceVersion should not be set on objects to be created")


def test_a_namespace_that_is_not_there_is_named(server: Server) -> None:
    answer = server.post("/api/v1/namespaces/no-such-namespace/configmaps", config_map("a"))
    assert (answer.status, answer.message) == (404, 'namespaces "no-such-namespace" not found')


def test_the_body_s_namespace_is_the_path_s(server: Server, maps: str) -> None:
    answer = server.post(maps, config_map("a", namespace="default"))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "the namespace of the provided object does not match the namespace sent on the request"


def test_a_body_of_another_group_is_refused(server: Server, maps: str) -> None:
    answer = server.post(maps, job())
    assert answer.status == 400
    assert answer.message == ("the API version in the data (batch/v1) does not match the expected API version (v1)")


def test_a_body_of_an_unknown_kind_is_refused(server: Server, maps: str) -> None:
    answer = server.post(maps, {"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "a"}})
    assert answer.status == 400
    assert 'no kind "Nonsense" is registered for version "v1"' in answer.message


def test_a_body_that_is_no_object_is_refused(server: Server, maps: str) -> None:
    answer = server.post(maps, ["a"])
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith("the object provided is unrecognized")


def test_a_body_of_another_media_type_is_refused(server: Server, maps: str) -> None:
    answer = server.ask("POST", maps, "a=b", content_type="text/plain")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    assert answer.message.startswith(
        "the body of the request was in an unknown format - accepted media types include: application/json"
    )


def test_a_replaced_object_has_a_newer_version(server: Server, maps: str) -> None:
    made = server.post(maps, config_map("a", {"k": "v"})).ok()
    answer = server.put(f"{maps}/a", {**made, "data": {"l": "w"}})
    after = answer.ok()
    assert (answer.status, after["data"]) == (200, {"l": "w"})
    assert int(after["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_a_write_that_changes_nothing_makes_no_version(server: Server, maps: str) -> None:
    made = server.post(maps, config_map("a", {"k": "v"})).ok()
    assert server.put(f"{maps}/a", made).ok()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_stale_version_is_a_conflict(server: Server, maps: str) -> None:
    made = server.post(maps, config_map("a", {"k": "v"})).ok()
    server.merge(f"{maps}/a", {"data": {"k": "w"}}).ok()
    answer = server.put(f"{maps}/a", {**made, "data": {"k": "mine"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to '
        "the latest version and try again"
    )


def test_a_stale_version_in_a_patch_is_a_conflict_too(server: Server, maps: str) -> None:
    old = server.post(maps, config_map("a")).ok()["metadata"]["resourceVersion"]
    server.merge(f"{maps}/a", {"data": {"k": "w"}}).ok()
    assert server.merge(f"{maps}/a", {"metadata": {"resourceVersion": old}, "data": {"k": "x"}}).status == 409


def test_another_uid_is_a_conflict(server: Server, maps: str) -> None:
    server.post(maps, config_map("a")).ok()
    answer = server.put(f"{maps}/a", config_map("a", uid="00000000-0000-0000-0000-000000000000"))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000" in answer.message


def test_a_replacement_without_a_version_wins(server: Server, maps: str) -> None:
    server.post(maps, config_map("a", {"k": "v"})).ok()
    assert server.put(f"{maps}/a", config_map("a", {"k": "w"})).ok()["data"] == {"k": "w"}


def test_what_is_not_there_cannot_be_replaced(server: Server, maps: str) -> None:
    answer = server.put(f"{maps}/a", config_map("a"))
    assert (answer.status, answer.message) == (404, 'configmaps "a" not found')


def test_a_lease_is_never_replaced_blindly(server: Server, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}}
    made = server.put(f"{leases}/a", lease)
    assert made.status == 201
    answer = server.put(f"{leases}/a", lease)
    assert (answer.status, answer.causes) == (422, [("FieldValueInvalid", "metadata.resourceVersion")])
    assert answer.message.endswith("must be specified for an update")
    assert server.put(f"{leases}/a", made.ok()).status == 200


def test_the_name_in_the_body_is_the_path_s(server: Server, maps: str) -> None:
    server.post(maps, config_map("a")).ok()
    answer = server.put(f"{maps}/a", config_map("b"))
    assert answer.status == 400
    assert answer.message == "the name of the object (b) does not match the name on the URL (a)"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_dry_run_answers_and_keeps_nothing(server: Server, maps: str, method: str) -> None:
    before = server.post(maps, config_map("a", {"k": "v"})).ok()
    changed = config_map("a", {"k": "dry"})
    if method == "POST":
        assert server.post(maps, config_map("b"), dryRun="All").status == 201
    elif method == "PUT":
        assert server.put(f"{maps}/a", changed, dryRun="All").ok()["data"] == {"k": "dry"}
    elif method == "PATCH":
        assert server.merge(f"{maps}/a", changed, dryRun="All").ok()["data"] == {"k": "dry"}
    else:
        assert server.delete(f"{maps}/a", dryRun="All").status == 200
    assert server.get(f"{maps}/a").ok() == before
    assert server.get(f"{maps}/b").status == 404


def test_a_dry_run_checks_as_the_real_one_does(server: Server, pods: str) -> None:
    assert server.post(pods, pod(resources={"limits": {"nvidia.com/gpu": "0.5"}}), dryRun="All").status == 422
    filled = server.post(pods, pod(), dryRun="All").ok()
    assert filled["spec"]["dnsPolicy"] == "ClusterFirst"


def test_a_dry_run_is_all_or_nothing(server: Server, maps: str) -> None:
    for method, kind in (("POST", "CreateOptions"), ("PUT", "UpdateOptions"), ("DELETE", "DeleteOptions")):
        path = maps if method == "POST" else f"{maps}/a"
        answer = server.ask(method, path, config_map("a") if method != "DELETE" else None, dryRun="Some")
        assert (answer.status, answer.causes) == (422, [("FieldValueNotSupported", "dryRun")])
        assert answer.message.startswith(f'{kind}.meta.k8s.io "" is invalid: dryRun: Unsupported value: ')


ODD = {"metadata": {"name": "odd", "lables": {"a": "b"}}, "date": {}}


def test_unknown_fields_are_refused_when_strict(server: Server, maps: str) -> None:
    answer = server.post(maps, ODD, fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "strict decoding error: " in answer.message
    assert 'unknown field "metadata.lables"' in answer.message
    assert 'unknown field "date"' in answer.message


def test_unknown_fields_are_warned_of_and_dropped_by_default(server: Server, maps: str) -> None:
    answer = server.post(maps, ODD)
    assert 'unknown field \\"date\\"' in answer.headers["warning"]
    assert "date" not in answer.ok()
    assert "lables" not in server.get(f"{maps}/odd").ok()["metadata"]


def test_unknown_fields_are_dropped_in_silence_when_ignored(server: Server, maps: str) -> None:
    answer = server.post(maps, ODD, fieldValidation="Ignore")
    assert (answer.status, "warning" in answer.headers) == (201, False)


def test_a_mode_of_field_validation_that_is_none_is_invalid(server: Server, maps: str) -> None:
    answer = server.post(maps, config_map("a"), fieldValidation="Maybe")
    assert (answer.status, answer.causes) == (422, [("FieldValueNotSupported", "fieldValidation")])


def test_unknown_fields_of_a_patch_are_refused_when_strict(server: Server, maps: str) -> None:
    server.post(maps, config_map("a")).ok()
    answer = server.merge(f"{maps}/a", {"date": {}}, fieldValidation="Strict")
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert 'unknown field "date"' in answer.message


TWICE = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v","k":"w"}}'


def test_repeated_fields_are_refused_when_strict(server: Server, maps: str) -> None:
    answer = server.raw("POST", maps, TWICE, "application/json", fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.endswith('strict decoding error: duplicate field "data.k"')


def test_repeated_fields_are_warned_of_and_the_last_counts(server: Server, maps: str) -> None:
    answer = server.raw("POST", maps, TWICE, "application/json", fieldValidation="Warn")
    assert 'duplicate field \\"data.k\\"' in answer.headers["warning"]
    assert answer.ok()["data"] == {"k": "w"}


def test_a_body_that_is_not_even_json_is_refused(server: Server, maps: str) -> None:
    for body in (b"", b"{", b"nonsense", b"[" * 100_000):
        answer = server.raw("POST", maps, body, "application/json")
        assert (answer.status, answer.reason) == (400, "BadRequest")


def test_yaml_is_taken(server: Server, maps: str) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
    assert server.raw("POST", maps, body, "application/yaml").ok()["data"] == {"k": "v"}


def test_values_of_the_wrong_type_are_refused(server: Server, maps: str) -> None:
    answer = server.post(maps, {"metadata": {"name": "a", "labels": {"count": 4}}})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "json: cannot unmarshal number into Go struct field" in answer.message


def test_a_secret_s_data_is_base64(server: Server, namespace: str) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    answer = server.post(secrets, {"metadata": {"name": "a"}, "data": {"k": "not base64!"}})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "illegal base64 data at input byte" in answer.message
    made = server.post(secrets, {"metadata": {"name": "a"}, "stringData": {"k": "v"}}).ok()
    assert (made["data"], made["type"], "stringData" in made) == ({"k": "dg=="}, "Opaque", False)


def test_the_spec_of_what_has_one_counts_its_changes(server: Server, jobs: str) -> None:
    made = server.post(jobs, {**job(suspend=True)}).ok()
    assert made["metadata"]["generation"] == 1
    labelled = server.merge(f"{jobs}/j", {"metadata": {"labels": {"a": "b"}}}).ok()
    assert labelled["metadata"]["generation"] == 1
    changed = server.merge(f"{jobs}/j", {"spec": {"parallelism": 3}}).ok()
    assert changed["metadata"]["generation"] == 2


def test_status_is_not_written_with_the_object(server: Server, node: str) -> None:
    status = {"status": {"allocatable": {"example.com/card": "1"}}}
    answer = server.merge(node, {**status, "metadata": {"labels": {"a": "b"}}}).ok()
    assert answer["metadata"]["labels"]["a"] == "b"
    assert "example.com/card" not in answer.get("status", {}).get("allocatable", {})


def test_the_object_is_not_written_with_its_status(server: Server, node: str) -> None:
    patch = {"status": {"allocatable": {"example.com/card": "1"}}, "spec": {"unschedulable": None}}
    answer = server.merge(f"{node}/status", patch).ok()
    assert answer["status"]["allocatable"]["example.com/card"] == "1"
    assert answer["spec"]["unschedulable"] is True


def test_a_status_is_read_as_the_object(server: Server, node: str) -> None:
    assert server.get(f"{node}/status").ok()["kind"] == "Node"


def test_a_new_object_s_status_is_the_server_s(server: Server, pods: str) -> None:
    made = server.post(pods, {**pod(schedulerName="nobody"), "status": {"phase": "Running"}}).ok()
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_managed_fields_name_who_wrote_what(server: Server, maps: str) -> None:
    made = server.post(maps, config_map("a", {"k": "v"}), fieldManager="maker").ok()
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("maker", "Update", "v1")
    assert (entry["fieldsType"], entry["fieldsV1"]) == ("FieldsV1", {"f:data": {".": {}, "f:k": {}}})
    after = server.merge(f"{maps}/a", {"data": {"l": "w"}}, fieldManager="helper").ok()
    found = {entry["manager"]: entry["fieldsV1"] for entry in after["metadata"]["managedFields"]}
    assert found == {"maker": {"f:data": {".": {}, "f:k": {}}}, "helper": {"f:data": {"f:l": {}}}}


def test_the_writer_of_a_value_is_its_last(server: Server, maps: str) -> None:
    server.post(maps, config_map("a", {"k": "v", "l": "w"}), fieldManager="maker").ok()
    after = server.merge(f"{maps}/a", {"data": {"k": "x"}}, fieldManager="helper").ok()
    found = {entry["manager"]: entry["fieldsV1"] for entry in after["metadata"]["managedFields"]}
    assert found == {"maker": {"f:data": {".": {}, "f:l": {}}}, "helper": {"f:data": {"f:k": {}}}}


def test_a_manager_is_the_client_s_program_where_none_is_named(server: Server, maps: str) -> None:
    (entry,) = server.post(maps, config_map("a", {"k": "v"})).ok()["metadata"]["managedFields"]
    assert entry["manager"] == "OpenAPI-Generator"


def test_the_status_is_owned_apart(server: Server, node: str) -> None:
    patch = {"status": {"allocatable": {"example.com/card": "1"}}}
    after = server.merge(f"{node}/status", patch, fieldManager="plugin").ok()
    (entry,) = [entry for entry in after["metadata"]["managedFields"] if entry["manager"] == "plugin"]
    assert entry["subresource"] == "status"


def test_methods_that_are_not_there_are_not_allowed(server: Server, maps: str) -> None:
    for method, path in (("POST", f"{maps}/a"), ("PUT", maps), ("PATCH", maps)):
        answer = server.ask(method, path, {})
        assert (answer.status, answer.reason) == (405, "MethodNotAllowed")
        assert answer.message == "the server does not allow this method on the requested resource"


def test_a_namespace_is_labelled_with_its_name(server: Server, namespace: str) -> None:
    found = server.get(f"/api/v1/namespaces/{namespace}").ok()
    assert found["metadata"]["labels"]["kubernetes.io/metadata.name"] == namespace
    assert (found["spec"], found["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


def test_a_new_node_takes_no_pods_until_it_is_ready(server: Server, node: str) -> None:
    taints = server.get(node).ok()["spec"]["taints"]
    assert ("node.kubernetes.io/not-ready", "NoSchedule") in [(taint["key"], taint["effect"]) for taint in taints]


def test_a_client_owns_what_it_sent_and_its_defaults(server: Server, pods: str) -> None:
    (entry,) = server.post(pods, pod(schedulerName="nobody")).ok()["metadata"]["managedFields"]
    assert set(entry["fieldsV1"]) == {"f:spec"}
    owned = entry["fieldsV1"]["f:spec"]
    assert {"f:containers", "f:dnsPolicy", "f:schedulerName"} <= set(owned)
    # What admission adds is nobody's.
    assert not {"f:tolerations", "f:priority", "f:serviceAccountName"} & set(owned)
    assert set(owned["f:containers"]) == {'k:{"name":"main"}'}
