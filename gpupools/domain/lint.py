"""Mode-aware rules over a manifest: each finding has a code, a sentence and a fix. Pure; it changes nothing.

Errors are what for certain does not work as it is written, and say who does not do it; warnings are what usually goes
wrong. The rules here are ACK's; those of Kubernetes itself are in serverrules.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpupools.domain.findings import CONSOLE, ERROR, NODE, SCHEDULER, WARNING, Finding, Rule, Subject
from gpupools.domain.manifests import Manifest
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
)
from gpupools.domain.quantities import integer
from gpupools.domain.serverrules import (
    a_job_restarts_never_or_on_failure,
    extended_resources_are_whole_and_equal,
    fields_are_ones_that_the_kind_has,
    resources_are_ones_that_containers_ask_for,
    resources_have_an_amount,
    the_namespace_is_not_the_clusters_own,
)

WHOLE_DEVICE_LABEL = "ack.gpushare.placement"
TOPOLOGY_GROUP_LABEL = "gputopology.alibabacloud.com/pod-group"
TOPOLOGY_TTL_LABEL = "gputopology.alibabacloud.com/ttl"
GANG_LABEL = "pod-group.scheduling.sigs.k8s.io/name"
_NOT_JUDGED = {
    "podAffinity": "pod affinity",
    "podAntiAffinity": "pod anti-affinity",
    "topologySpreadConstraints": "topology spread",
    "resourceClaims": "resource claims",
}
_FAMILIES = {EXCLUSIVE_GPU: "exclusive", GPU_MEM: "shared", GPU_CORE: "shared", TOPOLOGY_GPU: "topology"}
# Whose no an error of these rules is, where it is not the scheduler's.
_REFUSED_BY = {"mps-host-ipc": NODE, "visible-devices": NODE, "placement-label": CONSOLE}


def _cards(count: int) -> str:
    return "1 card" if count == 1 else f"{count} cards"


def gpu_count_is_not_a_limit(subject: Subject) -> Iterator[Finding]:
    """A tutorial writes ``aliyun.com/gpu-count: 25`` for a quarter of a card; it asks for 25 cards."""
    for path, container, _ in subject.containers():
        if count := container.limits.get(GPU_COUNT) or container.requests.get(GPU_COUNT):
            yield Finding(
                "gpu-count-limit", ERROR, f"{path}.resources.limits[{GPU_COUNT}]",
                f"{GPU_COUNT} counts cards: this asks for {_cards(count)}, not for {count} % of one.",
                f"For compute ask {GPU_CORE} together with {GPU_MEM} on a core_mem node; "
                f"for several cards put the label {GPU_COUNT} on the pod.",
            )  # fmt: skip


def core_percent_is_a_multiple_of_five(subject: Subject) -> Iterator[Finding]:
    """ACK hands out compute in steps of 5 % of one card, and only together with memory."""
    for path, container, _ in subject.containers():
        if GPU_CORE not in container.limits:
            continue
        percent = container.limits[GPU_CORE]
        where = f"{path}.resources.limits[{GPU_CORE}]"
        if percent < 5 or percent % 5 or percent > 100:
            yield Finding(
                "core-percent", ERROR, where,
                f"{GPU_CORE} is {percent}: it must be a multiple of 5, at least 5 and at most 100.",
                "It is per cent of one card.",
            )  # fmt: skip
        if not container.limits.get(GPU_MEM):
            yield Finding(
                "core-without-memory", ERROR, where, f"{GPU_CORE} without {GPU_MEM} is refused.",
                f"Ask for {GPU_MEM} as well.",
            )  # fmt: skip


def containers_ask_alike(subject: Subject) -> Iterator[Finding]:
    """Every container that asks for shared GPU must ask for the same set of resources."""
    sets = {
        frozenset(name for name in (GPU_MEM, GPU_CORE) if container.limits.get(name))
        for container in subject.ask.containers
    } - {frozenset()}
    if len(sets) > 1:
        yield Finding(
            "inconsistent-containers", ERROR, f"{subject.path}spec.containers",
            "The requested gpu resource types should be consistent for all containers.",
            f"Ask for {GPU_MEM} alone in all of them, or for {GPU_MEM} and {GPU_CORE} in all of them.",
        )  # fmt: skip


def several_cards_divide_evenly(subject: Subject) -> Iterator[Finding]:
    """Label ``aliyun.com/gpu-count: M`` spreads a request over M cards in equal whole parts; memory only."""
    label = subject.ask.labels.get(GPU_COUNT)
    if label is None:
        return
    path = f"{subject.path}metadata.labels[{GPU_COUNT}]"
    count = integer(label)
    if count is None or count < 0:
        yield Finding("replica-label", ERROR, path, f"The label is '{label[:80]}': it must be a whole number of cards.")
        return
    cards = max(count, 1)
    for where, container, _ in subject.containers():
        units = container.limits.get(GPU_MEM, 0)
        if units % cards:
            yield Finding(
                "replica-divides", ERROR, f"{where}.resources.limits[{GPU_MEM}]",
                f"{units} {'unit does' if units == 1 else 'units do'} not divide into {_cards(cards)}.",
                f"Ask for a multiple of {cards}.",
            )  # fmt: skip
    if cards >= 2 and subject.total(GPU_CORE):
        yield Finding(
            "replica-with-core", ERROR, path, "Several shared cards cannot be combined with a share of compute.",
            f"Leave {GPU_CORE} out, or use one card.",
        )  # fmt: skip


def one_way_to_ask(subject: Subject) -> Iterator[Finding]:
    """A node is in one mode at a time, so a pod that asks in two ways fits nowhere."""
    families = {_FAMILIES[name] for name in subject.asked}
    if len(families) > 1:
        yield Finding(
            "two-modes", ERROR, f"{subject.path}spec.containers",
            f"The pod asks for {' and '.join(subject.asked)}: no node offers both.",
            "Ask for the resource of one mode.",
        )  # fmt: skip


def resource_fits_selected_mode(subject: Subject) -> Iterator[Finding]:
    """A pod bound to a mode must ask for that mode's resource; a shared one should be bound to its mode."""
    path = f"{subject.path}spec.nodeSelector[{MODE_LABEL}]"
    if subject.selected is not None and subject.mode is None:
        yield Finding(
            "unknown-mode", ERROR, path, f"'{subject.selected}' is no scheduling mode.",
            "Use one of " + ", ".join(facts.label_value for facts in MODES.values() if not facts.read_only) + ".",
        )  # fmt: skip
    elif subject.mode and subject.asked:
        wanted = MODES[subject.mode].resources
        if set(subject.asked) != set(wanted):
            yield Finding(
                "wrong-resource", ERROR, path,
                f"Nodes of mode {subject.mode.value} offer {' and '.join(wanted) or 'nothing'}; "
                f"the pod asks for {' and '.join(subject.asked)}.",
                f"Ask for {' and '.join(wanted)}." if wanted else "Choose another mode.",
            )  # fmt: skip
    elif GPU_MEM in subject.asked and GPU_CORE not in subject.asked:
        yield Finding(
            "mode-not-bound", WARNING, f"{subject.path}spec.nodeSelector",
            f"cgpu, share and mps nodes all offer {GPU_MEM}: the pod may land where memory is not isolated.",
            f"Add nodeSelector {MODE_LABEL}: cgpu (or share, or mps).",
        )  # fmt: skip


def mps_needs_host_ipc(subject: Subject) -> Iterator[Finding]:
    """MPS clients reach their daemon through the host's IPC namespace."""
    if subject.mode is Mode.MPS and not subject.manifest.pod["spec"].get("hostIPC"):
        yield Finding(
            "mps-host-ipc", ERROR, f"{subject.path}spec.hostIPC",
            "A pod of mode mps cannot reach the MPS daemon without hostIPC.", "Set hostIPC: true.",
        )  # fmt: skip


def topology_labels_agree(subject: Subject) -> Iterator[Finding]:
    """Topology group and gang labels exclude each other; gangs have no time to live."""
    labels = subject.ask.labels
    if GANG_LABEL not in labels:
        return
    for key, code in ((TOPOLOGY_GROUP_LABEL, "gang-and-topology"), (TOPOLOGY_TTL_LABEL, "gang-with-ttl")):
        if key in labels:
            yield Finding(
                code, ERROR, f"{subject.path}metadata.labels[{key}]",
                f"{key} cannot appear together with {GANG_LABEL}.", "Keep one of them.",
            )  # fmt: skip


def whole_device_label_is_known(subject: Subject) -> Iterator[Finding]:
    """``ack.gpushare.placement`` has one value."""
    value = subject.ask.labels.get(WHOLE_DEVICE_LABEL)
    if value not in (None, "require-whole-device"):
        yield Finding(
            "placement-label", ERROR, f"{subject.path}metadata.labels[{WHOLE_DEVICE_LABEL}]",
            f"'{value}' is not supported here.", "The only value is require-whole-device.",
        )  # fmt: skip


def exclusion_matches_missing_label(subject: Subject) -> Iterator[Finding]:
    """``NotIn`` also matches nodes without the label, as Kubernetes defines it."""
    for position, term in enumerate(subject.ask.required_terms or ()):
        keys = {expression.key for expression in term.expressions if expression.operator == "Exists"}
        for expression in term.expressions:
            if expression.operator == "NotIn" and expression.key == CARD_NAME_LABEL and CARD_NAME_LABEL not in keys:
                yield Finding(
                    "exclusion-matches-unlabelled", WARNING,
                    f"{subject.path}spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
                    f".nodeSelectorTerms[{position}]",
                    f"NotIn also matches nodes that lack {CARD_NAME_LABEL}; "
                    "only the resource request keeps the pod off them.",
                    f"Add an expression {CARD_NAME_LABEL} with operator Exists to be sure of the card.",
                )  # fmt: skip


def visible_devices_are_not_set(subject: Subject) -> Iterator[Finding]:
    """Setting ``NVIDIA_VISIBLE_DEVICES`` by hand bypasses or fights the allocation."""
    for path, _, raw in subject.containers():
        for variable in raw.get("env") or []:
            if isinstance(variable, dict) and variable.get("name") == "NVIDIA_VISIBLE_DEVICES":
                yield Finding(
                    "visible-devices", ERROR, f"{path}.env[NVIDIA_VISIBLE_DEVICES]",
                    "NVIDIA_VISIBLE_DEVICES set by hand takes cards that were not given to this pod.",
                    "Leave it out: the device plugin sets it.",
                )  # fmt: skip


def init_containers_hold_no_card(subject: Subject) -> Iterator[Finding]:
    """The shared scheduler places by ``containers`` alone, while the node total also counts init containers."""
    for position, container in enumerate(subject.ask.init_containers):
        if any(container.limits.get(name) for name in (GPU_MEM, GPU_CORE)):
            yield Finding(
                "init-container-gpu", WARNING, f"{subject.path}spec.initContainers[{position}].resources.limits",
                "An init container's GPU request takes room on the node, but no card is chosen for it.",
                "Ask for GPU in the main containers only.",
            )  # fmt: skip


def asks_for_a_gpu_at_all(subject: Subject) -> Iterator[Finding]:
    """A pod without any GPU resource may run on a GPU node, but gets no card."""
    if not subject.asked and not any(container.limits.get(GPU_COUNT) for container in subject.ask.containers):
        yield Finding(
            "no-gpu", WARNING, f"{subject.path}spec.containers", "The pod asks for no GPU: it gets no card.",
            f"Put {EXCLUSIVE_GPU}, {GPU_MEM} or {TOPOLOGY_GPU} under resources.limits.",
        )  # fmt: skip


def the_mode_is_there(subject: Subject) -> Iterator[Finding]:
    """Warn when the cluster has no node in a mode that offers what the pod asks for."""
    if subject.modes_present is None or not subject.asked:
        return
    fitting = [mode for mode, facts in MODES.items() if set(facts.resources) == set(subject.asked)]
    if subject.mode in fitting:
        fitting = [subject.mode]
    if fitting and not subject.modes_present.intersection(fitting):
        names = " or ".join(mode.value for mode in fitting)
        yield Finding(
            "no-such-node", WARNING, f"{subject.path}spec", f"The cluster has no node of mode {names} now.",
            "The pod will wait until there is one: create a node pool in that mode.",
        )  # fmt: skip


def the_preview_judges_all_of_it(subject: Subject) -> Iterator[Finding]:
    """Some of what decides over nodes is not looked at here; what is said of nodes then holds without it."""
    spec = subject.manifest.pod["spec"]
    affinity = spec.get("affinity")
    parts = {**spec, **(affinity if isinstance(affinity, dict) else {})}
    found = [words for key, words in _NOT_JUDGED.items() if parts.get(key)]
    volumes = spec.get("volumes") or ()
    if any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in volumes):
        found.append("volumes of claims")
    if found:
        message = f"The preview does not look at {' and '.join(found)}: the scheduler may refuse nodes for it."
        yield Finding(
            "not-judged", WARNING, f"{subject.path}spec", message, "Expect fewer nodes than the preview names."
        )


RULES: tuple[Rule, ...] = (
    resources_are_ones_that_containers_ask_for,
    extended_resources_are_whole_and_equal,
    resources_have_an_amount,
    fields_are_ones_that_the_kind_has,
    gpu_count_is_not_a_limit,
    core_percent_is_a_multiple_of_five,
    containers_ask_alike,
    several_cards_divide_evenly,
    one_way_to_ask,
    resource_fits_selected_mode,
    mps_needs_host_ipc,
    topology_labels_agree,
    whole_device_label_is_known,
    visible_devices_are_not_set,
    a_job_restarts_never_or_on_failure,
    exclusion_matches_missing_label,
    init_containers_hold_no_card,
    asks_for_a_gpu_at_all,
    the_mode_is_there,
    the_namespace_is_not_the_clusters_own,
    the_preview_judges_all_of_it,
)


def _with_refuser(finding: Finding) -> Finding:
    if finding.severity != ERROR or finding.refused_by:
        return finding
    return msgspec.structs.replace(finding, refused_by=_REFUSED_BY.get(finding.code, SCHEDULER))


def lint(manifest: Manifest, *, modes_present: frozenset[Mode] | None) -> list[Finding]:
    """Run every rule; errors come first. ``modes_present``: modes of the cluster's nodes, None when unknown."""
    subject = Subject(manifest, modes_present)
    findings = [_with_refuser(finding) for rule in RULES for finding in rule(subject)]
    return sorted(findings, key=lambda finding: finding.severity != ERROR)
