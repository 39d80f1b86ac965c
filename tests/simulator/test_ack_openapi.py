"""The ACK OpenAPI of the embedded cluster, spoken to by the official SDK, unmodified."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alibabacloud_cs20151215 import models
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException

from tests.simulator.ackcalls import Ack
from tests.simulator.clients import COUNT, MEM, MODE, WHOLE, Cluster, ack_client, connected
from tests.simulator.harness import SimulatorProcess


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=20) as running:
        yield running


@pytest.fixture(scope="module")
def ack(simulator: SimulatorProcess) -> Ack:
    return Ack(simulator)


@pytest.fixture
def cluster(simulator: SimulatorProcess) -> Iterator[Cluster]:
    with connected(simulator) as client:
        yield client


def refusal(call: Any, *arguments: Any) -> AlibabaCloudException:
    with pytest.raises(AlibabaCloudException) as caught:
        call(*arguments)
    return caught.value


def test_a_pro_cluster_describes_itself_and_its_first_pools(ack: Ack) -> None:
    detail = ack.client.describe_cluster_detail(ack.cluster_id).body
    assert (detail.cluster_spec, detail.state, detail.cluster_type) == ("ack.pro.small", "running", "ManagedKubernetes")
    pools = ack.client.describe_cluster_node_pools(ack.cluster_id, models.DescribeClusterNodePoolsRequest()).body
    names = {pool.nodepool_info.name: pool for pool in pools.nodepools}
    assert {"default-nodepool", "training"} <= names.keys()
    assert names["default-nodepool"].nodepool_info.is_default
    assert [(label.key, label.value) for label in names["training"].kubernetes_config.labels] == [(MODE, "default")]


def test_a_shared_pool_reports_memory_only_once_its_component_runs(ack: Ack, cluster: Cluster) -> None:
    ack.ensure_absent("ack-ai-installer")
    pool_id = ack.pool_of("shared", {MODE: "cgpu"})
    (node,) = ack.nodes(pool_id)
    assert node.node_status == "Ready"
    before = cluster.core.read_node(node.node_name)
    assert before.metadata.labels["alibabacloud.com/nodepool-id"] == pool_id
    assert before.metadata.labels["aliyun.accelerator/nvidia_name"] == "Tesla-V100-SXM2-16GB"
    assert not {MEM, COUNT, WHOLE} & before.status.allocatable.keys()

    ack.succeed(ack.install("ack-ai-installer").task_id)

    after = cluster.node_reports(node.node_name, mem="60", count="4")
    assert after.status.capacity[MEM] == "60"
    assert after.status.allocatable.get(WHOLE, "0") == "0"
    assert ack.addons()["ack-ai-installer"] == "active"


def test_new_labels_reach_existing_nodes_only_when_asked_to(ack: Ack, cluster: Cluster) -> None:
    pool_id = ack.pool_of("labels", {"team": "vision", "tier": "gold"})
    (node,) = ack.nodes(pool_id)
    cluster.label_node(node.node_name, {"mine": "kept"})

    ack.relabel(pool_id, {"team": "speech"}, update_nodes=False)
    labels = cluster.core.read_node(node.node_name).metadata.labels
    assert (labels["team"], labels["tier"]) == ("vision", "gold")

    ack.relabel(pool_id, {"team": "text"}, update_nodes=True)
    labels = cluster.core.read_node(node.node_name).metadata.labels
    assert labels["team"] == "text"
    assert "tier" not in labels
    assert labels["mine"] == "kept"


def test_update_nodes_without_a_change_leaves_drifted_nodes_alone(ack: Ack, cluster: Cluster) -> None:
    pool_id = ack.pool_of("drift", {"team": "vision"})
    (node,) = ack.nodes(pool_id)
    cluster.label_node(node.node_name, {"team": "strangers"})
    ack.relabel(pool_id, {"team": "vision"}, update_nodes=True)
    assert cluster.core.read_node(node.node_name).metadata.labels["team"] == "strangers"
    ack.relabel(pool_id, {"team": "vision", "gpupools.internal/op": "1"}, update_nodes=True)
    assert cluster.core.read_node(node.node_name).metadata.labels["team"] == "vision"


def test_leaving_exclusive_mode_leaves_a_zero_behind(ack: Ack, cluster: Cluster) -> None:
    pool_id = ack.pool_of("switched", {MODE: "default"})
    (node,) = ack.nodes(pool_id)
    cluster.node_reports(node.node_name, whole="4")
    ack.ensure("ack-ai-installer")
    ack.relabel(pool_id, {MODE: "core_mem"}, update_nodes=True)
    after = cluster.node_reports(node.node_name, whole="0", mem="60", count="4", core="400")
    assert after.status.capacity[WHOLE] == "0"
    ack.relabel(pool_id, {MODE: "default"}, update_nodes=True)
    cluster.node_reports(node.node_name, whole="4", mem="0", count="0", core="0")


def test_mps_nodes_wait_for_the_control_daemon_and_topology_nodes_report_their_links(
    ack: Ack, cluster: Cluster
) -> None:
    ack.ensure("ack-ai-installer")
    ack.ensure_absent("ack-mps-control")
    (mps,) = ack.nodes(ack.pool_of("mps", {MODE: "mps"}))
    (topology,) = ack.nodes(ack.pool_of("topology", {MODE: "topology"}))
    cluster.node_reports(topology.node_name, topology="4")
    report = cluster.core.read_namespaced_config_map(f"{topology.node_name}-gputopo-report", "kube-system")
    assert report.metadata.labels == {MODE: "topology", "nodename": topology.node_name}
    assert {"nodeName", "bandwidth", "devices", "linkType"} == report.data.keys()
    plugin = cluster.wait(
        cluster.core.list_namespaced_pod,
        lambda pod: any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()),
        "the plugin of the mps node runs",
        namespace="kube-system",
        label_selector="name=gpushare-mps-device-plugin-ds",
    )
    assert plugin.spec.node_name == mps.node_name
    assert MEM not in cluster.core.read_node(mps.node_name).status.allocatable

    ack.succeed(ack.install("ack-mps-control").task_id)
    cluster.node_reports(mps.node_name, mem="60", count="4")


def test_a_pool_grows_and_shrinks_to_an_absolute_size(ack: Ack, cluster: Cluster) -> None:
    pool_id = ack.pool_of("sized", {}, size=1)
    group = models.ModifyClusterNodePoolRequestScalingGroup(desired_size=3)
    ack.succeed(ack.modify(pool_id, scaling_group=group).task_id)
    assert len(ack.nodes(pool_id)) == 3
    status = ack.pool(pool_id).status
    assert (status.state, status.total_nodes, status.healthy_nodes) == ("active", 3, 3)
    group = models.ModifyClusterNodePoolRequestScalingGroup(desired_size=1)
    ack.succeed(ack.modify(pool_id, scaling_group=group).task_id)
    (left,) = ack.nodes(pool_id)
    selector = f"alibabacloud.com/nodepool-id={pool_id}"
    assert [n.metadata.name for n in cluster.core.list_node(label_selector=selector).items] == [left.node_name]


def test_scaling_adds_to_what_is_there(ack: Ack) -> None:
    pool_id = ack.pool_of("added", {}, size=1)
    request = models.ScaleClusterNodePoolRequest(count=2)
    ack.succeed(ack.client.scale_cluster_node_pool(ack.cluster_id, pool_id, request).body.task_id)
    assert len(ack.nodes(pool_id)) == 3
    assert ack.pool(pool_id).scaling_group.desired_size == 3


def test_a_node_moves_between_pools_by_remove_and_attach(ack: Ack, cluster: Cluster) -> None:
    old, new = ack.pool_of("old", {MODE: "default"}), ack.pool_of("new", {MODE: "cgpu"}, size=0)
    (node,) = ack.nodes(old)
    first_uid = cluster.core.read_node(node.node_name).metadata.uid
    request = models.RemoveNodePoolNodesRequest(instance_ids=[node.instance_id], drain_node=True, release_node=False)
    ack.succeed(ack.client.remove_node_pool_nodes(ack.cluster_id, old, request).body.task_id)
    assert ack.nodes(old) == []
    attach = models.AttachInstancesToNodePoolRequest(instances=[node.instance_id])
    ack.succeed(ack.client.attach_instances_to_node_pool(ack.cluster_id, new, attach).body.task_id)
    (moved,) = ack.nodes(new)
    assert moved.instance_id == node.instance_id
    found = cluster.core.read_node(moved.node_name)
    assert found.metadata.labels[MODE] == "cgpu"
    assert found.metadata.uid != first_uid


def test_a_pool_with_nodes_is_deleted_only_by_force(ack: Ack, cluster: Cluster) -> None:
    pool_id = ack.pool_of("doomed", {})
    delete = ack.client.delete_cluster_nodepool
    error = refusal(delete, ack.cluster_id, pool_id, models.DeleteClusterNodepoolRequest(force=False))
    assert error.status_code == 400
    answer = delete(ack.cluster_id, pool_id, models.DeleteClusterNodepoolRequest(force=True)).body
    ack.succeed(answer.task_id)
    assert refusal(ack.pool, pool_id).status_code == 404
    selector = f"alibabacloud.com/nodepool-id={pool_id}"
    assert cluster.core.list_node(label_selector=selector).items == []


def test_a_task_tells_its_stages_its_target_and_its_results(ack: Ack) -> None:
    answer = ack.create_pool("staged", {})
    running = ack.task(answer.task_id)
    assert running.target.id == answer.nodepool_id
    task = ack.succeed(answer.task_id)
    assert [stage.state for stage in task.stages] == ["success", "success"]
    assert [result.status for result in task.task_result] == ["success"]
    listed = ack.client.describe_cluster_tasks(ack.cluster_id, models.DescribeClusterTasksRequest(page_size=50)).body
    assert answer.task_id in {entry.task_id for entry in listed.tasks}
    assert listed.page_info.total_count >= len(listed.tasks)


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        ({"aliyun.com/x": "y"}, "aliyun"),
        ({"acs:x": "y"}, "acs:"),
        ({"team": "http://x"}, "http://"),
        ({"team": "a b"}, "value"),
        ({f"k{n}": "v" for n in range(21)}, "20"),
    ],
)
def test_labels_that_ack_refuses_are_refused_in_its_error_shape(ack: Ack, labels: dict[str, str], word: str) -> None:
    error = refusal(ack.create_pool, "refused", labels)
    assert (error.status_code, error.code) == (400, "InvalidParameter")
    assert word in str(error.message)
    assert error.data.keys() >= {"code", "message", "requestId", "statusCode"}


@pytest.mark.parametrize(
    "group",
    [{"instance_types": []}, {"instance_types": ["ecs.nobody.sells"]}, {"vswitch_ids": []}, {"desired_size": -1},
     {"instance_charge_type": "Free"}],
)  # fmt: skip
def test_a_pool_without_what_it_needs_is_refused(ack: Ack, group: dict[str, Any]) -> None:
    assert refusal(lambda: ack.create_pool("refused", {}, **group)).status_code == 400


@pytest.mark.parametrize(
    "scaling",
    [
        {"enable": True, "min_instances": 3, "max_instances": 2},
        {"enable": True, "min_instances": 0, "max_instances": 0},
        {"enable": True, "min_instances": 2, "max_instances": 9},
        {"enable": True, "min_instances": 0, "max_instances": 9, "type": "tpu"},
    ],
)
def test_bounds_of_auto_scaling_that_make_no_sense_are_refused(ack: Ack, scaling: dict[str, Any]) -> None:
    request = models.CreateClusterNodePoolRequest(
        nodepool_info=models.CreateClusterNodePoolRequestNodepoolInfo(name="refused"),
        scaling_group=models.CreateClusterNodePoolRequestScalingGroup(
            vswitch_ids=["vsw-1"],
            instance_types=["ecs.gn6v-c8g1.8xlarge"],
            instance_charge_type="PostPaid",
            desired_size=1,
        ),
        auto_scaling=models.CreateClusterNodePoolRequestAutoScaling(**scaling),
    )
    error = refusal(ack.client.create_cluster_node_pool, ack.cluster_id, request)
    assert (error.status_code, error.code) == (400, "InvalidParameter")


def test_what_is_not_there_is_404(ack: Ack) -> None:
    assert refusal(ack.pool, "np-nothing").code == "ErrorNodePoolNotFound"
    assert refusal(ack.task, "T-nothing").status_code == 404
    assert refusal(ack.client.describe_cluster_detail, "c-other").code == "ErrorClusterNotFound"
    assert refusal(ack.install, "gpu-manager").code == "AddonNotFound"


def test_an_addon_is_uninstalled_with_its_daemonsets(ack: Ack, cluster: Cluster) -> None:
    ack.ensure("ack-mps-control")
    ack.succeed(ack.uninstall("ack-mps-control").task_id)
    names = {item.metadata.name for item in cluster.apps.list_namespaced_daemon_set("kube-system").items}
    assert "ack-mps-control" not in names
    assert "ack-mps-control" not in ack.addons()


def test_the_kubeconfig_that_the_api_hands_out_works(ack: Ack, simulator: SimulatorProcess) -> None:
    request = models.DescribeClusterUserKubeconfigRequest(private_ip_address=False)
    config = ack.client.describe_cluster_user_kubeconfig(ack.cluster_id, request).body.config
    assert config == simulator.kubeconfig.read_text()


def test_a_wrong_secret_is_refused(simulator: SimulatorProcess) -> None:
    stranger = ack_client(simulator, secret="not-the-secret")
    error = refusal(stranger.describe_cluster_detail, simulator.ack["cluster_id"])
    assert error.code == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 400), ({"Authorization": "ACS3-HMAC-SHA256 Credential=x"}, 400), ({"Host": "console.example.com"}, 421)],
)
def test_unsigned_requests_and_foreign_hosts_are_refused(
    simulator: SimulatorProcess, headers: dict[str, str], status: int
) -> None:
    connection = http.client.HTTPConnection(simulator.ack["endpoint"], timeout=10)
    try:
        connection.request("GET", f"/clusters/{simulator.ack['cluster_id']}", headers=headers)
        answer = connection.getresponse()
        assert answer.status == status
        answer.read()
    finally:
        connection.close()


def test_a_cluster_can_be_set_to_know_no_such_addon(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "name: strict\ncluster: {name: strict, region: cn-hangzhou, zones: [a], version: 1.34.3, spec: ack.pro.small}\n"
        "addon_not_found: [ack-ai-installer]\n"
    )
    with SimulatorProcess(fleet=str(fleet), ack=True, speed=20) as running:
        ack = Ack(running)
        error = refusal(ack.install, "ack-ai-installer")
        assert (error.status_code, error.code) == (404, "AddonNotFound")
        offered = ack.client.list_addons(models.ListAddonsRequest()).body.addons
        assert {addon.name for addon in offered} == {"ack-mps-control", "ack-nvidia-device-plugin"}
