"""Every failure of pods that the console knows, made in the embedded cluster, and named."""

from __future__ import annotations

import pytest

from gpupools.domain.diagnosis import Severity, diagnose
from gpupools.domain.gpus import Ask, ContainerAsk, Pod
from gpupools.domain.modes import CARD_NAME_LABEL
from tests.clusters.everymode import RUNNING, note, running, selecting
from tests.clusters.faults import CORE, COUNT, MEM, TOPOLOGY, WHOLE, wait_for

# -- Who holds the cards


def test_pods_of_a_mode_that_the_node_has_left(world):
    node = world.node("by-hand", "default", {WHOLE: 2})
    pod = world.pod(node, {MEM: 4}, status=RUNNING, annotations=note(card0=4))
    found = world.named("former-mode-pods", node=node)
    assert (found.scenario, found.pods) == (5, (pod,))


def test_a_card_beyond_its_size_and_a_pod_without_an_allocation(world):
    node = world.node("by-hand", "share", {MEM: 30, COUNT: 2})
    pods = [world.pod(node, {MEM: 10}, status=RUNNING, annotations=note(card0=10)) for _ in range(2)]
    found = world.named("over-allocated", node=node)
    assert (found.scenario, sorted(found.pods)) == (6, sorted(pods))
    blind = world.pod(node, {MEM: 5}, status=RUNNING)
    assert world.named("unreadable-allocation", node=node).pods == (blind,)


def test_allocations_that_can_be_read_and_are_wrong_are_not_called_unreadable(world):
    node = world.node("by-hand", "share", {MEM: 30, COUNT: 2})
    other = world.pod(node, {MEM: 4}, status=RUNNING, annotations=note(card0=6))
    away = world.pod(node, {MEM: 3}, status=RUNNING, annotations=note(card9=3))
    older = world.pod(
        node, {MEM: 2}, status=RUNNING,
        annotations=note(card1=2) | {"gpushare.alibabacloud.com/device-resource": '{"0":20,"1":20}'},
    )  # fmt: skip
    assert world.named("allocation-differs", node=node).pods == (other,)
    found = world.named("unknown-card", node=node)
    assert (found.scenario, found.pods) == (6, (away,))
    assert world.named("units-changed", node=node).pods == (older,)
    said = {each.code for each in diagnose(world.scene()) if each.node == node}
    assert not said & {"unreadable-allocation", "former-mode-pods", "over-allocated"}


def test_a_sick_card_of_a_shared_node_is_all_that_is_said_of_it(world):
    marks = {CARD_NAME_LABEL: "NVIDIA-A10", "aliyun.accelerator/nvidia_mem": "22731MiB"}
    marks |= {"aliyun.accelerator/nvidia_count": "4"}
    node = world.node("by-hand", "share", {MEM: 66, COUNT: 4}, capacity={MEM: 88, COUNT: 4}, labels=marks)
    was = {"gpushare.alibabacloud.com/device-resource": '{"0":22,"1":22,"2":22,"3":22}'}
    world.pod(node, {MEM: 17}, status=RUNNING, annotations=note(card0=17) | was, more=selecting("share"))
    found = world.named("cards-unhealthy", node=node)
    assert (found.scenario, "1 of 4 cards" in found.evidence) == (40, True)
    assert {each.code for each in diagnose(world.scene()) if each.node == node} == {"cards-unhealthy"}


def test_too_many_pods_on_a_card(world):
    node = world.node("by-hand", "cgpu", {MEM: 60, COUNT: 2})
    for _ in range(16):
        world.pod(node, {MEM: 1}, status=RUNNING, annotations=note(card1=1))
    found = world.named("crowded-card", node=node)
    assert (found.scenario, found.severity, len(found.pods)) == (26, Severity.WARNING, 16)


def test_a_deleted_pod_that_still_holds_a_card(world):
    node = world.node("by-hand", "share", {MEM: 30, COUNT: 2})
    pod = world.pod(
        node, {MEM: 4}, status=RUNNING, annotations=note(card0=4), more={"terminationGracePeriodSeconds": 600}
    )
    world.client.evict(*pod.split("/"))
    found = world.named("still-releasing", node=node)
    assert (found.scenario, found.pods) == (22, (pod,))


# -- What pods ask for


@pytest.mark.parametrize(
    ("code", "scenario", "limits", "more", "labels"),
    [
        ("memory-alone-on-core-mem", 10, {MEM: 2}, selecting("core_mem"), {}),
        ("core-percent", 11, {MEM: 2, CORE: 33}, selecting("core_mem"), {}),
        ("core-percent", 11, {CORE: 20}, selecting("core_mem"), {}),
        ("memory-does-not-divide", 12, {MEM: 5}, selecting("cgpu"), {COUNT: "2"}),
        ("more-cards-than-a-node", 13, {MEM: 90}, selecting("cgpu"), {COUNT: "90"}),
        ("wrong-resource", 14, {WHOLE: 1}, selecting("cgpu"), {}),
        ("wrong-resource", 14, {MEM: 1}, selecting("default"), {}),
        ("gpu-count-as-limit", 17, {MEM: 1, COUNT: 25}, selecting("cgpu"), {}),
        (
            "topology-and-gang", 24, {TOPOLOGY: 1}, selecting("topology"),
            {"gputopology.alibabacloud.com/pod-group": "g", "gputopology.alibabacloud.com/replica": "1",
             "pod-group.scheduling.sigs.k8s.io/name": "g"},
        ),
        ("topology-refuses", 25, {WHOLE: 1}, selecting("topology"), {}),
    ],
)  # fmt: skip
def test_a_pod_that_asks_for_what_cannot_be(world, code, scenario, limits, more, labels):
    pod = world.pod(limits=limits, more=more, labels=labels)
    assert world.named(code, pod=pod).scenario == scenario


def test_a_pod_that_selects_no_mode(world):
    pod = world.pod(limits={MEM: 1})
    wait_for(lambda: running(world, pod), what=lambda: f"{pod} runs")
    found = world.named("mode-not-bound", pod=pod)
    assert (found.scenario, found.severity) == (15, Severity.WARNING)


def test_an_exclusion_that_an_unlabelled_node_passes(world):
    node = world.node("by-hand", "share", {MEM: 30, COUNT: 2})
    terms = [{"matchExpressions": [{"key": CARD_NAME_LABEL, "operator": "NotIn", "values": ["Tesla-T4"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pod = world.pod(node, {MEM: 1}, status=RUNNING, annotations=note(card0=1), more={"affinity": affinity})
    assert world.named("exclusion-matches-unlabelled", pod=pod).scenario == 44


# -- What the cluster says of a pod


def test_no_memory_left_anywhere(world):
    pod = world.pod(limits={MEM: 5000}, more=selecting("cgpu"))
    found = world.named("insufficient-memory", pod=pod)
    assert found.scenario == 8
    assert "on its emptiest card" in found.evidence


@pytest.mark.parametrize(
    ("code", "limits", "more", "says"),
    [
        ("insufficient-other", {MEM: 1, "cpu": 999}, selecting("cgpu"), "no node in its reach has 999 of cpu left"),
        ("insufficient-cards", {WHOLE: 99}, selecting("default"), "no node in its reach has 99 cards left"),
        ("insufficient-cards", {TOPOLOGY: 99}, selecting("topology"), "no node in its reach has 99 cards left"),
        ("no-node-in-reach", {MEM: 1}, {"nodeSelector": {"zone": "moon"}}, "no node with GPUs is in its reach"),
        ("fits-nowhere", {MEM: 1}, {"name": "odd"}, "as it is written it fits nowhere"),
    ],
)
def test_what_keeps_a_pod_waiting_is_what_is_said(world, code, limits, more, says):
    labels = {"ack.gpushare.placement": "half-a-device"} if more.pop("name", "") else {}
    pod = world.pod(limits=limits, more=more, labels=labels)
    assert says in world.named(code, pod=pod).message
    assert not [each for each in diagnose(world.scene()) if pod in each.pods and each.code == "insufficient-memory"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("waits-for-other", "1 node(s) didn't satisfy existing pods anti-affinity rules"),
        ("room-now", "1 Too many pods"),
    ],
)
def test_a_pod_that_waits_where_there_is_room(world, code, reason):
    scene = world.scene()
    pod = Pod("u", "default", "held-up", Ask(containers=(ContainerAsk("main", {MEM: 1}, {MEM: 1}),)),
              reason="Unschedulable", message=f"0/1 nodes are available: {reason}.")  # fmt: skip
    scene.pods += (pod,)
    assert code in {each.code for each in diagnose(scene) if "default/held-up" in each.pods}


def test_a_pod_of_another_scheduler(world):
    pod = world.pod(limits={MEM: 1}, more={"schedulerName": "volcano"} | selecting("cgpu"))
    found = world.named("another-scheduler", pod=pod)
    assert (found.severity, "volcano" in found.message) == (Severity.INFO, True)


def test_room_on_the_node_and_on_no_card(world):
    whole = world.client.node("gpu-01")
    each = whole.memory_units // whole.shared_cards
    if whole.shared_cards == 1:
        world.node("by-hand", "cgpu", {MEM: 2 * each, COUNT: 2})
    pod = world.pod(limits={MEM: each + 1}, more=selecting("cgpu"))
    found = world.named("no-card-has-room", pod=pod)
    assert found.scenario == 9
    assert f"{each} on its emptiest card" in found.evidence


def test_a_pod_that_could_not_be_bound(world):
    message = 'binding rejected: running Bind plugin "DefaultBinder": etcdserver: request timed out'
    said = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": message}
    # A scheduler that nobody runs: its pods stay as they are.
    pod = world.pod(
        limits={WHOLE: 1}, status={"phase": "Pending", "conditions": [said]}, more={"schedulerName": "another"}
    )
    found = world.named("bind-failed", pod=pod)
    assert (found.severity, found.evidence) == (Severity.WARNING, message)


def test_a_pod_that_the_kubelet_did_not_admit(world):
    more = {"hostNetwork": False}
    pod = world.pod("gpu-06", {WHOLE: 99}, more=more)
    found = world.named("admission-error", pod=pod)
    assert (found.scenario, found.node) == (21, "gpu-06")
    assert "Available" in found.evidence


@pytest.mark.parametrize(
    ("code", "scenario", "message"),
    [
        ("no-card-was-assigned", 19, "OCI runtime create failed: unknown device no-gpu-has-4GiB-to-run"),
        ("memory-does-not-divide", 12, "0/3 nodes are available: invalid replica for resource aliyun.com/gpu-mem"),
        ("nvml-after-reload", 29, "Failed to initialize NVML: Unknown Error"),
        ("mps-fault", 33, "CUDA_ERROR_MPS_CONNECTION_FAILED: MPS client failed to connect to the control daemon"),
    ],
)
def test_what_a_container_says(world, code, scenario, message):
    node = world.node("by-hand", "mps", {MEM: 30, COUNT: 2})
    status = {"phase": "Failed", "reason": "Error", "message": message}
    pod = world.pod(node, {MEM: 1}, status=status, annotations=note(card0=1))
    assert world.named(code, pod=pod).scenario == scenario


def test_several_containers_that_share_a_card(world):
    node = world.node("by-hand", "share", {MEM: 30, COUNT: 2})
    status = {"phase": "Pending", "reason": "CreateContainerError", "message": "no device"}
    pod = world.pod(node, {MEM: 1}, status=status, annotations=note(card0=2), containers=2)
    assert world.named("several-containers", pod=pod).scenario == 18


def test_a_topology_group_that_is_not_whole(world):
    labels = {"gputopology.alibabacloud.com/pod-group": "ring", "gputopology.alibabacloud.com/replica": "2"}
    pod = world.pod(limits={TOPOLOGY: 1}, more=selecting("topology"), labels=labels)
    found = world.named("topology-group-size", pod=pod)
    assert found.scenario == 23
    assert "has 1 pod and says 2" in found.message
