"""Measures the embedded cluster as the process that it is, with the openb fleet: pace, CPU seconds and memory.

Everything is asked over its sockets. Paces are judged by the cluster's own CPU seconds, so that a busy machine does not
spoil them: it is one process, which has a core for itself on a quiet one. The wall clock's pace stands beside.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpupools.management.embedded import openbload
from gpupools.management.embedded.kubehttp import KubeHttp

THREADS = 8
PATIENCE_SECONDS = 600.0
# Kubernetes' own server on 5,000 nodes, same machine: 2,000 pods to Running in 74 s. The bar is five times its pace.
KUBERNETES_PODS_PER_SECOND = 2000 / 74
NAMESPACE = "openb"


@dataclass(frozen=True, slots=True)
class Result:
    """One figure with its bar; ``at_most``: smaller is better."""

    name: str
    value: float
    unit: str
    bar: float
    at_most: bool = False
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    count: int = 0  # of what a pace counts

    @property
    def per_wall_second(self) -> float | None:
        """The pace by the wall clock; None for what is no pace."""
        return self.count / self.wall_seconds if self.count and self.wall_seconds else None

    @property
    def met(self) -> bool:
        """Whether the bar is met."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    def as_dict(self) -> dict[str, object]:
        """Return the JSON shape."""
        return {
            "name": self.name,
            "value": round(self.value, 3),
            "unit": self.unit,
            "bar": self.bar,
            "met": self.met,
            "wall_seconds": round(self.wall_seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "per_wall_second": None if self.per_wall_second is None else round(self.per_wall_second, 1),
        }


class Served:
    """A running embedded cluster of our own."""

    def __init__(self, pid: int, directory: Path) -> None:
        self.pid = pid
        self.directory = directory
        self.api = KubeHttp(directory / "kubeconfig")

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that it used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self, which: str = "VmRSS") -> float:
        """Return its resident memory, now or (VmHWM) at most."""
        for line in Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines():
            if line.startswith(f"{which}:"):
                return int(line.split()[1]) / 1024
        raise LookupError(which)

    def measured(self, work: Callable[[], object]) -> tuple[float, float]:
        """Do something; return wall and CPU seconds that it took the cluster."""
        cpu, wall = self.cpu_seconds(), time.monotonic()
        work()
        return time.monotonic() - wall, self.cpu_seconds() - cpu


@contextmanager
def serving(directory: Path, *, speed: float) -> Iterator[Served]:
    """Start an embedded cluster with the openb fleet, and end it afterwards."""
    log = (directory / "log").open("wb")
    process = subprocess.Popen(  # noqa: S603  # our own command
        [
            sys.executable, "manage.py", "runsimulator", "--fleet", "openb", "--dir", str(directory),
            "--speed", str(speed), "--no-ack",
        ],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log,
    )  # fmt: skip
    try:
        _until(lambda: (directory / "ready.json").exists() or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError((directory / "log").read_text("utf-8", "replace")[-2000:])
        served = Served(process.pid, directory)
        yield served
        served.api.close()
    finally:
        process.terminate()
        process.wait()
        log.close()


def _until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.05)


class Counter:
    """Counts the names of pods that a watch shows, in a thread of its own."""

    def __init__(self, api: KubeHttp, path: str, selector: str) -> None:
        self.seen: set[str] = set()
        self._done = threading.Condition()
        self._lines = api.watch(path, {"fieldSelector": selector, "timeoutSeconds": int(PATIENCE_SECONDS)})
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for line in self._lines:
            event = msgspec.json.decode(line)
            with self._done:
                if event["type"] != "DELETED":
                    self.seen.add(event["object"]["metadata"]["name"])
                self._done.notify_all()

    def wait(self, count: int) -> None:
        """Wait until so many names were seen."""
        with self._done:
            if not self._done.wait_for(lambda: len(self.seen) >= count, PATIENCE_SECONDS):
                raise TimeoutError(f"{len(self.seen)} of {count} pods after {PATIENCE_SECONDS:.0f} s")


def run(directory: Path, *, pods: int, speed: float, say: Callable[[str], None]) -> list[Result]:
    """Measure everything once."""
    with serving(directory, speed=speed) as served:
        api = served.api
        daemons = Counter(api, "/api/v1/namespaces/kube-system/pods", "status.phase=Running")
        say("waiting for the daemons of 1,523 nodes")
        # Two DaemonSets have a pod on every GPU node.
        daemons.wait(2 * 1213)
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        manifests = [openbload.pod(f"openb-{n:05}", shape) for n, shape in enumerate(openbload.order(pods))]

        def create(listed: list[dict[str, object]]) -> None:
            with ThreadPoolExecutor(THREADS) as threads:
                for _ in threads.map(lambda pod: api.raw("POST", path, pod), listed):
                    pass

        first = manifests[:2000]
        running = Counter(api, path, "status.phase=Running")

        def to_running() -> None:
            create(first)
            running.wait(len(first))

        say(f"{len(first)} pods to Running")
        wall, cpu = served.measured(to_running)
        bar = round(5 * KUBERNETES_PODS_PER_SECOND, 1)
        results = [Result("pods to Running", len(first) / cpu, "per CPU s", bar, False, wall, cpu, len(first))]
        say(f"filling up to {pods} pods")
        create(manifests[len(first) :])
        _settle(api, path)
        results.append(_list(served, path, pods))
        results += _binds(served, say)
        results.append(_fan_out(served, path, say))
        results.append(Result("resident memory, at most", served.memory_mib("VmHWM"), "MiB", 600.0, True))
        return results


def _settle(api: KubeHttp, path: str) -> None:
    """Wait until no pod is left that neither runs nor was told that it fits nowhere."""

    def settled() -> bool:
        found = api.call("GET", f"{path}?fieldSelector=status.phase%3DPending")["items"]
        told = [pod for pod in found if any(c["type"] == "PodScheduled" for c in pod["status"].get("conditions", ()))]
        return len(told) == len(found) and not any(pod["spec"].get("nodeName") for pod in found)

    _until(settled)


def _list(served: Served, path: str, pods: int) -> Result:
    took = [served.measured(lambda: served.api.raw("GET", path)) for _ in range(5)]
    wall, cpu = max(took, key=lambda each: each[1])
    return Result(f"full list of {pods} pods", cpu, "CPU s", 0.5, True, wall, cpu)


def _binds(served: Served, say: Callable[[str], None], count: int = 3000) -> list[Result]:
    """Bind pods that wait for a scheduler of ours, on CPU nodes."""
    api = served.api
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "binds"}})
    path = "/api/v1/namespaces/binds/pods"
    chosen = api.call("GET", "/api/v1/nodes?labelSelector=embedded.gpupools%2Fassumed%3Dmachine")["items"]
    names = [node["metadata"]["name"] for node in chosen]
    container = {"name": "main", "image": "registry.local/openb:1", "command": ["sleep", "infinity"]}
    spec = {"schedulerName": "bench", "terminationGracePeriodSeconds": 1, "containers": [container]}

    def made(number: int) -> None:
        api.raw("POST", path, {"metadata": {"name": f"bind-{number:05}"}, "spec": spec})

    def bound(number: int) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": names[number % len(names)]}
        api.raw(
            "POST", f"{path}/bind-{number:05}/binding", {"metadata": {"name": f"bind-{number:05}"}, "target": target}
        )

    def all_of(work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            for _ in threads.map(work, range(count)):
                pass

    say(f"{count} binds")
    all_of(made)
    wall, cpu = served.measured(lambda: all_of(bound))
    name = "binds, kubelets starting the pods meanwhile"
    return [Result(name, count / cpu, "per CPU s", 300.0, False, wall, cpu, count)]


def _fan_out(served: Served, path: str, say: Callable[[str], None], watchers: int = 50, changes: int = 600) -> Result:
    """Change pods while many watch: how long after the last change the last watcher has seen all."""
    api = served.api
    version = api.call("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
    missing = [changes] * watchers
    done = threading.Condition()

    def follow(number: int) -> None:
        for line in api.watch(path, {"resourceVersion": version, "timeoutSeconds": int(PATIENCE_SECONDS)}):
            if b'"fan-out"' in line:
                missing[number] -= 1
                if not missing[number]:
                    break
        with done:
            done.notify_all()

    threads = [threading.Thread(target=follow, args=(number,), daemon=True) for number in range(watchers)]
    for thread in threads:
        thread.start()
    say(f"{changes} changes to {watchers} watchers")
    cpu = served.cpu_seconds()

    def change(number: int) -> None:
        body = {"metadata": {"labels": {"fan-out": str(number)}}}
        api.raw("PATCH", f"{path}/openb-{number:05}", body, media="application/merge-patch+json")

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(change, range(changes)):
            pass
    begin = time.monotonic()
    with done:
        done.wait_for(lambda: not any(missing), PATIENCE_SECONDS)
    lag = time.monotonic() - begin
    if any(missing):
        raise TimeoutError("a watcher fell behind for good")
    return Result(f"{watchers} watchers behind the last change", lag, "s", 1.0, True, lag, served.cpu_seconds() - cpu)
