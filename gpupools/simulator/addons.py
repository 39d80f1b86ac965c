"""The add-ons that the embedded cluster can install, and the DaemonSets that each of them consists of.

Names and node selectors are those that ACK's own components show in a cluster. It knows no store and no API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpupools.domain.modes import MODE_LABEL

NAMESPACE = "kube-system"
ADDON_LABEL = "app.kubernetes.io/part-of"

_NVIDIA_PLUGIN = "ack-nvidia-device-plugin"
_AI_INSTALLER = "ack-ai-installer"
MPS_CONTROL = "ack-mps-control"
# How cGPU shares compute time; 0, in equal parts, is what ACK installs.
_CGPU = (("POLICY", "0"),)


@dataclass(frozen=True, slots=True)
class Daemon:
    """One DaemonSet of an add-on: it runs on the nodes whose mode label has one of ``modes``."""

    name: str
    modes: tuple[str, ...]
    image: str
    labels: tuple[tuple[str, str], ...] = ()
    privileged: bool = False
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Addon:
    """One add-on of the catalogue."""

    name: str
    version: str
    category: str
    daemons: tuple[Daemon, ...]


CATALOGUE: Mapping[str, Addon] = {
    addon.name: addon
    for addon in (
        Addon(
            _AI_INSTALLER,
            "1.12.9",
            "ai",
            (
                Daemon("cgpu-installer", ("cgpu",), "cgpu-installer:1.5.20", privileged=True, env=_CGPU),
                Daemon("cgpu-core-installer", ("core_mem",), "cgpu-installer:1.5.20", privileged=True, env=_CGPU),
                Daemon("gpushare-device-plugin-ds", ("share", "cgpu"), "gpushare-device-plugin:v2.6.1"),
                Daemon("gpushare-core-device-plugin-ds", ("core_mem",), "gpushare-device-plugin:v2.6.1"),
                Daemon("gpushare-mps-device-plugin-ds", ("mps",), "gpushare-device-plugin:v2.6.1"),
                Daemon("gputopo-device-plugin-ds", ("topology",), "gputopo-device-plugin:v1.3.0"),
                Daemon("migparted-device-plugin", ("mig",), "migparted-device-plugin:v1.1.0"),
                Daemon("nvidia-device-plugin-recover", ("default",), "device-plugin-recover:v1.0.4"),
            ),
        ),
        Addon(
            _NVIDIA_PLUGIN,
            "0.17.4-ack.2",
            "gpu",
            (
                Daemon(
                    _NVIDIA_PLUGIN,
                    ("default",),
                    "k8s-device-plugin:v0.17.4",
                    labels=(("component", "nvidia-device-plugin"),),
                ),
            ),
        ),
        Addon(
            MPS_CONTROL,
            "0.2.0",
            "gpu",
            (Daemon(MPS_CONTROL, ("mps",), "mps-control-daemon:v0.2.0", privileged=True),),
        ),
    )
}

# What only ACK Pro clusters take: sharing and topology.
PRO_ONLY = frozenset({_AI_INSTALLER, MPS_CONTROL})

# Mode label value -> the DaemonSet whose pod on a node counts the cards and reports them to the kubelet.
DEVICE_PLUGINS: Mapping[str, str] = {
    "default": _NVIDIA_PLUGIN,
    "share": "gpushare-device-plugin-ds",
    "cgpu": "gpushare-device-plugin-ds",
    "core_mem": "gpushare-core-device-plugin-ds",
    "mps": "gpushare-mps-device-plugin-ds",
    "topology": "gputopo-device-plugin-ds",
}
# Mode label value -> DaemonSets that must run beside the device plugin before it reports anything.
DEVICE_PLUGIN_NEEDS: Mapping[str, tuple[str, ...]] = {"mps": (MPS_CONTROL,)}
ALL_DAEMONS = frozenset(daemon.name for addon in CATALOGUE.values() for daemon in addon.daemons)


def daemonsets(addon: Addon, *, region: str) -> list[dict[str, Any]]:
    """Build the DaemonSets that installing an add-on creates, all in kube-system."""
    return [_daemonset(addon, daemon, region) for daemon in addon.daemons]


def _daemonset(addon: Addon, daemon: Daemon, region: str) -> dict[str, Any]:
    selector = {"app": addon.name, "name": daemon.name}
    container: dict[str, Any] = {
        "name": daemon.name,
        "image": f"registry-{region}-vpc.ack.aliyuncs.com/acs/{daemon.image}",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "300Mi"}},
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
            *({"name": name, "value": value} for name, value in daemon.env),
        ],
        "volumeMounts": [{"name": "device-plugin", "mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    if daemon.privileged:
        container["securityContext"] = {"privileged": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": daemon.name,
            "namespace": NAMESPACE,
            "labels": {**selector, ADDON_LABEL: addon.name, "app.kubernetes.io/version": addon.version},
        },
        "spec": {
            "selector": {"matchLabels": selector},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "revisionHistoryLimit": 10,
            "template": {
                "metadata": {"labels": {**selector, **dict(daemon.labels)}},
                "spec": {
                    **_node_choice(daemon),
                    "containers": [container],
                    "hostNetwork": True,
                    "hostPID": daemon.privileged,
                    "priorityClassName": "system-node-critical",
                    "restartPolicy": "Always",
                    "serviceAccountName": "default",
                    "terminationGracePeriodSeconds": 30,
                    "tolerations": [{"operator": "Exists"}],
                    "volumes": [
                        {"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins", "type": ""}}
                    ],
                },
            },
        },
    }


def _node_choice(daemon: Daemon) -> dict[str, Any]:
    if len(daemon.modes) == 1:
        return {"nodeSelector": {MODE_LABEL: daemon.modes[0]}}
    expression = {"key": MODE_LABEL, "operator": "In", "values": list(daemon.modes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
