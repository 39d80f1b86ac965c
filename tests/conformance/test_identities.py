"""Who may do what: tokens, roles, the words of a refusal, and asking beforehand."""

from __future__ import annotations

import pytest

from tests.conformance.wire import Server, config_map

ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def allowed(server: Server, verb: str, resource: str, group: str = "", **more: str) -> bool:
    asked = {"verb": verb, "resource": resource, "group": group, **more}
    return bool(server.post(ACCESS, {"spec": {"resourceAttributes": asked}}).ok()["status"]["allowed"])


@pytest.mark.parametrize("token", ["", "Bearer nobody", "Basic YTpi"])
def test_a_stranger_is_unauthorized(server: Server, token: str) -> None:
    if server.api.configuration.cert_file:
        pytest.skip("whoever connects with this kubeconfig's certificate is no stranger")
    headers = {"Authorization": token} if token else {}
    pool = server.api.rest_client.pool_manager
    answer = pool.request("GET", f"{server.api.configuration.host}/api/v1/nodes", headers=headers, retries=False)
    if answer.status == 403 and not token.startswith("Bearer"):
        # A server that knows a name for those who have none.
        assert 'User "system:anonymous" cannot list resource "nodes"' in answer.json()["message"]
        return
    assert answer.status == 401
    assert answer.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/pods", "/apis/batch/v1/jobs", "/version", "/api", "/apis"])
def test_a_viewer_may_look(clients: dict[str, Server], path: str) -> None:
    assert clients["viewer"].get(path).status == 200


def test_a_viewer_may_not_write(clients: dict[str, Server], maps: str, namespace: str) -> None:
    answer = clients["viewer"].post(maps, config_map("a"))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        'configmaps is forbidden: User "gpu-viewer" cannot create resource "configmaps" in API group "" in the '
        f'namespace "{namespace}"'
    )


def test_a_refusal_names_the_object(clients: dict[str, Server], node: str) -> None:
    name = node.rpartition("/")[2]
    answer = clients["viewer"].delete(node)
    assert answer.message == (
        f'nodes "{name}" is forbidden: User "gpu-viewer" cannot delete resource "nodes" in API group "" at the cluster '
        "scope"
    )
    assert answer.body["details"] == {"name": name, "kind": "nodes"}


def test_a_refusal_names_the_group(clients: dict[str, Server], jobs: str, namespace: str) -> None:
    answer = clients["viewer"].delete(f"{jobs}/j")
    assert answer.message == (
        'jobs.batch "j" is forbidden: User "gpu-viewer" cannot delete resource "jobs" in API group "batch" in the '
        f'namespace "{namespace}"'
    )


def test_a_refusal_names_the_subresource(clients: dict[str, Server], pods: str, namespace: str) -> None:
    answer = clients["viewer"].post(f"{pods}/p/eviction", {})
    assert answer.message == (
        'pods "p" is forbidden: User "gpu-viewer" cannot create resource "pods/eviction" in API group "" in the '
        f'namespace "{namespace}"'
    )


def test_a_namespace_is_refused_in_itself(clients: dict[str, Server], namespace: str) -> None:
    answer = clients["viewer"].delete(f"/api/v1/namespaces/{namespace}")
    assert answer.message.endswith(
        f'cannot delete resource "namespaces" in API group "" in the namespace "{namespace}"'
    )


def test_a_refusal_names_a_path(clients: dict[str, Server]) -> None:
    answer = clients["viewer"].get("/metrics")
    assert (answer.status, answer.message) == (403, 'forbidden: User "gpu-viewer" cannot get path "/metrics"')


def test_secrets_are_the_administrator_s(clients: dict[str, Server], namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    assert [clients[role].get(path).status for role in ("admin", "operator", "viewer")] == [200, 403, 403]


def test_an_operator_runs_pods_and_jobs_and_cordons(clients: dict[str, Server], maps: str, node: str) -> None:
    operator = clients["operator"]
    operator.post(maps, config_map("a")).ok()
    assert operator.merge(node, {"metadata": {"labels": {"a": "b"}}}).status == 200
    assert operator.delete(node).status == 403


@pytest.mark.parametrize(
    ("role", "verb", "resource", "group", "answer"),
    [
        ("admin", "delete", "nodes", "", True),
        ("operator", "delete", "nodes", "", False),
        ("operator", "patch", "nodes", "", True),
        ("operator", "create", "jobs", "batch", True),
        ("viewer", "list", "jobs", "batch", True),
        ("viewer", "create", "jobs", "batch", False),
        ("viewer", "get", "secrets", "", False),
    ],
)
def test_one_can_ask_whether_one_may(
    clients: dict[str, Server], role: str, verb: str, resource: str, group: str, answer: bool
) -> None:
    assert allowed(clients[role], verb, resource, group) is answer


def test_one_can_ask_about_subresources(clients: dict[str, Server]) -> None:
    assert allowed(clients["viewer"], "get", "pods", subresource="log")
    assert not allowed(clients["viewer"], "create", "pods", subresource="eviction")


def test_one_can_ask_about_paths(clients: dict[str, Server]) -> None:
    def may(path: str) -> bool:
        spec = {"nonResourceAttributes": {"verb": "get", "path": path}}
        return bool(clients["viewer"].post(ACCESS, {"spec": spec}).ok()["status"]["allowed"])

    assert (may("/version"), may("/metrics")) == (True, False)


def test_a_question_is_about_one_thing(server: Server) -> None:
    answer = server.post(ACCESS, {"spec": {}})
    assert (answer.status, answer.causes) == (422, [("FieldValueInvalid", "spec.resourceAttributes")])
    assert "exactly one of nonResourceAttributes or resourceAttributes must be specified" in answer.message


def test_one_can_ask_for_all_rules(clients: dict[str, Server]) -> None:
    answer = clients["viewer"].post(RULES, {"spec": {"namespace": "default"}})
    assert answer.status == 201
    status = answer.ok()["status"]
    looked = [rule for rule in status["resourceRules"] if "pods" in rule["resources"]]
    assert [sorted(rule["verbs"]) for rule in looked] == [["get", "list", "watch"]]
    assert "/version" in status["nonResourceRules"][0]["nonResourceURLs"]
    assert status["incomplete"] is False


def test_rules_are_those_of_a_namespace(server: Server) -> None:
    answer = server.post(RULES, {"spec": {}})
    assert (answer.status, answer.message) == (400, "no namespace on request")


def test_one_can_ask_who_one_is(clients: dict[str, Server]) -> None:
    info = clients["operator"].post(WHO, {}).ok()["status"]["userInfo"]
    assert info["username"] == "gpu-operator"
    assert "system:authenticated" in info["groups"]
