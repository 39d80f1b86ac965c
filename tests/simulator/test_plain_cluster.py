"""A cluster without node pools: modes by plain labels, components from the console's own manifests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import gpupools.catalogue
from tests.simulator.clients import MODE, Cluster, connected
from tests.simulator.harness import SimulatorProcess

MANIFESTS = Path(gpupools.catalogue.__file__).parent / "components"
AMOUNTS = {
    "share": {"mem": "60", "count": "4"},
    "cgpu": {"mem": "60", "count": "4"},
    "core_mem": {"mem": "60", "count": "4", "core": "400"},
    "mps": {"mem": "60", "count": "4"},
    "topology": {"topology": "4"},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with SimulatorProcess(fleet="small", speed=20) as simulator, connected(simulator) as client:
        for component in ("ack-ai-installer", "ack-mps-control"):
            for manifest in yaml.safe_load_all((MANIFESTS / f"{component}.yaml").read_text()):
                client.apps.create_namespaced_daemon_set("kube-system", manifest)
        yield client


def test_nodes_are_exclusive_at_first_and_belong_to_no_pool(cluster: Cluster) -> None:
    nodes = cluster.core.list_node().items
    gpu_nodes = [node for node in nodes if node.metadata.labels.get(MODE)]
    assert len(gpu_nodes) >= 8
    assert len(nodes) > len(gpu_nodes)
    assert not any("nodepool-id" in key for node in nodes for key in node.metadata.labels)
    cluster.node_reports("gpu-09", whole="4")


@pytest.mark.parametrize(("number", "mode"), list(enumerate(AMOUNTS, start=1)))
def test_a_label_switches_a_node_and_back(cluster: Cluster, number: int, mode: str) -> None:
    node = f"gpu-{number:02}"
    cluster.node_reports(node, whole="4")
    cluster.label_node(node, {MODE: mode})
    cluster.node_reports(node, whole="0", **AMOUNTS[mode])
    cluster.label_node(node, {MODE: "default"})
    cluster.node_reports(node, whole="4", **dict.fromkeys(AMOUNTS[mode], "0"))


def test_taking_the_label_away_does_not_bring_exclusive_mode_back(cluster: Cluster) -> None:
    cluster.node_reports("gpu-06", whole="4")
    cluster.label_node("gpu-06", {MODE: "cgpu"})
    cluster.node_reports("gpu-06", mem="60")
    cluster.label_node("gpu-06", {MODE: None})
    cluster.node_reports("gpu-06", mem="0", whole="0")
    cluster.label_node("gpu-06", {MODE: "default"})
    cluster.node_reports("gpu-06", whole="4")


def test_a_node_that_is_deleted_takes_its_pods_along(cluster: Cluster) -> None:
    cluster.create_pod("left-behind", "sleep", "infinity", nodeSelector={"kubernetes.io/hostname": "gpu-08"})
    cluster.pod_in_phase("left-behind", "Running")
    cluster.core.delete_node("gpu-08")
    cluster.wait_gone(
        cluster.core.list_namespaced_pod, "its pod", namespace="default", field_selector="metadata.name=left-behind"
    )
