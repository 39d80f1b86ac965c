"""The fleet of the measurements: 1,213 GPU nodes with 6,212 cards and their pods, in the shape of the openb trace.

The trace (Alibaba cluster-trace-gpu-v2023) has neither modes nor card memory: both are assumed here, so that every
mode has its share and a card of any model has the reference card's units. Its own files may be read instead.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupools.domain import annotations, objects
from gpupools.domain.asks import limit_of
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import (
    CARD_COUNT_LABEL,
    CARD_MEMORY_LABEL,
    CARD_NAME_LABEL,
    EXCLUSIVE_GPU,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    TOPOLOGY_GPU,
    Mode,
    PlacementPolicy,
    mode_labels,
)
from gpupools.domain.placement import Fleet, node_states
from gpupools.management.embedded import openbload

NODES_FILE, PODS_FILE = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
CARD_MIB = 16_160  # of the reference card: 15 units of 1 GiB
# (nodes, cores, GiB, cards, model) of the trace's GPU nodes.
MACHINES = (
    (549, 96, 384, 8, "G2"), (387, 104, 512, 2, "T4"), (107, 16, 120, 2, "P100"), (39, 128, 768, 8, "G3"),
    (28, 32, 128, 4, "V100M16"), (22, 64, 256, 2, "P100"), (21, 96, 768, 8, "V100M32"), (19, 8, 32, 1, "V100M16"),
    (17, 96, 384, 4, "T4"), (9, 48, 368, 4, "V100M32"), (7, 64, 256, 8, "V100M16"), (3, 8, 60, 1, "P100"),
    (2, 8, 60, 2, "P100"), (2, 128, 1024, 1, "A10"), (1, 82, 336, 8, "V100M16"),
)  # fmt: skip
# The modes of ten nodes in a row: half of the cards are handed out whole, as half of the trace's pods want them.
MODES = (
    (Mode.EXCLUSIVE, None), (Mode.CGPU, PlacementPolicy.BINPACK), (Mode.EXCLUSIVE, None),
    (Mode.SHARE, PlacementPolicy.BINPACK), (Mode.EXCLUSIVE, None), (Mode.CGPU, PlacementPolicy.SPREAD),
    (Mode.EXCLUSIVE, None), (Mode.CORE_MEM, PlacementPolicy.BINPACK), (Mode.TOPOLOGY, None),
    (Mode.MPS, PlacementPolicy.BINPACK),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shapes:
    """What to measure on. ``machines``: cores (thousandths), MiB, cards, model; ``pods``: raw pods on no node."""

    source: str
    machines: tuple[tuple[int, int, int, str], ...]
    pods: tuple[dict[str, Any], ...]


def compact(pods: int) -> Shapes:
    """Return the fleet from the figures above, with so many pods of the trace's mix."""
    machines = tuple(
        (cores * 1000, gib * 1024, cards, model) for count, cores, gib, cards, model in MACHINES for _ in range(count)
    )
    made = (openbload.pod(f"openb-{number:05}", shape) for number, shape in enumerate(openbload.order(pods)))
    return Shapes("compact openb shape", machines, tuple(made))


def of_files(folder: Path, pods: int) -> Shapes:
    """Return the fleet from the trace's own two files; more pods than it has start over."""
    with (folder / NODES_FILE).open(newline="", encoding="utf-8") as file:
        machines = tuple(
            (int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        )
    with (folder / PODS_FILE).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    made = (_pod_of_row(f"openb-{number:05}", rows[number % len(rows)]) for number in range(pods))
    return Shapes(str(folder), machines, tuple(made))


def _pod_of_row(name: str, row: dict[str, str]) -> dict[str, Any]:
    cards, thousandths = int(row["num_gpu"]), int(row["gpu_milli"])
    limits: dict[str, str] = {}
    if cards and thousandths < 1000:
        limits[GPU_MEM] = str(-(-thousandths * openbload.REFERENCE_CARD_UNITS // 1000))
    elif cards:
        limits[EXCLUSIVE_GPU] = str(cards)
    resources = {"requests": {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}, "limits": limits}
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "resources": resources}]}}


def raw_node(number: int, machine: tuple[int, int, int, str]) -> dict[str, Any]:
    """Return a node as an API server gives it."""
    millis, mib, cards, model = machine
    mode, policy = MODES[number % len(MODES)]
    resources = {"cpu": f"{millis}m", "memory": f"{mib}Mi", "pods": "256"}
    if mode is Mode.EXCLUSIVE:
        resources[EXCLUSIVE_GPU] = str(cards)
    elif mode is Mode.TOPOLOGY:
        resources[TOPOLOGY_GPU] = str(cards)
    else:
        resources |= {GPU_MEM: str(cards * openbload.REFERENCE_CARD_UNITS), GPU_COUNT: str(cards)}
        if mode is Mode.CORE_MEM:
            resources[GPU_CORE] = str(100 * cards)
    labels = {
        **mode_labels(mode, policy),
        CARD_NAME_LABEL: model,
        CARD_MEMORY_LABEL: f"{CARD_MIB}MiB",
        CARD_COUNT_LABEL: str(cards),
        "kubernetes.io/hostname": f"gpu-{number:04}",
    }
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": f"gpu-{number:04}", "uid": f"node-{number}", "labels": labels},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions},
    }


def nodes_of(shapes: Shapes) -> list[GpuNode]:
    """Return the nodes as the rules see them."""
    made = (objects.convert("Node", raw_node(number, each)) for number, each in enumerate(shapes.machines))
    return [node for node in made if isinstance(node, GpuNode)]


def placed(shapes: Shapes, nodes: Sequence[GpuNode]) -> list[dict[str, Any]]:
    """Return the raw pods as they run: placed one after the other, with the annotations of ACK's scheduler.

    A pod that finds no place stays on no node.
    """
    fleet = Fleet(node_states(nodes, ()))
    return [_bound(raw, number, fleet) for number, raw in enumerate(shapes.pods)]


def _bound(raw: dict[str, Any], number: int, fleet: Fleet) -> dict[str, Any]:
    pod = objects.convert("Pod", raw)
    if not isinstance(pod, Pod):
        raise TypeError(raw)
    found = fleet.place(pod.ask)
    notes = {}
    if found.chosen is not None and limit_of(pod.ask, GPU_MEM):
        units = [openbload.REFERENCE_CARD_UNITS] * 8
        notes = annotations.share_annotations(
            pod.ask, found.cards, card_units=units, assumed_at_ns=1_764_500_000_000_000_000 + number, assigned=True
        )
    spec = {**raw["spec"], **({"nodeName": found.chosen} if found.chosen else {})}
    meta = {**raw["metadata"], "namespace": "openb", "uid": f"pod-{number}", "annotations": notes}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running" if found.chosen else "Pending"}}


def pods_of(raws: Sequence[dict[str, Any]]) -> list[Pod]:
    """Return raw pods as the rules see them."""
    return [pod for raw in raws if isinstance(pod := objects.convert("Pod", raw), Pod)]


def listed(raws: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield raw pods with all that an API server adds: owners, who wrote which field, volumes, conditions."""
    for number, raw in enumerate(raws):
        stamp = "2026-11-30T10:00:00Z"
        meta, spec = raw["metadata"], raw["spec"]
        running = raw["status"]["phase"] == "Running"
        volume = f"kube-api-access-{number:05x}"
        mounts = [{"name": volume, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
        fields = {"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:job-name": {}}}, "f:spec": {"f:containers": {
            'k:{"name":"main"}': {".": {}, "f:command": {}, "f:image": {}, "f:name": {}, "f:resources": {".": {},
            "f:limits": {}, "f:requests": {}}}}, "f:restartPolicy": {}, "f:schedulerName": {}}}  # fmt: skip
        writers = [
            {"manager": who, "operation": "Update", "apiVersion": "v1", "time": stamp, "fieldsType": "FieldsV1",
             "fieldsV1": fields} for who in ("kube-controller-manager", "kube-scheduler", "kubelet")
        ]  # fmt: skip
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "openb", "uid": "job-1", "controller": True,
                 "blockOwnerDeletion": True}  # fmt: skip
        conditions = [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ]
        container = {
            **spec["containers"][0],
            "env": [{"name": f"SETTING_{each}", "value": f"value-{each}"} for each in range(8)],
            "volumeMounts": mounts,
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
            "image": "registry.local/openb:1",
        }
        state = {"running": {"startedAt": stamp}} if running else {"waiting": {"reason": "Pending"}}
        status = {"name": "main", "ready": running, "started": running, "restartCount": 0,
                  "image": "registry.local/openb:1", "imageID": f"sha256:{'0' * 64}",
                  "containerID": f"containerd://{number:064x}", "lastState": {}, "state": state}  # fmt: skip
        yield {
            "metadata": {**meta, "resourceVersion": str(1000 + number), "creationTimestamp": stamp,
                         "generateName": "openb-", "labels": {"app": "openb", "job-name": "openb"},
                         "ownerReferences": [owner], "managedFields": writers},
            "spec": {**spec, "containers": [container], "restartPolicy": "Never", "dnsPolicy": "ClusterFirst",
                     "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {},
                     "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": True,
                     "preemptionPolicy": "PreemptLowerPriority", "terminationGracePeriodSeconds": 30,
                     "tolerations": [{"key": f"node.kubernetes.io/{key}", "operator": "Exists",
                                      "effect": "NoExecute", "tolerationSeconds": 300}
                                     for key in ("not-ready", "unreachable")],
                     "volumes": [{"name": volume, "projected": {"defaultMode": 420, "sources": [
                         {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                         {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                     ]}}]},
            "status": {"phase": raw["status"]["phase"], "conditions": conditions if running else conditions[-1:],
                       "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}], "startTime": stamp,
                       "qosClass": "Burstable", "containerStatuses": [status]},
        }  # fmt: skip
