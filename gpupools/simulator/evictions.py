"""Eviction by taints: pods that do not tolerate a NoExecute taint of their node go, at once or after a time."""

from __future__ import annotations

from collections.abc import Iterable

from gpupools.domain.filters import tolerates
from gpupools.domain.gpus import Taint, Toleration
from gpupools.simulator.clock import Clock
from gpupools.simulator.journal import DELETED, Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.records import NORMAL, Recorder, finished, set_condition
from gpupools.simulator.store import Store

Key = tuple[str, str]


class TaintEvictions:
    """Reconciles one bound pod at a time; keys are (namespace, name)."""

    name = "taint-evictions"
    kinds = ("Node", "Pod")

    def __init__(self, store: Store, clock: Clock, recorder: Recorder) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        # When a taint was first seen that does not say since when it is there.
        self._seen: dict[tuple[str, str], str] = {}

    def keys_of(self, event: Event) -> Iterable[Key]:
        """Name the pods of a node whose taints changed, and a pod that came to a node."""
        meta = event.object["metadata"]
        if event.kind == "Pod":
            before = event.previous.object["spec"].get("nodeName") if event.previous is not None else None
            node = event.object["spec"].get("nodeName")
            return [(meta["namespace"], meta["name"])] if node and node != before and event.type != DELETED else []
        before_taints = _evicting(event.previous.object) if event.previous is not None else []
        if _evicting(event.object) == before_taints:
            return []
        return [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self._store.pods_on(meta["name"])]

    def all_keys(self) -> Iterable[Key]:
        """Name every pod of a node that evicts."""
        for node in self._store.list("Node"):
            if _evicting(node):
                for pod in self._store.pods_on(node["metadata"]["name"]):
                    yield pod["metadata"]["namespace"], pod["metadata"]["name"]

    def reconcile(self, key: Key) -> float | None:
        """Delete a pod whose time on its node is over; return when to look again."""
        pod = self._store.peek("Pod", *key)
        if pod is None or finished(pod) or pod["metadata"].get("deletionTimestamp"):
            return None
        node = self._store.peek("Node", "", pod["spec"].get("nodeName", ""))
        left: float | None = None
        for taint in _evicting(node) if node else ():
            allowed = _allowed_seconds(pod, taint)
            if allowed is None:
                continue
            since = taint.get("timeAdded") or self._seen.setdefault(
                (pod["metadata"]["uid"], taint["key"]), self._clock.micro_stamp()
            )
            rest = allowed - self._clock.simulated_seconds_since(since)
            left = rest if left is None else min(left, rest)
        if left is None or left > 0:
            return left
        self._evict(key, pod)
        return None

    def _evict(self, key: Key, pod: Object) -> None:
        message = f"Marking for deletion Pod {key[0]}/{key[1]}"
        self._recorder.event(pod, NORMAL, "TaintManagerEviction", message, component="taint-eviction-controller")
        status = {**(pod.get("status") or {})}
        status["conditions"] = [dict(condition) for condition in status.get("conditions") or ()]
        set_condition(
            status, "DisruptionTarget", "True", self._clock.stamp(), reason="DeletionByTaintManager",
            message="Taint manager: deleting due to NoExecute taint",
        )  # fmt: skip
        self._store.write_parts("Pod", *key, status=status)
        self._store.delete("Pod", *key)
        for seen in [seen for seen in self._seen if seen[0] == pod["metadata"]["uid"]]:
            del self._seen[seen]


def _evicting(node: Object) -> list[Object]:
    taints: list[Object] = (node.get("spec") or {}).get("taints") or []
    return [taint for taint in taints if taint.get("effect") == "NoExecute"]


def _allowed_seconds(pod: Object, taint: Object) -> float | None:
    """Return how long a pod may stay under a taint: 0 when it does not tolerate it, None for ever."""
    meant = Taint(taint["key"], taint.get("value") or "", "NoExecute")
    allowed: list[float] = []
    for raw in pod["spec"].get("tolerations") or ():
        toleration = Toleration(*(raw.get(part) or "" for part in ("key", "operator", "value", "effect")))
        if tolerates(toleration, meant):
            if raw.get("tolerationSeconds") is None:
                return None
            allowed.append(max(0.0, float(raw["tolerationSeconds"])))
    return min(allowed, default=0.0)
