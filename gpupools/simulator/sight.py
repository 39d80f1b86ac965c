"""What the scheduler sees: every node with its pods as the placement engine's states, kept up to date by events.

Decides nothing: the engine (gpupools.domain.placement) says where a pod goes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import yaml

from gpupools.domain import objects, placement
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.groups import group_of, mates
from gpupools.domain.modes import MODE_LABEL
from gpupools.domain.verdicts import NodeState, Preview
from gpupools.domain.wire import ConfigMapObject, NodeObject
from gpupools.errors import ConsoleError
from gpupools.simulator.journal import ADDED, DELETED, Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.machines import card_uuid, machine_id_of
from gpupools.simulator.records import finished
from gpupools.simulator.store import Store

log = logging.getLogger(__name__)

_SYSTEM = "kube-system"
_REPORT, _DEVICE_STATUS = "-gputopo-report", "-device-status"
# Labels of a pod that no rule of placement reads, and that differ from pod to pod: without them equal pods are one
# question to the engine.
_PERSONAL = ("controller-uid", "job-name", "pod-template-generation", "controller-revision-hash")
# What the engine keeps per kind of ask grows with the kinds and the changes; from here on it starts anew.
_MOST_ANSWERS = 150_000
_MOST_CHANGES = 50_000

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Sight:
    """States by node, and the answers that nodes gave to each kind of ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._nodes: dict[str, GpuNode] = {}
        self._pods: dict[str, dict[str, Pod]] = {}  # node -> uid -> what counts there
        self._states: dict[str, NodeState] = {}
        self._dirty: set[str] = set()
        self._fleet: placement.Fleet | None = None
        self._shapes: set[int] = set()
        self._put = 0

    def look(self) -> None:
        """Read everything anew."""
        self._nodes.clear()
        self._pods.clear()
        self._states.clear()
        self._dirty.clear()
        self._fleet = None
        for node in self._store.list("Node"):
            self._read_node(node)
        for pod in self._store.list("Pod"):
            self.read_pod(pod)

    # Changes

    def note_node(self, event: Event) -> bool:
        """Take a node's change in; return whether it may matter to placement."""
        name = event.object["metadata"]["name"]
        if event.type == DELETED:
            self._drop_node(name)
            return True
        before = self._nodes.get(name)
        self._read_node(event.object)
        return self._nodes.get(name) != before

    def note_report(self, event: Event) -> bool:
        """Take a change of a config map in that says something about a node's cards."""
        meta = event.object["metadata"]
        if meta["namespace"] != _SYSTEM:
            return False
        node = _report_of(event.object)
        if not node or (found := self._store.peek("Node", "", node)) is None:
            return False
        self._read_node(found)
        return True

    def note_pod(self, event: Event) -> bool:
        """Take a pod's change in; return whether it may have made room."""
        pod = event.object
        if event.type == DELETED:
            self._drop_pod(pod)
            return bool(pod["spec"].get("nodeName"))
        before = event.previous.object if event.previous is not None else None
        if event.type != ADDED and before is not None and _counted(before) == _counted(pod):
            return False
        self.read_pod(pod)
        if event.type == ADDED:
            # A new pod takes room, but it may complete a group that waits.
            return group_of(pod["metadata"].get("labels") or {}) is not None
        return finished(pod) or bool(pod["metadata"].get("deletionTimestamp"))

    def read_pod(self, raw: Object) -> None:
        """Count a bound pod on its node."""
        meta, node = raw["metadata"], raw["spec"].get("nodeName", "")
        if not node:
            return
        if finished(raw):
            self._drop_pod(raw)
            return
        try:
            pod = objects.convert("Pod", raw)
        except ConsoleError as error:
            log.warning("pod %s/%s cannot be read: %s", meta["namespace"], meta["name"], error.message)
            return
        assert isinstance(pod, Pod)  # noqa: S101  # convert returns by kind
        self._pods.setdefault(node, {})[pod.uid] = pod
        self._dirty.add(node)

    def _drop_pod(self, raw: Object) -> None:
        node = raw["spec"].get("nodeName", "")
        if self._pods.get(node, {}).pop(raw["metadata"]["uid"], None) is not None:
            self._dirty.add(node)

    def _read_node(self, raw: Object) -> None:
        name = raw["metadata"]["name"]
        report = self._store.peek("ConfigMap", _SYSTEM, name + _REPORT)
        try:
            node = objects.gpu_node(objects.read(raw, NodeObject), topology=(report or {}).get("data"))
        except ConsoleError as error:
            log.warning("node %s cannot be read: %s", name, error.message)
            self._drop_node(name)
            return
        status = self._store.peek("ConfigMap", _SYSTEM, name + _DEVICE_STATUS)
        if status is not None and (broken := _out_of_sharing(raw, status)):
            node = msgspec.structs.replace(node, unhealthy=tuple(sorted({*node.unhealthy, *broken})))
        self._nodes[name] = node
        self._dirty.add(name)

    def _drop_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._dirty.discard(name)
        if self._states.pop(name, None) is not None:
            self._fleet = None

    # Answers

    def preview(self, pod: Pod) -> Preview:
        """Ask the engine where a pod goes now."""
        labels = {key: value for key, value in pod.ask.labels.items() if key.rpartition("/")[2] not in _PERSONAL}
        ask = msgspec.structs.replace(pod.ask, labels=labels, namespace=pod.namespace)
        self._shapes.add(hash(_encode(msgspec.structs.replace(ask, name=""))))
        fleet = self._current_fleet()
        if group_of(labels) is not None:
            others = (other for other in self._live_pods(pod.namespace) if other.uid != pod.uid)
            return placement.preview(ask, fleet.states, mates=mates(ask, others))
        return fleet.preview(ask)

    def state(self, node: str) -> NodeState:
        """Return a node's state."""
        return self._states[node]

    def _live_pods(self, namespace: str) -> Iterable[Pod]:
        for raw in self._store.list("Pod", namespace):
            try:
                pod = objects.convert("Pod", raw)
            except ConsoleError:
                continue
            if isinstance(pod, Pod):
                yield pod

    def _current_fleet(self) -> placement.Fleet:
        fleet, changed = self._fleet, []
        for name in self._dirty:
            if (node := self._nodes.get(name)) is not None:
                if name not in self._states:
                    fleet = None
                self._states[name] = state = placement.node_state(node, self._pods.get(name, {}).values())
                changed.append(state)
        self._dirty.clear()
        self._put += len(changed)
        too_much = self._put > _MOST_CHANGES or len(self._shapes) * len(self._states) > _MOST_ANSWERS
        if fleet is None or too_much:
            fleet, self._put = placement.Fleet(self._states.values()), 0
            self._shapes.clear()
        else:
            for state in changed:
                fleet.put(state)
        self._fleet = fleet
        return fleet


def _counted(pod: Object) -> tuple[object, ...]:
    """What of a pod matters to placement."""
    meta, spec = pod["metadata"], pod["spec"]
    return (
        spec.get("nodeName"),
        finished(pod),
        bool(meta.get("deletionTimestamp")),
        meta.get("annotations"),
        spec.get("schedulingGates"),
        meta.get("labels"),
    )


def _report_of(config_map: Object) -> str:
    """Return the node that a config map of kube-system is about, empty when it is about none."""
    name = config_map["metadata"]["name"]
    if name.endswith(_DEVICE_STATUS):
        return str(name.removesuffix(_DEVICE_STATUS))
    if (config_map["metadata"].get("labels") or {}).get(MODE_LABEL) != "topology":
        return ""
    return objects.topology_node(objects.read(config_map, ConfigMapObject))


def _out_of_sharing(node: Object, config_map: Object) -> Sequence[int]:
    """Read which cards a person took out of shared scheduling: by index or UUID in ``data.devices``, YAML."""
    try:
        listed: Any = yaml.load((config_map.get("data") or {}).get("devices", ""), Loader=yaml.CSafeLoader)  # noqa: S506  # safe, in C
    except yaml.YAMLError:
        return ()
    machine = machine_id_of(node)
    by_uuid = {card_uuid(machine, index): index for index in range(16)}
    found = []
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and entry.get("healthy") is False:
            device = str(entry.get("deviceId", ""))
            index = by_uuid.get(device, int(device) if device.isascii() and device.isdigit() else -1)
            if index >= 0:
                found.append(index)
    return found
