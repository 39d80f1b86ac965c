"""Who may: tokens, roles, the Host header, and questions about oneself."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from tests.simulator.harness import SimulatorProcess


@pytest.fixture
def viewer(simulator: SimulatorProcess) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(simulator.kubeconfig_of("viewer"))) as made:
        yield made


@pytest.fixture
def operator(simulator: SimulatorProcess) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(simulator.kubeconfig_of("operator"))) as made:
        yield made


def ask(simulator: SimulatorProcess, path: str, **headers: str) -> tuple[int, dict]:
    """Send a GET with exactly these headers, verifying the server's certificate."""
    cluster = yaml.safe_load(simulator.kubeconfig.read_text())["clusters"][0]["cluster"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    request = urllib.request.Request(simulator.server + path, headers=headers)
    try:
        with urllib.request.urlopen(request, context=context) as answer:
            return answer.status, {"body": answer.read().decode()}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def bearer(simulator: SimulatorProcess) -> str:
    user = yaml.safe_load(simulator.kubeconfig.read_text())["users"][0]["user"]
    return f"Bearer {user['token']}"


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/version", "/healthz", "/openapi/v3", "/nowhere"])
@pytest.mark.parametrize("token", ["", "Bearer wrong", "Basic YTpi"])
def test_nothing_is_answered_without_a_good_token(simulator: SimulatorProcess, path: str, token: str) -> None:
    headers = {"Authorization": token} if token else {}
    status, body = ask(simulator, path, **headers)
    assert (status, body["reason"], body["message"]) == (401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize("host", ["evil.example.com", "192.0.2.1:6443", "127.0.0.1.evil.example.com", ""])
def test_a_host_that_is_not_loopback_is_refused(simulator: SimulatorProcess, host: str) -> None:
    status, body = ask(simulator, "/version", Authorization=bearer(simulator), Host=host)
    assert status == 421
    assert body["kind"] == "Status"


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1", "[::1]:6443"])
def test_loopback_hosts_are_answered(simulator: SimulatorProcess, host: str) -> None:
    assert ask(simulator, "/healthz", Authorization=bearer(simulator), Host=host) == (200, {"body": "ok"})


def test_a_viewer_looks_but_does_not_touch(viewer: client.ApiClient) -> None:
    core = client.CoreV1Api(viewer)
    assert core.list_node().items
    with pytest.raises(ApiException) as refused:
        core.patch_node("gpu-01", {"metadata": {"labels": {"a": "b"}}})
    assert json.loads(refused.value.body)["message"] == (
        'nodes "gpu-01" is forbidden: User "gpu-viewer" cannot patch resource "nodes" in API group "" '
        "at the cluster scope"
    )
    with pytest.raises(ApiException) as refused:
        core.list_namespaced_secret("default")
    assert (refused.value.status, json.loads(refused.value.body)["message"]) == (
        403,
        'secrets is forbidden: User "gpu-viewer" cannot list resource "secrets" in API group "" in the namespace '
        '"default"',
    )


def test_an_operator_cordons_and_runs_jobs_but_keeps_off_secrets(operator: client.ApiClient) -> None:
    core = client.CoreV1Api(operator)
    core.patch_node("cpu-02", {"spec": {"unschedulable": True}}, dry_run="All")
    for refused_call in (lambda: core.delete_node("cpu-02"), lambda: core.list_secret_for_all_namespaces()):
        with pytest.raises(ApiException) as refused:
            refused_call()
        assert refused.value.status == 403


@pytest.mark.parametrize(
    ("role", "verb", "group", "resource", "allowed"),
    [
        ("admin", "delete", "", "nodes", True),
        ("operator", "create", "batch", "jobs", True),
        ("operator", "delete", "", "nodes", False),
        ("viewer", "list", "", "pods", True),
        ("viewer", "get", "", "secrets", False),
    ],
)
def test_one_can_ask_what_one_may(
    simulator: SimulatorProcess, role: str, verb: str, group: str, resource: str, allowed: bool
) -> None:
    with config.new_client_from_config(str(simulator.kubeconfig_of(role))) as made:
        spec = {"resourceAttributes": {"verb": verb, "group": group, "resource": resource, "namespace": "default"}}
        review = client.AuthorizationV1Api(made).create_self_subject_access_review({"spec": spec})
    assert review.status.allowed is allowed
