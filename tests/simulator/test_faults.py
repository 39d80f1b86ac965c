"""Faults on command, as a client of the cluster meets them."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import urllib3
from alibabacloud_cs20151215 import models
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException
from django.core.management import CommandError, call_command
from kubernetes import client

from gpupools.management.commands.faults import Command as FaultsCommand
from gpupools.management.embedded.faulthttp import FaultRefusal
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.clients import COUNT, MEM, MODE, TOPOLOGY, WHOLE, Cluster, connected
from tests.simulator.harness import SimulatorProcess
from tests.simulator.test_ack_openapi import Ack, tags


@pytest.fixture(scope="module")
def running() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=50) as simulator:
        yield simulator


@pytest.fixture
def breaker(running: SimulatorProcess) -> Iterator[Breaker]:
    with breaking(running) as found:
        yield found


@pytest.fixture
def cluster(running: SimulatorProcess) -> Iterator[Cluster]:
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


def lines_of(core: client.CoreV1Api, **options: Any) -> Any:
    """Open a watch of config maps and return the response whose body is its lines."""
    version = core.list_namespaced_config_map("default").metadata.resource_version
    return core.list_namespaced_config_map(
        "default", watch=True, _preload_content=False, **{"resource_version": version, **options}
    )


def events(answer: Any) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in answer.stream(4096):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in lines if line)


def a_map(core: client.CoreV1Api, name: str) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": name}})


# The endpoint


def test_only_the_control_token_opens_the_endpoint(running: SimulatorProcess, breaker: Breaker) -> None:
    assert stat.S_IMODE((running.directory / "control.json").stat().st_mode) == 0o600
    admin = running.kubeconfig.read_text().split("token: ")[1].split()[0]
    access = json.loads((running.directory / "control.json").read_text())
    with urllib3.PoolManager(ca_certs=access["certificate_authority"]) as pool:
        headers = {"Authorization": f"Bearer {admin}"}
        answer = pool.request("GET", f"{running.server}/simulator/v1/faults", headers=headers)
        assert answer.status == 401
        headers = {"Authorization": f"Bearer {access['token']}"}
        assert pool.request("GET", f"{running.server}/api/v1/nodes", headers=headers).status == 401


def test_every_kind_of_fault_says_what_it_is(breaker: Breaker) -> None:
    kinds = breaker.http.call("GET", "/kinds")["kinds"]
    assert len(kinds) >= 17
    assert all(kind["what"] and isinstance(kind["fields"], dict) for kind in kinds)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kind": "earthquake"}, "earthquake"),
        ({"kind": "latency", "secnds": 1}, "secnds"),
        ({"kind": "latency", "seconds": -1}, "seconds"),
        ({"kind": "node-down", "node": "nowhere"}, 'nodes "nowhere" not found'),
        ({"kind": "stuck-pod", "pod": "nowhere"}, 'pods "nowhere" not found'),
    ],
)
def test_what_is_no_fault_is_refused_by_its_field(breaker: Breaker, body: dict[str, Any], words: str) -> None:
    with pytest.raises(FaultRefusal, match=words):
        breaker.http.call("POST", "/faults", body)


def test_cards_that_a_node_does_not_have_do_not_break(cluster: Cluster, breaker: Breaker, gpu: str) -> None:
    plain = next(n.metadata.name for n in cluster.core.list_node().items if MODE not in n.metadata.labels)
    for body, words in (
        ({"kind": "card", "node": gpu, "index": 9}, "has the cards 0 to 3, not 9"),
        ({"kind": "ecc", "node": plain}, "has no cards"),
        ({"kind": "label", "node": gpu, "labels": {"team": "not a value"}}, "Invalid value"),
    ):
        with pytest.raises(FaultRefusal, match=words):
            breaker.http.call("POST", "/faults", body)
    assert breaker.http.call("GET", "/faults")["faults"] == []


# Requests


def test_requests_are_refused_with_retry_after_for_as_often_as_was_said(cluster: Cluster, breaker: Breaker) -> None:
    breaker.begin("error", status=429, retry_after_seconds=7, resources=["nodes"], verbs=["list"], times=1)
    cluster.core.list_namespaced_pod("default")
    with pytest.raises(client.exceptions.ApiException) as caught:
        cluster.core.list_node()
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "7")
    assert json.loads(caught.value.body)["details"]["retryAfterSeconds"] == 7
    cluster.core.list_node()
    assert breaker.http.call("GET", "/faults")["faults"] == []


@pytest.mark.parametrize("status", [500, 503])
def test_requests_fail_until_the_fault_ends(cluster: Cluster, breaker: Breaker, status: int) -> None:
    id_ = breaker.begin("error", status=status)
    for _ in range(2):
        with pytest.raises(client.exceptions.ApiException) as caught:
            cluster.core.list_node()
        assert caught.value.status == status
    assert breaker.hits(id_) == 2
    breaker.end(id_)
    cluster.core.list_node()


def test_answers_come_late_and_those_that_wait_come_when_the_fault_ends(cluster: Cluster, breaker: Breaker) -> None:
    breaker.begin("latency", seconds=0.3, verbs=["get"], times=1)
    begin = time.monotonic()
    cluster.core.read_namespace("default")
    assert time.monotonic() - begin >= 0.3
    id_ = breaker.begin("latency", seconds=3600, verbs=["get"])
    waiting = cluster.core.read_namespace("default", async_req=True)
    while not breaker.hits(id_):
        pass
    breaker.end(id_)
    assert waiting.get(timeout=20).metadata.name == "default"


# Watches


def test_a_watch_breaks_off_in_mid_answer(cluster: Cluster, breaker: Breaker) -> None:
    answer = lines_of(cluster.core)
    a_map(cluster.core, "before-the-break")
    stream = answer.stream(4096)
    next(stream)
    breaker.begin("watch-drop", resources=["configmaps"])
    with pytest.raises(urllib3.exceptions.ProtocolError):
        for _ in stream:
            pass


def test_a_frozen_watch_says_nothing_and_then_everything(cluster: Cluster, breaker: Breaker) -> None:
    id_ = breaker.begin("watch-freeze", resources=["configmaps"])
    answer = lines_of(cluster.core, timeout_seconds=30)
    a_map(cluster.core, "while-frozen")
    # Another watch, of another kind, is not frozen.
    assert next(events(cluster.core.list_node(watch=True, _preload_content=False)))["type"] == "ADDED"
    assert answer.connection.sock.pending() == 0
    breaker.end(id_)
    assert next(events(answer))["object"]["metadata"]["name"] == "while-frozen"
    answer.close()


def test_events_come_twice_and_late(cluster: Cluster, breaker: Breaker) -> None:
    breaker.begin("watch-duplicate", resources=["configmaps"])
    breaker.begin("watch-late", resources=["configmaps"], seconds=0.3)
    answer = lines_of(cluster.core)
    begin = time.monotonic()
    a_map(cluster.core, "twice")
    seen = events(answer)
    first, second = next(seen), next(seen)
    assert first == second
    assert first["object"]["metadata"]["name"] == "twice"
    assert time.monotonic() - begin >= 0.3
    answer.close()


def test_after_a_compaction_old_watches_get_410_in_the_stream_or_as_status(cluster: Cluster, breaker: Breaker) -> None:
    old = cluster.core.list_namespaced_config_map("default").metadata.resource_version
    a_map(cluster.core, "compacted-away")
    breaker.begin("compaction")
    answer = lines_of(cluster.core, resource_version=old, timeout_seconds=5)
    (error,) = events(answer)
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
    breaker.begin("compaction", status=True)
    with pytest.raises(client.exceptions.ApiException) as caught:
        lines_of(cluster.core, resource_version=old, timeout_seconds=5)
    assert caught.value.status == 410
    page = cluster.core.list_node(limit=1)
    a_map(cluster.core, "moves-the-version-on")
    breaker.begin("compaction")
    with pytest.raises(client.exceptions.ApiException) as caught:
        cluster.core.list_node(limit=1, _continue=page.metadata._continue)
    assert caught.value.status == 410


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


@pytest.fixture(scope="module")
def ack(running: SimulatorProcess) -> Ack:
    found = Ack(running)
    found.ensure("ack-ai-installer")
    found.ensure("ack-mps-control")
    return found


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


def test_the_command_line_begins_lists_and_ends_faults(running: SimulatorProcess, breaker: Breaker) -> None:
    def command(*words: str) -> str:
        out = StringIO()
        call_command(FaultsCommand(), "--dir", str(running.directory), *words, stdout=out)
        return out.getvalue()

    assert "watch-freeze" in command("kinds")
    id_ = command("begin", "latency", "seconds=0", 'verbs=["get"]').split()[0]
    assert f"{id_} latency hits=0" in command("list")
    assert command("end", id_) == ""
    with pytest.raises(CommandError, match="earthquake"):
        command("begin", "earthquake")
    with pytest.raises(CommandError, match="no fault 'nothing' is on"):
        command("end", "nothing")


def test_a_directory_without_a_cluster_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No embedded cluster has run in"):
        call_command(FaultsCommand(), "--dir", str(tmp_path), "list")


# ACK


def test_a_task_fails_half_way(cluster: Cluster, breaker: Breaker, ack: Ack) -> None:
    pool = ack.pool_of("half", {MODE: "cgpu"}, size=2)
    breaker.begin("task-fail", task_type="nodepool_update", after=1, message="node i-2 did not answer")
    config = models.ModifyClusterNodePoolRequestKubernetesConfig(labels=tags({MODE: "share"}))
    ended = ack.ended(ack.modify(pool, kubernetes_config=config, update_nodes=True).task_id)
    assert (ended.state, ended.error.message) == ("fail", "node i-2 did not answer")
    modes = sorted(cluster.core.read_node(node.node_name).metadata.labels[MODE] for node in ack.nodes(pool))
    assert modes == ["cgpu", "share"]
    assert sorted(result.status for result in ended.task_result) == ["success"]


def test_calls_are_throttled(breaker: Breaker, ack: Ack) -> None:
    breaker.begin("ack-error", path="/nodepools", times=1)
    with pytest.raises(AlibabaCloudException) as caught:
        ack.pool("np-nothing")
    assert caught.value.code == "Throttling.User"
    with pytest.raises(AlibabaCloudException) as caught:
        ack.pool("np-nothing")
    assert caught.value.code == "ErrorNodePoolNotFound"


def test_a_state_file_is_not_needed_for_faults_to_end_with_the_process(tmp_path: Path) -> None:
    with SimulatorProcess(directory=tmp_path) as simulator:
        with breaking(simulator) as breaker:
            breaker.begin("latency", seconds=0)
            simulator.stop()
            simulator.start()
        with breaking(simulator) as breaker:
            assert breaker.http.call("GET", "/faults")["faults"] == []
