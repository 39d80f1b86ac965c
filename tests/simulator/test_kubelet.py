"""Containers in trouble, units of 128 MiB, and ACK's smaller rows: what a node and the OpenAPI say about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alibabacloud_cs20151215 import models
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException

from gpupools.simulator import fleet
from tests.simulator.ackcalls import Ack
from tests.simulator.breaking import breaking
from tests.simulator.clients import MEM, MODE, Cluster, a_pod, connected
from tests.simulator.harness import SimulatorProcess

UNITS_FLEET = """\
name: units
cluster: {name: units, region: cn-hangzhou, zones: [cn-hangzhou-i], version: 1.34.3-aliyun.1, spec: %s,
          memory_unit_mib: 128}
addons: [%s]
pools:
  - {name: default-nodepool, default: true, instance_types: [ecs.g7.2xlarge], size: 1}
  - {name: shared, instance_types: [ecs.gn6v-c8g1.8xlarge], size: 1, labels: {ack.node.gpu.schedule: share}}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatorProcess]:
    """A Pro cluster that counts in units of 128 MiB."""
    plan = tmp_path_factory.mktemp("fleet") / "units.yaml"
    plan.write_text(UNITS_FLEET % ("ack.pro.small", "ack-nvidia-device-plugin, ack-ai-installer"))
    with SimulatorProcess(fleet=str(plan), ack=True, speed=50) as simulator:
        yield simulator


@pytest.fixture
def cluster(running: SimulatorProcess) -> Iterator[Cluster]:
    with connected(running) as found:
        yield found


@pytest.fixture
def ack(running: SimulatorProcess) -> Ack:
    return Ack(running)


def waiting(pod: Any) -> str:
    statuses = pod.status.container_statuses or []
    return next((s.state.waiting.reason for s in statuses if s.state.waiting), "")


def messages(cluster: Cluster, name: str, reason: str) -> list[str]:
    listed = cluster.core.list_namespaced_event("default", field_selector=f"involvedObject.name={name}").items
    return [event.message for event in listed if event.reason == reason]


def test_a_container_that_uses_too_much_memory_is_killed(cluster: Cluster) -> None:
    cluster.create_pod("greedy", "stress", "--vm", "2", "--vm-bytes", "1G", limits={"memory": "1Gi"})
    pod = cluster.pod_in_phase("greedy", "Failed")
    ended = pod.status.container_statuses[0].state.terminated
    assert (ended.reason, ended.exit_code) == ("OOMKilled", 137)


def test_a_container_within_its_memory_goes_on(cluster: Cluster) -> None:
    cluster.create_pod("modest", "stress", "--vm", "1", "--vm-bytes", "512M", limits={"memory": "1Gi"})
    assert cluster.pod_in_phase("modest", "Running").status.container_statuses[0].restart_count == 0


@pytest.mark.parametrize(
    ("name", "image", "policy", "reason", "words"),
    [
        ("no-such-tag", "registry.local/app:missing", "IfNotPresent", "ImagePullBackOff", "not found"),
        ("no-such-host", "registry.invalid/app:1", "IfNotPresent", "ImagePullBackOff", "no such host"),
        ("odd-name", "registry.local/App:1", "IfNotPresent", "InvalidImageName", "couldn't parse image name"),
        ("never-there", "registry.local/never:1", "Never", "ErrImageNeverPull", "pull policy of Never"),
    ],
)
def test_images_that_do_not_come_say_why(
    cluster: Cluster, name: str, image: str, policy: str, reason: str, words: str
) -> None:
    container = {"name": "main", "image": image, "imagePullPolicy": policy, "command": ["sleep", "1"]}
    cluster.create_pod(name, containers=[container])
    pod = cluster.pod_with(name, lambda pod: waiting(pod) == reason, f"{name} waits with {reason}")
    assert pod.status.phase == "Pending"
    assert any(words in s.state.waiting.message for s in pod.status.container_statuses)


def test_a_pod_ends_at_its_deadline(cluster: Cluster) -> None:
    cluster.create_pod("limited", activeDeadlineSeconds=30)
    cluster.pod_in_phase("limited", "Running")
    pod = cluster.pod_in_phase("limited", "Failed")
    assert (pod.status.reason, pod.status.container_statuses[0].state.terminated.exit_code) == ("DeadlineExceeded", 137)


def test_a_program_that_ignores_its_end_is_killed_when_its_grace_is_over(cluster: Cluster) -> None:
    stubborn = a_pod("stubborn", "sh", "-c", "trap '' TERM; sleep infinity", terminationGracePeriodSeconds=2)
    stubborn["metadata"]["finalizers"] = ["test/keep"]
    cluster.core.create_namespaced_pod("default", stubborn)
    cluster.pod_in_phase("stubborn", "Running")
    cluster.core.delete_namespaced_pod("stubborn", "default")
    pod = cluster.pod_with("stubborn", lambda pod: pod.status.phase == "Failed", "it ended")
    assert pod.status.container_statuses[0].state.terminated.exit_code == 137
    cluster.core.patch_namespaced_pod("stubborn", "default", {"metadata": {"finalizers": None}})


def test_units_of_128_mib_are_counted_granted_and_seen(cluster: Cluster) -> None:
    name = cluster.core.list_node(label_selector=f"{MODE}=share").items[0].metadata.name
    cluster.node_reports(name, mem=str(4 * (16130 // 128)), count="4")
    cluster.create_pod("units", "env", limits={MEM: 32})
    cluster.pod_in_phase("units", "Succeeded")
    env = dict(line.split("=", 1) for line in cluster.log("units").splitlines())
    assert (env["ALIYUN_COM_GPU_MEM_DEV"], env["ALIYUN_COM_GPU_MEM_UNIT"]) == ("126", "128MiB")


def test_a_fleet_with_an_odd_unit_is_refused(tmp_path: Path) -> None:
    plan = tmp_path / "odd.yaml"
    plan.write_text((UNITS_FLEET % ("ack.pro.small", "")).replace("memory_unit_mib: 128", "memory_unit_mib: 512"))
    with pytest.raises(fleet.FleetError, match="memory_unit_mib is 1024 or 128, not 512"):
        fleet.load(str(plan))


# ACK


def test_a_paused_task_waits_until_it_is_resumed(running: SimulatorProcess, ack: Ack) -> None:
    with breaking(running):
        answer = ack.create_pool("paused", {MODE: "share"})
        ack.client.pause_task(answer.task_id)
        assert ack.task(answer.task_id).state == "paused"
        with pytest.raises(AlibabaCloudException) as caught:
            ack.client.pause_task(answer.task_id)
        assert caught.value.code == "TaskNotRunning"
        ack.client.resume_task(answer.task_id)
        ack.succeed(answer.task_id)


def test_tasks_are_read_page_by_page_by_number_or_by_token(ack: Ack) -> None:
    for _ in range(2):
        ack.succeed(ack.create_pool("few", {MODE: "share"}, size=0).task_id)
    whole = ack.client.describe_cluster_tasks(
        ack.cluster_id, models.DescribeClusterTasksRequest(page_size=100, page_number=1)
    ).body
    seen, token = [], ""
    while True:
        request = models.DescribeClusterTasksRequest(max_results=1, next_token=token)
        body = ack.client.describe_cluster_tasks(ack.cluster_id, request).body
        seen += [task.task_id for task in body.tasks]
        if not (token := body.next_token):
            break
    assert seen == [task.task_id for task in whole.tasks]
    assert len(seen) >= 2


def test_an_addon_is_upgraded_and_says_what_could_be(ack: Ack) -> None:
    known = ack.client.describe_addon("ack-ai-installer", models.DescribeAddonRequest()).body
    assert not known.newer_versions
    ack.succeed(ack.upgrade("ack-ai-installer", "1.12.6").task_id)
    known = ack.client.describe_addon("ack-ai-installer", models.DescribeAddonRequest()).body
    assert [newer.version for newer in known.newer_versions] == [known.version]
    ack.succeed(ack.upgrade("ack-ai-installer", known.version).task_id)
    assert ack.addons()["ack-ai-installer"] == "active"
    for name, version, code in (
        ("ack-ai-installer", known.version, "InvalidParameter"),
        ("ack-ai-installer", "", "MissingParameter"),
        ("ack-mps-control", "0.2.0", "AddonNotFound"),
    ):
        with pytest.raises(AlibabaCloudException) as caught:
            ack.upgrade(name, version)
        assert caught.value.code == code


def test_pools_are_synced_with_nodes_that_somebody_deleted(cluster: Cluster, ack: Ack) -> None:
    pool = ack.pool_of("synced", {MODE: "share"}, size=2)
    lost = ack.nodes(pool)[0]
    cluster.core.delete_node(lost.node_name)
    ack.client.sync_cluster_node_pool(ack.cluster_id)
    found = ack.pool(pool)
    assert (found.scaling_group.desired_size, found.status.total_nodes) == (1, 1)


def test_a_cluster_that_is_not_pro_takes_no_sharing(tmp_path: Path) -> None:
    plan = tmp_path / "standard.yaml"
    plan.write_text(UNITS_FLEET % ("ack.standard", "ack-nvidia-device-plugin"))
    with SimulatorProcess(fleet=str(plan), ack=True, speed=50) as simulator:
        ack = Ack(simulator)
        assert ack.client.describe_cluster_detail(ack.cluster_id).body.cluster_spec == "ack.standard"
        with pytest.raises(AlibabaCloudException) as caught:
            ack.install("ack-ai-installer")
        assert caught.value.code == "AddonNotSupported"
        with connected(simulator) as cluster:
            (node,) = cluster.core.list_node(label_selector=f"{MODE}=share").items
            assert MEM not in node.status.allocatable
