"""What is inside a machine: cores, memory, cards, by its instance type and by what was done to its cards since.

Cards per instance type are the domain's table and the openb trace's; annotations of this cluster's own say when a
machine's cards differ from its type (ECC switched, cards mixed, a card broken). It knows no store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpupools.domain.instances import BY_NAME

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"

# Annotations on a node that this cluster alone knows: they stand for what happens to the iron.
CARD_MEMORY_NOTE = "embedded.gpupools/card-memory-mib"  # 16384: every card reports that much
CARDS_NOTE = "embedded.gpupools/cards"  # Tesla-T4:15079,NVIDIA-A10:23028: one entry per card
BROKEN_NOTE = "embedded.gpupools/unhealthy-cards"  # 0,3: indexes of cards that the plugin found unhealthy


@dataclass(frozen=True, slots=True)
class Hardware:
    """What is inside a machine. ``card_memory_mib`` is what the driver reports for each of its cards.

    ``mixed`` names every card (model, MiB) of a machine whose cards differ; ``unit_mib`` is the size of a unit of
    gpu-mem; ``broken`` are the indexes of unhealthy cards.
    """

    instance_type: str
    vcpus: int
    memory_mib: int
    cards: int = 0
    card: str = ""
    card_memory_mib: int = 0
    mixed: tuple[tuple[str, int], ...] = ()
    unit_mib: int = 1024
    broken: frozenset[int] = frozenset()

    @property
    def family(self) -> str:
        """Family of the instance type: ``ecs.gn6v``."""
        return (
            self.instance_type.partition("-")[0] if "-" in self.instance_type else self.instance_type.rsplit(".", 1)[0]
        )

    @property
    def card_units(self) -> int:
        """Units of gpu-mem that the device plugin counts per card: whole ones of the first card, rounded down."""
        return self.card_memory_mib // self.unit_mib

    def card_at(self, index: int) -> tuple[str, int]:
        """Return model and memory in MiB of one card."""
        return self.mixed[index] if index < len(self.mixed) else (self.card, self.card_memory_mib)


_CPU_TYPES = {
    f"ecs.{family}.{size}": Hardware(f"ecs.{family}.{size}", vcpus, vcpus * gib_per_cpu * 1024)
    for family, gib_per_cpu in (("g7", 4), ("g8i", 4), ("c7", 2), ("r7", 8))
    for size, vcpus in (("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16), ("8xlarge", 32))
}
# GPU types that the node pool form does not offer but a person may type.
_MORE_GPU_TYPES = {
    hardware.instance_type: hardware
    for hardware in (
        Hardware("ecs.gn6i-c4g1.xlarge", 4, 15 * 1024, 1, "Tesla-T4", 15079),
        Hardware("ecs.gn6i-c24g1.24xlarge", 96, 372 * 1024, 4, "Tesla-T4", 15079),
        Hardware("ecs.gn7e-c16g1.4xlarge", 16, 125 * 1024, 1, "NVIDIA-A100-SXM4-80GB", 81920),
        Hardware("ecs.gn7e-c16g1.16xlarge", 64, 500 * 1024, 4, "NVIDIA-A100-SXM4-80GB", 81920),
        Hardware("ecs.gn8is.2xlarge", 8, 64 * 1024, 1, "NVIDIA-L20", 46068),
        Hardware("ecs.gn8is-4x.16xlarge", 64, 512 * 1024, 4, "NVIDIA-L20", 46068),
    )
}

# The GPU machines of a real production cluster, the openb trace (Alibaba cluster-trace-gpu-v2023). The trace gives
# cards, cores and memory per node, but no card memory, and two models only by a code name: the memory of G2 and G3
# cards is an ASSUMPTION, and so is the size of its CPU machines. fleets/openb.yaml marks such nodes by a label.
_OPENB_CARDS = {
    "A10": ("NVIDIA-A10", 23028),
    "P100": ("Tesla-P100-PCIE-16GB", 16280),
    "T4": ("Tesla-T4", 15079),
    "V100M16": ("Tesla-V100-SXM2-16GB", 16130),
    "V100M32": ("Tesla-V100-SXM2-32GB", 32510),
    "G2": ("G2", 23028),
    "G3": ("G3", 46068),
}
_OPENB_SHAPES = (
    ("A10", 1, 128, 1024), ("G2", 8, 96, 384), ("G3", 8, 128, 768), ("P100", 1, 8, 60), ("P100", 2, 8, 60),
    ("P100", 2, 16, 120), ("P100", 2, 64, 256), ("T4", 2, 104, 512), ("T4", 4, 96, 384), ("V100M16", 1, 8, 32),
    ("V100M16", 4, 32, 128), ("V100M16", 8, 64, 256), ("V100M16", 8, 82, 336), ("V100M32", 4, 48, 368),
    ("V100M32", 8, 96, 768),
)  # fmt: skip


def _openb_type(model: str, cards: int, vcpus: int, memory_gib: int) -> Hardware:
    card, card_memory_mib = _OPENB_CARDS[model]
    return Hardware(f"openb.{model.lower()}-{cards}.c{vcpus}", vcpus, memory_gib * 1024, cards, card, card_memory_mib)


_OPENB_TYPES = {
    hardware.instance_type: hardware
    for hardware in (*(_openb_type(*shape) for shape in _OPENB_SHAPES), Hardware("openb.cpu.c96", 96, 384 * 1024))
}


def hardware_of(instance_type: str) -> Hardware | None:
    """Look an instance type up; None when nobody sells it here."""
    known = BY_NAME.get(instance_type)
    if known is not None:
        return Hardware(
            known.name, known.vcpus, known.memory_gib * 1024, known.cards, known.card, known.card_memory_mib
        )
    found = _CPU_TYPES.get(instance_type) or _MORE_GPU_TYPES.get(instance_type)
    return found or _OPENB_TYPES.get(instance_type)


def hardware_of_node(node: Mapping[str, Any]) -> Hardware | None:
    """Return the hardware behind a Node object; None for a node whose instance type nobody sells here."""
    meta = node["metadata"]
    hardware = hardware_of((meta.get("labels") or {}).get(INSTANCE_TYPE_LABEL, ""))
    notes = meta.get("annotations") or {}
    if hardware is None or not hardware.cards or len(notes) < 2:
        # Every node has one annotation from birth.
        return hardware
    return _with_notes(hardware, notes)


def _with_notes(hardware: Hardware, notes: Mapping[str, str]) -> Hardware:
    """Apply what was done to the cards; a note that cannot be read says nothing."""
    if (memory := notes.get(CARD_MEMORY_NOTE, "")).isdigit():
        hardware = replace(hardware, card_memory_mib=int(memory))
    if cards := re.findall(r"([A-Za-z0-9.\-]+):(\d+)", notes.get(CARDS_NOTE, "")):
        mixed = tuple((model, int(mib)) for model, mib in cards)
        # The device plugin asks the first card and takes all for its like.
        hardware = replace(hardware, cards=len(mixed), card=mixed[0][0], card_memory_mib=mixed[0][1], mixed=mixed)
    broken = {int(text) for text in notes.get(BROKEN_NOTE, "").split(",") if text.strip().isdigit()}
    return replace(hardware, broken=frozenset(index for index in broken if index < hardware.cards))
