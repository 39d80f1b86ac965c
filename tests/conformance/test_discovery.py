"""What clients read first: versions, groups, resources, health, the schema."""

from __future__ import annotations

import re

import pytest

from tests.conformance.wire import Server


def test_the_version_is_told(server: Server) -> None:
    version = server.get("/version").ok()
    assert re.match(r"v1\.\d+\.\d+", version["gitVersion"])
    assert (version["major"], version["minor"].rstrip("+").isdigit()) == ("1", True)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_is_a_word(server: Server, path: str) -> None:
    answer = server.get(path, accept="*/*")
    assert (answer.status, answer.body) == (200, "ok")


def test_the_first_api_has_versions(server: Server) -> None:
    found = server.get("/api").ok()
    assert (found["kind"], found["versions"]) == ("APIVersions", ["v1"])


def test_groups_are_listed(server: Server) -> None:
    found = {group["name"]: group["preferredVersion"] for group in server.get("/apis").ok()["groups"]}
    assert {"apps", "batch", "coordination.k8s.io", "scheduling.k8s.io", "authorization.k8s.io"} <= set(found)
    assert found["batch"] == {"groupVersion": "batch/v1", "version": "v1"}


def test_a_group_is_told_alone(server: Server) -> None:
    assert server.get("/apis/batch").ok()["kind"] == "APIGroup"


@pytest.mark.parametrize(
    ("path", "name", "kind", "namespaced", "short"),
    [
        ("/api/v1", "nodes", "Node", False, ["no"]),
        ("/api/v1", "pods", "Pod", True, ["po"]),
        ("/api/v1", "configmaps", "ConfigMap", True, ["cm"]),
        ("/api/v1", "namespaces", "Namespace", False, ["ns"]),
        ("/api/v1", "serviceaccounts", "ServiceAccount", True, ["sa"]),
        ("/api/v1", "events", "Event", True, ["ev"]),
        ("/apis/apps/v1", "daemonsets", "DaemonSet", True, ["ds"]),
        ("/apis/scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", False, ["pc"]),
    ],
)
def test_resources_are_described(
    server: Server, path: str, name: str, kind: str, namespaced: bool, short: list[str]
) -> None:
    resources = {entry["name"]: entry for entry in server.get(path).ok()["resources"]}
    entry = resources[name]
    assert (entry["kind"], entry["namespaced"], entry["shortNames"]) == (kind, namespaced, short)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(entry["verbs"])


def test_subresources_are_listed(server: Server) -> None:
    found = {entry["name"]: entry for entry in server.get("/api/v1").ok()["resources"]}
    assert {"pods/binding", "pods/eviction", "pods/log", "pods/status", "nodes/status"} <= set(found)
    assert (found["pods/eviction"]["group"], found["pods/eviction"]["kind"]) == ("policy", "Eviction")


def test_everything_can_be_discovered_in_one_answer(server: Server) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    answer = server.get("/apis", accept=accept)
    assert answer.ok()["kind"] == "APIGroupDiscoveryList"
    assert "as=APIGroupDiscoveryList" in answer.headers["content-type"]


def test_the_schema_is_told_by_group(server: Server) -> None:
    paths = server.get("/openapi/v3").ok()["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/apps/v1"} <= set(paths)
    document = server.get(paths["apis/batch/v1"]["serverRelativeURL"].partition("?")[0]).ok()
    assert document["openapi"].startswith("3.0")


def test_a_kind_that_is_not_served_is_not_found(server: Server) -> None:
    answer = server.get("/api/v1/nonsense")
    assert answer.status == 404
