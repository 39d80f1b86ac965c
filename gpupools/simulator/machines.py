"""The machines of the embedded cluster: links, bus ids, UUIDs, operating system, and the Node object they join with.

What is inside a machine of some type is in hardware.py. It knows no node pool and no store.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpupools.domain.modes import CARD_COUNT_LABEL, CARD_MEMORY_LABEL, CARD_NAME_LABEL, MODE_LABEL
from gpupools.simulator.hardware import INSTANCE_TYPE_LABEL, Hardware

INSTANCE_ID_LABEL = "alibabacloud.com/ecs-instance-id"
DRIVER_VERSION = "570.172.08"
CUDA_VERSION = "12.8"


# NVLink of the V100 machines: a hybrid cube mesh, some pairs with two links and some with one.
_DOUBLE_LINKS = frozenset({(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)})
_SINGLE_LINKS = frozenset({(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)})
_BANDWIDTH = {"X": 0.0, "SYS": 10.0, "PHB": 16.0, "NV1": 25.0, "NV2": 50.0, "NV12": 300.0}


def link_types(hardware: Hardware) -> list[list[str]]:
    """Return how each pair of cards is connected, in nvidia-smi's words; ``X`` on the diagonal."""

    def between(one: int, other: int) -> str:
        pair = (min(one, other), max(one, other))
        if one == other:
            return "X"
        if hardware.card.startswith("NVIDIA-A100"):
            return "NV12"
        if "SXM2" in hardware.card:
            if pair in _DOUBLE_LINKS:
                return "NV2"
            if pair in _SINGLE_LINKS:
                return "NV1"
        return "PHB" if one // 4 == other // 4 else "SYS"

    return [[between(row, column) for column in range(hardware.cards)] for row in range(hardware.cards)]


def link_bandwidths(hardware: Hardware) -> list[list[float]]:
    """Return the bandwidth in GB/s between each pair of cards."""
    return [[_BANDWIDTH[kind] for kind in row] for row in link_types(hardware)]


def _digest(*parts: object) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def card_uuid(machine_id: str, index: int) -> str:
    """Return the UUID of a card: always the same for the same machine and index."""
    digest = _digest("gpu", machine_id, index)
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def card_bus_id(index: int) -> str:
    """Return the PCI address of a card as nvidia-smi writes it."""
    return f"00000000:00:{7 + index:02X}.0"


def machine_id_of(node: Mapping[str, Any]) -> str:
    """Return what identifies the machine behind a node for good: the instance id, or the node's name."""
    labels = node["metadata"].get("labels") or {}
    return str(labels.get(INSTANCE_ID_LABEL) or node["metadata"]["name"])


def instance_id(seed: str) -> str:
    """Make an ECS instance id: ``i-`` and twenty letters and digits."""
    number = int(_digest("instance", seed), 16)
    letters = "0123456789abcdefghijklmnopqrstuvwxyz"
    picked = []
    for _ in range(17):
        number, rest = divmod(number, len(letters))
        picked.append(letters[rest])
    return "i-bp1" + "".join(picked)


def address(number: int) -> str:
    """Return the address of the n-th machine (from 1): the documentation ranges first, private addresses after."""
    for prefix in ("192.0.2", "198.51.100", "203.0.113"):
        if number <= 254:
            return f"{prefix}.{number}"
        number -= 254
    return f"10.{(number >> 16) & 255}.{(number >> 8) & 255}.{number & 255}"


def _kubelet_reserve(hardware: Hardware) -> tuple[int, int]:
    """Return cpu (millicores) and memory (MiB) that the node keeps for itself, growing with its size."""
    return 70 + 2 * hardware.vcpus, 1024 + hardware.memory_mib // 50


def resources(hardware: Hardware) -> tuple[dict[str, str], dict[str, str]]:
    """Return capacity and allocatable without any GPU resource: those come from device plugins."""
    cpu_millis, memory_mib = _kubelet_reserve(hardware)
    pods = "110" if hardware.vcpus > 4 else "64"
    capacity = {
        "cpu": str(hardware.vcpus),
        "ephemeral-storage": "123722704Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": f"{hardware.memory_mib * 1024 * 97 // 100}Ki",
        "pods": pods,
    }
    allocatable = {
        **capacity,
        "cpu": f"{hardware.vcpus * 1000 - cpu_millis}m",
        "ephemeral-storage": "114022843818",
        "memory": f"{(hardware.memory_mib * 97 // 100 - memory_mib) * 1024}Ki",
    }
    return capacity, allocatable


def card_labels(hardware: Hardware) -> dict[str, str]:
    """Return the card model labels that are written when a GPU machine joins."""
    if not hardware.cards:
        return {}
    return {
        CARD_NAME_LABEL: hardware.card,
        CARD_MEMORY_LABEL: f"{hardware.card_memory_mib}MiB",
        CARD_COUNT_LABEL: str(hardware.cards),
    }


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cluster's machines stand and what they run."""

    region: str
    version: str  # of Kubernetes, without the leading v
    cluster_id: str = ""


def kubernetes_minor(version: str) -> int:
    """Return 34 for ``1.34.3-aliyun.1``."""
    found = re.match(r"1\.(\d+)", version)
    return int(found[1]) if found else 0


def node_object(
    *,
    name: str,
    ip: str,
    machine: str,
    hardware: Hardware,
    place: Place,
    zone: str,
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
    number: int,
    stamp: str,
    unschedulable: bool = False,
) -> dict[str, Any]:
    """Build the Node that a machine registers with: not ready yet, card model labels on, no GPU resource.

    On Kubernetes 1.32 and later the join script adds ``ack.node.gpu.schedule=default`` to a GPU machine without
    a mode, because the device plugin's DaemonSet selects on it.
    """
    capacity, allocatable = resources(hardware)
    mode = {MODE_LABEL: "default"} if hardware.cards and kubernetes_minor(place.version) >= 32 else {}
    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                INSTANCE_TYPE_LABEL: hardware.instance_type,
                "beta.kubernetes.io/instance-type": hardware.instance_type,
                "topology.kubernetes.io/region": place.region,
                "topology.kubernetes.io/zone": zone,
                **mode,
                **labels,
                **card_labels(hardware),
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {
            "podCIDR": _pod_range(number),
            "podCIDRs": [_pod_range(number)],
            "providerID": f"{place.region}.{machine}",
            "taints": [*taints, not_ready],
            **({"unschedulable": True} if unschedulable else {}),
        },
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "addresses": [
                {"type": "InternalIP", "address": ip},
                {"type": "Hostname", "address": name},
            ],
            "conditions": conditions(stamp, ready=False),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": _node_info(machine, place),
            "images": [],
        },
    }


def _pod_range(number: int) -> str:
    return f"10.{64 + (number >> 8)}.{number & 255}.0/24"


def _node_info(machine: str, place: Place) -> dict[str, str]:
    digest = _digest("machine", machine)
    return {
        "architecture": "amd64",
        "bootID": f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}",
        "containerRuntimeVersion": "containerd://2.1.5",
        "kernelVersion": "5.10.134-19.2.al8.x86_64",
        "kubeProxyVersion": "",
        "kubeletVersion": f"v{place.version}",
        "machineID": digest[:32],
        "operatingSystem": "linux",
        "osImage": "Alibaba Cloud Linux 3.2104 U12 (OpenAnolis Edition)",
        "systemUUID": f"{digest[32:40]}-{digest[40:44]}-{digest[44:48]}-{digest[48:52]}-{digest[52:64]}",
    }


_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def conditions(stamp: str, *, ready: bool) -> list[dict[str, str]]:
    """Return a node's conditions, all as of ``stamp``."""
    listed = [
        {
            "type": kind,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
        for kind, reason, message in _PRESSURES
    ]
    listed.append(
        {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "KubeletReady" if ready else "KubeletNotReady",
            "message": "kubelet is posting ready status"
            if ready
            else "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady",
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
    )
    return listed
