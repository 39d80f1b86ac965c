"""Verdicts on components, and the live checks of a node."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.checks import node_checks
from gpupools.domain.components import CATALOGUE, AddonSeen, missing_for, verdict
from gpupools.domain.gpus import GpuNode, Workload
from gpupools.domain.modes import CHOOSABLE, MODE_LABEL, Component, Mode

AI = Component.AI_INSTALLER


def daemonsets(name: Component, *, ready: int = 1, leave_out: int = 0) -> list[Workload]:
    names = [daemonset.name for daemonset in CATALOGUE[name].daemonsets]
    return [
        Workload("DaemonSet", "kube-system", one, wanted=1, ready=ready, image="registry/x:1.2.3")
        for one in names[: len(names) - leave_out]
    ]


@pytest.mark.parametrize(
    ("workloads", "addons", "state"),
    [
        ([], [], "absent"),
        (daemonsets(AI), [], "installed"),
        (daemonsets(AI), [AddonSeen("ack-ai-installer", "1.13.0", "active")], "installed"),
        (daemonsets(AI, ready=0), [], "degraded"),
        (daemonsets(AI, leave_out=1), [], "degraded"),
        ([], [AddonSeen("ack-ai-installer", "1.13.0", "active")], "installing"),
        (daemonsets(AI), [AddonSeen("ack-ai-installer", "1.13.0", "deleting")], "removing"),
        (daemonsets(Component.MPS_CONTROL), [], "absent"),
    ],
)
def test_a_component_is_judged_by_addon_or_daemonsets(
    workloads: list[Workload], addons: list[AddonSeen], state: str
) -> None:
    assert verdict(AI, workloads, addons).state == state


def test_numbers_that_no_controller_wrote_say_nothing() -> None:
    fresh = [msgspec.structs.replace(each, wanted=0, ready=0, observed=False) for each in daemonsets(AI)]
    found = verdict(AI, fresh)
    assert found.state == "installing"
    assert "No controller has looked at" in found.detail


def test_the_version_comes_from_the_addon_or_else_from_the_image() -> None:
    assert verdict(AI, daemonsets(AI)).version == "1.2.3"
    assert verdict(AI, daemonsets(AI), [AddonSeen("ack-ai-installer", "9", "active")]).version == "9"


def test_a_daemonset_of_the_same_name_in_another_namespace_is_not_the_component() -> None:
    elsewhere = [Workload("DaemonSet", "default", "ack-mps-control", wanted=1, ready=1)]
    assert verdict(Component.MPS_CONTROL, elsewhere).state == "absent"


def test_mps_needs_two_components() -> None:
    there = [verdict(AI, daemonsets(AI))]
    assert missing_for(Mode.MPS, there) == (Component.MPS_CONTROL,)
    assert missing_for(Mode.CGPU, there) == ()


def test_every_mode_that_can_be_chosen_has_its_components_in_the_catalogue() -> None:
    for mode in CHOOSABLE:
        assert any(mode in facts.modes for facts in CATALOGUE.values())


CARDS = {
    "aliyun.accelerator/nvidia_name": "Tesla-V100-SXM2-16GB",
    "aliyun.accelerator/nvidia_mem": "16130MiB",
    "aliyun.accelerator/nvidia_count": "4",
}
SHARED = {"aliyun.com/gpu-mem": 60, "aliyun.com/gpu-count": 4, "nvidia.com/gpu": 0}


def a_node(mode: str | None, resources: dict[str, int], *, capacity: dict[str, int] | None = None) -> GpuNode:
    labels = CARDS | ({MODE_LABEL: mode} if mode else {})
    return GpuNode("n", labels=labels, allocatable=resources, capacity=resources if capacity is None else capacity)


def failed(node: GpuNode) -> list[str]:
    return [check.code for check in node_checks(node) if check.ok is False]


@pytest.mark.parametrize(
    ("node", "codes"),
    [
        (a_node("cgpu", SHARED), []),
        (a_node("default", {"nvidia.com/gpu": 4}), []),
        (a_node(None, {"nvidia.com/gpu": 4}), []),
        (a_node("topology", {"aliyun.com/gpu": 4, "nvidia.com/gpu": 0}), []),
        (a_node("core_mem", SHARED | {"aliyun.com/gpu-core.percentage": 400}), []),
        (a_node("cgpu", {"nvidia.com/gpu": 0}), ["reports:aliyun.com/gpu-mem"]),
        (a_node("core_mem", SHARED), ["reports:aliyun.com/gpu-core.percentage"]),
        (a_node("cgpu", SHARED | {"nvidia.com/gpu": 4}), ["others-zero"]),
        # A key that only begins like the wanted one is another resource.
        (
            a_node("topology", {"aliyun.com/gpu-mem": 60, "aliyun.com/gpu-count": 4}),
            ["reports:aliyun.com/gpu", "others-zero"],
        ),
        (a_node("cgpu", SHARED | {"aliyun.com/gpu-count": 0}), ["reports:aliyun.com/gpu-count"]),
        (a_node("cgpu", SHARED, capacity=SHARED | {"aliyun.com/gpu-mem": 75}), ["healthy"]),
        (a_node("cgpu", SHARED | {"aliyun.com/gpu-mem": 90}), ["plausible"]),
        (a_node("cgpu", SHARED | {"aliyun.com/gpu-mem": 45, "aliyun.com/gpu-count": 3}), ["card-labels"]),
        (a_node("shared", SHARED), ["mode-label"]),
    ],
)
def test_a_node_is_held_to_what_its_mode_declares(node: GpuNode, codes: list[str]) -> None:
    assert failed(node) == codes


def test_missing_card_labels_are_unknown_and_not_wrong() -> None:
    node = GpuNode("n", labels={MODE_LABEL: "cgpu"}, allocatable=SHARED, capacity=SHARED)
    assert {check.code for check in node_checks(node) if check.ok is None} == {"card-labels", "plausible"}


def test_a_node_without_gpus_has_no_checks() -> None:
    assert node_checks(GpuNode("cpu", allocatable={"cpu": 4000})) == []
