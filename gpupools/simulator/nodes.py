"""Node lifecycle: a machine that joined becomes Ready, renews its lease, and shows its cordon as a taint.

A Node that somebody made by hand has no kubelet behind it and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpupools.simulator.clock import Clock
from gpupools.simulator.hardware import hardware_of_node
from gpupools.simulator.journal import Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.machines import conditions as node_conditions
from gpupools.simulator.records import NORMAL, Recorder, condition_is
from gpupools.simulator.store import Store

LEASES = "kube-node-lease"
NOT_READY = "node.kubernetes.io/not-ready"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_READY_AFTER_SECONDS = 3.0
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

    def __init__(self, store: Store, clock: Clock, recorder: Recorder) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
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
        if not condition_is(node["status"], "Ready"):
            age = self._clock.simulated_seconds_since(node["metadata"]["creationTimestamp"])
            if age < _READY_AFTER_SECONDS:
                return _READY_AFTER_SECONDS - age
            self._become_ready(node)
        self._keep_taints(self._store.get("Node", "", key))
        return self._renew_lease(node)

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
        wanted = [taint for taint in taints if taint["key"] not in (NOT_READY, UNSCHEDULABLE)]
        kept = {taint["key"]: taint for taint in taints}
        stamp = self._clock.stamp()
        if spec.get("unschedulable"):
            fresh = {"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": stamp}
            wanted.append(kept.get(UNSCHEDULABLE, fresh))
        if not condition_is(node.get("status") or {}, "Ready"):
            wanted.append(kept.get(NOT_READY, {"key": NOT_READY, "effect": "NoSchedule", "timeAdded": stamp}))
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


def _taint_key(taint: dict[str, Any]) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint.get("effect", "")
