"""Every failure of nodes and components that the console knows, made in the embedded cluster, and named."""

from __future__ import annotations

import json

import pytest

from gpupools.domain.diagnosis import Difference, Severity, diagnose
from gpupools.domain.modes import CARD_COUNT_LABEL, CARD_MEMORY_LABEL, CARD_NAME_LABEL, MODE_LABEL, Component
from gpupools.services.componentpushes import manifests
from tests.clusters.everymode import MODES, PREFIX, RUNNING, daemonsets, note, running
from tests.clusters.faults import CORE, COUNT, MEM, TOPOLOGY, WHOLE, wait_for


def test_a_cluster_in_order_has_a_node_in_each_mode_and_nothing_to_say(world):
    scene = world.scene(spec="ack.pro.small")
    assert {node.labels[MODE_LABEL] for node in scene.gpu_nodes} == {*MODES.values(), "default"}
    assert diagnose(scene) == []


@pytest.mark.parametrize(
    ("mode", "limits", "more"),
    [
        ("default", {WHOLE: 1}, {}),
        ("cgpu", {MEM: 4}, {}),
        ("core_mem", {MEM: 4, CORE: 20}, {}),
        ("share", {MEM: 4}, {}),
        ("mps", {MEM: 4}, {"hostIPC": True}),
    ],
)
def test_pods_that_ask_as_they_should_have_nothing_to_say(world, mode, limits, more):
    pod = world.pod(limits=limits, more={"nodeSelector": {MODE_LABEL: mode}, **more})
    wait_for(lambda: running(world, pod), what=lambda: f"{pod} runs")
    assert diagnose(world.scene(spec="ack.pro.small")) == []


# -- What makes a node report its cards


def test_a_component_that_is_not_there(world):
    world.without(daemonsets()["gpushare-core-device-plugin-ds"])
    found = world.named("mode-reports-nothing", node="gpu-02")
    assert (found.scenario, found.severity) == (1, Severity.ERROR)
    assert "no DaemonSet kube-system/gpushare-core-device-plugin-ds" in found.evidence
    assert "ack-ai-installer" in found.fix


def test_a_plugin_that_has_no_pod_on_the_node(world):
    node = world.node("by-hand", "cgpu", {MEM: 0, COUNT: 0})
    found = world.named("mode-reports-nothing", node=node)
    assert found.scenario == 1


def test_a_plugin_whose_pod_does_not_run(world):
    node = world.node("by-hand", "topology", {TOPOLOGY: 0})
    wait_for(lambda: bool(world.scene().daemons(node, "gputopo-device-plugin-ds")), what=lambda: "a pod of the plugin")
    (pod,) = world.scene().daemons(node, "gputopo-device-plugin-ds")
    waiting = {"name": "gputopo-device-plugin-ds", "ready": False, "restartCount": 7, "image": "x", "imageID": "",
               "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting"}}}  # fmt: skip
    world.patch(
        f"/api/v1/namespaces/kube-system/pods/{pod.name}/status",
        {"status": {"phase": "Running", "containerStatuses": [waiting]}},
    )
    found = world.named("mode-reports-nothing", node=node)
    assert (
        "CrashLoopBackOff" in world.named("mode-reports-nothing", node=node).evidence or "not ready" in found.evidence
    )


@pytest.mark.parametrize(
    ("restarts", "severity", "fix"), [(0, Severity.WARNING, "Wait"), (1, Severity.ERROR, "Read its log")]
)
def test_a_plugin_that_starts_is_to_be_waited_for_unless_it_ended_before(world, restarts, severity, fix):
    node = world.node("by-hand", "topology", {TOPOLOGY: 0})
    wait_for(lambda: bool(world.scene().daemons(node, "gputopo-device-plugin-ds")), what=lambda: "a pod of the plugin")
    (pod,) = world.scene().daemons(node, "gputopo-device-plugin-ds")
    waiting = {"name": "gputopo-device-plugin-ds", "ready": False, "restartCount": restarts, "image": "x",
               "imageID": "", "state": {"waiting": {"reason": "ContainerCreating"}}}  # fmt: skip
    world.patch(
        f"/api/v1/namespaces/kube-system/pods/{pod.name}/status",
        {"status": {"phase": "Pending", "containerStatuses": [waiting]}},
    )
    found = world.named("mode-reports-nothing", node=node)
    assert (found.severity, found.fix.startswith(fix), "ContainerCreating" in found.evidence) == (severity, True, True)


def test_memory_without_a_card_count(world):
    node = world.node("by-hand", "cgpu", {MEM: 30, COUNT: 0})
    assert world.named("no-card-count", node=node).scenario == 1


def test_a_mode_that_nobody_knows(world):
    node = world.node("by-hand", "CGPU", {MEM: 30, COUNT: 2})
    assert "CGPU" in world.named("unknown-mode", node=node).evidence


def test_no_gpu_after_kubernetes_1_32_without_the_label(world):
    node = world.node("by-hand", None, {WHOLE: 0}, kubelet="v1.32.1-aliyun.1")
    found = world.named("exclusive-reports-nothing", node=node)
    assert found.scenario == 36
    assert f"{MODE_LABEL}=default" in found.fix


def test_the_plugin_of_whole_cards_was_uninstalled(world):
    scene = world.scene()
    assert "ack-nvidia-device-plugin" in scene.daemonsets
    (daemonset,) = manifests(Component.NVIDIA_PLUGIN, image_prefix=PREFIX)
    world.without(daemonset)
    found = world.named("exclusive-reports-nothing", node="gpu-06")
    assert "ack-nvidia-device-plugin" in found.fix


def test_a_plugins_pod_that_was_evicted(world):
    node = world.node("by-hand", "share", {MEM: 30, COUNT: 2})
    wait_for(lambda: bool(world.scene().daemons(node, "gpushare-device-plugin-ds")), what=lambda: "a pod of the plugin")
    (pod,) = world.scene().daemons(node, "gpushare-device-plugin-ds")
    path = f"/api/v1/namespaces/kube-system/pods/{pod.name}"
    # The controller replaces a failed pod at once here; elsewhere its back-off leaves the evicted one to be seen.
    world.patch(path, {"metadata": {"finalizers": ["tests/keep"]}})
    world.patch(f"{path}/status", {"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}})
    found = world.named("plugin-evicted", node=node)
    world.patch(path, {"metadata": {"finalizers": None}})
    assert (found.scenario, found.evidence) == (39, "Evicted: low on memory")


def test_a_plugins_pod_that_may_be_evicted(world):
    name = "gpushare-mps-device-plugin-ds"
    daemonset = daemonsets()[name]
    world.without(daemonset)
    wait_for(lambda: not world.scene().daemons("gpu-03", name), what=lambda: "the pods to end")
    plain = json.loads(json.dumps(daemonset))
    del plain["spec"]["template"]["spec"]["priorityClassName"]
    world.client.apply(plain, op_id="not-critical")
    assert world.named("plugin-evictable", node="gpu-03").scenario == 39


@pytest.mark.parametrize("rival", ["nvidia-device-plugin-daemonset", "hami-device-plugin", "gpu-manager"])
def test_two_plugins_on_a_node(world, rival):
    world.daemonset(rival, node="gpu-01")
    found = world.named("two-plugins", node="gpu-01")
    assert found.scenario == 37
    assert any(rival in pod for pod in found.pods)


def test_a_static_pod_of_the_plugin_beside_the_daemonset(world):
    there = world.client.node("gpu-07")
    owner = [{"apiVersion": "v1", "kind": "Node", "name": "gpu-07", "uid": there.uid, "controller": True}]
    world.pod("gpu-07", namespace="kube-system", name="nvidia-device-plugin-gpu-07", ownerReferences=owner)
    assert world.named("two-plugins", node="gpu-07").scenario == 37


def test_resources_of_two_modes_at_once(world):
    node = world.node("by-hand", "cgpu", {MEM: 30, COUNT: 2, WHOLE: 2})
    assert WHOLE in world.named("two-plugins", node=node).evidence


def test_a_card_that_fell_out(world):
    node = world.node("by-hand", "default", {WHOLE: 7}, capacity={WHOLE: 8})
    found = world.named("cards-unhealthy", node=node)
    assert (found.scenario, found.evidence) == (40, f"{WHOLE}: 7 of 8 are allocatable.")


def test_an_isolation_module_with_known_faults(world):
    world.image("cgpu-installer", f"{PREFIX}/cgpu-installer:1.5.7", before=f"{PREFIX}/cgpu-installer:1.5.20")
    found = world.named("cgpu-faulty-version", node="gpu-01")
    assert "1.5.7" in found.evidence
    assert all(each.node == "gpu-01" for each in diagnose(world.scene()) if each.code == "cgpu-faulty-version")


def test_an_mps_daemon_that_is_missing(world):
    world.without(daemonsets()["ack-mps-control"])
    assert world.named("mps-daemon-missing", node="gpu-03").scenario == 32


def test_the_pods_that_have_no_mps_daemon_are_named(world):
    node = world.node("by-hand", "mps", {MEM: 30, COUNT: 2})
    pod = world.pod(node, {MEM: 2}, status=RUNNING, annotations=note(card0=2))
    assert world.named("mps-daemon-missing", node=node).pods == (pod,)


def test_an_mps_daemon_that_was_restarted(world):
    node = world.node("by-hand", "mps", {MEM: 30, COUNT: 2})
    client = world.pod(node, {MEM: 2}, status=RUNNING)
    wait_for(lambda: bool(world.scene().daemons(node, "ack-mps-control")), what=lambda: "a pod of the daemon")
    (daemon,) = world.scene().daemons(node, "ack-mps-control")
    status = {"name": "ack-mps-control", "ready": True, "restartCount": 2, "image": "x", "imageID": "",
              "state": {"running": {}}}  # fmt: skip
    world.patch(
        f"/api/v1/namespaces/kube-system/pods/{daemon.name}/status",
        {
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [status],
            }
        },
    )
    found = world.named("mps-daemon-restarted", node=node)
    assert (found.scenario, found.pods) == (31, (client,))


def test_another_vendors_ledger(world):
    world.marked("gpu-08", "annotations", {"hami.io/node-nvidia-register": "GPU-1,10,16130,100"})
    assert world.named("foreign-ledger", node="gpu-08").scenario == 45


# -- What a node declares


def test_a_node_that_did_not_follow_its_pool(world):
    change = (Difference(MODE_LABEL, "share", "cgpu"),)
    found = world.named("pool-not-synced", node="gpu-01", pools={"gpu-01": "night"}, differences={"gpu-01": change})
    assert (found.scenario, found.pool) == (2, "night")


def test_a_label_that_was_taken_off(world):
    world.node("by-hand", None, {MEM: 30, COUNT: 2})
    assert world.named("label-removed", node="by-hand").scenario == 3


def test_a_pool_in_two_modes(world):
    found = world.named("pool-mixed", pools={"gpu-01": "night", "gpu-05": "night"})
    assert (found.scenario, found.pool) == (4, "night")
    assert "cgpu: gpu-01" in found.evidence


@pytest.mark.parametrize("kind", ["ecs.vgn6i-m4-vws.xlarge", "ecs.sgn7i-vws-m4.xlarge"])
def test_a_machine_that_the_isolation_module_does_not_know(world, kind):
    node = world.node("by-hand", "cgpu", {MEM: 14, COUNT: 1}, instance_type=kind)
    assert kind in world.named("unsupported-machine", node=node).evidence


def test_cards_of_different_kinds_on_a_node(world):
    marks = {CARD_NAME_LABEL: "Tesla-T4", CARD_MEMORY_LABEL: "15079MiB", CARD_COUNT_LABEL: "2"}
    node = world.node("by-hand", "cgpu", {MEM: 44, COUNT: 2}, labels=marks)
    assert world.named("implausible-cards", node=node).scenario == 34


def test_the_same_cards_with_less_memory(world):
    marks = {CARD_NAME_LABEL: "Tesla-T4", CARD_COUNT_LABEL: "1"}
    world.node("ecc-off", "share", {MEM: 15, COUNT: 1}, labels={**marks, CARD_MEMORY_LABEL: "16127MiB"})
    world.node("ecc-on", "share", {MEM: 14, COUNT: 1}, labels={**marks, CARD_MEMORY_LABEL: "15079MiB"})
    found = world.named("same-model-differs", node="ecc-on")
    assert (found.scenario, "ECC" in found.fix) == (35, True)


def test_a_shared_mode_on_a_cluster_that_is_not_pro(world):
    found = world.named("not-pro", node="gpu-01", spec="ack.standard")
    assert (found.scenario, found.evidence) == (41, "The cluster is ack.standard.")


def test_a_choice_of_cards_where_there_is_none(world):
    world.marked("gpu-09", "labels", {"ack.node.gpu.placement": "spread"})
    assert world.named("placement-without-effect", node="gpu-09").scenario == 42


def test_a_node_that_is_away(world):
    node = world.node("by-hand", "default", {WHOLE: 8}, ready=False)
    assert world.named("node-not-ready", node=node).severity == Severity.ERROR
