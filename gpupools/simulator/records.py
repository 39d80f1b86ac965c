"""What controllers write beside their objects: Events (counted, not repeated), conditions, owner references."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from gpupools.simulator.clock import Clock
from gpupools.simulator.kinds import Object
from gpupools.simulator.store import Store

NORMAL, WARNING = "Normal", "Warning"
# A real cluster forgets events after an hour; by number is what keeps a busy one small.
_EVENTS_KEPT = 3000
_FALLBACK_NAMESPACE = "default"  # where events about cluster-scoped objects live


class Recorder:
    """Writes Events. The same event about the same object raises its count instead of making a second one."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._names: OrderedDict[tuple[str, ...], tuple[str, str]] = OrderedDict()
        self._written: OrderedDict[tuple[str, str], None] = OrderedDict(
            ((event["metadata"]["namespace"], event["metadata"]["name"]), None) for event in store.list("Event")
        )

    def event(self, about: Object, kind: str, reason: str, message: str, *, component: str, host: str = "") -> None:
        """Record one event. ``kind`` is Normal or Warning, ``component`` who says it (``kubelet``)."""
        meta = about["metadata"]
        namespace = meta.get("namespace") or _FALLBACK_NAMESPACE
        key = (meta.get("uid", ""), kind, reason, message, component)
        known = self._names.get(key)
        stamp = self._clock.stamp()
        if known is not None and (before := self._store.peek("Event", *known)) is not None:
            self._store.write_parts("Event", *known, count=before.get("count", 1) + 1, lastTimestamp=stamp)
            return
        if self._store.peek("Namespace", "", namespace) is None or self._ending(namespace):
            return
        name = f"{meta['name'][:200]}.{secrets.token_hex(8)}"
        self._store.create(
            "Event",
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "kind": about["kind"],
                    "apiVersion": about["apiVersion"],
                    "name": meta["name"],
                    **({"namespace": meta["namespace"]} if meta.get("namespace") else {}),
                    "uid": meta.get("uid", ""),
                    "resourceVersion": meta.get("resourceVersion", ""),
                },
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": component, **({"host": host} if host else {})},
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
                "reportingComponent": component,
                "reportingInstance": host,
            },
        )
        self._names[key] = (namespace, name)
        self._written[(namespace, name)] = None
        self._forget_old()

    def _ending(self, namespace: str) -> bool:
        found = self._store.peek("Namespace", "", namespace)
        return bool(found and found["metadata"].get("deletionTimestamp"))

    def _forget_old(self) -> None:
        while len(self._names) > _EVENTS_KEPT:
            self._names.popitem(last=False)
        while len(self._written) > _EVENTS_KEPT:
            (namespace, name), _ = self._written.popitem(last=False)
            if self._store.peek("Event", namespace, name) is not None:
                self._store.delete("Event", namespace, name)


def owner_reference(owner: Object) -> dict[str, Any]:
    """Return the reference by which a controller's object owns another."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the reference to the controller that owns an object, None without one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def set_condition(
    status: dict[str, Any], type_: str, value: str, stamp: str, *, reason: str = "", message: str = "", **more: Any
) -> None:
    """Set a condition in a status, in place; the transition time moves only when the value does."""
    conditions: list[dict[str, Any]] = status.setdefault("conditions", [])
    before = next((condition for condition in conditions if condition["type"] == type_), None)
    moved = (before.get("lastTransitionTime") if before is not None and before["status"] == value else None) or stamp
    condition = {"type": type_, "status": value, "lastTransitionTime": moved, **more}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    if before is None:
        conditions.append(condition)
    else:
        conditions[conditions.index(before)] = condition


def condition_is(status: Mapping[str, Any], type_: str, value: str = "True") -> bool:
    """Return whether a status has a condition with this value."""
    return any(c["type"] == type_ and c["status"] == value for c in status.get("conditions") or ())


def finished(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is running and ready."""
    return condition_is(pod.get("status") or {}, "Ready")
