"""What the client asks of an API server, and that writes may be repeated."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gpupools.clusters import listing
from gpupools.clusters.kube import KubeClient
from gpupools.domain.gpus import Taint
from gpupools.domain.modes import OP_LABEL
from gpupools.errors import Conflict, Invalid, Refused, Unreachable
from tests.clusters.scripted import Answer, ScriptedServer, node, pod, status

JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": {}}}


class OneNode:
    """A node behind GET and PATCH that tests resourceVersion and can be changed in between."""

    def __init__(self, api: ScriptedServer, **spec: Any) -> None:
        self.object = node("n", uid="u-n")
        self.object["metadata"] |= {"resourceVersion": "1", "labels": {"kept": "yes", "old": "x"}, "annotations": {}}
        self.object["spec"] = spec
        self.interruptions = 0
        self.patches: list[dict[str, Any]] = []
        api.handlers["GET", "/api/v1/nodes/n"] = lambda query, body: (200, self.object)
        api.handlers["PATCH", "/api/v1/nodes/n"] = self.patch

    def bump(self) -> None:
        meta = self.object["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)

    def patch(self, query: dict[str, str], body: dict[str, Any]) -> Answer:
        self.patches.append(copy.deepcopy(body))
        if self.interruptions:
            self.interruptions -= 1
            self.bump()
        meta = body["metadata"]
        if meta["resourceVersion"] != self.object["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        for part in ("labels", "annotations"):
            for key, value in meta.get(part, {}).items():
                if value is None:
                    self.object["metadata"][part].pop(key, None)
                else:
                    self.object["metadata"][part][key] = value
        for key, value in body.get("spec", {}).items():
            if value is None:
                self.object["spec"].pop(key, None)
            else:
                self.object["spec"][key] = value
        self.bump()
        return 200, self.object


def test_pods_can_be_asked_of_one_node_or_one_namespace(api: ScriptedServer) -> None:
    api.put("Pod", pod("a", on="n1"))
    api.put("Pod", pod("b", on="n2", phase="Succeeded"))
    api.handlers["GET", "/api/v1/namespaces/team/pods"] = lambda query, body: (200, {"items": []})
    with KubeClient(api.connection()) as client:
        assert [p.name for p in client.pods()] == ["a", "b"]
        assert [p.name for p in client.pods(node="n2")] == ["b"]
        assert client.pods(namespace="team") == []


def test_a_list_whose_continuation_expired_is_begun_again(api: ScriptedServer) -> None:
    for index in range(600):
        api.put("Pod", pod(f"p{index}"))
    first = api._list("Pod", {"limit": "500"})
    api.list_faults.extend([first, status(410, "Expired", "the continue token is too old")])
    with KubeClient(api.connection()) as client:
        assert len(client.pods()) == 600


def test_a_list_that_never_ends_is_given_up(api: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_PAGES", 5)
    endless = {"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}
    api.handlers["GET", "/api/v1/pods"] = lambda query, body: (200, endless)
    with KubeClient(api.connection()) as client, pytest.raises(Unreachable, match="does not end"):
        client.pods()


def test_a_node_that_is_not_there_is_none(api: ScriptedServer) -> None:
    with KubeClient(api.connection()) as client:
        assert client.node("nowhere") is None


def test_a_name_cannot_climb_out_of_its_path(api: ScriptedServer) -> None:
    with KubeClient(api.connection()) as client:
        client.node("../namespaces/kube-system/secrets/x")
        with pytest.raises(Invalid):
            client.node("..")
    asked = [path for _, path, _, _ in api.requests]
    assert asked[0] == "/api/v1/nodes/..%2Fnamespaces%2Fkube-system%2Fsecrets%2Fx"


def test_nodes_without_the_right_to_read_topology_reports_have_no_links(api: ScriptedServer) -> None:
    api.put("Node", node("a"))
    path = "/api/v1/namespaces/kube-system/configmaps"
    api.handlers["GET", path] = lambda query, body: status(403, "Forbidden", "no")
    with KubeClient(api.connection()) as client:
        assert [n.links for n in client.nodes()] == [None]


def test_a_log_is_asked_for_with_its_limits(api: ScriptedServer) -> None:
    path = "/api/v1/namespaces/default/pods/p/log"
    api.handlers["GET", path] = lambda query, body: (200, f"{json.dumps(query)}\xff".encode("latin-1"))
    with KubeClient(api.connection()) as client:
        text = client.pod_log("default", "p", container="main", tail_lines=20)
    assert json.loads(text[:-1]) == {"tailLines": "20", "limitBytes": "1048576", "container": "main"}


def test_a_log_that_is_not_there_yet_is_refused_with_the_cluster_s_words(api: ScriptedServer) -> None:
    path = "/api/v1/namespaces/default/pods/p/log"
    words = 'container "main" in pod "p" is waiting to start: ContainerCreating'
    api.handlers["GET", path] = lambda query, body: status(400, "BadRequest", words)
    with KubeClient(api.connection()) as client, pytest.raises(Refused, match="waiting to start"):
        client.pod_log("default", "p")


def test_a_create_is_strict_and_carries_its_operation(api: ScriptedServer) -> None:
    api.handlers["POST", JOBS] = lambda query, body: (201, {**body, "metadata": {**body["metadata"], "uid": "u1"}})
    with KubeClient(api.connection()) as client:
        result = client.create(JOB, op_id="op-1")
    assert (result.outcome, result.uid) == ("created", "u1")
    _, _, query, body = api.requests[-1]
    assert query == {"fieldManager": "gpupools", "fieldValidation": "Strict"}
    assert body["metadata"]["annotations"] == {OP_LABEL: "op-1"}
    assert "annotations" not in JOB["metadata"]  # type: ignore[operator]  # the caller's manifest stays as it was


def test_a_dry_run_is_one(api: ScriptedServer) -> None:
    api.handlers["POST", JOBS] = lambda query, body: (201, body)
    with KubeClient(api.connection()) as client:
        client.create(JOB, op_id="op-1", dry_run=True)
    assert api.requests[-1][2]["dryRun"] == "All"


@pytest.mark.parametrize(("landed_as", "outcome"), [("op-1", "already"), ("op-2", ""), ("", "")])
def test_a_create_that_finds_its_name_taken_looks_whose_it_is(
    api: ScriptedServer, landed_as: str, outcome: str
) -> None:
    there = {"metadata": {"name": "train", "uid": "u1", "annotations": {OP_LABEL: landed_as} if landed_as else {}}}
    api.handlers["POST", JOBS] = lambda query, body: status(409, "AlreadyExists", "jobs train exists")
    api.handlers["GET", f"{JOBS}/train"] = lambda query, body: (200, there)
    with KubeClient(api.connection()) as client:
        if outcome:
            assert client.create(JOB, op_id="op-1").outcome == outcome
        else:
            with pytest.raises(Conflict) as caught:
                client.create(JOB, op_id="op-1")
            assert caught.value.code == "already-exists"


def test_an_object_without_a_name_or_of_a_foreign_kind_is_not_sent(api: ScriptedServer) -> None:
    with KubeClient(api.connection()) as client:
        with pytest.raises(Invalid):
            client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {}}, op_id="op")
        with pytest.raises(Invalid):
            client.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}, op_id="op")
        with pytest.raises(Invalid):
            client.create({"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "s"}}, op_id="op")
    assert api.requests == []


def test_an_apply_says_what_it_did_and_does_not_force(api: ScriptedServer) -> None:
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets/d"
    manifest = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "kube-system"}}
    there: dict[str, Any] = {}

    def patch(query: dict[str, str], body: dict[str, Any]) -> Answer:
        version = str(int(there.get("metadata", {}).get("resourceVersion", "0")) + 1)
        there.update(copy.deepcopy(body))
        there["metadata"]["resourceVersion"] = version
        return 200, there

    api.handlers["GET", path] = lambda query, body: (200, there) if there else status(404, "NotFound", "no")
    api.handlers["PATCH", path] = patch
    with KubeClient(api.connection()) as client:
        assert client.apply(manifest, op_id="op-1").outcome == "created"
        assert client.apply(manifest, op_id="op-1").outcome == "already"
        assert client.apply(manifest, op_id="op-2").outcome == "changed"
    method, _, query, _ = api.requests[-1]
    assert method == "PATCH"
    assert (query["fieldManager"], query["force"]) == ("gpupools", "false")


def test_a_field_of_another_manager_is_a_conflict_with_its_name(api: ScriptedServer) -> None:
    path = "/apis/apps/v1/namespaces/default/daemonsets/d"
    manifest = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}}
    words = 'Apply failed with 1 conflict: conflict with "helm": .spec.template'
    api.handlers["PATCH", path] = lambda query, body: status(409, "Conflict", words)
    with KubeClient(api.connection()) as client, pytest.raises(Conflict, match="helm"):
        client.apply(manifest, op_id="op")


def test_a_delete_takes_the_dependants_along_in_the_background(api: ScriptedServer) -> None:
    api.handlers["DELETE", f"{JOBS}/train"] = lambda query, body: (200, {"kind": "Status", "status": "Success"})
    with KubeClient(api.connection()) as client:
        assert client.delete("Job", "default", "train") is True
        assert client.delete("Job", "default", "gone") is False
    assert api.requests[0][3]["propagationPolicy"] == "Background"


def test_an_eviction_tells_gone_pods_from_protected_ones(api: ScriptedServer) -> None:
    path = "/api/v1/namespaces/default/pods/{}/eviction"
    words = "Cannot evict pod as it would violate the pod's disruption budget."
    api.handlers["POST", path.format("free")] = lambda query, body: (201, body)
    api.handlers["POST", path.format("held")] = lambda query, body: status(429, "TooManyRequests", words)
    with KubeClient(api.connection()) as client:
        assert client.evict("default", "free") is True
        assert client.evict("default", "gone") is False
        with pytest.raises(Unreachable, match="disruption budget"):
            client.evict("default", "held")


def test_labels_and_taints_are_patched_alone_and_against_the_version_read(api: ScriptedServer) -> None:
    there = OneNode(api, taints=[{"key": "foreign", "effect": "NoSchedule"}, {"key": "mine", "effect": "NoExecute"}])
    with KubeClient(api.connection()) as client:
        result = client.label_node(
            "n",
            labels={"old": None, "new": "1", "kept": "yes", "never": None},
            taints_add=[Taint("gpu", "yes", "NoSchedule")],
            taints_remove=[Taint("mine", effect="NoExecute")],
            annotations={"note": "x"},
            op_id="op-1",
        )
    assert result.outcome == "changed"
    assert there.patches == [
        {
            "metadata": {
                "resourceVersion": "1",
                "labels": {"old": None, "new": "1"},
                "annotations": {"note": "x", OP_LABEL: "op-1"},
            },
            "spec": {
                "taints": [
                    {"key": "foreign", "effect": "NoSchedule"},
                    {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                ]
            },
        }
    ]
    assert there.object["metadata"]["labels"] == {"kept": "yes", "new": "1"}


def test_a_label_write_that_has_landed_is_not_sent_again(api: ScriptedServer) -> None:
    there = OneNode(api)
    with KubeClient(api.connection()) as client:
        client.label_node("n", labels={"new": "1"}, op_id="op-1")
        assert client.label_node("n", labels={"new": "1"}, op_id="op-1").outcome == "already"
        assert client.label_node("n", labels={"new": "1"}, op_id="op-2").outcome == "unchanged"
    assert len(there.patches) == 1


def test_a_label_write_whose_keys_were_undone_is_sent_again_though_its_operation_is_there(api: ScriptedServer) -> None:
    there = OneNode(api)
    with KubeClient(api.connection()) as client:
        client.label_node("n", labels={"new": "1"}, op_id="op-1")
        there.object["metadata"]["labels"]["new"] = "2"
        assert client.label_node("n", labels={"new": "1"}, op_id="op-1").outcome == "changed"


def test_a_node_that_moves_in_between_is_read_again(api: ScriptedServer) -> None:
    there = OneNode(api)
    there.interruptions = 3
    with KubeClient(api.connection()) as client:
        assert client.label_node("n", labels={"new": "1"}, op_id="op").outcome == "changed"
    assert [p["metadata"]["resourceVersion"] for p in there.patches] == ["1", "2", "3", "4"]


def test_a_node_that_never_stands_still_is_given_up_for_now(api: ScriptedServer) -> None:
    there = OneNode(api)
    there.interruptions = 100
    with KubeClient(api.connection()) as client, pytest.raises(Unreachable):
        client.label_node("n", labels={"new": "1"}, op_id="op")
    assert len(there.patches) == 6


def test_a_missing_node_is_refused(api: ScriptedServer) -> None:
    with KubeClient(api.connection()) as client, pytest.raises(Refused) as caught:
        client.label_node("nowhere", labels={}, op_id="op")
    assert caught.value.code == "not-found"


def test_a_taint_of_the_same_key_and_effect_is_replaced_in_its_place(api: ScriptedServer) -> None:
    there = OneNode(api, taints=[{"key": "gpu", "value": "old", "effect": "NoSchedule"}])
    with KubeClient(api.connection()) as client:
        same = Taint("gpu", "new", "NoSchedule")
        client.label_node("n", labels={}, taints_add=[same], taints_remove=[same], op_id="op")
        assert there.object["spec"]["taints"] == [{"key": "gpu", "value": "new", "effect": "NoSchedule"}]
        client.label_node("n", labels={}, taints_remove=[same], op_id="op")
    assert "taints" not in there.object["spec"]


def test_cordon_and_uncordon_write_only_when_there_is_something_to_change(api: ScriptedServer) -> None:
    there = OneNode(api)
    with KubeClient(api.connection()) as client:
        assert client.cordon("n", unschedulable=False, op_id="a").outcome == "unchanged"
        assert client.cordon("n", unschedulable=True, op_id="b").outcome == "changed"
        assert client.cordon("n", unschedulable=True, op_id="b").outcome == "already"
        assert client.cordon("n", unschedulable=False, op_id="c").outcome == "changed"
    assert len(there.patches) == 2


def test_a_server_without_access_reviews_counts_as_allowing(api: ScriptedServer) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    with KubeClient(api.connection()) as client:
        assert client.may("patch", "", "nodes") is True
        api.handlers["POST", path] = lambda query, body: (201, {**body, "status": {"allowed": False}})
        assert client.may("patch", "", "nodes") is False
        api.handlers["POST", path] = lambda query, body: (201, {**body, "status": {"allowed": True}})
        assert client.may("patch", "", "nodes") is True
    asked = api.requests[-1][3]["spec"]["resourceAttributes"]
    assert asked == {"verb": "patch", "group": "", "resource": "nodes"}
