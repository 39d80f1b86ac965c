"""Measures the rules on a fleet of the openb shape, in CPU time. Pure computing: no cluster, database or broker."""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpupools.domain import allocation, manifests, placement
from gpupools.domain.gpus import GpuNode, Picture, Pod
from gpupools.domain.ledger import Ledger
from gpupools.management import benchfleet
from gpupools.management.benchfleet import Shapes

PATH_COST = Path(__file__).resolve().parent.parent.parent / ".ci" / "pathcost.py"
LISTED_PODS = 8152  # of the raw list that both paths read
JOB_PODS = 2000
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
            requests: {cpu: "4", memory: 8Gi}
            limits:
              aliyun.com/gpu-mem: "6"
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured thing: the best CPU time of its repetitions for ``units`` of work.

    ``bar`` and ``stretch`` are in ``bar_unit``: milliseconds (at most), per second or times (at least).
    """

    name: str
    seconds: float
    units: int
    unit: str
    bar_unit: str = ""
    bar: float = 0.0
    stretch: float = 0.0
    value: float = 0.0

    def as_dict(self) -> dict[str, object]:
        """Return the JSON shape."""
        found: dict[str, object] = {
            "name": self.name,
            "cpu_seconds": round(self.seconds, 7),
            "units": self.units,
            "unit": self.unit,
        }
        if self.bar_unit:
            at_most = self.bar_unit == "ms"
            found |= {
                "value": round(self.value, 4),
                "value_unit": self.bar_unit,
                "bar": self.bar,
                "stretch": self.stretch,
                "bar_met": self.value <= self.bar if at_most else self.value >= self.bar,
                "stretch_met": self.value <= self.stretch if at_most else self.value >= self.stretch,
            }
        return found


def machine() -> dict[str, object]:
    """Return the figures of the machine that numbers depend on."""
    load = os.getloadavg() if hasattr(os, "getloadavg") else (0.0,)
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 0,
        "load_average": round(load[0], 2),
        "system": platform.platform(terse=True),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "msgspec": msgspec.__version__,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def cpu_seconds(work: Callable[[], object], *, repeat: int) -> float:
    """Time a piece of work; the best of the repetitions, since everything else on the machine only adds."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is measured on: raw pods as they run, and the values that the rules work on."""

    shapes: Shapes
    nodes: list[GpuNode]
    raw_pods: list[dict[str, Any]]
    pods: list[Pod]

    @property
    def figures(self) -> dict[str, object]:
        """Return what the fleet is, for the report."""
        return {
            "source": self.shapes.source,
            "nodes": len(self.nodes),
            "cards": sum(cards for _, _, cards, _ in self.shapes.machines),
            "pods": len(self.pods),
            "pods_on_nodes": sum(1 for pod in self.pods if pod.node),
        }


def fleet(shapes: Shapes) -> Fleet:
    """Make the fleet: every pod is placed by the rules themselves."""
    nodes = benchfleet.nodes_of(shapes)
    raw_pods = benchfleet.placed(shapes, nodes)
    return Fleet(shapes, nodes, raw_pods, benchfleet.pods_of(raw_pods))


def run(made: Fleet, *, repeat: int) -> list[Measure]:
    """Measure everything that runs in this process."""
    ask = manifests.parse(MANIFEST, max_bytes=len(MANIFEST)).ask
    states = placement.node_states(made.nodes, made.pods)
    picture = Picture(1, 1, 0.0, tuple(made.nodes), tuple(made.pods))
    packed = msgspec.msgpack.encode(picture)

    def plain(name: str, unit: str, units: int, work: Callable[[], object]) -> Measure:
        return Measure(name, cpu_seconds(work, repeat=repeat), units, unit)

    folded = cpu_seconds(lambda: allocation.fold_all(made.nodes, made.pods), repeat=repeat)
    asked = cpu_seconds(lambda: placement.preview(ask, states), repeat=repeat)
    event = _one_event(made, repeat=repeat)
    return [
        Measure("fold all nodes", folded, len(made.pods), "pods", "ms", 60, 25, folded * 1000),
        Measure("one pod event", event, 1, "events", "ms", 0.2, 0.05, event * 1000),
        Measure("preview of one pod with every reason", asked, len(states), "nodes", "ms", 5, 2, asked * 1000),
        _decisions(made, repeat=repeat),
        _equal_decisions(ask, made, repeat=repeat),
        plain("read pods", "pods", len(made.raw_pods), lambda: benchfleet.pods_of(made.raw_pods)),
        plain("prepare a preview", "nodes", len(states), lambda: placement.node_states(made.nodes, made.pods)),
        plain("write a picture", "bytes", len(packed), lambda: msgspec.msgpack.encode(picture)),
        plain("read a picture", "bytes", len(packed), lambda: msgspec.msgpack.decode(packed, type=Picture)),
        plain("check a manifest", "manifests", 1, lambda: manifests.parse(MANIFEST, max_bytes=len(MANIFEST))),
    ]


def _one_event(made: Fleet, *, repeat: int) -> float:
    """Return the CPU time of one event on a pod, over one event for each pod that is on a node."""
    ledger = Ledger(made.nodes, made.pods)
    changed = [msgspec.structs.replace(pod, terminating=True) for pod in made.pods if pod.node]

    def events() -> None:
        for pod in changed:
            ledger.put_pod(pod)

    return cpu_seconds(events, repeat=repeat) / len(changed)


def _decisions(made: Fleet, *, repeat: int) -> Measure:
    """Place all pods one after the other on the empty fleet, those that fit nowhere among them."""
    asks = [pod.ask for pod in made.pods]
    for number, ask in enumerate(asks):
        asks[number] = msgspec.structs.replace(ask, node_name="")
    empty = placement.node_states(made.nodes, ())

    def decide() -> None:
        deciding = placement.Fleet(empty)
        for ask in asks:
            deciding.place(ask)

    seconds = cpu_seconds(decide, repeat=min(repeat, 2))
    rate = len(asks) / seconds
    return Measure("sequential decisions, mixed pods", seconds, len(asks), "decisions", "per second", 2000, 5000, rate)


def _equal_decisions(ask: Any, made: Fleet, *, repeat: int) -> Measure:
    """Place the equal pods of one Job on the empty fleet."""
    empty = placement.node_states(made.nodes, ())
    seconds = cpu_seconds(lambda: placement.sequence(ask, JOB_PODS, empty), repeat=repeat)
    rate = JOB_PODS / seconds
    return Measure("sequential decisions, one Job", seconds, JOB_PODS, "decisions", "per second", 2000, 5000, rate)


def paths(made: Fleet) -> tuple[list[Measure], dict[str, Any]]:
    """Read a raw list of pods and fold it, our way and through the official client's models, a process each.

    Returns the two ratios and what each way cost. Raises ValueError when they do not end with the same sums.
    """
    listed = made.raw_pods[:LISTED_PODS]
    document = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}
    with tempfile.TemporaryDirectory() as folder:
        nodes_file, pods_file = Path(folder, "nodes"), Path(folder, "pods.json")
        nodes_file.write_bytes(msgspec.msgpack.encode(made.nodes))
        data = msgspec.json.encode({**document, "items": list(benchfleet.listed(listed))})
        pods_file.write_bytes(data)
        cost = {way: _cost(way, nodes_file, pods_file) for way in ("ours", "typed")}
    ours, typed = cost["ours"], cost["typed"]
    sums = [{key: each[key] for key in ("memory_units", "cards")} for each in (ours, typed)]
    if sums[0] != sums[1]:
        raise ValueError(f"The two ways do not agree: {sums}")
    faster, smaller = typed["cpu_seconds"] / ours["cpu_seconds"], typed["peak_mib"] / ours["peak_mib"]
    count = len(listed)
    return [
        Measure("raw list to cards: faster", ours["cpu_seconds"], count, "pods", "times", 5, 10, faster),
        Measure("raw list to cards: smaller peak", ours["cpu_seconds"], count, "pods", "times", 5, 10, smaller),
    ], {"bytes": len(data), "pods": count, **cost}


def _cost(way: str, nodes_file: Path, pods_file: Path) -> dict[str, Any]:
    command = [sys.executable, str(PATH_COST), way, str(nodes_file), str(pods_file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # our own script
    cost: dict[str, Any] = json.loads(done.stdout)
    return cost
