"""Deleting: preconditions, finalizers, grace, collections, and what happens to dependents."""

from __future__ import annotations

import pytest

from tests.conformance.wire import Server, config_map, names, pod

NOBODY = "00000000-0000-0000-0000-000000000000"


def test_a_deleted_object_is_told_in_a_status(server: Server, maps: str) -> None:
    uid = server.post(maps, config_map("a")).ok()["metadata"]["uid"]
    status = server.delete(f"{maps}/a").ok()
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert server.get(f"{maps}/a").status == 404
    assert server.delete(f"{maps}/a").status == 404


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (
            {"uid": NOBODY},
            f"the UID in the precondition ({NOBODY}) does not match the UID in record",
        ),
        (
            {"resourceVersion": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record",
        ),
    ],
)
def test_preconditions_hold_a_delete_back(server: Server, maps: str, condition: dict, said: str) -> None:
    server.post(maps, config_map("a")).ok()
    answer = server.delete(f"{maps}/a", {"preconditions": condition})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert said in answer.message
    assert server.get(f"{maps}/a").status == 200


def test_preconditions_that_hold_let_it_through(server: Server, maps: str) -> None:
    meta = server.post(maps, config_map("a")).ok()["metadata"]
    condition = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    assert server.delete(f"{maps}/a", {"preconditions": condition}).status == 200


def test_a_finalizer_holds_an_object(server: Server, maps: str) -> None:
    server.post(maps, config_map("a", finalizers=["example.com/wait"])).ok()
    waiting = server.delete(f"{maps}/a").ok()
    assert waiting["kind"] == "ConfigMap"
    assert waiting["metadata"]["deletionTimestamp"]
    assert waiting["metadata"]["deletionGracePeriodSeconds"] == 0
    assert server.get(f"{maps}/a").status == 200
    server.merge(f"{maps}/a", {"metadata": {"finalizers": None}}).ok()
    assert server.get(f"{maps}/a").status == 404


def test_what_is_being_deleted_gets_no_new_finalizer(server: Server, maps: str) -> None:
    server.post(maps, config_map("a", finalizers=["example.com/wait"])).ok()
    server.delete(f"{maps}/a").ok()
    patch = {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}
    answer = server.merge(f"{maps}/a", patch)
    assert (answer.status, answer.causes) == (422, [("FieldValueForbidden", "metadata.finalizers")])
    assert answer.message.endswith(
        "no new finalizers can be added if the object is being deleted, found new finalizers "
        '[]string{"example.com/more"}'
    )
    server.merge(f"{maps}/a", {"metadata": {"finalizers": None}}).ok()


def test_a_moment_of_deletion_cannot_be_taken_back(server: Server, maps: str) -> None:
    server.post(maps, config_map("a", finalizers=["example.com/wait"])).ok()
    server.delete(f"{maps}/a").ok()
    answer = server.merge(f"{maps}/a", {"metadata": {"deletionTimestamp": None}})
    assert answer.ok()["metadata"]["deletionTimestamp"]
    server.merge(f"{maps}/a", {"metadata": {"finalizers": None}}).ok()


def test_a_finalizer_has_a_full_name(server: Server, maps: str) -> None:
    answer = server.post(maps, config_map("a", finalizers=["wait"]))
    assert (answer.status, answer.causes) == (422, [("FieldValueInvalid", "metadata.finalizers[0]")])
    assert answer.message.endswith("name is neither a standard finalizer name nor is it fully qualified")


def test_a_policy_that_is_none_is_invalid(server: Server, maps: str) -> None:
    server.post(maps, config_map("a")).ok()
    answer = server.delete(f"{maps}/a", propagationPolicy="Sometimes")
    assert (answer.status, answer.causes) == (422, [("FieldValueNotSupported", "propagationPolicy")])
    assert answer.message == (
        'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sometimes": supported '
        'values: "Foreground", "Background", "Orphan", "nil"'
    )


def test_two_policies_are_invalid(server: Server, maps: str) -> None:
    server.post(maps, config_map("a")).ok()
    answer = server.delete(f"{maps}/a", {"propagationPolicy": "Orphan", "orphanDependents": True})
    assert answer.status == 422
    assert "orphanDependents and deletionPropagation cannot be both set" in answer.message


def test_a_collection_goes_by_its_selector(server: Server, maps: str) -> None:
    server.post(maps, config_map("a", labels={"x": "1"})).ok()
    server.post(maps, config_map("b", labels={"x": "2"})).ok()
    gone = server.delete(maps, labelSelector="x=1").ok()
    assert names(gone) == ["a"]
    assert [server.get(f"{maps}/{name}").status for name in "ab"] == [404, 200]


def test_a_collection_can_be_tried(server: Server, maps: str) -> None:
    server.post(maps, config_map("a", labels={"x": "1"})).ok()
    server.delete(maps, labelSelector="x=1", dryRun="All").ok()
    assert server.get(f"{maps}/a").status == 200


def test_a_pod_without_a_node_goes_at_once(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    assert server.delete(f"{pods}/p").ok()["kind"] == "Pod"
    assert server.get(f"{pods}/p").status == 404


def test_a_bound_pod_has_its_grace(server: Server, pods: str, node: str) -> None:
    server.post(pods, pod(nodeName=node.rpartition("/")[2], terminationGracePeriodSeconds=1000)).ok()
    meta = server.delete(f"{pods}/p").ok()["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 1000
    assert server.get(f"{pods}/p").status == 200
    shorter = server.delete(f"{pods}/p", gracePeriodSeconds=500).ok()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 500
    assert server.delete(f"{pods}/p", gracePeriodSeconds=0).status == 200
    assert server.get(f"{pods}/p").status == 404


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_cannot_be_deleted(server: Server, name: str) -> None:
    answer = server.delete(f"/api/v1/namespaces/{name}", dryRun="All")
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def test_a_namespace_on_its_way_out_takes_nothing_in(server: Server, maps: str, namespace: str) -> None:
    # Held open by what is in it, so that the moment does not pass.
    server.post(maps, config_map("held", finalizers=["example.com/wait"])).ok()
    gone = server.delete(f"/api/v1/namespaces/{namespace}").ok()
    assert gone["status"]["phase"] == "Terminating"
    answer = server.post(maps, config_map("late"))
    server.merge(f"{maps}/held", {"metadata": {"finalizers": None}}).ok()
    assert (answer.status, answer.causes) == (403, [("NamespaceTerminating", "metadata.namespace")])
    assert answer.message == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {namespace} because it is being '
        "terminated"
    )
