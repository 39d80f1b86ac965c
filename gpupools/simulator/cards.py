"""Which cards a pod has on its node, what it sees of them, and the environment that the device plugin gives it.

Shares and topology come from the scheduler's annotations; whole exclusive cards are picked here, by the node, and
nobody else is told which. It knows no store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpupools.domain.annotations import claims
from gpupools.domain.asks import card_count, limit_of
from gpupools.domain.gpus import ContainerAsk, Pod
from gpupools.domain.modes import EXCLUSIVE_GPU, GPU_CORE, GPU_MEM, TOPOLOGY_GPU
from gpupools.simulator.hardware import Hardware
from gpupools.simulator.machines import card_bus_id, card_uuid
from gpupools.simulator.nvidiasmi import VisibleCard

# Modes in which a container sees only its share of a card's memory.
_MEMORY_SEEN = frozenset({"cgpu", "core_mem"})
# Resources that the kubelet hands out through device plugins, and so checks when a pod arrives.
DEVICE_RESOURCES = (EXCLUSIVE_GPU, GPU_MEM, TOPOLOGY_GPU, GPU_CORE)


@dataclass(frozen=True, slots=True)
class Grant:
    """The cards of one pod with the memory units that it has on each (0 for whole cards)."""

    hardware: Hardware
    machine_id: str
    mode: str
    units: dict[int, int]
    failed: str = ""  # why no container of the pod can start

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes of the cards on the node."""
        return tuple(sorted(self.units))

    def visible(self) -> tuple[VisibleCard, ...]:
        """Return the cards as the pod's containers see them."""
        return tuple(
            _card(self.hardware, self.machine_id, index, self._memory_mib(index, self.units[index]))
            for index in self.indexes
        )

    def _memory_mib(self, index: int, units: int) -> int:
        _, memory_mib = self.hardware.card_at(index)
        if units and self.mode in _MEMORY_SEEN:
            return memory_mib * units // max(1, self.hardware.card_units)
        return memory_mib

    def env(self, pod: Pod, container: ContainerAsk) -> dict[str, str]:
        """Return what is put into the environment of one container."""
        if not any(container.limits.get(resource) for resource in DEVICE_RESOURCES):
            return {}
        uuids = ",".join(card.uuid for card in self.visible())
        if not container.limits.get(GPU_MEM):
            return {"NVIDIA_VISIBLE_DEVICES": uuids}
        indexes = ",".join(str(index) for index in self.indexes)
        return {
            "NVIDIA_VISIBLE_DEVICES": uuids,
            "ALIYUN_COM_GPU_MEM_IDX": indexes,
            "ALIYUN_COM_GPU_MEM_POD": str(limit_of(pod.ask, GPU_MEM)),
            "ALIYUN_COM_GPU_MEM_CONTAINER": str(container.limits[GPU_MEM] // card_count(pod.ask)),
            "ALIYUN_COM_GPU_MEM_DEV": str(self.hardware.card_units),
            "ALIYUN_COM_GPU_MEM_UNIT": "GiB" if self.hardware.unit_mib == 1024 else f"{self.hardware.unit_mib}MiB",
            "CUDA_VISIBLE_DEVICES": indexes,
            **({"CGPU_DISABLE": "true"} if self.mode == "share" else {}),
        }


def _card(hardware: Hardware, machine_id: str, index: int, memory_mib: int) -> VisibleCard:
    model, _ = hardware.card_at(index)
    return VisibleCard(index, card_uuid(machine_id, index), card_bus_id(index), model, memory_mib)


def all_cards(hardware: Hardware, machine_id: str) -> tuple[VisibleCard, ...]:
    """Return every card of a machine, as its own daemons see them."""
    return tuple(_card(hardware, machine_id, index, hardware.card_at(index)[1]) for index in range(hardware.cards))


def wants_cards(pod: Pod) -> bool:
    """Return whether a pod asks for anything that a device plugin hands out."""
    return any(limit_of(pod.ask, resource) for resource in DEVICE_RESOURCES)


def grant(pod: Pod, *, hardware: Hardware, machine_id: str, mode: str, taken: Iterable[int]) -> Grant:
    """Give a pod its cards. ``taken`` are the whole cards that other pods of the node have.

    A share without a readable allocation cannot be found by the device plugin: the container start fails with the
    device name that the plugin then writes.
    """
    found: dict[int, int] = {}
    failed = ""
    if units := limit_of(pod.ask, GPU_MEM):
        found = dict(claims(pod.annotations, asked_units=units).memory_units)
        if not found or max(found) >= hardware.cards:
            found, failed = {}, f"unknown device id: no-gpu-has-{units}GiB-to-run"
    elif count := limit_of(pod.ask, TOPOLOGY_GPU):
        indexes = claims(pod.annotations).cards
        found = dict.fromkeys(indexes or range(min(count, hardware.cards)), 0)
    elif count := limit_of(pod.ask, EXCLUSIVE_GPU):
        # Whole cards that broke are not handed out.
        used = {*taken, *hardware.broken}
        found = dict.fromkeys([index for index in range(hardware.cards) if index not in used][:count], 0)
    return Grant(hardware, machine_id, mode, found, failed)
