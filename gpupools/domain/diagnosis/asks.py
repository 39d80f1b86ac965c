"""Rules about pods that ask for cards in a way that cannot work or lands elsewhere than meant."""

from __future__ import annotations

from collections.abc import Iterator

from gpupools.domain.diagnosis.scene import Diagnosis, Scene, Severity, asked, counted, name_of
from gpupools.domain.gpus import AffinityTerm, Pod
from gpupools.domain.modes import (
    CARD_NAME_LABEL,
    EXCLUSIVE_GPU,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    MODE_LABEL,
    MODES,
    TOPOLOGY_GPU,
    Mode,
    mode_of_label,
)
from gpupools.domain.quantities import integer

REPLICAS_LABEL = GPU_COUNT  # on a pod: over how many cards its memory is spread
TOPOLOGY_GROUP_LABEL = "gputopology.alibabacloud.com/pod-group"
GANG_LABEL = "pod-group.scheduling.sigs.k8s.io/name"
_SAME_RESOURCE = (Mode.SHARE, Mode.CGPU, Mode.MPS)


def bound_mode(pod: Pod) -> Mode | None:
    """Return the mode that a pod's node selector or required affinity picks, None without one."""
    if MODE_LABEL in pod.ask.node_selector:
        return mode_of_label(pod.ask.node_selector[MODE_LABEL])
    values = {
        value
        for term in pod.ask.required_terms or ()
        for requirement in term.expressions
        if requirement.key == MODE_LABEL and requirement.operator == "In"
        for value in requirement.values
    }
    return mode_of_label(next(iter(values))) if len(values) == 1 else None


def _say(pod: Pod, code: str, scenario: int, message: str, evidence: str, fix: str, *, soft: bool = False) -> Diagnosis:
    severity = Severity.WARNING if soft else Severity.ERROR
    return Diagnosis(code, scenario, severity, message, evidence, fix, pod.node, pods=(name_of(pod),))


def core_and_memory(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """10, 11: compute without memory, memory alone on core_mem, and a share of compute that ACK does not take."""
    wants, mode = asked(pod), bound_mode(pod)
    core = wants.get(GPU_CORE, 0)
    if mode is Mode.CORE_MEM and GPU_MEM in wants and not core:
        yield _say(
            pod, "memory-alone-on-core-mem", 10, f"{name_of(pod)} asks for memory alone and selects core_mem nodes.",
            f"{GPU_MEM}={wants[GPU_MEM]}, no {GPU_CORE}.",
            f"Ask for {GPU_CORE} too: a core_mem node takes pods that ask for both.",
        )  # fmt: skip
    if core and (GPU_MEM not in wants or core % 5):
        yield _say(
            pod, "core-percent", 11, f"{name_of(pod)} asks for a share of compute that ACK does not give.",
            f"{GPU_CORE}={core}, {GPU_MEM}={wants.get(GPU_MEM, 'none')}.",
            f"Ask for a multiple of 5, at most 100 a card, and for {GPU_MEM} with it.",
        )  # fmt: skip


def too_many_cards(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """12, 13: memory that does not divide over the cards asked for, or more cards than any node has."""
    cards = max(0, integer(pod.ask.labels.get(REPLICAS_LABEL, "")) or 0)
    memory = asked(pod).get(GPU_MEM, 0)
    if not cards or not memory:
        return
    if memory % cards:
        yield _say(
            pod, "memory-does-not-divide", 12, f"The memory of {name_of(pod)} does not divide over its cards.",
            f"{GPU_MEM}={memory} over {counted(cards, 'card')}.",
            f"Ask for a multiple of {cards} units.",
        )  # fmt: skip
    most = max((node.shared_cards for node in scene.gpu_nodes), default=0)
    if most and cards > most:
        yield _say(
            pod, "more-cards-than-a-node", 13, f"{name_of(pod)} asks for more cards than any node has.",
            f"{counted(cards, 'card')}; the largest shared node has {most}.",
            f"Ask for at most {counted(most, 'card')} in label {REPLICAS_LABEL}.",
        )  # fmt: skip


def wrong_resource(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """14: the resource is not the one of the mode that the pod selects, or of no node."""
    wants, mode = {name for name in asked(pod) if name in (EXCLUSIVE_GPU, GPU_MEM, TOPOLOGY_GPU)}, bound_mode(pod)
    if not wants or pod.node:
        return
    if mode is not None and not MODES[mode].read_only and not wants & set(MODES[mode].resources):
        yield _say(
            pod, "wrong-resource", 14, f"{name_of(pod)} asks for another resource than the mode that it selects.",
            f"It asks for {', '.join(sorted(wants))}; {mode.value} nodes report {MODES[mode].resources[0]}.",
            f"Ask for {MODES[mode].resources[0]}, or select nodes of another mode.",
        )  # fmt: skip
    elif not any(node.allocatable.get(name) for node in scene.gpu_nodes for name in wants):
        yield _say(
            pod, "wrong-resource", 14, f"No node reports what {name_of(pod)} asks for.",
            f"It asks for {', '.join(sorted(wants))}.",
            "Change the resource, or ask for a node pool in a mode that reports it.",
        )  # fmt: skip


def not_bound_to_mode(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """15: share, cgpu and mps report the same resource, so a pod that selects none may lie in any."""
    if GPU_MEM not in asked(pod) or not pod.node or bound_mode(pod) is not None:
        return
    there = [mode for mode in _SAME_RESOURCE if scene.modes.get(mode)]
    node = scene.nodes.get(pod.node)
    if len(there) > 1 and node is not None and node.declared in there:
        yield _say(
            pod, "mode-not-bound", 15, f"{name_of(pod)} selects no mode and came to lie in {node.declared.value}.",
            f"Nodes of modes {', '.join(mode.value for mode in there)} all report {GPU_MEM}.",
            f"Add the nodeSelector {MODE_LABEL}: <mode> to its manifest.", soft=True,
        )  # fmt: skip


def count_as_limit(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """17: the number of cards is a label of the pod and no resource."""
    if any(GPU_COUNT in container.limits for container in pod.ask.containers):
        yield _say(
            pod, "gpu-count-as-limit", 17, f"{name_of(pod)} has {GPU_COUNT} among its limits.",
            "Tutorials call it a share of compute; it counts the node's cards.",
            f"For compute ask for {GPU_CORE} in a core_mem pool; for several cards set the label {GPU_COUNT}.",
        )  # fmt: skip


def topology_and_gang(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """24: the two ways to schedule pods together exclude each other."""
    if TOPOLOGY_GROUP_LABEL in pod.ask.labels and GANG_LABEL in pod.ask.labels:
        yield _say(
            pod, "topology-and-gang", 24, f"{name_of(pod)} is in a topology group and in a gang.",
            f"Labels {TOPOLOGY_GROUP_LABEL} and {GANG_LABEL}.", "Keep one of the two.",
        )  # fmt: skip


def refused_by_topology(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """25: a topology node refuses pods that ask for other GPU resources, by design."""
    wants = asked(pod)
    if not pod.node and bound_mode(pod) is Mode.TOPOLOGY and wants and TOPOLOGY_GPU not in wants:
        yield _say(
            pod, "topology-refuses", 25, f"Topology nodes do not take {name_of(pod)}: that is by design.",
            f"It asks for {', '.join(sorted(wants))}; they report {TOPOLOGY_GPU} alone.",
            f"Ask for {TOPOLOGY_GPU} with the labels of a topology group, or use an exclusive pool.",
        )  # fmt: skip


def exclusion_matches_unlabelled(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """44: "not this model" is true of a node whose model is not known."""
    node = scene.nodes.get(pod.node)
    if node is None or CARD_NAME_LABEL in node.labels or not asked(pod):
        return
    if any(_excludes(term) for term in pod.ask.required_terms or ()):
        yield _say(
            pod, "exclusion-matches-unlabelled", 44,
            f"{name_of(pod)} excludes a card model and lies on a node whose model nobody knows.",
            f"{pod.node} has no label {CARD_NAME_LABEL}, and NotIn is true of that.",
            f"Add the requirement {CARD_NAME_LABEL} Exists to its affinity.", soft=True,
        )  # fmt: skip


def _excludes(term: AffinityTerm) -> bool:
    mine = [requirement.operator for requirement in term.expressions if requirement.key == CARD_NAME_LABEL]
    return "NotIn" in mine and "Exists" not in mine and "In" not in mine


RULES = (
    core_and_memory,
    too_many_cards,
    wrong_resource,
    not_bound_to_mode,
    count_as_limit,
    topology_and_gang,
    refused_by_topology,
    exclusion_matches_unlabelled,
)
