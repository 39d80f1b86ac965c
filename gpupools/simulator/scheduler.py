"""The scheduler: binds pending pods by the console's own placement engine and writes what ACK's scheduler writes.

Pods that fit nowhere get the engine's sentence as condition and event, and are tried again, with back-off, when the
cluster changes. What it sees of the cluster is in sight.py.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from gpupools.domain import objects
from gpupools.domain.annotations import share_annotations, topology_annotations
from gpupools.domain.asks import limit_of
from gpupools.domain.gpus import Pod
from gpupools.domain.modes import GPU_MEM, TOPOLOGY_GPU
from gpupools.domain.verdicts import NodeState, Preview, given_units
from gpupools.errors import ConsoleError
from gpupools.simulator.clock import Clock
from gpupools.simulator.errors import ApiError
from gpupools.simulator.faults import BindFail, Faults
from gpupools.simulator.journal import DELETED, Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.podverbs import bind
from gpupools.simulator.records import NORMAL, WARNING, Recorder, finished, set_condition
from gpupools.simulator.sight import Sight
from gpupools.simulator.store import Store

log = logging.getLogger(__name__)

NAME = "default-scheduler"
_SLICE_SECONDS = 0.02
_RETRY_PAUSE_SECONDS = 0.25  # the cluster changes all the time: pods that did not fit are not tried at every change
# As kube-scheduler's own back-off of pods that did not fit.
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 1.0, 10.0

Key = tuple[str, str]


@dataclass(slots=True)
class _Waiting:
    """A pod that did not fit: how often, how many changes of the cluster it knows, and when it may try again."""

    attempts: int
    changes: int
    not_before: float


class Scheduler:
    """Places one pod after the other, the most important and then the oldest first."""

    def __init__(self, store: Store, clock: Clock, recorder: Recorder, faults: Faults) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._faults = faults
        self._sight = Sight(store)
        self._active: list[tuple[int, str, int, Key]] = []
        self._queued: set[Key] = set()
        self._waiting: dict[Key, _Waiting] = {}
        self._changes = 0
        self._retry_at: float | None = None
        self._numbers = itertools.count()

    async def run(self) -> None:
        """Schedule until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            feed = self._store.subscribe("Node", "Pod", "ConfigMap")
            self._look_at_everything()
            try:
                while True:
                    # Between slices what happened is taken in, or thousands of pods would be placed by an old sight.
                    self._place_some(clock() + _SLICE_SECONDS)
                    if self._active:
                        events = feed.ready()
                        await asyncio.sleep(0)
                    else:
                        left = None if self._retry_at is None else max(0.0, self._retry_at - clock())
                        events = await feed.batch(left)
                    for event in events:
                        if self._note(event):
                            self._changes += 1
                            self._plan_retry(clock())
                    if self._retry_at is not None and clock() >= self._retry_at:
                        self._retry(clock())
            except ApiError as error:
                log.info("scheduler starts over: %s", error.message)

    # What the cluster looks like

    def _look_at_everything(self) -> None:
        self._sight.look()
        for pod in self._store.list("Pod"):
            self._enqueue(pod)

    def _note(self, event: Event) -> bool:
        """Take one change in; return whether it may let a waiting pod fit."""
        if event.kind == "Pod":
            if event.type == DELETED:
                meta = event.object["metadata"]
                self._waiting.pop((meta["namespace"], meta["name"]), None)
            else:
                self._enqueue(event.object)
            return self._sight.note_pod(event)
        return self._sight.note_report(event) if event.kind == "ConfigMap" else self._sight.note_node(event)

    # The queue

    def _enqueue(self, raw: Object) -> None:
        """Queue a pod that waits for this scheduler and was not tried yet."""
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        if key not in self._waiting and ours(raw):
            self._push(key)

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

    def _plan_retry(self, now: float) -> None:
        if self._waiting and self._retry_at is None:
            self._retry_at = now + _RETRY_PAUSE_SECONDS / self._clock.speed

    def _retry(self, now: float) -> None:
        """Queue the waiting pods for whom the cluster changed and whose back-off is over."""
        later = []
        for key, waiting in self._waiting.items():
            if waiting.changes == self._changes:
                continue
            if waiting.not_before <= now:
                self._push(key)
            else:
                later.append(waiting.not_before)
        self._retry_at = min(later, default=None)

    def _place_some(self, until: float) -> None:
        clock = asyncio.get_running_loop().time
        while self._active:
            key = heapq.heappop(self._active)[-1]
            self._queued.discard(key)
            pod = self._store.peek("Pod", *key)
            if pod is not None and ours(pod):
                self._guarded(key, pod)
            else:
                self._waiting.pop(key, None)
            if clock() >= until:
                return

    # One pod

    def _guarded(self, key: Key, raw: Object) -> None:
        try:
            self._try(key, raw)
        except ApiError as error:
            # The pod or its namespace went away in between, mostly.
            log.info("pod %s/%s: %s", *key, error.message)
            self._wait(key)
        except Exception:  # noqa: BLE001  # the one guard: an odd pod must not stop the scheduler for all others
            log.exception("the scheduler failed on pod %s/%s", *key)
            self._wait(key)

    def _try(self, key: Key, raw: Object) -> None:
        try:
            pod = objects.convert("Pod", raw)
            assert isinstance(pod, Pod)  # noqa: S101  # convert returns by kind
            found = self._sight.preview(pod)
        except ConsoleError as error:
            self._fail(key, raw, error.message)
            return
        if found.chosen is None:
            self._fail(key, raw, found.message)
            return
        if self._place(key, raw, pod, found):
            self._waiting.pop(key, None)

    def _place(self, key: Key, raw: Object, pod: Pod, found: Preview) -> bool:
        """Reserve by annotations, then bind: two writes, as ACK's plugin makes them; return whether it is bound.

        A bind that fails leaves the annotations behind, as ACK's does.
        """
        node = found.chosen or ""
        notes = self._notes(pod, self._sight.state(node), found.cards)
        if notes:
            known = raw["metadata"].get("annotations") or {}
            self._store.write_parts("Pod", *key, metadata={"annotations": {**known, **notes}})
        if self._faults.hit(BindFail, lambda fault: fault.meant(*key)) is not None:
            message = (
                'binding rejected: running Bind plugin "DefaultBinder": Operation cannot be fulfilled on pods/binding '
                f'"{key[1]}": an error was asked for'
            )
            self._fail(key, raw, message, reason="SchedulerError")
            # Tried again after its back-off, whether anything changed or not.
            self._changes += 1
            self._plan_retry(asyncio.get_running_loop().time())
            return False
        self._sight.read_pod(bind(self._store, *key, node))
        message = f"Successfully assigned {key[0]}/{key[1]} to {node}"
        self._recorder.event(raw, NORMAL, "Scheduled", message, component=NAME)
        return True

    def _notes(self, pod: Pod, state: NodeState, cards: Iterable[int]) -> dict[str, str]:
        chosen = tuple(cards)
        if limit_of(pod.ask, GPU_MEM):
            units = [given_units(gpu) for gpu in state.allocation.gpus]
            return share_annotations(pod.ask, chosen, card_units=units, assumed_at_ns=self._clock.nanoseconds())
        if limit_of(pod.ask, TOPOLOGY_GPU):
            return topology_annotations(pod.ask, chosen, assumed_at_ns=self._clock.nanoseconds())
        return {}

    def _wait(self, key: Key) -> None:
        before = self._waiting.get(key)
        attempts = before.attempts + 1 if before is not None else 1
        backoff = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2 ** min(attempts - 1, 10)) / self._clock.speed
        now = asyncio.get_running_loop().time()
        self._waiting[key] = _Waiting(attempts, self._changes, now + backoff)

    def _fail(self, key: Key, raw: Object, message: str, *, reason: str = "Unschedulable") -> None:
        self._wait(key)
        self._recorder.event(raw, WARNING, "FailedScheduling", message, component=NAME)
        before = raw.get("status") or {}
        status = {"phase": "Pending", **before, "conditions": [dict(c) for c in before.get("conditions") or ()]}
        stamp = self._clock.stamp()
        set_condition(status, "PodScheduled", "False", stamp, reason=reason, message=message)
        self._store.write_parts("Pod", *key, status=status)


def ours(pod: Object) -> bool:
    """Whether a pod waits for this scheduler."""
    spec = pod["spec"]
    if spec.get("nodeName") or pod["metadata"].get("deletionTimestamp") or finished(pod):
        return False
    return spec.get("schedulerName", NAME) in (NAME, "") and not spec.get("schedulingGates")
