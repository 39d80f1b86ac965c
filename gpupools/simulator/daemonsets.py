"""The DaemonSet controller: one pod on every node that fits, replaced one by one when the template changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from gpupools.domain import objects
from gpupools.domain.filters import matches_affinity, untolerated
from gpupools.domain.gpus import Ask, GpuNode
from gpupools.domain.wire import NodeObject, PodSpecObject
from gpupools.simulator.clock import Clock
from gpupools.simulator.errors import ApiError
from gpupools.simulator.journal import MODIFIED, Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.records import NORMAL, WARNING, Recorder, controller_of, finished, owner_reference, ready
from gpupools.simulator.store import Store

HASH = "controller-revision-hash"
GENERATION = "pod-template-generation"
_RETRY_SECONDS = 5.0
_NOT_READY = float("inf")

Key = tuple[str, str]

# What every DaemonSet pod gets beside its own: the conditions under which daemons are needed most.
_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": effect}
    for what, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_HOST_NETWORK_TOLERATION = {
    "key": "node.kubernetes.io/network-unavailable",
    "operator": "Exists",
    "effect": "NoSchedule",
}


class DaemonSetController:
    """Reconciles one DaemonSet at a time; keys are (namespace, name)."""

    name = "daemonset-controller"
    kinds = ("DaemonSet", "Pod", "Node")

    def __init__(self, store: Store, clock: Clock, recorder: Recorder) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        # Stored objects never change in place, so the same object is the same node.
        self._read: dict[str, tuple[Object, GpuNode]] = {}

    def keys_of(self, event: Event) -> Iterable[Key]:
        """Name the DaemonSet; all of them when a node came, went or changed in what they select on."""
        meta = event.object["metadata"]
        if event.kind == "DaemonSet":
            return [(meta["namespace"], meta["name"])]
        if event.kind == "Node":
            before = event.previous.object if event.previous else {}
            if event.type == MODIFIED and _choice(before) == _choice(event.object):
                return []
            return self.all_keys()
        owner = controller_of(event.object)
        return [(meta["namespace"], owner["name"])] if owner and owner["kind"] == "DaemonSet" else []

    def all_keys(self) -> Iterable[Key]:
        """Name every DaemonSet."""
        return [(d["metadata"]["namespace"], d["metadata"]["name"]) for d in self._store.list("DaemonSet")]

    def reconcile(self, key: Key) -> float | None:
        """Make and remove pods until every node that fits has one, then write the numbers."""
        daemonset = self._store.peek("DaemonSet", *key)
        if daemonset is None or daemonset["metadata"].get("deletionTimestamp"):
            return None
        owned = [obj for kind, obj in self._store.dependents(daemonset["metadata"]["uid"]) if kind == "Pod"]
        by_node: dict[str, list[Object]] = {}
        for pod in owned:
            by_node.setdefault(_node_of(pod), []).append(pod)
        revision = _revision(daemonset)
        ask = self._ask(daemonset)
        fitting: list[str] = []
        again = None
        for node in self._nodes():
            fits, may_stay = _fits(ask, node)
            if fits:
                fitting.append(node.name)
            pods = by_node.get(node.name, [])
            wanted = fits or (may_stay and bool(pods))
            again = self._settle_node(daemonset, node.name, pods, revision, wanted=wanted) or again
        if _most_beside(daemonset, len(fitting)):
            again = self._surge(daemonset, owned, revision, fitting) or again
        else:
            self._roll(daemonset, owned, revision, fitting)
        later = self._write(daemonset, fitting, revision)
        return min((wait for wait in (again, later) if wait), default=None)

    def _nodes(self) -> list[GpuNode]:
        read: dict[str, tuple[Object, GpuNode]] = {}
        for raw in self._store.list("Node"):
            name = raw["metadata"]["name"]
            known = self._read.get(name)
            if known is None or known[0] is not raw:
                known = (raw, objects.gpu_node(objects.read(raw, NodeObject)))
            read[name] = known
        self._read = read
        return [node for _, node in read.values()]

    def _ask(self, daemonset: Object) -> Ask:
        spec = {**daemonset["spec"]["template"]["spec"]}
        spec["tolerations"] = _tolerations(spec)
        meta = daemonset["metadata"]
        return objects.ask(objects.read(spec, PodSpecObject), {}, meta["namespace"], meta["name"])

    def _settle_node(
        self, daemonset: Object, node: str, pods: list[Object], revision: str, *, wanted: bool
    ) -> float | None:
        alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        ended = [pod for pod in alive if finished(pod)]
        running = [pod for pod in alive if not finished(pod)]
        for pod in ended:
            self._recorder.event(
                daemonset,
                WARNING,
                "FailedDaemonPod",
                f"Found failed daemon pod {pod['metadata']['namespace']}/{pod['metadata']['name']} on node {node}, "
                "will try to kill it",
                component=self.name,
            )
            self._delete(daemonset, pod)
        if not wanted:
            for pod in running:
                self._delete(daemonset, pod)
            return None
        spare = running[1:]
        if _most_beside(daemonset, 1):
            # An old one and a new one may be there side by side for a while.
            new = [pod for pod in running if _revision_of(pod) == revision]
            spare = [*new[1:], *[pod for pod in running if pod not in new][1:]]
        for pod in spare:
            self._delete(daemonset, pod)
        # A pod on its way out still holds its host ports and devices, so its successor waits for it.
        if not running and not any(pod["metadata"].get("deletionTimestamp") for pod in pods):
            return self._make(daemonset, node, revision)
        return None

    def _roll(self, daemonset: Object, pods: list[Object], revision: str, fitting: list[str]) -> None:
        """Replace pods of an older template, as many at once as may be unavailable."""
        strategy = daemonset["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and not finished(pod)]
        old = [pod for pod in alive if _revision_of(pod) != revision]
        most = _unavailable(strategy, len(fitting))
        out = len(fitting) - sum(
            1 for pod in alive if not self._until_available(daemonset, pod) and _node_of(pod) in fitting
        )
        for pod in sorted(old, key=ready):
            if ready(pod):
                if out >= most:
                    break
                out += 1
            self._delete(daemonset, pod)

    def _surge(self, daemonset: Object, pods: list[Object], revision: str, fitting: list[str]) -> float | None:
        """Put a new pod beside an old one, on as many nodes at once as may be; the old one goes when it is there."""
        alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and not finished(pod)]
        old = {_node_of(pod): pod for pod in alive if _revision_of(pod) != revision}
        new = {_node_of(pod): pod for pod in alive if _revision_of(pod) == revision}
        both, again = len(old.keys() & new.keys()), None
        for node in fitting:
            if node not in old:
                continue
            if node in new:
                wait = self._until_available(daemonset, new[node])
                if not wait:
                    self._delete(daemonset, old[node])
                    both -= 1
                elif wait != _NOT_READY:
                    again = wait if again is None else min(again, wait)
            elif not ready(old[node]):
                self._delete(daemonset, old[node])
            elif both < _most_beside(daemonset, len(fitting)):
                both += 1
                again = self._make(daemonset, node, revision) or again
        return again

    def _until_available(self, daemonset: Object, pod: Object) -> float:
        """Return the simulated seconds until a pod has been ready for long enough: 0 when it has."""
        if not ready(pod):
            return _NOT_READY
        least = daemonset["spec"].get("minReadySeconds", 0)
        if not least:
            return 0.0
        since = next(c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "Ready")
        return max(0.0, least - self._clock.simulated_seconds_since(since))

    def _make(self, daemonset: Object, node: str, revision: str) -> float | None:
        meta, template = daemonset["metadata"], daemonset["spec"]["template"]
        template_meta = template.get("metadata") or {}
        spec = {**template["spec"]}
        spec["tolerations"] = _tolerations(spec)
        spec["affinity"] = _pinned(spec.get("affinity") or {}, node)
        pod = {
            "metadata": {
                "generateName": f"{meta['name'][:57]}-",
                "namespace": meta["namespace"],
                "labels": {
                    **(template_meta.get("labels") or {}),
                    HASH: revision,
                    GENERATION: str(meta.get("generation", 1)),
                },
                **({"annotations": template_meta["annotations"]} if template_meta.get("annotations") else {}),
                "ownerReferences": [owner_reference(daemonset)],
            },
            "spec": spec,
        }
        try:
            made = self._store.create("Pod", pod)
        except ApiError as error:
            message = f"Error creating: {error.message}"
            self._recorder.event(daemonset, WARNING, "FailedCreate", message, component=self.name)
            return _RETRY_SECONDS
        message = f"Created pod: {made['metadata']['name']}"
        self._recorder.event(daemonset, NORMAL, "SuccessfulCreate", message, component=self.name)
        return None

    def _delete(self, daemonset: Object, pod: Object) -> None:
        meta = pod["metadata"]
        self._store.delete("Pod", meta["namespace"], meta["name"], uid=meta["uid"])
        message = f"Deleted pod: {meta['name']}"
        self._recorder.event(daemonset, NORMAL, "SuccessfulDelete", message, component=self.name)

    def _write(self, daemonset: Object, fitting: list[str], revision: str) -> float | None:
        """Write the numbers; returns the simulated seconds after which they change by time alone."""
        key = (daemonset["metadata"]["namespace"], daemonset["metadata"]["name"])
        pods = [
            obj
            for kind, obj in self._store.dependents(daemonset["metadata"]["uid"])
            if kind == "Pod" and not obj["metadata"].get("deletionTimestamp") and not finished(obj)
        ]
        placed = [pod for pod in pods if _node_of(pod) in fitting]
        by_node = {_node_of(pod): pod for pod in sorted(placed, key=ready)}
        waits = [self._until_available(daemonset, pod) for pod in by_node.values()]
        ready_pods, available = sum(1 for pod in by_node.values() if ready(pod)), waits.count(0.0)
        again = min((wait for wait in waits if wait and wait != _NOT_READY), default=None)
        status = {
            **(daemonset.get("status") or {}),
            "currentNumberScheduled": len(by_node),
            "desiredNumberScheduled": len(fitting),
            "numberMisscheduled": len(pods) - len(placed),
            "numberReady": ready_pods,
            "numberAvailable": available,
            "numberUnavailable": len(fitting) - available,
            "updatedNumberScheduled": len({_node_of(pod) for pod in placed if _revision_of(pod) == revision}),
            "observedGeneration": daemonset["metadata"].get("generation", 1),
        }
        for name in ("numberAvailable", "numberUnavailable", "updatedNumberScheduled"):
            if not status[name]:  # optional numbers are left out when they are zero
                del status[name]
        if status == daemonset.get("status"):
            return again

        def edit(current: Object) -> None:
            current["status"] = status

        self._store.change("DaemonSet", *key, edit, subresource="status")
        return again


def _choice(node: Object) -> tuple[Any, Any]:
    return (node.get("metadata") or {}).get("labels"), (node.get("spec") or {}).get("taints")


def _fits(ask: Ask, node: GpuNode) -> tuple[bool, bool]:
    """Return whether a new pod shall run on the node, and whether one that runs there may stay."""
    if not matches_affinity(ask, node):
        return False, False
    taints = untolerated(ask, node.taints)
    return not taints, not any(taint.effect == "NoExecute" for taint in taints)


def _tolerations(spec: Object) -> list[dict[str, Any]]:
    extra = [*_TOLERATIONS, *([_HOST_NETWORK_TOLERATION] if spec.get("hostNetwork") else ())]
    own = list(spec.get("tolerations") or ())
    return [*own, *(dict(toleration) for toleration in extra if toleration not in own)]


def _pinned(affinity: Object, node: str) -> Object:
    """Return an affinity that only this node meets; the scheduler still decides whether it fits there."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    return {
        **affinity,
        "nodeAffinity": {
            **(affinity.get("nodeAffinity") or {}),
            "requiredDuringSchedulingIgnoredDuringExecution": required,
        },
    }


def _node_of(pod: Object) -> str:
    if name := pod["spec"].get("nodeName"):
        return str(name)
    node_affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    for term in terms:
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


def _revision(daemonset: Object) -> str:
    text = json.dumps(daemonset["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _revision_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(HASH, ""))


def _share(value: Any, nodes: int) -> int:
    """Return a number of nodes that is given as such, or in percent (rounded up)."""
    if isinstance(value, str):
        digits = value.removesuffix("%")
        return -(-nodes * int(digits) // 100) if digits.isdigit() else 0
    return int(value)


def _unavailable(strategy: Object, nodes: int) -> int:
    return max(1, _share((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), nodes))


def _most_beside(daemonset: Object, nodes: int) -> int:
    strategy = daemonset["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return 0
    return _share((strategy.get("rollingUpdate") or {}).get("maxSurge", 0), nodes)
