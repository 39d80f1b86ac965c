"""Garbage collection by ownerReferences and the end of namespaces; it also gives each namespace its service account."""

from __future__ import annotations

from collections.abc import Iterable

from gpupools.simulator.journal import ADDED, DELETED, Event
from gpupools.simulator.kinds import BY_RESOURCE, KINDS, Object
from gpupools.simulator.store import Store

_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
Key = tuple[str, str, str]


class GarbageCollector:
    """Deletes what has lost all its owners. Keys are ("owner", uid, "") or (kind, namespace, name)."""

    name = "garbage-collector"
    kinds = tuple(kind for kind in KINDS if kind not in ("Event", "Lease"))

    def __init__(self, store: Store) -> None:
        self._store = store

    def keys_of(self, event: Event) -> Iterable[Key]:
        """Name a dead owner, an owner that waits for its dependents, and dependents that are new."""
        meta = event.object["metadata"]
        keys: list[Key] = []
        if event.type == DELETED:
            keys.append(("owner", meta["uid"], ""))
            keys += [_own_key(owner, meta.get("namespace", "")) for owner in meta.get("ownerReferences") or ()]
        elif (
            meta.get("deletionTimestamp")
            and {_FOREGROUND, _ORPHAN} & set(meta.get("finalizers") or ())
            or event.type == ADDED
            and meta.get("ownerReferences")
        ):
            keys.append((event.kind, meta.get("namespace", ""), meta["name"]))
        return [key for key in keys if key[0] == "owner" or key[0] in KINDS]

    def all_keys(self) -> Iterable[Key]:
        """Name everything that has an owner, or that waits for its dependents."""
        keys = []
        for stored in self._store:
            meta = stored.object["metadata"]
            if meta.get("ownerReferences") or meta.get("finalizers"):
                keys.append((stored.kind.kind, meta.get("namespace", ""), meta["name"]))
        return keys

    def reconcile(self, key: Key) -> float | None:
        """Delete the dependents of a dead owner, or settle one object."""
        if key[0] == "owner":
            for kind, dependent in self._store.dependents(key[1]):
                self._settle(kind, dependent)
            return None
        obj = self._store.peek(*key)
        if obj is not None:
            self._settle(key[0], obj)
        return None

    def _settle(self, kind: str, obj: Object) -> None:
        meta = obj["metadata"]
        finalizers = meta.get("finalizers") or ()
        if meta.get("deletionTimestamp") and _ORPHAN in finalizers:
            self._orphan_dependents(obj)
            self._drop_finalizer(kind, obj, _ORPHAN)
        elif meta.get("deletionTimestamp") and _FOREGROUND in finalizers:
            if not self._delete_dependents(obj):
                self._drop_finalizer(kind, obj, _FOREGROUND)
        elif not meta.get("deletionTimestamp") and meta.get("ownerReferences"):
            self._check_owners(kind, obj)

    def _check_owners(self, kind: str, obj: Object) -> None:
        meta = obj["metadata"]
        alive = [owner for owner in meta["ownerReferences"] if self._alive(owner, meta.get("namespace", ""))]
        if len(alive) == len(meta["ownerReferences"]):
            return
        if not alive:
            self._store.delete(kind, meta.get("namespace", ""), meta["name"], propagation="Background", uid=meta["uid"])
            return

        def edit(current: Object) -> None:
            current["metadata"]["ownerReferences"] = alive

        self._store.change(kind, meta.get("namespace", ""), meta["name"], edit)

    def _alive(self, owner: Object, namespace: str) -> bool:
        kind, where, name = _own_key(owner, namespace)
        if kind not in KINDS:
            return True  # not served here, so nobody can say that it is gone
        found = self._store.peek(kind, where, name)
        return found is not None and found["metadata"]["uid"] == owner["uid"]

    def _delete_dependents(self, owner: Object) -> bool:
        """Delete the dependents of an owner in the foreground; return whether one that blocks it is still there."""
        blocked = False
        for kind, dependent in self._store.dependents(owner["metadata"]["uid"]):
            meta = dependent["metadata"]
            reference = next(o for o in meta["ownerReferences"] if o["uid"] == owner["metadata"]["uid"])
            blocked = blocked or bool(reference.get("blockOwnerDeletion"))
            if not meta.get("deletionTimestamp"):
                self._store.delete(kind, meta.get("namespace", ""), meta["name"], propagation="Background")
        still = [obj for _, obj in self._store.dependents(owner["metadata"]["uid"])]
        return blocked and bool(still)

    def _orphan_dependents(self, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for kind, dependent in self._store.dependents(uid):

            def edit(current: Object) -> None:
                references = current["metadata"].get("ownerReferences") or ()
                current["metadata"]["ownerReferences"] = [r for r in references if r["uid"] != uid]

            self._store.change(kind, dependent["metadata"].get("namespace", ""), dependent["metadata"]["name"], edit)

    def _drop_finalizer(self, kind: str, obj: Object, finalizer: str) -> None:
        def edit(current: Object) -> None:
            current["metadata"]["finalizers"].remove(finalizer)

        self._store.change(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], edit)


def _own_key(owner: Object, namespace: str) -> Key:
    kind = KINDS.get(owner["kind"])
    if kind is None or (kind.group, kind.version, kind.plural) not in BY_RESOURCE:
        return (owner["kind"], namespace, owner["name"])
    return (kind.kind, namespace if kind.namespaced else "", owner["name"])


class NamespaceController:
    """Gives namespaces their default service account, and empties those that are being deleted. Keys are names."""

    name = "namespace-controller"
    kinds = tuple(kind for kind, row in KINDS.items() if row.namespaced or kind == "Namespace")

    def __init__(self, store: Store) -> None:
        self._store = store

    def keys_of(self, event: Event) -> Iterable[str]:
        """Name the namespace; objects inside matter only when they went away."""
        meta = event.object["metadata"]
        if event.kind == "Namespace":
            return [meta["name"]]
        if event.type == DELETED or meta.get("deletionTimestamp"):
            return [meta["namespace"]]
        return []

    def all_keys(self) -> Iterable[str]:
        """Name every namespace."""
        return [namespace["metadata"]["name"] for namespace in self._store.list("Namespace")]

    def reconcile(self, key: str) -> float | None:
        """Bring one namespace to what it shall be."""
        namespace = self._store.peek("Namespace", "", key)
        if namespace is None:
            return None
        if not namespace["metadata"].get("deletionTimestamp"):
            if self._store.peek("ServiceAccount", key, "default") is None:
                self._store.create("ServiceAccount", {"metadata": {"name": "default", "namespace": key}})
            return None
        left = 0
        for kind, row in KINDS.items():
            if not row.namespaced:
                continue
            for obj in self._store.list(kind, key):
                left += 1
                if not obj["metadata"].get("deletionTimestamp"):
                    self._store.delete(kind, key, obj["metadata"]["name"], propagation="Background")
        if left and any(self._store.list(kind, key) for kind, row in KINDS.items() if row.namespaced):
            return 1.0

        def finalize(current: Object) -> None:
            current["spec"]["finalizers"] = []

        self._store.change("Namespace", "", key, finalize, subresource="finalize")
        return None
