"""What nodes report by mode: device plugins count the cards, and the node's status says so after a while.

A mode's resources appear once the mode label is on the node and the mode's plugin pod runs there; the resources of
the modes that the node left stay as "0". Also the topology report, which the topology plugin writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from gpupools.domain.modes import (
    EXCLUSIVE_GPU,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    GPU_RESOURCES,
    MODE_LABEL,
    TOPOLOGY_GPU,
)
from gpupools.simulator.addons import ALL_DAEMONS, DEVICE_PLUGIN_NEEDS, DEVICE_PLUGINS, NAMESPACE
from gpupools.simulator.clock import Clock
from gpupools.simulator.faults import Fault, Faults, NodeDown
from gpupools.simulator.hardware import Hardware, hardware_of_node
from gpupools.simulator.journal import Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.machines import link_bandwidths, link_types
from gpupools.simulator.records import controller_of, ready
from gpupools.simulator.store import Store

_REGISTER_SECONDS = 1.5  # the plugin counts cards and registers with the kubelet
_WITHDRAW_SECONDS = 0.3  # the kubelet notices that the plugin's socket is gone


def reported(mode: str, hardware: Hardware, *, healthy_only: bool = False) -> dict[str, str]:
    """Return what the device plugin of a mode reports for a machine: capacity, or only what is healthy (allocatable).

    Every card is counted like the first one, and a card's units are whole ones, rounded down. ``gpu-count`` is not a
    device of the plugin: it patches the number of cards, broken or not.
    """
    cards = hardware.cards - (len(hardware.broken) if healthy_only else 0)
    if mode == "default":
        return {EXCLUSIVE_GPU: str(cards)}
    if mode == "topology":
        return {TOPOLOGY_GPU: str(cards)}
    resources = {GPU_MEM: str(cards * hardware.card_units), GPU_COUNT: str(hardware.cards)}
    if mode == "core_mem":
        resources[GPU_CORE] = str(100 * cards)
    return resources


class DevicePlugins:
    """Reconciles the GPU resources of one node at a time; keys are node names."""

    name = "device-plugins"
    kinds = ("Node", "Pod")

    def __init__(self, store: Store, clock: Clock, faults: Faults, *, unit_mib: int = 1024) -> None:
        self._store = store
        self._clock = clock
        self._faults = faults
        self._unit_mib = unit_mib
        # What a node is about to report, and since when: reports take a moment.
        self._coming: dict[str, tuple[dict[str, dict[str, str]], str]] = {}

    def keys_of(self, event: Event) -> Iterable[str]:
        """Name the node whose label, status or plugin pods changed."""
        if event.kind == "Node":
            return [event.object["metadata"]["name"]]
        node = event.object["spec"].get("nodeName")
        return [node] if node and _plugin(event.object) else []

    def all_keys(self) -> Iterable[str]:
        """Name every node."""
        return [node["metadata"]["name"] for node in self._store.list("Node")]

    def reconcile(self, key: str) -> float | None:
        """Let one node report what its mode's plugin counts, and nothing else."""
        node = self._store.peek("Node", "", key)
        hardware = hardware_of_node(node) if node else None
        if node is None or hardware is None or not hardware.cards:
            self._coming.pop(key, None)
            self._withdraw_topology(key)
            return None
        if self._faults.node_down(key) is not None:
            return None
        hardware = replace(hardware, unit_mib=self._unit_mib)
        mode = (node["metadata"].get("labels") or {}).get(MODE_LABEL, "")
        plugged = self._plugged_in(key, mode)
        status = node.get("status") or {}
        known = status.get("capacity") or {}
        wanted = reported(mode, hardware) if plugged else {}
        healthy = reported(mode, hardware, healthy_only=True) if plugged else {}
        target = {"capacity": _with_zeros(wanted, known), "allocatable": _with_zeros(healthy, known)}
        if all(
            (status.get(place) or {}).get(name) == value
            for place, amounts in target.items()
            for name, value in amounts.items()
        ):
            self._coming.pop(key, None)
            self._report_topology(key, mode, hardware, plugged=plugged)
            return None
        coming = self._coming.get(key)
        if coming is None or coming[0] != target:
            coming = self._coming[key] = (target, self._clock.micro_stamp())
        delay = _REGISTER_SECONDS if plugged else _WITHDRAW_SECONDS
        left = delay - self._clock.simulated_seconds_since(coming[1])
        if left > 0:
            return left
        del self._coming[key]
        changed = {place: {**(status.get(place) or {}), **amounts} for place, amounts in target.items()}
        self._store.write_parts("Node", "", key, status={**status, **changed})
        self._report_topology(key, mode, hardware, plugged=plugged)
        return None

    def keys_of_fault(self, fault: Fault) -> Iterable[str]:
        """Name the node whose kubelet died or came back."""
        return [fault.node] if isinstance(fault, NodeDown) else []

    def _plugged_in(self, node: str, mode: str) -> bool:
        plugin = DEVICE_PLUGINS.get(mode)
        if plugin is None:
            return False
        running = {
            name
            for pod in self._store.pods_on(node)
            if (name := _plugin(pod)) and ready(pod) and not pod["metadata"].get("deletionTimestamp")
        }
        return {plugin, *DEVICE_PLUGIN_NEEDS.get(mode, ())} <= running

    def _report_topology(self, node: str, mode: str, hardware: Hardware, *, plugged: bool) -> None:
        """Write the link matrix of a topology node, as its plugin does; take it away when the cards went."""
        if mode != "topology" or not plugged:
            self._withdraw_topology(node)
            return
        words = {index: "Unhealthy" if index in hardware.broken else "Healthy" for index in range(hardware.cards)}
        data = {
            "nodeName": node,
            "bandwidth": json.dumps(link_bandwidths(hardware)),
            "devices": json.dumps({str(index): word for index, word in words.items()}),
            "linkType": json.dumps(link_types(hardware)),
        }
        name = _report_name(node)
        if self._store.peek("ConfigMap", NAMESPACE, name) is not None:
            self._store.write_parts("ConfigMap", NAMESPACE, name, data=data)
            return
        labels = {MODE_LABEL: "topology", "nodename": node}
        self._store.create(
            "ConfigMap", {"metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "data": data}
        )

    def _withdraw_topology(self, node: str) -> None:
        if self._store.peek("ConfigMap", NAMESPACE, _report_name(node)) is not None:
            self._store.delete("ConfigMap", NAMESPACE, _report_name(node))


def _report_name(node: str) -> str:
    return f"{node}-gputopo-report"


def _with_zeros(wanted: dict[str, str], capacity: dict[str, str]) -> dict[str, str]:
    """Add "0" for GPU resources that the node has from another mode; those that it never had stay absent."""
    return {name: wanted.get(name, "0") for name in GPU_RESOURCES if name in wanted or name in capacity}


def _plugin(pod: Object) -> str:
    """Return the name of the GPU DaemonSet that a pod belongs to, empty for any other pod."""
    if pod["metadata"].get("namespace") != NAMESPACE:
        return ""
    owner = controller_of(pod)
    if owner is None or owner["kind"] != "DaemonSet" or owner["name"] not in ALL_DAEMONS:
        return ""
    return str(owner["name"])
