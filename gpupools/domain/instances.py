"""ECS instance types with GPUs that the node pool form offers, by family. Free entry is always allowed.

Card names are as ``nvidia-smi`` gives them with ``-`` for spaces; memory is what the driver reports, in MiB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One instance type: its cards, and the machine around them."""

    name: str
    family: str
    card: str
    cards: int
    card_memory_mib: int
    vcpus: int
    memory_gib: int
    purpose: str

    @property
    def card_memory_units(self) -> int:
        """Units of ``aliyun.com/gpu-mem`` that one card gives in the default unit of 1 GiB (floor, as ACK does)."""
        return self.card_memory_mib // 1024

    @property
    def memory_units(self) -> int:
        """What a node of this type reports as ``aliyun.com/gpu-mem``."""
        return self.card_memory_units * self.cards


def _types(
    family: str, card: str, card_memory_mib: int, purpose: str, *sizes: tuple[str, int, int, int]
) -> tuple[InstanceType, ...]:
    return tuple(
        InstanceType(f"ecs.{family}-{size}", f"ecs.{family}", card, cards, card_memory_mib, vcpus, memory_gib, purpose)
        for size, cards, vcpus, memory_gib in sizes
    )


INSTANCE_TYPES: tuple[InstanceType, ...] = (
    *_types(
        "gn7i", "NVIDIA-A10", 23028, "inference",
        ("c8g1.2xlarge", 1, 8, 30), ("c16g1.4xlarge", 1, 16, 60), ("c32g1.16xlarge", 2, 64, 376),
        ("c32g1.32xlarge", 4, 128, 752),
    ),
    *_types(
        "gn7", "NVIDIA-A100-SXM4-80GB", 81920, "training",
        ("c13g1.13xlarge", 4, 52, 480), ("c13g1.26xlarge", 8, 104, 960),
    ),
    *_types(
        "gn6v", "Tesla-V100-SXM2-16GB", 16130, "training and inference",
        ("c8g1.2xlarge", 1, 8, 32), ("c8g1.8xlarge", 4, 32, 128), ("c8g1.16xlarge", 8, 64, 256),
    ),
    *_types(
        "gn6e", "Tesla-V100-SXM2-32GB", 32510, "training of large models",
        ("c12g1.3xlarge", 1, 12, 92), ("c12g1.12xlarge", 4, 48, 368), ("c12g1.24xlarge", 8, 96, 736),
    ),
)  # fmt: skip

BY_NAME = {instance.name: instance for instance in INSTANCE_TYPES}
_INSTANCE_NAME = re.compile(r"ecs\.[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+)+")


def looks_like_instance_type(name: str) -> bool:
    """Whether a freely typed name has the shape of an ECS instance type (``ecs.<family>[-<size>].<size>``)."""
    return _INSTANCE_NAME.fullmatch(name) is not None
