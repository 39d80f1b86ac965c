"""Measures the rules on a made-up fleet: read, fold, preview, keep. Pure computing: no cluster, database or broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from gpupools.domain import allocation, annotations, manifests, objects, placement
from gpupools.domain.gpus import GpuNode, Picture, Pod
from gpupools.domain.modes import (
    CARD_COUNT_LABEL,
    CARD_MEMORY_LABEL,
    CARD_NAME_LABEL,
    GPU_COUNT,
    GPU_MEM,
    Mode,
    PlacementPolicy,
    mode_labels,
)

CARDS = 8
UNITS_PER_CARD = 30
UNITS_PER_POD = 6
MANIFEST = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: bench
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: registry.example.com/bench:1
          resources:
            limits:
              aliyun.com/gpu-mem: "6"
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured thing: the best of its repetitions, and how many units of work it took at once."""

    name: str
    seconds: float
    units: int
    unit: str

    def as_dict(self) -> dict[str, object]:
        """Return the JSON shape."""
        per_second = round(self.units / self.seconds) if self.seconds else None
        return {
            "name": self.name,
            "seconds": round(self.seconds, 6),
            "units": self.units,
            "unit": self.unit,
            "units_per_second": per_second,
        }


def raw_node(number: int) -> dict[str, Any]:
    """Return a node as an API server gives it: eight shared cards."""
    resources = {
        "cpu": "96",
        "memory": "768Gi",
        "pods": "256",
        GPU_MEM: str(CARDS * UNITS_PER_CARD),
        GPU_COUNT: str(CARDS),
    }
    labels = {
        **mode_labels(Mode.CGPU, PlacementPolicy.SPREAD if number % 2 else PlacementPolicy.BINPACK),
        CARD_NAME_LABEL: "NVIDIA-A10",
        CARD_MEMORY_LABEL: "30720MiB",
        CARD_COUNT_LABEL: str(CARDS),
    }
    return {
        "metadata": {"name": f"gpu-{number:05}", "uid": f"node-{number}", "labels": labels},
        "spec": {},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def raw_pod(number: int, *, nodes: int) -> dict[str, Any]:
    """Return a running pod that holds a share of one card, with the annotations that ACK's scheduler writes."""
    card = (number // nodes) % CARDS
    spec = {
        "nodeName": f"gpu-{number % nodes:05}",
        "containers": [{"name": "main", "image": "bench", "resources": {"limits": {GPU_MEM: str(UNITS_PER_POD)}}}],
    }
    ask = objects.read(spec, objects.PodSpecObject)
    written = annotations.share_annotations(
        objects.ask(ask, {}, "bench", f"pod-{number}"),
        [card],
        card_units=[UNITS_PER_CARD] * CARDS,
        assumed_at_ns=number,
        assigned=True,
    )
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "bench",
            "uid": f"pod-{number}",
            "annotations": written,
        },
        "spec": spec,
        "status": {"phase": "Running"},
    }


def measure(name: str, unit: str, units: int, work: Callable[[], object], *, repeat: int) -> Measure:
    """Time a piece of work; the best of the repetitions, since everything else on the machine only adds."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return Measure(name, best, units, unit)


def run(*, nodes: int, pods: int, repeat: int) -> list[Measure]:
    """Measure everything on a fleet of that size."""
    raw_nodes = [raw_node(number) for number in range(nodes)]
    raw_pods = [raw_pod(number, nodes=nodes) for number in range(pods)]
    seen_nodes = [found for raw in raw_nodes if isinstance(found := objects.convert("Node", raw), GpuNode)]
    seen_pods = [found for raw in raw_pods if isinstance(found := objects.convert("Pod", raw), Pod)]
    first = seen_nodes[0]
    on_first = [pod for pod in seen_pods if pod.node == first.name]
    states = placement.node_states(seen_nodes, seen_pods)
    ask = manifests.parse(MANIFEST, max_bytes=len(MANIFEST)).ask
    picture = Picture(1, 1, 0.0, tuple(seen_nodes), tuple(seen_pods))
    packed = msgspec.msgpack.encode(picture)

    def timed(name: str, unit: str, units: int, work: Callable[[], object]) -> Measure:
        return measure(name, unit, units, work, repeat=repeat)

    return [
        timed("read pods", "pods", pods, lambda: [objects.convert("Pod", raw) for raw in raw_pods]),
        timed("fold all nodes", "pods", pods, lambda: allocation.fold_all(seen_nodes, seen_pods)),
        timed("fold one touched node", "pods", len(on_first), lambda: allocation.fold(first, on_first)),
        timed("prepare a preview", "nodes", nodes, lambda: placement.node_states(seen_nodes, seen_pods)),
        timed("preview one pod", "nodes", nodes, lambda: placement.preview(ask, states)),
        timed("write a picture", "bytes", len(packed), lambda: msgspec.msgpack.encode(picture)),
        timed("read a picture", "bytes", len(packed), lambda: msgspec.msgpack.decode(packed, type=Picture)),
        timed("check a manifest", "manifests", 1, lambda: manifests.parse(MANIFEST, max_bytes=len(MANIFEST))),
    ]
