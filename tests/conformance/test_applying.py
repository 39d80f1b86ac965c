"""Server-side apply: who owns a field, conflicts, force, and what goes when it is no longer applied."""

from __future__ import annotations

import pytest

from tests.conformance.wire import Server, config_map, job, pod


def owned(obj: dict, manager: str) -> dict:
    """Return the fields that a manager applied."""
    entries = obj["metadata"].get("managedFields", ())
    found = [entry for entry in entries if (entry["manager"], entry["operation"]) == (manager, "Apply")]
    return found[0]["fieldsV1"] if found else {}


def test_apply_creates_what_is_not_there(server: Server, maps: str) -> None:
    answer = server.apply(f"{maps}/a", config_map("a", {"k": "v"}))
    assert answer.status == 201
    (entry,) = answer.ok()["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("tester", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:k": {}}}
    assert server.apply(f"{maps}/a", config_map("a", {"k": "v"})).status == 200


def test_apply_takes_yaml(server: Server, maps: str) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
    assert server.apply(f"{maps}/a", text).ok()["data"] == {"k": "v"}


def test_apply_needs_a_manager(server: Server, maps: str) -> None:
    answer = server.ask("PATCH", f"{maps}/a", config_map("a"), content_type="application/apply-patch+yaml")
    assert (answer.status, answer.causes) == (422, [("FieldValueRequired", "fieldManager")])
    assert answer.message == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    )


def test_what_is_applied_again_makes_no_version(server: Server, maps: str) -> None:
    made = server.apply(f"{maps}/a", config_map("a", {"k": "v"})).ok()
    again = server.apply(f"{maps}/a", config_map("a", {"k": "v"})).ok()
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_what_is_no_longer_applied_goes(server: Server, maps: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v", "l": "w"})).ok()
    after = server.apply(f"{maps}/a", config_map("a", {"l": "w"})).ok()
    assert (after["data"], owned(after, "tester")) == ({"l": "w"}, {"f:data": {"f:l": {}}})


def test_what_another_applies_too_stays(server: Server, maps: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v"}), "one").ok()
    server.apply(f"{maps}/a", config_map("a", {"k": "v"}), "two").ok()
    after = server.apply(f"{maps}/a", config_map("a"), "one").ok()
    assert (after["data"], owned(after, "one")) == ({"k": "v"}, {})


def test_what_nobody_applied_is_left_alone(server: Server, maps: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v"})).ok()
    server.merge(f"{maps}/a", {"data": {"hand": "made"}}, fieldManager="hand").ok()
    assert server.apply(f"{maps}/a", config_map("a", {"k": "w"})).ok()["data"] == {"k": "w", "hand": "made"}


def test_another_s_field_is_a_conflict(server: Server, maps: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v"})).ok()
    server.merge(f"{maps}/a", {"data": {"k": "hand"}}, fieldManager="hand").ok()
    answer = server.apply(f"{maps}/a", config_map("a", {"k": "v"}))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.k'
    assert answer.causes == [("FieldManagerConflict", ".data.k")]


def test_an_applier_s_field_is_a_conflict_without_a_version(server: Server, maps: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v"}), "one").ok()
    answer = server.apply(f"{maps}/a", config_map("a", {"k": "w"}), "two")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .data.k'


def test_several_conflicts_are_listed_by_manager(server: Server, maps: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v", "l": "w"}), "one").ok()
    answer = server.apply(f"{maps}/a", config_map("a", {"k": "x", "l": "x"}), "two")
    assert answer.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.k\n- .data.l'


def test_force_takes_a_field_over(server: Server, maps: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v"}), "one").ok()
    after = server.apply(f"{maps}/a", config_map("a", {"k": "w"}), "two", force="true").ok()
    assert (after["data"], owned(after, "one"), owned(after, "two")) == ({"k": "w"}, {}, {"f:data": {"f:k": {}}})


def test_the_same_value_is_owned_by_both(server: Server, maps: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v"}), "one").ok()
    after = server.apply(f"{maps}/a", config_map("a", {"k": "v"}), "two").ok()
    assert owned(after, "one") == owned(after, "two") == {"f:data": {"f:k": {}}}


def test_a_label_alone_can_be_owned(server: Server, node: str) -> None:
    name = node.rpartition("/")[2]
    wanted = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": "a"}}}
    after = server.apply(node, wanted, "pools").ok()
    assert owned(after, "pools") == {"f:metadata": {"f:labels": {"f:pool": {}}}}
    del wanted["metadata"]["labels"]
    assert "pool" not in server.apply(node, wanted, "pools").ok()["metadata"].get("labels", {})


def test_list_items_are_owned_by_their_keys(server: Server, jobs: str) -> None:
    made = server.apply(f"{jobs}/j", job(suspend=True)).ok()
    containers = owned(made, "tester")["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert set(containers) == {'k:{"name":"main"}'}
    assert set(containers['k:{"name":"main"}']) == {".", "f:name", "f:image", "f:command"}


def test_defaults_are_nobody_s(server: Server, jobs: str) -> None:
    made = server.apply(f"{jobs}/j", job(suspend=True)).ok()
    assert made["spec"]["backoffLimit"] == 6
    assert "f:backoffLimit" not in owned(made, "tester")["f:spec"]


def test_a_field_that_is_not_in_the_schema_cannot_be_typed(server: Server, maps: str, namespace: str) -> None:
    answer = server.apply(f"{maps}/a", {**config_map("a"), "date": {"k": "v"}})
    assert answer.status == 500
    assert answer.message == (
        f"failed to create typed patch object ({namespace}/a; v1, Kind=ConfigMap): .date: field not declared in schema"
    )


def test_a_value_of_the_wrong_type_cannot_be_typed(server: Server, maps: str) -> None:
    answer = server.apply(f"{maps}/a", {**config_map("a"), "data": {"k": 4}})
    assert answer.status == 500
    assert ".data.k: expected string, got &" in answer.message


def test_list_items_can_be_told_from_each_other(server: Server, pods: str, namespace: str) -> None:
    container = {"name": "main", "image": "x"}
    answer = server.apply(f"{pods}/p", pod(schedulerName="nobody", containers=[container, container]))
    assert answer.status == 500
    assert answer.message == (
        f"failed to create typed patch object ({namespace}/p; v1, Kind=Pod): .spec.containers: duplicate entries for "
        'key [name="main"]'
    )
    answer = server.apply(f"{pods}/p", pod(schedulerName="nobody", containers=[{"image": "x"}]))
    assert answer.status == 500
    assert ".spec.containers: element 0: associative list with keys has an element that omits key field" in (
        answer.message
    )


def test_managed_fields_are_not_applied(server: Server, maps: str) -> None:
    made = server.apply(f"{maps}/a", config_map("a", {"k": "v"})).ok()
    answer = server.apply(f"{maps}/a", made)
    assert (answer.status, answer.message) == (400, "metadata.managedFields must be nil")


def test_apply_can_be_tried(server: Server, maps: str) -> None:
    assert server.apply(f"{maps}/a", config_map("a", {"k": "v"}), dryRun="All").status == 201
    assert server.get(f"{maps}/a").status == 404


def test_a_status_is_applied_apart(server: Server, node: str) -> None:
    name = node.rpartition("/")[2]
    condition = {"type": "CardsHealthy", "status": "True", "reason": "Test"}
    wanted = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [condition]}}
    after = server.apply(f"{node}/status", wanted, "plugin").ok()
    assert "CardsHealthy" in [entry["type"] for entry in after["status"]["conditions"]]
    (entry,) = [entry for entry in after["metadata"]["managedFields"] if entry["manager"] == "plugin"]
    assert (entry["operation"], entry["subresource"]) == ("Apply", "status")


def test_an_applied_version_that_is_stale_is_a_conflict(server: Server, maps: str) -> None:
    made = server.apply(f"{maps}/a", config_map("a", {"k": "v"})).ok()
    server.merge(f"{maps}/a", {"data": {"l": "w"}}).ok()
    stale = config_map("a", {"k": "w"}, resourceVersion=made["metadata"]["resourceVersion"])
    assert server.apply(f"{maps}/a", stale).status == 409


@pytest.mark.parametrize("how", ["merge", "strategic"])
def test_an_update_takes_what_it_changes_from_an_applier(server: Server, maps: str, how: str) -> None:
    server.apply(f"{maps}/a", config_map("a", {"k": "v", "l": "w"})).ok()
    patch = getattr(server, how)
    after = patch(f"{maps}/a", {"data": {"k": "hand"}}, fieldManager="hand").ok()
    assert owned(after, "tester") == {"f:data": {"f:l": {}}}
