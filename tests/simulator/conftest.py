"""One running embedded cluster for the tests that only talk to it; each test works in a namespace of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from kubernetes import client, config

from tests.simulator.ackcalls import Ack
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.calls import call
from tests.simulator.clients import MODE, Cluster, connected
from tests.simulator.harness import SimulatorProcess


@pytest.fixture(scope="session")
def simulator() -> Iterator[SimulatorProcess]:
    """A cluster without GPU Cloud API, shared by the whole run: leave its nodes as you found them."""
    with SimulatorProcess(fleet="small", speed=20) as running:
        yield running


@pytest.fixture(scope="session")
def api(simulator: SimulatorProcess) -> Iterator[client.ApiClient]:
    """The official client, as the admin."""
    with config.new_client_from_config(str(simulator.kubeconfig)) as made:
        yield made


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    """The core API, as the admin."""
    return client.CoreV1Api(api)


@pytest.fixture
def batch(api: client.ApiClient) -> client.BatchV1Api:
    """The batch API, as the admin."""
    return client.BatchV1Api(api)


@pytest.fixture
def namespace(core: client.CoreV1Api) -> Iterator[str]:
    """A fresh namespace."""
    name = f"test-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    yield name
    core.delete_namespace(name)


@pytest.fixture
def here(namespace: str) -> str:
    """The path of config maps in a fresh namespace, with one named a."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def one(api: client.ApiClient, here: str) -> str:
    """The path of a config map that is there."""
    status, _ = call(api, "POST", here, {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}})
    assert status == 201
    return f"{here}/a"


@pytest.fixture(scope="package")
def running() -> Iterator[SimulatorProcess]:
    """A cluster with the ACK API, for the tests that break it."""
    with SimulatorProcess(fleet="demo", ack=True, speed=50) as simulator:
        yield simulator


@pytest.fixture
def breaker(running: SimulatorProcess) -> Iterator[Breaker]:
    """The faults of that cluster; all of them end with the test."""
    with breaking(running) as found:
        yield found


@pytest.fixture
def cluster(running: SimulatorProcess) -> Iterator[Cluster]:
    """That cluster, as the admin."""
    with connected(running) as found:
        # urllib3 would obey Retry-After by itself, and nobody would see the refusal.
        found.core.api_client.rest_client.pool_manager.connection_pool_kw["retries"] = False
        yield found


@pytest.fixture
def gpu(cluster: Cluster) -> str:
    """An exclusive GPU node that reports its cards."""
    name = cluster.core.list_node(label_selector=f"{MODE}=default").items[0].metadata.name
    cluster.node_reports(name, whole="4")
    return str(name)


@pytest.fixture(scope="package")
def ack(running: SimulatorProcess) -> Ack:
    """That cluster's ACK API, with the components that shared modes need."""
    found = Ack(running)
    found.ensure("ack-ai-installer")
    found.ensure("ack-mps-control")
    return found
