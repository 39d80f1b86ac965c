"""Node lifecycle: a machine that joined becomes Ready, renews its lease, and shows its cordon as a taint.

A Node that somebody made by hand has no kubelet behind it and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpupools.simulator.clock import Clock
from gpupools.simulator.faults import Fault, Faults, NodeDown
from gpupools.simulator.hardware import hardware_of_node
from gpupools.simulator.journal import Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.machines import conditions as node_conditions
from gpupools.simulator.records import NORMAL, WARNING, Recorder, condition_is, finished, set_condition
from gpupools.simulator.store import Store

LEASES = "kube-node-lease"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_READY_AFTER_SECONDS = 3.0
# A kubelet that says nothing for that long (simulated) counts as dead.
_SILENT_SECONDS = 40.0
# Leases are renewed by the wall clock: they prove that this process lives, whatever the simulated speed.
_LEASE_RENEW_SECONDS = 10.0
_LEASE_RENEWALS_PER_SECOND = 20.0
_LEASE_DURATION_SECONDS = 40


def has_kubelet(node: Object) -> bool:
    """Return whether a machine of ours stands behind a node."""
    return hardware_of_node(node) is not None and bool((node.get("status") or {}).get("nodeInfo"))


class NodeLifecycle:
    """Reconciles one node at a time; keys are names."""

    name = "node-lifecycle"
    kinds = ("Node",)

    def __init__(self, store: Store, clock: Clock, recorder: Recorder, faults: Faults) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._faults = faults
        # Since when nothing was heard of a node.
        self._silent: dict[str, str] = {}
        self._seen: set[str] = set()

    def keys_of(self, event: Event) -> Iterable[str]:
        """Name the node."""
        return [event.object["metadata"]["name"]]

    def all_keys(self) -> Iterable[str]:
        """Name every node."""
        return [node["metadata"]["name"] for node in self._store.list("Node")]

    def reconcile(self, key: str) -> float | None:
        """Make the node ready when it is time, keep its taints true and its lease fresh."""
        node = self._store.peek("Node", "", key)
        if node is None:
            self._seen.discard(key)
            if self._store.peek("Lease", LEASES, key) is not None:
                self._store.delete("Lease", LEASES, key)
            return None
        self._seen.add(key)
        if not has_kubelet(node):
            self._keep_taints(node)
            return None
        if (down := self._faults.node_down(key)) is not None:
            return self._without_kubelet(node, down)
        self._silent.pop(key, None)
        if not condition_is(node["status"], "Ready"):
            age = self._clock.simulated_seconds_since(node["metadata"]["creationTimestamp"])
            if age < _READY_AFTER_SECONDS:
                return _READY_AFTER_SECONDS - age
            self._become_ready(node)
        self._keep_taints(self._store.get("Node", "", key))
        return self._renew_lease(node)

    def keys_of_fault(self, fault: Fault) -> Iterable[str]:
        """Name the node whose kubelet died or came back."""
        return [fault.node] if isinstance(fault, NodeDown) else []

    def _without_kubelet(self, node: Object, down: NodeDown) -> float | None:
        """Do what the node controller does about a kubelet that says nothing, or that it is not ready."""
        name, status = node["metadata"]["name"], node["status"]
        if down.how == "not-ready":
            lost = [_not_ready(condition) for condition in status["conditions"]]
        else:
            left = _SILENT_SECONDS - self._clock.simulated_seconds_since(
                self._silent.setdefault(name, self._clock.micro_stamp())
            )
            if left > 0:
                return left
            lost = [_unknown(condition) for condition in status["conditions"]]
        before = {condition["type"]: condition["status"] for condition in status["conditions"]}
        if any(condition["status"] != before[condition["type"]] for condition in lost):
            stamp = self._clock.stamp()
            for condition in lost:
                if condition["status"] != before[condition["type"]]:
                    condition["lastTransitionTime"] = stamp
            self._store.write_parts("Node", "", name, status={**status, "conditions": lost})
            message = f"Node {name} status is now: NodeNotReady"
            self._recorder.event(node, NORMAL, "NodeNotReady", message, component="node-controller")
            self._unready_pods(name)
        self._keep_taints(self._store.get("Node", "", name))
        return None

    def _unready_pods(self, node: str) -> None:
        """Nobody can say that the pods of a lost node are ready."""
        for pod in self._store.pods_on(node):
            if finished(pod):
                continue
            status = {**pod["status"], "conditions": [dict(c) for c in pod["status"].get("conditions") or ()]}
            set_condition(status, "Ready", "False", self._clock.stamp())
            self._store.write_parts("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], status=status)
            self._recorder.event(pod, WARNING, "NodeNotReady", "Node is not ready", component="node-controller")

    def _become_ready(self, node: Object) -> None:
        def edit(current: Object) -> None:
            current["status"]["conditions"] = node_conditions(self._clock.stamp(), ready=True)

        name = node["metadata"]["name"]
        self._store.change("Node", "", name, edit, subresource="status")
        self._recorder.event(
            node, NORMAL, "NodeReady", f"Node {name} status is now: NodeReady", component="kubelet", host=name
        )

    def _keep_taints(self, node: Object) -> None:
        spec = node.get("spec") or {}
        taints: list[dict[str, Any]] = list(spec.get("taints") or ())
        ours = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)
        wanted = [taint for taint in taints if taint["key"] not in ours]
        kept = {(taint["key"], taint.get("effect")): taint for taint in taints}
        stamp = self._clock.stamp()

        def add(key: str, *effects: str) -> None:
            for effect in effects:
                wanted.append(kept.get((key, effect), {"key": key, "effect": effect, "timeAdded": stamp}))

        status = node.get("status") or {}
        if spec.get("unschedulable"):
            add(UNSCHEDULABLE, "NoSchedule")
        if condition_is(status, "Ready", "Unknown"):
            add(UNREACHABLE, "NoSchedule", "NoExecute")
        elif not condition_is(status, "Ready"):
            # A machine that joins runs nothing yet that could be evicted.
            joining = self._faults.node_down(node["metadata"]["name"]) is None
            add(NOT_READY, "NoSchedule", *(() if joining else ("NoExecute",)))
        if sorted(map(_taint_key, wanted)) == sorted(map(_taint_key, taints)):
            return

        def edit(current: Object) -> None:
            current["spec"]["taints"] = wanted
            if not wanted:
                del current["spec"]["taints"]

        self._store.change("Node", "", node["metadata"]["name"], edit)

    def _renew_lease(self, node: Object) -> float:
        name = node["metadata"]["name"]
        every = max(_LEASE_RENEW_SECONDS, len(self._seen) / _LEASE_RENEWALS_PER_SECOND)
        stamp = self._clock.micro_stamp()
        lease = self._store.peek("Lease", LEASES, name)
        if lease is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
            self._store.create(
                "Lease",
                {
                    "metadata": {"name": name, "namespace": LEASES, "ownerReferences": [owner]},
                    "spec": {
                        "holderIdentity": name,
                        "leaseDurationSeconds": _LEASE_DURATION_SECONDS,
                        "renewTime": stamp,
                    },
                },
            )
            return every * self._clock.speed
        left = every - self._clock.simulated_seconds_since(lease["spec"]["renewTime"]) / self._clock.speed
        if left > 0.5:
            return left * self._clock.speed

        def renew(current: Object) -> None:
            current["spec"]["renewTime"] = stamp

        self._store.change("Lease", LEASES, name, renew)
        return every * self._clock.speed


def _unknown(condition: Object) -> Object:
    words = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    return {**condition, "status": "Unknown", **words}


def _not_ready(condition: Object) -> Object:
    if condition["type"] != "Ready":
        return dict(condition)
    message = "PLEG is not healthy: pleg was last seen active 3m4.7s ago; threshold is 3m0s"
    return {**condition, "status": "False", "reason": "KubeletNotReady", "message": message}


def _taint_key(taint: dict[str, Any]) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint.get("effect", "")
