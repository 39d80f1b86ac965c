"""Rules about what makes a node report its cards: device plugins, isolation modules, the MPS daemon."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpupools.domain.components import CATALOGUE, DaemonSetFacts
from gpupools.domain.diagnosis.scene import Diagnosis, Scene, Severity, counted, name_of
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import GPU_MEM, MODE_LABEL, MODES, Component, Mode

# From this release on, ACK's plugin of whole cards is a DaemonSet that selects the label.
LABEL_NEEDED_SINCE = (1, 32)
# Versions up to this one fail at start with newer container toolkits; earlier ones have more faults.
LAST_FAULTY_CGPU = (1, 5, 18)
CRITICAL_PRIORITY = 2_000_001_000  # system-node-critical
# What the kubelet says of containers that are on their way.
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
_ISOLATION = {Mode.CGPU: "cgpu-installer", Mode.CORE_MEM: "cgpu-core-installer"}
# Device plugins that report the same cards as ACK's own, by a part of their DaemonSet's or pod's name.
_RIVALS = {
    "nvidia-device-plugin-daemonset": "NVIDIA's device plugin",
    "nvidia-device-plugin-ds": "NVIDIA's device plugin",
    "hami-device-plugin": "HAMi's device plugin",
    "gpu-manager": "Tencent's gpu-manager",
    "device-plugin-ds-gpushare": "the open-source gpushare plugin",
}


def daemons_of(mode: Mode) -> list[tuple[Component, DaemonSetFacts]]:
    """Return the DaemonSets that must run on a node of a mode, with the component that brings each."""
    return [
        (name, daemonset)
        for name in MODES[mode].components
        for daemonset in CATALOGUE[name].daemonsets
        if mode in daemonset.modes
    ]


def reports_nothing(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """A node declares a mode and reports none of its resource: 1 (shared, topology) and 36 (exclusive)."""
    mode = node.declared
    if mode is None or MODES[mode].read_only or not node.ready:
        return
    silent = [name for name in MODES[mode].resources if not node.allocatable.get(name)]
    if not silent or (MODE_LABEL not in node.labels and node.memory_units):
        return
    exclusive = mode is Mode.EXCLUSIVE
    severity = Severity.ERROR
    if exclusive and MODE_LABEL not in node.labels and _release(node.kubelet_version) >= LABEL_NEEDED_SINCE:
        why = f"The node has no label {MODE_LABEL}, and its kubelet is {node.kubelet_version}."
        fix = f"Set its pool's mode to exclusive, which writes {MODE_LABEL}=default: the plugin selects that label."
    else:
        why, fix, severity = _why_silent(node, mode, scene)
    yield Diagnosis(
        "exclusive-reports-nothing" if exclusive else "mode-reports-nothing",
        36 if exclusive else 1,
        severity,
        f"{node.name} is in mode {mode.value} and reports no {' and no '.join(silent)}.",
        why,
        fix,
        node.name,
    )


def _why_silent(node: GpuNode, mode: Mode, scene: Scene) -> tuple[str, str, Severity]:
    """Look along the chain: component, DaemonSet, its pod on this node, that pod's state."""
    for component, daemonset in daemons_of(mode):
        if daemonset.name not in scene.daemonsets:
            evidence = f"There is no DaemonSet kube-system/{daemonset.name}, which {daemonset.purpose}."
            return evidence, f"Install {component.value} on the Cloud-native AI Suite page.", Severity.ERROR
        pods = [pod for pod in scene.daemons(node.name, daemonset.name) if not pod.finished]
        if not pods:
            evidence = f"DaemonSet {daemonset.name} has no pod on this node."
            fix = "See whether a taint of the node keeps it away, and what its events say."
            return evidence, fix, Severity.ERROR
        if broken := next((pod for pod in pods if not pod.ready), None):
            said = f": {broken.reason} {broken.message}".rstrip() if broken.reason else ""
            evidence = f"{name_of(broken)} is {broken.phase} and not ready{said}."
            starting = broken.reason in _STARTING and not broken.restarts
            if starting:
                fix = "Wait: while a device plugin starts, its node shows 0. If it stays so, read the pod's events."
                return evidence, fix, Severity.WARNING
            return evidence, "Read its log, mend the cause, and let it start again.", Severity.ERROR
    evidence = "All its pods run there, and the kubelet still knows of no card."
    return (
        evidence,
        "Wait a minute; then restart the device plugin's pod on this node, and only then its jobs' pods.",
        (Severity.WARNING),
    )


def plugin_evicted(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """39: a pod that the mode needs was evicted from the node."""
    for _, daemonset in daemons_of(node.declared) if node.declared else ():
        for pod in scene.daemons(node.name, daemonset.name):
            if pod.phase == "Failed" and pod.reason in {"Evicted", "Preempting", "OutOfmemory", "OutOfcpu"}:
                yield Diagnosis(
                    "plugin-evicted",
                    39,
                    Severity.ERROR,
                    f"{name_of(pod)}, which {daemonset.purpose}, was put off {node.name}.",
                    f"{pod.reason}: {pod.message}".rstrip(": "),
                    "Free memory or disk on the node, and give the DaemonSet priorityClassName system-node-critical.",
                    node.name,
                    pods=(name_of(pod),),
                )
            elif not pod.finished and pod.ask.priority < CRITICAL_PRIORITY:
                yield Diagnosis(
                    "plugin-evictable",
                    39,
                    Severity.WARNING,
                    f"{name_of(pod)} may be evicted when {node.name} is short of memory, and the cards would go.",
                    f"Its priority is {pod.ask.priority}; system-node-critical is {CRITICAL_PRIORITY}.",
                    f"Give DaemonSet {daemonset.name} priorityClassName system-node-critical.",
                    node.name,
                    pods=(name_of(pod),),
                )


def two_plugins(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """37: two device plugins report the same cards; the last one wins, and limits may vanish."""
    rivals = [(pod, whose) for pod in scene.on_node.get(node.name, ()) if (whose := _rival(pod)) and not pod.finished]
    if rivals:
        pods = tuple(name_of(pod) for pod, _ in rivals)
        yield Diagnosis(
            "two-plugins",
            37,
            Severity.ERROR,
            f"{rivals[0][1]} runs on {node.name} beside ACK's own: two plugins report the same cards.",
            f"{', '.join(pods)} on a node of mode {node.declared.value if node.declared else 'unknown'}.",
            "Remove it, or set the label to disabled on the nodes that it shall have to itself.",
            node.name,
            pods=pods,
        )
        return
    own = set(MODES[node.declared].zero_resources) if node.declared and not MODES[node.declared].read_only else set()
    twice = sorted(name for name in own if node.allocatable.get(name))
    if twice and MODE_LABEL in node.labels:
        yield Diagnosis(
            "two-plugins",
            37,
            Severity.ERROR,
            f"{node.name} reports {', '.join(twice)} beside the resource of its mode.",
            ", ".join(f"{name}={node.allocatable[name]}" for name in twice),
            "See which device-plugin pods run there: an older cluster's static pod, or an unfinished switch.",
            node.name,
        )


def _rival(pod: Pod) -> str:
    if pod.owner_kind == "Node":  # a static pod: its owner is the node itself
        return "A static pod of the older packaging" if "nvidia-device-plugin" in pod.name else ""
    if pod.owner_kind != "DaemonSet":
        return ""
    ours = {daemonset.name for facts in CATALOGUE.values() for daemonset in facts.daemonsets}
    if pod.owner_name in ours and pod.namespace == "kube-system":
        return ""
    return next((whose for part, whose in _RIVALS.items() if part in pod.owner_name), "")


def cards_lost(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """40: cards that the plugin took out; it does not put them back by itself."""
    if node.declared is None or MODES[node.declared].read_only:
        return
    for name in MODES[node.declared].resources:
        have, had = node.allocatable.get(name, 0), node.capacity.get(name, 0)
        if 0 < have < had:
            yield _lost(node, f"{name}: {have} of {had} are allocatable.{_which(node)}")
            return
    if node.unhealthy:
        yield _lost(node, f"The topology report calls card {', '.join(map(str, node.unhealthy))} unhealthy.")


def _which(node: GpuNode) -> str:
    """Say which cards of a shared node are out, where anybody says so, and what its scheduler makes of it."""
    if not node.cards_out:
        return ""
    named = ", ".join(f"GPU{index}" for index in node.unhealthy)
    return (
        f" That is {node.cards_out} of {counted(node.shared_cards, 'card')}, "
        + (f"and {named} is reported as unhealthy." if named else "and nothing says which.")
        + f" Until it is back, ACK's scheduler takes each for {counted(node.given(GPU_MEM), 'memory unit')} "
        f"instead of {node.per_card(GPU_MEM)}."
    )


def _lost(node: GpuNode, evidence: str) -> Diagnosis:
    return Diagnosis(
        "cards-unhealthy",
        40,
        Severity.ERROR,
        f"{node.name} has cards that its device plugin calls unhealthy.",
        evidence,
        "Look for XID errors in the node's kernel log; reset or replace the card, then restart the plugin's pod: it "
        "does not take a card back by itself.",
        node.name,
    )


def old_isolation(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """30: a version of the isolation module with known faults, by the tag of the installer's image."""
    installer = _ISOLATION.get(node.declared) if node.declared else None
    daemonset = scene.daemonsets.get(installer or "")
    if daemonset is None:
        return
    version = _numbers(daemonset.image.rpartition(":")[2])
    if version and version <= LAST_FAULTY_CGPU:
        yield Diagnosis(
            "cgpu-faulty-version",
            30,
            Severity.WARNING,
            f"The isolation module on {node.name} is of a version with known faults.",
            f"{daemonset.name} runs {daemonset.image}; up to 1.5.7 the kernel may panic, up to 1.5.18 containers may "
            "fail with newer toolkits, up to 1.5.2 with drivers after July 2023.",
            "Drain the nodes and upgrade ack-ai-installer (1.12.6 or later).",
            node.name,
        )


def mps_daemon(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """31, 32: on an mps node the control daemon is missing, or was restarted and took its clients along."""
    if node.declared is not Mode.MPS:
        return
    pods = [pod for pod in scene.daemons(node.name, Component.MPS_CONTROL.value) if not pod.finished]
    clients = tuple(name_of(pod) for pod in mps_clients(scene, node.name))
    if not any(pod.ready for pod in pods):
        state = f"{name_of(pods[0])} is {pods[0].phase}, not ready." if pods else "It has no pod on this node."
        yield Diagnosis(
            "mps-daemon-missing",
            32,
            Severity.ERROR,
            f"No MPS control daemon runs on {node.name}: no pod there can start CUDA.",
            state,
            "Install ack-mps-control, and see that its pod on this node is Running, before jobs come here.",
            node.name,
            pods=clients,
        )
    elif restarted := next((pod for pod in pods if pod.restarts), None):
        yield Diagnosis(
            "mps-daemon-restarted",
            31,
            Severity.WARNING,
            f"The MPS control daemon on {node.name} was restarted: pods that computed through it ended.",
            f"{name_of(restarted)} was restarted {counted(restarted.restarts, 'time')}.",
            "Restart the pods that are left over, and read the daemon's log for why it ended.",
            node.name,
            pods=clients,
        )


def mps_clients(scene: Scene, node: str) -> list[Pod]:
    """Return the pods on an mps node that compute through its daemon."""
    return [
        pod
        for pod in scene.on_node.get(node, ())
        if not pod.finished and pod.namespace != "kube-system" and _shares(pod)
    ]


def _shares(pod: Pod) -> bool:
    return any("aliyun.com/gpu-mem" in container.limits for container in pod.ask.containers)


def foreign_ledger(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """45: another vendor's scheduler keeps its own ledger of these cards."""
    marks = sorted(key for key in node.annotations if key.startswith("hami.io/"))
    pods = [
        pod
        for pod in scene.on_node.get(node.name, ())
        if not pod.finished and any(key.startswith("hami.io/") for key in pod.annotations)
    ]
    if marks or pods:
        yield Diagnosis(
            "foreign-ledger",
            45,
            Severity.WARNING,
            f"HAMi keeps a ledger of the cards of {node.name}, beside ACK's.",
            ", ".join([*marks[:3], *(name_of(pod) for pod in pods[:3])]),
            "Let one of the two hand out these cards: remove HAMi, or set the label to disabled on its nodes.",
            node.name,
            pods=tuple(name_of(pod) for pod in pods),
        )


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else ()


def _release(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return tuple(int(part) for part in found.groups()) if found else ()


RULES = (
    reports_nothing,
    plugin_evicted,
    two_plugins,
    cards_lost,
    old_isolation,
    mps_daemon,
    foreign_ledger,
)
