"""What modes depend on: which DaemonSets make a component, and a verdict on it from facts. Pure.

Names, selectors and purposes of the DaemonSets are ACK's own packaging in kube-system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from gpupools.domain.gpus import GpuNode, Pod, Workload
from gpupools.domain.modes import MODES, Component, Mode
from gpupools.domain.releases import HelmRelease

NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class DaemonSetFacts:
    """One DaemonSet of a component: the modes whose nodes it runs on, and what it does there."""

    name: str
    modes: tuple[Mode, ...]
    purpose: str
    selected_by_affinity: bool = False


@dataclass(frozen=True, slots=True)
class ComponentFacts:
    """A component that the console can install, in the words of the Cloud-native AI Suite page."""

    name: Component
    title: str
    purpose: str
    without_it: str
    daemonsets: tuple[DaemonSetFacts, ...]
    restart_kills: bool = False

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Modes whose nodes need this component."""
        return tuple(mode for mode, facts in MODES.items() if self.name in facts.components)


@dataclass(frozen=True, slots=True)
class ForeignComponent:
    """A component that tutorials name and that is another vendor's: explained, never installed."""

    name: str
    vendor: str
    instead: str


CATALOGUE: Mapping[Component, ComponentFacts] = {
    facts.name: facts
    for facts in (
        ComponentFacts(
            Component.AI_INSTALLER,
            "Scheduling Policy Extension (Batch Task Scheduling, GPU Sharing, Topology-aware GPU Scheduling)",
            "Device plugins and node installers for the shared and topology-aware modes.",
            "Nodes in a shared or topology mode report no GPU memory and no cards: their pods stay Pending.",
            (
                DaemonSetFacts("cgpu-installer", (Mode.CGPU,), "installs the cGPU module for memory isolation"),
                DaemonSetFacts("cgpu-core-installer", (Mode.CORE_MEM,), "installs cGPU with compute isolation"),
                DaemonSetFacts("gpushare-device-plugin-ds", (Mode.SHARE, Mode.CGPU), "reports shared GPU memory", True),
                DaemonSetFacts("gpushare-core-device-plugin-ds", (Mode.CORE_MEM,), "reports memory and compute", True),
                DaemonSetFacts("gpushare-mps-device-plugin-ds", (Mode.MPS,), "reports memory shared by MPS", True),
                DaemonSetFacts("gputopo-device-plugin-ds", (Mode.TOPOLOGY,), "reports cards and their links"),
            ),
        ),
        ComponentFacts(
            Component.MPS_CONTROL,
            "MPS Control Daemon",
            "Runs NVIDIA's MPS control daemon on nodes of mode mps.",
            "Pods on mps nodes cannot start CUDA: there is no daemon to talk to.",
            (DaemonSetFacts("ack-mps-control", (Mode.MPS,), "runs the MPS control daemon"),),
            restart_kills=True,
        ),
        ComponentFacts(
            Component.NVIDIA_PLUGIN,
            "NVIDIA device plugin",
            "Reports whole cards (nvidia.com/gpu) on nodes of the exclusive mode.",
            "New exclusive nodes report no GPU at all.",
            (DaemonSetFacts("ack-nvidia-device-plugin", (Mode.EXCLUSIVE,), "reports whole cards"),),
        ),
    )
}  # fmt: skip

FOREIGN: tuple[ForeignComponent, ...] = (
    ForeignComponent(
        "gpu-manager",
        "Tencent Cloud",
        "It is Tencent's GPU sharing and does not work with ACK's scheduler. On ACK, sharing and isolation come with "
        "ack-ai-installer: choose a node pool of mode cgpu, core_mem, share or mps.",
    ),
    ForeignComponent(
        "nvidia-device-plugin",
        "NVIDIA",
        "On ACK the plugin is called ack-nvidia-device-plugin. Installing NVIDIA's own beside it makes two plugins "
        "report the same cards.",
    ),
    ForeignComponent(
        "kubectl-inspect-cgpu",
        "Alibaba Cloud (kubectl plugin)",
        "Not needed: the GPU dashboard and 'manage.py inspect' show the same table, and explain its numbers.",
    ),
)


class AddonSeen(msgspec.Struct, frozen=True):
    """An add-on as its provider reports it: ``active``, ``updating``, ``upgrading``, ``deleting`` or ``fail``."""

    name: str
    version: str = ""
    state: str = ""


class ComponentVerdict(msgspec.Struct, frozen=True):
    """What is true of a component now. ``state``: absent, installing, installed, degraded, removing, failed."""

    name: str
    state: str
    version: str = ""
    desired: int | None = None
    ready: int | None = None
    found_by: str = ""
    detail: str = ""

    @property
    def present(self) -> bool:
        """Whether nodes may count on it: installed, wholly or in part."""
        return self.state in {"installed", "degraded"}


def verdict(
    name: Component,
    workloads: Iterable[Workload],
    addons: Iterable[AddonSeen] = (),
    releases: Mapping[str, HelmRelease] | None = None,
) -> ComponentVerdict:
    """Judge a component by its add-on entry, its Helm release and its DaemonSets in kube-system; any may be missing.

    ACK does not list ack-ai-installer among add-ons everywhere, so the DaemonSets count for themselves.
    """
    facts = CATALOGUE[name]
    wanted = {daemonset.name for daemonset in facts.daemonsets}
    found = {
        workload.name: workload
        for workload in workloads
        if workload.kind == "DaemonSet" and workload.namespace == NAMESPACE and workload.name in wanted
    }
    addon = next((addon for addon in addons if addon.name == name), None)
    helm = (releases or {}).get(name)
    found_by = " and ".join(
        word for word, there in (("add-on", addon), ("Helm release", helm), ("DaemonSets", found)) if there
    )
    if not addon and not found and (helm is None or helm.status in {"uninstalled", "superseded"}):
        return ComponentVerdict(name, "absent", detail=facts.without_it)
    desired = sum(workload.wanted for workload in found.values())
    ready = sum(workload.ready for workload in found.values())
    version = addon.version if addon else (helm.version if helm else "") or _version(found.values())
    missing = sorted(wanted - set(found))
    unready = sorted(w.name for w in found.values() if w.ready < w.wanted)
    if addon and addon.state == "deleting":
        state, detail = "removing", "The add-on is being removed."
    elif addon and addon.state.startswith("fail"):
        state, detail = "failed", "The provider reports that the add-on failed."
    elif helm and helm.status == "uninstalling":
        state, detail = "removing", f"Helm is removing release {helm.name}."
    elif helm and helm.status == "failed":
        state, detail = "failed", f"Helm reports that revision {helm.revision} of release {helm.name} failed."
    elif helm and not found:
        state, detail = "installing", f"Helm release {helm.name} is {helm.status}, its DaemonSets are not there yet."
    elif addon and not found:
        state, detail = "installing", "The add-on is there, its DaemonSets are not yet."
    elif unseen := sorted(workload.name for workload in found.values() if not workload.observed):
        state, detail = "installing", f"No controller has looked at {', '.join(unseen)} yet."
    elif missing:
        state, detail = "degraded", f"Missing in {NAMESPACE}: {', '.join(missing)}."
    elif unready:
        state, detail = "degraded", f"{ready} of {desired} pods are ready; waiting for {', '.join(unready)}."
    else:
        state, detail = (
            "installed",
            f"{ready} of {desired} pods are ready." if desired else "No node needs it now.",
        )
    return ComponentVerdict(name, state, version, desired, ready, found_by, detail)


def _version(workloads: Iterable[Workload]) -> str:
    for workload in workloads:
        _, colon, tag = workload.image.rpartition(":")
        if colon and "/" not in tag:
            return tag
    return ""


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """Whether one DaemonSet of a component does its work on one node, and why not. ``ok`` None: it is starting."""

    node: str
    daemonset: str
    ok: bool | None
    detail: str


def node_health(
    name: Component, nodes: Iterable[GpuNode], pods: Iterable[Pod], workloads: Iterable[Workload]
) -> list[NodeHealth]:
    """Look at every node whose mode needs a DaemonSet of the component: is its pod there and ready, and why not."""
    there = {
        (pod.node, pod.owner_name): pod
        for pod in pods
        if (pod.namespace, pod.owner_kind) == (NAMESPACE, "DaemonSet") and not pod.finished
    }
    made = {each.name for each in workloads if (each.kind, each.namespace) == ("DaemonSet", NAMESPACE)}
    found = []
    for node in sorted(nodes, key=lambda node: node.name):
        for daemonset in CATALOGUE[name].daemonsets:
            if node.is_gpu and node.declared in daemonset.modes:
                pod = there.get((node.name, daemonset.name))
                found.append(NodeHealth(node.name, daemonset.name, *_health(node, pod, daemonset.name in made)))
    return found


def _health(node: GpuNode, pod: Pod | None, is_made: bool) -> tuple[bool | None, str]:
    if pod is None:
        why = "no pod of it here: see the node's taints" if is_made else "there is no such DaemonSet"
        return False, why
    if not node.ready:
        return False, "the node is not Ready"
    if pod.ready:
        return True, f"ready, {pod.restarts} restarts" if pod.restarts else "ready"
    said = f"{pod.reason}: {pod.message}".strip(": ")
    return (False, said) if said else (None, f"{pod.phase}, not ready yet")


def missing_for(mode: Mode, verdicts: Iterable[ComponentVerdict]) -> tuple[Component, ...]:
    """Return the components that a mode needs and that are not there."""
    present = {verdict.name for verdict in verdicts if verdict.present}
    return tuple(component for component in MODES[mode].components if component not in present)
