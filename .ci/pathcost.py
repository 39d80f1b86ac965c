"""Reads one file with a raw list of pods, folds them on their nodes, and says what that cost: CPU time and peak memory.

Two ways, each in a process of its own: ``ours`` as the console does it, and ``typed`` through the models of the
official client. Both must end with the same sum. Started by ``manage.py bench``.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec  # noqa: E402  # the path comes first

from gpupools.domain.allocation import fold_all  # noqa: E402
from gpupools.domain.gpus import Ask, ContainerAsk, GpuNode, Pod  # noqa: E402
from gpupools.domain.quantities import parse_resources  # noqa: E402


def ours(data: bytes) -> Iterable[Pod]:
    """Read the list as the watcher does."""
    from gpupools.clusters import translate  # noqa: PLC0415  # the other way must not pay for it

    return [seen.value for seen in translate.page(translate.KINDS["Pod"], data).seen]


def typed(data: bytes) -> Iterable[Pod]:
    """Read the list through the official client's models, then take from them what the fold needs."""
    from kubernetes.client import ApiClient  # noqa: PLC0415

    found = ApiClient().deserialize(data.decode(), "V1PodList", "application/json")
    return [_pod(item) for item in found.items]


def _pod(item: Any) -> Pod:
    containers = tuple(
        ContainerAsk(container.name, parse_resources(limits | requests), parse_resources(limits))
        for container in item.spec.containers
        for limits, requests in [(container.resources.limits or {}, container.resources.requests or {})]
    )
    meta = item.metadata
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        ask=Ask(meta.namespace, meta.name, containers),
        node=item.spec.node_name or "",
        phase=item.status.phase,
        terminating=meta.deletion_timestamp is not None,
        annotations=meta.annotations or {},
    )


def peak_mib() -> float:
    """Return the peak of this program's memory. On Linux ``ru_maxrss`` begins with what the starting program had."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(each for each in status.read_text().splitlines() if each.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes, bytes on macOS
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Arguments: the way, the file of nodes (domain values as MessagePack), the file of the list."""
    way, nodes_file, pods_file = sys.argv[1:]
    nodes = msgspec.msgpack.decode(Path(nodes_file).read_bytes(), type=list[GpuNode])
    begin = time.process_time()
    read = {"ours": ours, "typed": typed}[way]
    folds = fold_all(nodes, read(Path(pods_file).read_bytes()))
    seconds = time.process_time() - begin
    held = sum(fold.memory_units_used for fold in folds.values())
    cards = sum(fold.cards_used for fold in folds.values())
    json.dump({"cpu_seconds": seconds, "peak_mib": peak_mib(), "memory_units": held, "cards": cards}, sys.stdout)


if __name__ == "__main__":
    main()
