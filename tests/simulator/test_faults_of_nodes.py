"""Faults on command, as a client of the cluster meets them: nodes, their pods and their cards."""

from __future__ import annotations

import json
from typing import Any

from gpupools.domain import objects
from gpupools.domain.allocation import fold_all
from gpupools.domain.diagnosis import Scene, diagnose
from gpupools.domain.placement import node_states, preview
from tests.simulator.ackcalls import Ack
from tests.simulator.breaking import Breaker
from tests.simulator.clients import COUNT, MEM, MODE, TOPOLOGY, WHOLE, Cluster

# Nodes and pods


def condition(node: Any, kind: str = "Ready") -> Any:
    return next(entry for entry in node.status.conditions if entry.type == kind)


def taints(node: Any) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for taint in node.spec.taints or ()}


def pod_on(cluster: Cluster, name: str, node: str, **spec: Any) -> None:
    selector = {"kubernetes.io/hostname": node}
    cluster.create_pod(name, nodeSelector=selector, terminationGracePeriodSeconds=1, **spec)
    cluster.pod_in_phase(name, "Running")


def test_a_dead_node_is_marked_and_its_pods_are_evicted_when_their_time_is_over(
    cluster: Cluster, breaker: Breaker, gpu: str
) -> None:
    def tolerating(**more: Any) -> list[dict[str, Any]]:
        return [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", **more}]

    pod_on(cluster, "leaves", gpu, tolerations=tolerating(tolerationSeconds=20))
    pod_on(cluster, "stays", gpu, tolerations=tolerating())
    id_ = breaker.begin("node-down", node=gpu)
    node = cluster.node_with(gpu, lambda node: condition(node).status == "Unknown", "the node is lost")
    assert condition(node).reason == "NodeStatusUnknown"
    assert condition(node).message == "Kubelet stopped posting node status."
    both = {("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")}
    cluster.node_with(gpu, lambda node: both <= taints(node), "the node is tainted")
    leaving = cluster.pod_with("leaves", lambda pod: pod.metadata.deletion_timestamp is not None, "it is evicted")
    assert any(c.type == "DisruptionTarget" for c in leaving.status.conditions)
    # Nobody is there to end it.
    assert leaving.metadata.deletion_timestamp is not None
    stays = cluster.core.read_namespaced_pod("stays", "default")
    assert stays.metadata.deletion_timestamp is None
    assert next(c for c in stays.status.conditions if c.type == "Ready").status == "False"
    breaker.end(id_)
    cluster.node_with(gpu, lambda node: condition(node).status == "True" and not taints(node), "the node is back")
    cluster.wait_gone(
        cluster.core.list_namespaced_pod, "the evicted pod", namespace="default", field_selector="metadata.name=leaves"
    )
    cluster.pod_with("stays", lambda p: any(c.type == "Ready" and c.status == "True" for c in p.status.conditions), "")
    cluster.core.delete_namespaced_pod("stays", "default")


def test_a_kubelet_that_is_not_ready_says_why(cluster: Cluster, breaker: Breaker, gpu: str) -> None:
    breaker.begin("node-down", node=gpu, how="not-ready")
    node = cluster.node_with(gpu, lambda node: condition(node).status == "False", "the node is not ready")
    assert condition(node).message.startswith("PLEG is not healthy")
    wanted = {("node.kubernetes.io/not-ready", effect) for effect in ("NoSchedule", "NoExecute")}
    cluster.node_with(gpu, lambda node: wanted <= taints(node), "the node is tainted")
    breaker.http.call("DELETE", "/faults")
    cluster.node_with(gpu, lambda node: condition(node).status == "True" and not taints(node), "the node is back")


def test_a_taint_by_hand_evicts_at_once(cluster: Cluster, breaker: Breaker, gpu: str) -> None:
    pod_on(cluster, "unwanted", gpu)
    cluster.core.patch_node(gpu, {"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}})
    cluster.wait_gone(
        cluster.core.list_namespaced_pod, "the pod", namespace="default", field_selector="metadata.name=unwanted"
    )
    cluster.core.patch_node(gpu, {"spec": {"taints": None}})


def test_a_stuck_pod_terminates_until_the_fault_ends(cluster: Cluster, breaker: Breaker, gpu: str) -> None:
    pod_on(cluster, "stuck", gpu)
    pod_on(cluster, "free", gpu)
    id_ = breaker.begin("stuck-pod", pod="stuck")
    for name in ("stuck", "free"):
        cluster.core.delete_namespaced_pod(name, "default")
    lister = cluster.core.list_namespaced_pod
    cluster.wait_gone(lister, "the other pod", namespace="default", field_selector="metadata.name=free")
    assert cluster.core.read_namespaced_pod("stuck", "default").metadata.deletion_timestamp is not None
    breaker.end(id_)
    cluster.wait_gone(lister, "the pod", namespace="default", field_selector="metadata.name=stuck")


def test_a_bind_that_fails_leaves_a_reservation_on_a_pending_pod(cluster: Cluster, breaker: Breaker, ack: Ack) -> None:
    a_node(ack, cluster, "binding", "cgpu", mem="60", count="4")
    id_ = breaker.begin("bind-fail", pod="unbound", times=0)
    cluster.create_pod("unbound", limits={MEM: 4})
    pod = cluster.pod_with("unbound", lambda pod: "annotations" in _set(pod.metadata), "cards are reserved")
    assert (pod.spec.node_name, pod.status.phase) == (None, "Pending")
    assert pod.metadata.annotations["scheduler.framework.gpushare.assigned"] == "false"
    breaker.end(id_)
    assert cluster.pod_in_phase("unbound", "Running").spec.node_name


def _set(value: Any) -> set[str]:
    return {name for name, found in value.to_dict().items() if found}


def test_somebody_relabels_a_node_and_managed_fields_say_who(cluster: Cluster, breaker: Breaker, gpu: str) -> None:
    breaker.begin("label", node=gpu, labels={"out-of": "band"})
    node = cluster.core.read_node(gpu)
    assert node.metadata.labels["out-of"] == "band"
    assert any(entry.manager == "kubectl-label" for entry in node.metadata.managed_fields)
    breaker.begin("label", node=gpu, labels={"out-of": None})
    assert "out-of" not in cluster.core.read_node(gpu).metadata.labels


# Cards


def test_a_broken_card_leaves_allocatable_but_not_capacity(cluster: Cluster, breaker: Breaker, gpu: str) -> None:
    id_ = breaker.begin("card", node=gpu, index=1, xid=79)
    node = cluster.node_reports(gpu, whole="3")
    assert node.status.capacity[WHOLE] == "4"
    said = cluster.core.list_namespaced_event("default", field_selector=f"involvedObject.name={gpu}").items
    assert any(event.reason == "GPUUnhealthy" and "Xid=79" in event.message for event in said)
    breaker.end(id_)
    cluster.node_reports(gpu, whole="4")


def test_a_restarting_plugin_shows_zero_for_a_moment(cluster: Cluster, breaker: Breaker, gpu: str) -> None:
    version = cluster.core.list_node().metadata.resource_version
    breaker.begin("plugin-restart", node=gpu)
    seen = []
    for event in cluster.core.list_node(
        watch=True, resource_version=version, field_selector=f"metadata.name={gpu}", timeout_seconds=30,
        _preload_content=False,
    ).stream(None):  # fmt: skip
        for line in event.splitlines():
            seen.append(json.loads(line)["object"]["status"]["allocatable"][WHOLE])
        if seen[-1:] == ["4"] and "0" in seen:
            break
    assert "0" in seen


def a_node(ack: Ack, cluster: Cluster, name: str, mode: str, **amounts: str) -> str:
    (node,) = ack.nodes(ack.pool_of(name, {MODE: mode}))
    cluster.node_reports(node.node_name, **amounts)
    return str(node.node_name)


def test_ecc_and_mixed_cards_change_what_a_shared_node_reports(cluster: Cluster, breaker: Breaker, ack: Ack) -> None:
    node = a_node(ack, cluster, "ecc", "share", mem="60", count="4")
    breaker.begin("ecc", node=node, on=False)
    cluster.node_reports(node, mem="64", count="4")
    assert cluster.core.read_node(node).metadata.labels["aliyun.accelerator/nvidia_mem"] == "16384MiB"
    breaker.begin("ecc", node=node, on=True)
    cluster.node_reports(node, mem="60", count="4")
    breaker.begin("mixed-cards", node=node, cards=["Tesla-T4:15079", "NVIDIA-A10:23028"])
    cluster.node_reports(node, mem="28", count="2")
    id_ = breaker.begin("card", node=node, index=0)
    found = cluster.node_reports(node, mem="14", count="2")
    assert (found.status.capacity[MEM], found.status.capacity[COUNT]) == ("28", "2")
    breaker.end(id_)


def test_beside_a_broken_card_the_console_and_the_scheduler_reckon_alike(
    cluster: Cluster, breaker: Breaker, ack: Ack
) -> None:
    node = a_node(ack, cluster, "beside", "cgpu", mem="60", count="4")
    pod_on(cluster, "before", node, limits={MEM: 12})
    breaker.begin("card", node=node, index=3)
    cluster.node_reports(node, mem="45", count="4")
    # 12 of 15 units are 9 of 11 to ACK: two more go onto the same card, three would not.
    pod_on(cluster, "after", node, limits={MEM: 2})
    cluster.create_pod("too-large", nodeSelector={"kubernetes.io/hostname": node}, limits={MEM: 12})
    said = (
        cluster.pod_with("too-large", lambda pod: bool(pod.status.conditions), "it waits").status.conditions[0].message
    )
    nodes, pods = read_back(cluster, "Node"), read_back(cluster, "Pod")
    states = node_states(nodes, pods)
    (state,) = [each for each in states if each.node.name == node]
    assert [gpu.memory_units for gpu in state.allocation.gpus] == [15] * 4
    assert [gpu.memory_units_used for gpu in state.allocation.gpus] == [14, 0, 0, 0]
    assert state.rooms == (0, 11, 11, 11)
    (waiting,) = [pod for pod in pods if pod.name == "too-large"]
    assert preview(waiting.ask, states).message == said
    everything = Scene(nodes, pods, (), folds=fold_all(nodes, pods))
    assert {each.code for each in diagnose(everything, nodes={node})} >= {"cards-unhealthy"}
    found = {each.code for each in diagnose(everything) if each.node == node or "default/too-large" in each.pods}
    assert "no-card-has-room" in found
    wrong = {"implausible-cards", "same-model-differs", "unreadable-allocation", "over-allocated", "units-changed"}
    assert not found & wrong


def read_back(cluster: Cluster, kind: str) -> list[Any]:
    """Read all objects of a kind as the console does."""
    api = cluster.core
    found = (api.list_node if kind == "Node" else api.list_pod_for_all_namespaces)(_preload_content=False)
    return [objects.convert(kind, raw) for raw in json.loads(found.data)["items"]]


def test_a_card_that_a_person_takes_out_of_sharing_gets_no_pod(cluster: Cluster, breaker: Breaker, ack: Ack) -> None:
    node = a_node(ack, cluster, "status", "cgpu", mem="60", count="4")
    devices = "- deviceId: 0\n  deviceType: gpu\n  healthy: false\n"
    cluster.core.create_namespaced_config_map(
        "kube-system", {"metadata": {"name": f"{node}-device-status"}, "data": {"devices": devices}}
    )
    pod_on(cluster, "elsewhere", node, limits={MEM: 15})
    pod = cluster.core.read_namespaced_pod("elsewhere", "default")
    assert json.loads(pod.metadata.annotations["scheduler.framework.gpushare.allocation"]) == {"0": {"1": 15}}


def test_cards_of_pods_fall_out_of_the_ledger_when_the_label_changes_under_them(
    cluster: Cluster, breaker: Breaker, ack: Ack
) -> None:
    node = a_node(ack, cluster, "ledger", "cgpu", mem="60", count="4")
    pod_on(cluster, "shared", node, limits={MEM: 4})
    held = json.loads(
        cluster.core.read_namespaced_pod("shared", "default").metadata.annotations[
            "scheduler.framework.gpushare.allocation"
        ]
    )
    breaker.begin("label", node=node, labels={MODE: "topology"})
    cluster.node_reports(node, mem="0", count="0", topology="4")
    # The topology plugin knows nothing of shares: the same card is handed out again, whole.
    pod_on(cluster, "whole", node, limits={TOPOLOGY: 4})
    whole = json.loads(
        cluster.core.read_namespaced_pod("whole", "default").metadata.annotations[
            "gputopology.alibabacloud.com/allocation"
        ]
    )
    assert set(held["0"]) <= set(whole["allocatedGPUs"]["0"])
    assert cluster.core.read_namespaced_pod("shared", "default").status.phase == "Running"


def test_restarting_the_mps_daemon_kills_its_clients(cluster: Cluster, breaker: Breaker, ack: Ack) -> None:
    node = a_node(ack, cluster, "mps", "mps", mem="60", count="4")
    pod_on(cluster, "client", node, limits={MEM: 4}, hostIPC=True, restartPolicy="Always")
    ack.succeed(ack.upgrade("ack-mps-control", "0.2.1").task_id)
    pod = cluster.pod_with("client", lambda pod: pod.status.container_statuses[0].restart_count > 0, "it died")
    assert pod.status.container_statuses[0].last_state.terminated.exit_code == 1
    previous = cluster.core.read_namespaced_pod_log("client", "default", previous=True)
    assert "MPS client failed to connect" in previous
