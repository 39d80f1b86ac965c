"""What a mode change does and to whom: the diff, the pods that are hit, the warnings, and its fingerprint.

Pure; the steps that bring it about are in routes.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpupools.domain.disruptions import Budget, budgets_of, held_up, is_pinned, sentence
from gpupools.domain.gpus import GpuNode, Pod, Taint
from gpupools.domain.modes import (
    GPU_RESOURCES,
    MODE_LABEL,
    MODES,
    PLACEMENT_LABEL,
    Mode,
    PlacementPolicy,
)

# The labels that declare a mode; removing the mode label itself is never what a change does.
MODE_KEYS = (MODE_LABEL, PLACEMENT_LABEL)


class Affected(msgspec.Struct, frozen=True):
    """A pod that a change hits. ``holds``: resource -> amount; ``fate``: waits, evicted, lost, dies or stays.

    ``sentence`` says the fate in words; ``budget``: the disruption budgets that would hold its eviction up as things
    are, as namespace/name.
    """

    uid: str
    namespace: str
    pod: str
    node: str
    owner: str
    created_at: str
    holds: dict[str, int]
    fate: str
    sentence: str
    budget: str = ""


class LabelChange(msgspec.Struct, frozen=True):
    """One label before and after; empty text means that it is not there."""

    key: str
    old: str
    new: str


def holds(pod: Pod) -> dict[str, int]:
    """Return the GPU resources that a bound, unfinished pod takes from its node."""
    if pod.finished or not pod.node:
        return {}
    total: dict[str, int] = {}
    for container in pod.ask.containers:
        for name in GPU_RESOURCES:
            if amount := container.limits.get(name, 0):
                total[name] = total.get(name, 0) + amount
    return total


def holders(nodes: Iterable[GpuNode], pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that hold GPU resources on these nodes, by node and name."""
    names = {node.name for node in nodes}
    return sorted(
        (pod for pod in pods if pod.node in names and holds(pod)), key=lambda p: (p.node, p.namespace, p.name)
    )


def blast_radius(
    nodes: Iterable[GpuNode],
    pods: Iterable[Pod],
    *,
    from_mode: Mode | None,
    evict: bool,
    budgets: Sequence[Budget] = (),
) -> list[Affected]:
    """Say for every pod that holds a card of these nodes what the change does to it."""
    hit = holders(nodes, pods)
    tight = [budget for budget, _ in held_up([pod for pod in hit if not is_pinned(pod)], budgets)] if evict else []
    return [
        Affected(
            pod.uid,
            pod.namespace,
            pod.name,
            pod.node,
            f"{pod.owner_kind}/{pod.owner_name}" if pod.owner_kind else "",
            pod.created_at,
            holds(pod),
            *_fate(pod, from_mode=from_mode, evict=evict),
            "" if is_pinned(pod) else ", ".join(budget.title for budget in budgets_of(pod, tight)),
        )
        for pod in hit
    ]


def _fate(pod: Pod, *, from_mode: Mode | None, evict: bool) -> tuple[str, str]:
    if is_pinned(pod):
        keeper = f"DaemonSet {pod.owner_name}" if pod.owner_kind == "DaemonSet" else "its node's kubelet"
        return "stays", f"It is never evicted, for {keeper} keeps it there: the change waits until that lets it go."
    if not evict:
        return "waits", "The change waits until this pod ends."
    if not pod.owner_kind:
        return "lost", "It is evicted and lost for good: it has no owner, so nothing starts it again."
    if from_mode is Mode.MPS:
        return (
            "dies",
            f"It is evicted and its MPS client dies; {pod.owner_kind} {pod.owner_name} starts it again.",
        )
    return "evicted", f"It is evicted; {pod.owner_kind} {pod.owner_name} starts it again where it fits."


def label_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[LabelChange]:
    """Compare two sets of labels, by key."""
    return [
        LabelChange(key, old.get(key, ""), new.get(key, ""))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def mode_changes(node: GpuNode, wanted: Mapping[str, str]) -> list[LabelChange]:
    """Return how the wanted mode and policy labels would change a node."""
    keys = [key for key in (MODE_LABEL, PLACEMENT_LABEL) if key in wanted]
    return label_changes(
        {key: node.labels[key] for key in keys if key in node.labels}, {key: wanted[key] for key in keys}
    )


def warnings(
    from_mode: Mode | None, to_mode: Mode, *, affected: Sequence[Affected], evict: bool
) -> list[tuple[str, str]]:
    """Return (code, sentence) for what a decider should know beyond the diff.

    ACK: going from cgpu to share leaves the isolation module loaded until the node restarts; nodes that go to
    core_mem should be removed and added again rather than relabelled.
    """
    found = []
    if from_mode is Mode.CGPU and to_mode is Mode.SHARE:
        found.append(("restart-needed", "cgpu's isolation stays active on each node until the node is restarted."))
    if to_mode is Mode.CORE_MEM and from_mode is not Mode.CORE_MEM:
        found.append(
            (
                "re-add-advised",
                "ACK advises to remove nodes and add them again for core_mem instead of relabelling them.",
            )
        )
    if to_mode is Mode.SHARE:
        found.append(("nothing-enforced", "Mode share enforces nothing: a pod can use the memory of its neighbours."))
    if from_mode is Mode.MPS and affected:
        many = "1 pod is a client" if len(affected) == 1 else f"{len(affected)} pods are clients"
        found.append(("mps-clients", f"{many} of an MPS daemon that goes away."))
    if lost := [pod for pod in affected if pod.fate == "lost"]:
        said = f"{_pods(lost)} {'has' if len(lost) == 1 else 'have'} no owner and"
        found.append(("lost-pods", f"{said} {'is' if len(lost) == 1 else 'are'} lost for good by the eviction."))
    if pinned := [pod for pod in affected if pod.fate == "stays"]:
        said = f"{_pods(pinned)} {'is' if len(pinned) == 1 else 'are'} never evicted (DaemonSet or static pod)"
        found.append(("never-evicted", f"{said}: the change waits until somebody takes them off these nodes."))
    return found


def bystanders(nodes: Iterable[GpuNode], pods: Iterable[Pod]) -> list[str]:
    """Return the running pods without cards on these nodes, as namespace/name: who a node's leaving hits besides.

    ACK drains a node when its machine leaves a pool; pods of DaemonSets and static pods go with the node anyhow.
    """
    names = {node.name for node in nodes}
    return sorted(
        f"{pod.namespace}/{pod.name}"
        for pod in pods
        if pod.node in names and not (pod.finished or holds(pod) or is_pinned(pod))
    )


def bystander_warning(names: Sequence[str]) -> tuple[str, str]:
    """Return (code, sentence) for pods without cards that go with their nodes."""
    if len(names) == 1:
        return "other-pods", f"{names[0]} holds no card, and is evicted too when its node leaves the cluster."
    return "other-pods", f"{_some(names)} hold no cards, and are evicted too when their nodes leave the cluster."


def eviction_warnings(
    affected: Sequence[Affected], homeless: Sequence[str], budgets: Sequence[Budget] | None, pods: Sequence[Pod]
) -> list[tuple[str, str]]:
    """Return (code, sentence) for pods that an eviction would leave without a place, and for what would hold it up.

    ``homeless``: evicted pods that fit nowhere, as namespace/name; ``budgets``: None where they could not be read.
    """
    found = []
    if homeless:
        what = "a Deployment or Job starts it again, and it stays Pending"
        if len(homeless) > 1:
            what = "their Deployments or Jobs start them again, and they stay Pending"
        found.append(("no-place", f"Nowhere to go for {_some(homeless)}: {what} until there is room."))
    evicted = {pod.uid for pod in affected if pod.fate in ("evicted", "lost", "dies")}
    going = [pod for pod in pods if pod.uid in evicted]
    if budgets is None and evicted:
        said = "The disruption budgets of the cluster could not be read"
        found.append(("budgets-unknown", f"{said}: one of them may hold the eviction up."))
    for budget, covered in held_up(going, budgets or ()):
        found.append(("disruption-budget", sentence(budget, covered)))
    return found


def _pods(pods: Sequence[Affected]) -> str:
    return _some([f"{pod.namespace}/{pod.pod}" for pod in pods])


def _some(names: Sequence[str], most: int = 5) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def waiting_for(node: GpuNode, target: Mode) -> list[str]:
    """Say what a node still lacks to be in the target mode; empty when it reports the mode and no other."""
    facts = MODES[target]
    missing = [f"{name} is not reported yet" for name in facts.resources if not node.allocatable.get(name)]
    left = [
        f"{name} still reports {node.allocatable[name]}" for name in facts.zero_resources if node.allocatable.get(name)
    ]
    return missing + left


def facts(
    *,
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    nodes: Iterable[GpuNode],
    components: Mapping[str, bool],
) -> dict[str, Any]:
    """Collect what an approval is bound to: wanted labels and taints, nodes with their mode, components present.

    Never pods: they come and go.
    """
    return {
        "labels": dict(sorted(labels.items())),
        "taints": sorted([taint.key, taint.value, taint.effect] for taint in taints),
        "nodes": {
            node.uid: {
                "name": node.name,
                "mode": node.labels.get(MODE_LABEL, ""),
                "policy": node.labels.get(PLACEMENT_LABEL, ""),
            }
            for node in sorted(nodes, key=lambda node: node.uid)
        },
        "components": dict(sorted(components.items())),
    }


def fingerprint(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the facts, as hex."""
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in sentences what is different between two sets of facts."""
    said = []
    if old["labels"] != new["labels"]:
        keys = ", ".join(change.key for change in label_changes(old["labels"], new["labels"]))
        said.append(f"The pool's labels changed: {keys}.")
    if old["taints"] != new["taints"]:
        said.append("The pool's taints changed.")
    before, after = old["nodes"], new["nodes"]
    said += [f"Node {after[uid]['name']} joined the pool." for uid in after if uid not in before]
    said += [f"Node {before[uid]['name']} left the pool." for uid in before if uid not in after]
    said += [
        f"Node {after[uid]['name']} changed its {part}: '{before[uid][part]}' is now '{after[uid][part]}'."
        for uid in after
        for part in ("mode", "policy")
        if uid in before and before[uid][part] != after[uid][part]
    ]
    for name in sorted({*old["components"], *new["components"]}):
        if old["components"].get(name) != new["components"].get(name):
            said.append(f"{name} is {'now' if new['components'].get(name) else 'no longer'} installed.")
    return said


def policy_of(text: str) -> PlacementPolicy | None:
    """Read a stored policy; empty means none."""
    return PlacementPolicy(text) if text else None
