"""What is wrong with the GPUs of a cluster, in words: known failures as rules over nodes, pods and workloads.

Pure. Each rule looks at facts that the API server shows, and gives a code, a sentence, its evidence and a fix.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gpupools.domain.diagnosis import asks, labels, ledger, plugins, sayings, waiting
from gpupools.domain.diagnosis.plugins import mps_clients
from gpupools.domain.diagnosis.scene import Diagnosis, Difference, Scene, Severity, wants_gpu

__all__ = ["Difference", "Diagnosis", "Scene", "Severity", "diagnose", "mps_clients"]

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def diagnose(scene: Scene, *, nodes: Collection[str] | None = None) -> list[Diagnosis]:
    """Return what is wrong, worst first; with ``nodes``, only what concerns these, and nothing of waiting pods."""
    found = [
        diagnosis
        for node in scene.gpu_nodes
        if nodes is None or node.name in nodes
        for rule in (*labels.RULES, *plugins.RULES, *ledger.RULES)
        for diagnosis in rule(node, scene)
    ]
    by_owner: dict[tuple[str, ...], list[Diagnosis]] = {}
    for pod in scene.pods:
        if pod.phase == "Succeeded" or pod.terminating or (nodes is not None and pod.node not in nodes):
            continue
        if wants_gpu(pod):
            owner = (pod.namespace, pod.owner_kind, pod.owner_name) if pod.owner_name else (pod.uid,)
            for rule in (*asks.RULES, *sayings.RULES, *waiting.RULES):
                for each in rule(pod, scene):
                    by_owner.setdefault((each.code, *owner), []).append(each)
    found += [_together(each) for each in by_owner.values()]
    if nodes is None:
        found += [each for rule in (*labels.CLUSTER_RULES, *sayings.CLUSTER_RULES) for each in rule(scene)]
    return sorted(found, key=lambda each: (_ORDER[each.severity], each.scenario, each.node, each.pool, each.pods))


def _together(same: list[Diagnosis]) -> Diagnosis:
    """Say once what is true of several pods of one owner: the first one's words, and the names of all."""
    first = same[0]
    if len(same) == 1:
        return first
    pods = tuple(dict.fromkeys(pod for each in same for pod in each.pods))
    nodes = {each.node for each in same}
    return msgspec.structs.replace(
        first,
        message=f"{first.message} So with {len(pods) - 1} more of its owner.",
        node=first.node if len(nodes) == 1 else "",
        pods=pods,
    )
