"""The scheduler: binds pending pods by the console's own placement engine and writes what ACK's scheduler writes.

Pods that fit nowhere get the engine's sentence as condition and event, and are tried again when the cluster changes.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Iterable

from gpupools.domain import objects, placement
from gpupools.domain.annotations import share_annotations, topology_annotations
from gpupools.domain.asks import limit_of
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import GPU_MEM, MODE_LABEL, TOPOLOGY_GPU
from gpupools.domain.verdicts import NodeState, Preview
from gpupools.domain.wire import ConfigMapObject, NodeObject
from gpupools.errors import ConsoleError
from gpupools.simulator.clock import Clock
from gpupools.simulator.errors import ApiError
from gpupools.simulator.journal import ADDED, DELETED, Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.podverbs import bind
from gpupools.simulator.records import NORMAL, WARNING, Recorder, finished, set_condition
from gpupools.simulator.store import Store

log = logging.getLogger(__name__)

NAME = "default-scheduler"
_SLICE_SECONDS = 0.02
_RETRY_PAUSE_SECONDS = 0.25  # the cluster changes all the time: pods that did not fit are not tried at every change

Key = tuple[str, str]


class Scheduler:
    """Places one pod after the other, the most important and then the oldest first."""

    def __init__(self, store: Store, clock: Clock, recorder: Recorder) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._nodes: dict[str, GpuNode] = {}
        self._pods: dict[str, dict[str, Pod]] = {}  # node -> uid -> what counts there
        self._states: dict[str, NodeState] = {}
        self._dirty: set[str] = set()
        self._active: list[tuple[int, str, int, Key]] = []
        self._queued: set[Key] = set()
        self._waiting: set[Key] = set()
        self._numbers = itertools.count()

    async def run(self) -> None:
        """Schedule until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            feed = self._store.subscribe("Node", "Pod", "ConfigMap")
            self._look_at_everything()
            retry_at: float | None = None
            try:
                while True:
                    await self._drain()
                    left = None if retry_at is None else max(0.0, retry_at - clock())
                    for event in await feed.batch(left):
                        if self._note(event) and self._waiting and retry_at is None:
                            retry_at = clock() + _RETRY_PAUSE_SECONDS / self._clock.speed
                    if retry_at is not None and clock() >= retry_at:
                        retry_at = None
                        waiting, self._waiting = self._waiting, set()
                        for key in waiting:
                            self._push(key)
            except ApiError as error:
                log.info("scheduler starts over: %s", error.message)

    # What the cluster looks like

    def _look_at_everything(self) -> None:
        self._nodes.clear()
        self._pods.clear()
        self._states.clear()
        self._dirty.clear()
        for node in self._store.list("Node"):
            self._read_node(node)
        for pod in self._store.list("Pod"):
            self._read_pod(pod)

    def _note(self, event: Event) -> bool:
        """Take one change in; return whether it may let a waiting pod fit."""
        obj = event.object
        if event.kind == "Pod":
            return self._note_pod(event)
        if event.kind == "ConfigMap":
            node = _report_of(obj)
            if node and (found := self._store.peek("Node", "", node)):
                self._read_node(found)
            return bool(node)
        name = obj["metadata"]["name"]
        if event.type == DELETED:
            self._nodes.pop(name, None)
            self._states.pop(name, None)
            self._dirty.discard(name)
            return True
        before = self._nodes.get(name)
        self._read_node(obj)
        return self._nodes.get(name) != before

    def _note_pod(self, event: Event) -> bool:
        pod = event.object
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if event.type == DELETED:
            self._waiting.discard(key)
            self._drop_pod(pod)
            return bool(pod["spec"].get("nodeName"))
        before = event.previous.object if event.previous is not None else None
        if event.type != ADDED and before is not None and _counted(before) == _counted(pod):
            return False
        self._read_pod(pod)
        return finished(pod) or bool(pod["metadata"].get("deletionTimestamp"))

    def _read_node(self, raw: Object) -> None:
        name = raw["metadata"]["name"]
        report = self._store.peek("ConfigMap", "kube-system", f"{name}-gputopo-report")
        try:
            topology = (report or {}).get("data")
            self._nodes[name] = objects.gpu_node(objects.read(raw, NodeObject), topology=topology)
        except ConsoleError as error:
            log.warning("node %s cannot be read: %s", name, error.message)
            self._nodes.pop(name, None)
            self._states.pop(name, None)
            return
        self._dirty.add(name)

    def _read_pod(self, raw: Object) -> None:
        meta, node = raw["metadata"], raw["spec"].get("nodeName", "")
        if not node:
            if _ours(raw):
                self._push((meta["namespace"], meta["name"]))
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

    def _current_states(self) -> list[NodeState]:
        for name in self._dirty:
            node = self._nodes.get(name)
            if node is not None:
                self._states[name] = placement.node_state(node, self._pods.get(name, {}).values())
        self._dirty.clear()
        return list(self._states.values())

    # The queue

    def _push(self, key: Key) -> None:
        if key in self._queued:
            return
        pod = self._store.peek("Pod", *key)
        if pod is None:
            return
        priority = pod["spec"].get("priority") or 0
        self._queued.add(key)
        created = pod["metadata"]["creationTimestamp"]
        heapq.heappush(self._active, (-priority, created, next(self._numbers), key))

    async def _drain(self) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + _SLICE_SECONDS
        while self._active:
            key = heapq.heappop(self._active)[-1]
            self._queued.discard(key)
            pod = self._store.peek("Pod", *key)
            if pod is not None and _ours(pod):
                self._try(key, pod)
            if clock() >= until:
                await asyncio.sleep(0)
                until = clock() + _SLICE_SECONDS

    # One pod

    def _try(self, key: Key, raw: Object) -> None:
        try:
            pod = objects.convert("Pod", raw)
            assert isinstance(pod, Pod)  # noqa: S101  # convert returns by kind
            states = self._current_states()
            found = placement.preview(pod.ask, states)
        except ConsoleError as error:
            self._fail(key, raw, error.message)
            return
        if found.chosen is None:
            self._fail(key, raw, found.message)
            return
        try:
            self._place(key, raw, pod, found)
        except ApiError as error:
            log.info("pod %s/%s was not bound: %s", *key, error.message)
            self._waiting.add(key)

    def _place(self, key: Key, raw: Object, pod: Pod, found: Preview) -> None:
        """Reserve by annotations, then bind: two writes, as ACK's plugin makes them."""
        node = found.chosen or ""
        notes = self._notes(pod, self._states[node], found.cards)
        if notes:

            def reserve(current: Object) -> None:
                current["metadata"].setdefault("annotations", {}).update(notes)

            self._store.change("Pod", *key, reserve)
        bound = bind(self._store, *key, node)
        self._read_pod(bound)
        message = f"Successfully assigned {key[0]}/{key[1]} to {node}"
        self._recorder.event(raw, NORMAL, "Scheduled", message, component=NAME)

    def _notes(self, pod: Pod, state: NodeState, cards: Iterable[int]) -> dict[str, str]:
        chosen = tuple(cards)
        if limit_of(pod.ask, GPU_MEM):
            units = [gpu.memory_units for gpu in state.allocation.gpus]
            return share_annotations(pod.ask, chosen, card_units=units, assumed_at_ns=self._clock.nanoseconds())
        if limit_of(pod.ask, TOPOLOGY_GPU):
            return topology_annotations(pod.ask, chosen, assumed_at_ns=self._clock.nanoseconds())
        return {}

    def _fail(self, key: Key, raw: Object, message: str) -> None:
        self._waiting.add(key)
        self._recorder.event(raw, WARNING, "FailedScheduling", message, component=NAME)

        def edit(pod: Object) -> None:
            status = pod.setdefault("status", {})
            status.setdefault("phase", "Pending")
            stamp = self._clock.stamp()
            set_condition(status, "PodScheduled", "False", stamp, reason="Unschedulable", message=message)

        self._store.change("Pod", *key, edit, subresource="status")


def _ours(pod: Object) -> bool:
    """Whether a pod waits for this scheduler."""
    spec = pod["spec"]
    if spec.get("nodeName") or pod["metadata"].get("deletionTimestamp") or finished(pod):
        return False
    return spec.get("schedulerName", NAME) in (NAME, "") and not spec.get("schedulingGates")


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
    if (config_map["metadata"].get("labels") or {}).get(MODE_LABEL) != "topology":
        return ""
    return objects.topology_node(objects.read(config_map, ConfigMapObject))
