"""Scheduling as a client sees it: which card each pod gets, in the annotations and on the node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator.ackcalls import Ack
from tests.simulator.clients import CORE, MEM, MODE, TOPOLOGY, WHOLE, Cluster, connected
from tests.simulator.harness import SimulatorProcess

ALLOCATION = "scheduler.framework.gpushare.allocation"
ASSIGNED = "scheduler.framework.gpushare.assigned"
PLACEMENT = "ack.node.gpu.placement"


@pytest.fixture(scope="module")
def running() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=20) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def ack(running: SimulatorProcess) -> Ack:
    found = Ack(running)
    found.ensure("ack-ai-installer")
    return found


@pytest.fixture
def cluster(running: SimulatorProcess) -> Iterator[Cluster]:
    with connected(running) as client:
        yield client


def ready_node(ack: Ack, cluster: Cluster, name: str, labels: dict[str, str], **amounts: str) -> str:
    """Make a pool of one node for one scene, and wait until it reports what its mode shall."""
    (node,) = ack.nodes(ack.pool_of(name, labels))
    cluster.node_reports(node.node_name, **amounts)
    return str(node.node_name)


def place(cluster: Cluster, node: str, name: str, limits: dict[str, int], **spec: Any) -> Any:
    """Create a pod for a node and wait until it runs there."""
    cluster.create_pod(name, limits=limits, nodeSelector={"kubernetes.io/hostname": node}, **spec)
    return cluster.pod_in_phase(name, "Running")


def cards_of(pod: Any) -> dict[int, int]:
    """Read the allocation annotation of a pod with one container."""
    allocation = json.loads(pod.metadata.annotations[ALLOCATION])
    return {int(card): units for card, units in allocation["0"].items()}


def ledger(cluster: Cluster, node: str) -> list[int]:
    """Sum what the pods of a node of four cards hold, card by card."""
    used = [0, 0, 0, 0]
    for pod in cluster.core.list_namespaced_pod("default", field_selector=f"spec.nodeName={node}").items:
        for card, units in cards_of(pod).items():
            used[card] += units
    return used


def test_binpack_fills_one_card_before_the_next(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "binpack", {MODE: "cgpu", PLACEMENT: "binpack"}, mem="60", count="4")
    for number, units in enumerate((11, 4, 9)):
        place(cluster, node, f"binpack-{number}", {MEM: units})
    assert ledger(cluster, node) == [15, 9, 0, 0]


def test_spread_puts_three_pods_on_three_cards(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "spread", {MODE: "cgpu", PLACEMENT: "spread"}, mem="60", count="4")
    for number in range(3):
        place(cluster, node, f"spread-{number}", {MEM: 4})
    assert sorted(ledger(cluster, node)) == [0, 4, 4, 4]


def test_annotations_are_what_ack_writes(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "annotated", {MODE: "cgpu"}, mem="60")
    pod = place(cluster, node, "annotated", {MEM: 4})
    notes = pod.metadata.annotations
    assert notes[ALLOCATION] == '{"0":{"0":4}}'
    assert notes["gpushare.alibabacloud.com/device-resource"] == '{"0":15,"1":15,"2":15,"3":15}'
    assert notes[ASSIGNED] == "true"
    assert len(notes["scheduler.framework.gpushare.assume-time"]) == 19
    environment = cluster.create_pod(
        "environment", "env", limits={MEM: 4}, nodeSelector={"kubernetes.io/hostname": node}
    )
    cluster.pod_in_phase(environment.metadata.name, "Succeeded")
    lines = dict(line.split("=", 1) for line in cluster.log("environment").splitlines())
    wanted = {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "4",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "4",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
    }
    assert wanted.items() <= lines.items()
    assert lines["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-")


def test_a_share_over_two_cards_is_divided_evenly(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "divided", {MODE: "share"}, mem="60")
    pod = place(cluster, node, "divided", {MEM: 8}, labels={"aliyun.com/gpu-count": "2"})
    assert list(cards_of(pod).values()) == [4, 4]


def test_memory_and_compute_land_on_the_same_card(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "compute", {MODE: "core_mem"}, mem="60", core="400")
    place(cluster, node, "compute-0", {MEM: 5, CORE: 80})
    pod = place(cluster, node, "compute-1", {MEM: 5, CORE: 30})
    core = json.loads(pod.metadata.annotations["gpushare.alibabacloud.com/core-percentage"])
    (card,) = cards_of(pod)
    assert core == {"0": {str(card): 30}}
    assert card != 0  # the first card has only 20 per cent left


def test_topology_pods_get_well_linked_cards(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "linked", {MODE: "topology"}, topology="4")
    pod = place(cluster, node, "linked", {TOPOLOGY: 2})
    document = json.loads(pod.metadata.annotations["gputopology.alibabacloud.com/allocation"])
    assert document["allocatedGPUs"] == {"0": ["0", "3"]}  # the first pair with two links
    assert document["assigned"] is True


def test_exclusive_pods_get_no_annotation_and_print_their_cards(cluster: Cluster) -> None:
    cluster.create_pod("whole", "nvidia-smi", limits={WHOLE: 2})
    pod = cluster.pod_in_phase("whole", "Succeeded")
    assert not any("gpu" in key for key in pod.metadata.annotations or {})
    log = cluster.log("whole")
    assert "NVIDIA-SMI" in log
    assert log.count("Tesla V100-SXM2-16GB") == 2
    assert "16130MiB" in log


def test_a_shared_pod_sees_its_share_of_the_card(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "seen", {MODE: "cgpu"}, mem="60")
    cluster.create_pod("seen", "nvidia-smi", limits={MEM: 4}, nodeSelector={"kubernetes.io/hostname": node})
    cluster.pod_in_phase("seen", "Succeeded")
    assert "4301MiB" in cluster.log("seen")


def test_what_fits_nowhere_waits_with_the_schedulers_words_and_starts_when_room_comes(
    ack: Ack, cluster: Cluster
) -> None:
    node = ready_node(ack, cluster, "full", {MODE: "cgpu", "scene": "full"}, mem="60")
    for number in range(4):
        place(cluster, node, f"full-{number}", {MEM: 10})
    cluster.create_pod("late", limits={MEM: 8}, nodeSelector={"scene": "full"})
    pod = cluster.pod_with(
        "late",
        lambda pod: any(c.reason == "Unschedulable" for c in pod.status.conditions or ()),
        "the pod is unschedulable",
    )
    nodes = len(cluster.core.list_node().items)
    (condition,) = [c for c in pod.status.conditions if c.type == "PodScheduled"]
    assert condition.message.startswith(f"0/{nodes} nodes are available: 1 node(s) didn't have enough device resources")
    events = cluster.core.list_namespaced_event("default", field_selector="involvedObject.name=late").items
    assert ("Warning", "FailedScheduling", condition.message) in {(e.type, e.reason, e.message) for e in events}

    cluster.core.delete_namespaced_pod("full-2", "default")
    assert cards_of(cluster.pod_in_phase("late", "Running")) == {2: 8}


def test_a_pod_whose_resource_is_gone_is_turned_away_by_the_kubelet(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "rejecting", {MODE: "cgpu"}, mem="60")
    cluster.create_pod("rejected", limits={WHOLE: 1}, nodeName=node)
    pod = cluster.pod_in_phase("rejected", "Failed")
    assert pod.status.reason == "UnexpectedAdmissionError"
    assert f"devices unavailable for {WHOLE}. Requested: 1, Available: 0" in pod.status.message


GROUP, REPLICA = "gputopology.alibabacloud.com/pod-group", "gputopology.alibabacloud.com/replica"


def test_a_topology_group_waits_until_it_is_complete_and_is_placed_together(ack: Ack, cluster: Cluster) -> None:
    node = ready_node(ack, cluster, "group", {MODE: "topology"}, topology="4")
    spec = {
        "limits": {TOPOLOGY: 2},
        "labels": {GROUP: "ring", REPLICA: "2"},
        "nodeSelector": {"kubernetes.io/hostname": node},
    }
    cluster.create_pod("ring-0", **spec)
    waiting = cluster.pod_with(
        "ring-0",
        lambda pod: any("GPUTopologyGroup" in (c.message or "") for c in pod.status.conditions or ()),
        "the group is incomplete",
    )
    (said,) = [c.message for c in waiting.status.conditions if c.type == "PodScheduled"]
    assert "Number(1) of of GPUTopologyGroup(ring) pods is not equal to label replica(2)" in said
    cluster.create_pod("ring-1", **spec)
    cards = []
    for name in ("ring-0", "ring-1"):
        pod = cluster.pod_in_phase(name, "Running")
        cards += json.loads(pod.metadata.annotations["gputopology.alibabacloud.com/allocation"])["allocatedGPUs"]["0"]
    assert sorted(cards) == ["0", "1", "2", "3"]
