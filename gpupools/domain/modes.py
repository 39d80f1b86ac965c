"""THE table of GPU scheduling modes: label value, resources, isolation, needs. Everything else reads it.

Facts are ACK's (label ``ack.node.gpu.schedule``); this module knows no cluster, database or page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

MODE_LABEL = "ack.node.gpu.schedule"
PLACEMENT_LABEL = "ack.node.gpu.placement"
MAX_PODS_LABEL = "ack.node.gpu.max-pod"
CARD_NAME_LABEL = "aliyun.accelerator/nvidia_name"
CARD_MEMORY_LABEL = "aliyun.accelerator/nvidia_mem"
CARD_COUNT_LABEL = "aliyun.accelerator/nvidia_count"
ACK_POOL_LABEL = "alibabacloud.com/nodepool-id"
POOL_LABEL = "gpupools.internal/pool"
OP_LABEL = "gpupools.internal/op"  # on ACK node pools (a label) and on Kubernetes objects (an annotation)
FIELD_MANAGER = "gpupools"

EXCLUSIVE_GPU = "nvidia.com/gpu"
GPU_MEM = "aliyun.com/gpu-mem"
GPU_COUNT = "aliyun.com/gpu-count"
GPU_CORE = "aliyun.com/gpu-core.percentage"
TOPOLOGY_GPU = "aliyun.com/gpu"
GPU_RESOURCES = (EXCLUSIVE_GPU, GPU_MEM, GPU_COUNT, GPU_CORE, TOPOLOGY_GPU)


class Mode(StrEnum):
    """How a node's cards are handed out. Values are the console's words, not the label's."""

    EXCLUSIVE = "exclusive"
    CGPU = "cgpu"
    CORE_MEM = "core_mem"
    SHARE = "share"
    MPS = "mps"
    TOPOLOGY = "topology"
    MIG = "mig"
    DISABLED = "disabled"


class PlacementPolicy(StrEnum):
    """Which card of a shared node is filled next (label ``ack.node.gpu.placement``)."""

    BINPACK = "binpack"
    SPREAD = "spread"


class Component(StrEnum):
    """What modes depend on, by the names that ACK gives them."""

    AI_INSTALLER = "ack-ai-installer"
    MPS_CONTROL = "ack-mps-control"
    NVIDIA_PLUGIN = "ack-nvidia-device-plugin"


@dataclass(frozen=True, slots=True)
class ModeFacts:
    """One row of the table. ``resources`` are the node resources that must be above zero in this mode."""

    mode: Mode
    label_value: str
    code: str
    title: str
    resources: tuple[str, ...]
    memory_enforced: bool
    compute_enforced: bool
    whole_cards: bool
    components: tuple[Component, ...]
    needs_pro: bool
    consequence: str
    read_only: bool = False

    @property
    def shared(self) -> bool:
        """Whether several pods may hold one card, accounted in memory units."""
        return GPU_MEM in self.resources

    @property
    def zero_resources(self) -> tuple[str, ...]:
        """The resources of other modes, which must be zero or absent in this one."""
        own = {*self.resources, *((GPU_COUNT,) if self.shared else ())}
        return tuple(name for name in GPU_RESOURCES if name not in own)


_AI = Component.AI_INSTALLER
MODES: Mapping[Mode, ModeFacts] = {
    facts.mode: facts
    for facts in (
        ModeFacts(
            Mode.EXCLUSIVE, "default", "EX", "Exclusive", (EXCLUSIVE_GPU,), True, True, True,
            (Component.NVIDIA_PLUGIN,), False,
            "Whole cards, one pod each. For training and other work that needs a card to itself.",
        ),
        ModeFacts(
            Mode.CGPU, "cgpu", "CG", "Shared, cGPU", (GPU_MEM,), True, False, False, (_AI,), True,
            "Memory is enforced, compute is not. Needs ack-ai-installer.",
        ),
        ModeFacts(
            Mode.CORE_MEM, "core_mem", "CM", "Shared, memory and compute", (GPU_MEM, GPU_CORE), True, True, False,
            (_AI,), True, "Memory and compute are both enforced. Needs ack-ai-installer.",
        ),
        ModeFacts(
            Mode.SHARE, "share", "SH", "Shared, no isolation", (GPU_MEM,), False, False, False, (_AI,), True,
            "Nothing is enforced: memory is only accounted. Needs ack-ai-installer.",
        ),
        ModeFacts(
            Mode.MPS, "mps", "MP", "Shared, MPS", (GPU_MEM,), True, False, False,
            (_AI, Component.MPS_CONTROL), True,
            "Memory is enforced through NVIDIA MPS; pods need hostIPC. "
            "Needs ack-ai-installer, and ack-mps-control before the label.",
        ),
        ModeFacts(
            Mode.TOPOLOGY, "topology", "TP", "Topology-aware", (TOPOLOGY_GPU,), True, True, True, (_AI,), True,
            "Whole cards, chosen by link bandwidth. Other GPU pods are refused. Needs ack-ai-installer.",
        ),
        ModeFacts(
            Mode.MIG, "mig", "MI", "MIG (read-only here)", (), True, True, False, (), True,
            "Managed by ACK's MIG plugin; the console shows it and does not change it.", read_only=True,
        ),
        ModeFacts(
            Mode.DISABLED, "disabled", "OF", "ACK plugin off (read-only here)", (), False, False, False, (), False,
            "ACK's GPU device plugin is off on this node, for DRA or another vendor's plugin.", read_only=True,
        ),
    )
}  # fmt: skip

# The six modes that a person can choose, in the order of forms and legends.
CHOOSABLE: tuple[Mode, ...] = tuple(mode for mode, facts in MODES.items() if not facts.read_only)
SHARED_MODES: tuple[Mode, ...] = tuple(mode for mode, facts in MODES.items() if facts.shared)
_BY_LABEL = {facts.label_value: mode for mode, facts in MODES.items()}


def mode_of_label(value: str | None) -> Mode | None:
    """Read the value of ``ack.node.gpu.schedule``; an absent label means exclusive, an unknown value None."""
    return Mode.EXCLUSIVE if value is None else _BY_LABEL.get(value)


def mode_labels(mode: Mode, policy: PlacementPolicy | None) -> dict[str, str]:
    """Return the labels that declare a mode on a pool or node.

    Exclusive is written as ``default``, never by leaving the label out: removing the label does not bring
    exclusive mode back on ACK. The placement label only has an effect in the shared modes, so only they get it.
    """
    facts = MODES[mode]
    labels = {MODE_LABEL: facts.label_value}
    if facts.shared:
        labels[PLACEMENT_LABEL] = (policy or PlacementPolicy.BINPACK).value
    return labels
