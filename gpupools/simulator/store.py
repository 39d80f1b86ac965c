"""The objects of the embedded cluster: resourceVersions, optimistic locking, finalizers, graceful deletion.

Plain dicts in, plain dicts out; every write is defaulted and validated as over HTTP. It knows nothing of HTTP,
of controllers, and of time except for the clock that it is given. Everything runs on one thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from gpupools.simulator import defaults, errors, ownership, validation
from gpupools.simulator.journal import ADDED, DELETED, MODIFIED, Event, Feed, Journal, Stored
from gpupools.simulator.kinds import KINDS, Kind, Object
from gpupools.simulator.lifecycle import body, held, mark_deleted, merged_for_update, same
from gpupools.simulator.values import copy_of, generated_name, stamp, utc_now

# Every cluster has these from its first second on.
BORN_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

# Versions count on from here, so that a cluster that was started anew never gives one out twice.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Key = tuple[str, str]
# Named here, since inside the class ``list`` is a method.
Objects = list[Object]
Named = list[tuple[str, Object]]
Versions = list[Stored]


def first_version(moment: datetime) -> int:
    """Return the version that a store begins with: milliseconds of time, far ahead of any earlier start's writes."""
    return max(1, int((moment - EPOCH).total_seconds() * 1000))


class Store:
    """All objects. ``get``, ``create`` and ``update`` return private copies; ``list``, ``peek``, ``pods_on``,
    ``dependents`` and events return shared objects that must never be changed in place.

    ``kind`` is the kind's name (``"Pod"``); ``namespace`` is ``""`` for cluster-scoped kinds. All errors are
    ``errors.ApiError`` with the status, reason and wording of the API server.
    """

    def __init__(self, *, now: Callable[[], datetime] = utc_now, journal_size: int = 8192) -> None:
        self.now = now
        self.version = first_version(now())
        # Raised by every write of objects or shelves; the state file is written when it moved.
        self.changes = 0
        self._objects: dict[str, dict[Key, Stored]] = {name: {} for name in KINDS}
        self._journals = {name: Journal(size=journal_size, compacted=self.version) for name in KINDS}
        self._shelves: dict[str, dict[str, Any]] = {}
        # Two indexes that keep kubelets and garbage collection from walking over every object.
        self._on_node: dict[str, set[Key]] = {}
        self._owned: dict[str, set[tuple[str, Key]]] = {}

    def bootstrap(self) -> None:
        """Create the namespaces and priority classes that every cluster is born with, where missing."""
        for name in BORN_NAMESPACES:
            if ("", name) not in self._objects["Namespace"]:
                self.create("Namespace", {"metadata": {"name": name}})
        for name, value in defaults.BORN_PRIORITIES.items():
            if ("", name) not in self._objects["PriorityClass"]:
                self.create("PriorityClass", {"metadata": {"name": name}, "value": value})

    # Reading

    def get(self, kind: str, namespace: str, name: str) -> Object:
        """Return a private copy of one object; 404 when there is none."""
        return copy_of(self.stored(kind, namespace, name).object)

    def peek(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return one object without a copy (read only), None when there is none."""
        stored = self._objects[kind].get((namespace, name))
        return stored.object if stored else None

    def list(self, kind: str, namespace: str | None = None) -> Objects:
        """Return all objects of a kind (read only), of one namespace or of all, by namespace and name."""
        return [stored.object for stored in self.all_stored(kind, namespace)]

    def pods_on(self, node: str) -> Objects:
        """Return the pods bound to a node (read only), ordered by namespace and name."""
        pods = self._objects["Pod"]
        return [pods[key].object for key in sorted(self._on_node.get(node, ()))]

    def dependents(self, uid: str) -> Named:
        """Return (kind, object) of everything that names ``uid`` in its ownerReferences (read only)."""
        return [(kind, self._objects[kind][key].object) for kind, key in sorted(self._owned.get(uid, ()))]

    def stored(self, kind: str, namespace: str, name: str) -> Stored:
        """Return one stored version, with its encoded form; 404 when there is none."""
        found = self._objects[kind].get((namespace, name))
        if found is None:
            raise errors.not_found(KINDS[kind], name)
        return found

    def all_stored(self, kind: str, namespace: str | None = None) -> Versions:
        """Return the stored versions of a kind, ordered by namespace and name."""
        objects = self._objects[kind]
        if not namespace:
            return [objects[key] for key in sorted(objects)]
        return [objects[key] for key in sorted(key for key in objects if key[0] == namespace)]

    # Watching

    def subscribe(self, *kinds: str, since: int | None = None) -> Feed:
        """Return a feed of changes after version ``since`` (default: now) of the kinds named, or of all.

        Feeds ring; the state is to be read from the store. A reader that falls thousands of events behind
        gets ApiError 410 and has to look at everything again.
        """
        journals = [self._journals[kind] for kind in kinds or KINDS]
        return Feed(journals, self.version if since is None else since)

    def compact(self, version: int | None = None) -> None:
        """Forget the events up to ``version`` (default: all): watches from before get 410."""
        for journal in self._journals.values():
            journal.compact(self.version if version is None else version)

    def compacted(self, kind: str) -> int:
        """Return the newest version from which a watch of this kind can no longer start."""
        return self._journals[kind].compacted

    # Writing

    def create(self, kind: str, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        """Create an object and return it as stored (a private copy).

        Fills generateName, uid, times and defaults. Errors: 409 the name is taken, 404 no such namespace, 422
        the object breaks rules. With ``manager`` the fields are entered into managedFields.
        """
        return copy_of(self.create_stored(kind, obj, manager=manager, dry_run=dry_run).object)

    def update(
        self, kind: str, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False
    ) -> Object:
        """Replace an object and return it as stored (a private copy); a stale resourceVersion in it is 409.

        ``subresource="status"`` writes status (and labels, annotations) and leaves the rest; ``""`` leaves
        status alone for kinds that have that subresource. A write that changes nothing makes no new version.
        Removing the last finalizer of an object that is being deleted deletes it.
        """
        done = self.update_stored(kind, obj, subresource=subresource, manager=manager, dry_run=dry_run)
        return copy_of(done.object)

    def change(
        self,
        kind: str,
        namespace: str,
        name: str,
        edit: Callable[[Object], object],
        *,
        subresource: str = "",
        manager: str = "",
    ) -> Object:
        """Read, let ``edit`` change the private copy in place, write, return the result. Never conflicts."""
        obj = self.get(kind, namespace, name)
        edit(obj)
        return self.update(kind, obj, subresource=subresource, manager=manager)

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        grace_seconds: int | None = None,
        propagation: str = "",
        uid: str = "",
        version: str = "",
        dry_run: bool = False,
    ) -> tuple[Object, bool]:
        """Delete an object: returns its last form and whether it is gone already.

        A bound, unfinished pod only gets its deletionTimestamp: its kubelet ends it and calls this again with
        ``grace_seconds=0``. Finalizers keep an object until they are removed. ``propagation`` is Background,
        Foreground or Orphan; the latter two leave a finalizer for garbage collection. ``uid`` and ``version``
        are preconditions (409).
        """
        row = KINDS[kind]
        before = self.stored(kind, namespace, name)
        meta = before.object["metadata"]
        for wanted, found, what in (
            (uid, meta["uid"], "UID"),
            (version, meta["resourceVersion"], "ResourceVersion"),
        ):
            if wanted and wanted != found:
                why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
                raise errors.conflict(row, name, why)
        if kind == "Event" and not held(before.object) and not dry_run:
            # Thousands of them go all the time: nothing of them is marked, so nothing is copied.
            return self._remove(before, {**before.object, "metadata": {**meta}}).object, True
        after = copy_of(before.object)
        grace = mark_deleted(row, after, grace_seconds, propagation, self.now())
        gone = grace == 0 and not held(after)
        if dry_run:
            return after, gone
        if gone:
            return self._remove(before, after).object, True
        if after != before.object:
            self._put(row, after, before)
        return after, False

    # What the HTTP side works with: the same writes, giving the stored version with its encoded form.

    def create_stored(self, kind: str, obj: Object, *, manager: str = "", dry_run: bool = False) -> Stored:
        """Like ``create``."""
        row = KINDS[kind]
        new: Object = {"apiVersion": row.api_version, "kind": row.kind, **copy_of(obj)}
        new["apiVersion"], new["kind"] = row.api_version, row.kind
        meta = new.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = generated_name(meta["generateName"])
        if not row.namespaced:
            meta.pop("namespace", None)
        elif not meta.get("namespace"):
            meta["namespace"] = "default"
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"):
            meta.pop(field, None)
        moment = self.now()
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = stamp(moment)
        if row.counts_generation:
            meta["generation"] = 1
        else:
            meta.pop("generation", None)
        sent = copy_of(new) if manager else {}
        defaults.for_create(row, new, self._priority_of)
        validation.check_create(row, new)
        key = (meta.get("namespace", ""), meta["name"])
        self._check_namespace(row, key)
        if key in self._objects[kind]:
            raise errors.already_exists(row, key[1])
        if manager:
            # A client owns what it sent and its defaults, not what the server computes beyond that.
            defaults.for_any(row, sent)
            if row.kind == "Node":
                defaults.taint_newcomer(new)
            elif row.has_status:
                sent.pop("status", None)
            ownership.note_update(None, sent, manager=manager, subresource="", moment=stamp(moment))
            if "managedFields" in sent["metadata"]:
                meta["managedFields"] = sent["metadata"]["managedFields"]
        if dry_run:
            return Stored(row, new)
        return self._put(row, new, None)

    def update_stored(
        self, kind: str, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False
    ) -> Stored:
        """Like ``update``."""
        row = KINDS[kind]
        new = copy_of(obj)
        given = new["metadata"]
        if row.namespaced:
            given["namespace"] = given.get("namespace") or "default"
        name = given.get("name", "")
        before = self.stored(kind, given["namespace"] if row.namespaced else "", name)
        old = before.object
        if given.get("uid") and given["uid"] != old["metadata"]["uid"]:
            found = old["metadata"]["uid"]
            place = "/".join(("/registry", row.plural, *((given["namespace"],) if row.namespaced else ()), name))
            raise errors.conflict(
                row,
                name,
                f"StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {found}",
            )
        if given.get("resourceVersion") and given["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise errors.conflict(row, name)
        new = merged_for_update(row, new, old, subresource)
        defaults.for_update(row, new, old)
        validation.check_update(row, new, old, subresource)
        moment = self.now()
        if manager:
            ownership.note_update(old, new, manager=manager, subresource=subresource, moment=stamp(moment))
        if same(new, old):
            return before
        if row.counts_generation and body(new) != body(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        if dry_run:
            return Stored(row, new)
        meta = new["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("deletionGracePeriodSeconds") and not held(new):
            return self._remove(before, new)
        return self._put(row, new, before)

    def write_parts(
        self, kind: str, namespace: str, name: str, *, metadata: Object | None = None, **parts: Any
    ) -> Stored:
        """Replace whole parts of an object (``status=...``, entries of ``metadata``) and share all the rest.

        For what the cluster itself writes all the time: nothing is copied, defaulted or validated. The parts must
        be new values that nobody changes afterwards. A write that changes nothing makes no new version.
        """
        before = self.stored(kind, namespace, name)
        old, meta = before.object, {**before.object["metadata"], **(metadata or {})}
        if meta == old["metadata"] and all(old.get(part) == value for part, value in parts.items()):
            return before
        return self._put(KINDS[kind], {**old, "metadata": meta, **parts}, before)

    # State that is kept with the objects

    def shelf(self, name: str) -> dict[str, Any]:
        """Return a dict of JSON values, saved and loaded with the objects; ``touch`` after changing it."""
        return self._shelves.setdefault(name, {})

    def touch(self) -> None:
        """Say that a shelf changed."""
        self.changes += 1

    def shelves(self) -> dict[str, dict[str, Any]]:
        """Return all shelves by name, for the state file."""
        return self._shelves

    def load(self, objects: Iterable[tuple[str, Object]], shelves: dict[str, dict[str, Any]], version: int) -> None:
        """Fill an empty store from a state file; all versions from ``version`` on are new to everybody."""
        self.version = max(self.version, version)
        for kind, obj in objects:
            meta = obj["metadata"]
            stored = Stored(KINDS[kind], obj)
            self._objects[kind][(meta.get("namespace", ""), meta["name"])] = stored
            self._index(stored, present=True)
        self._shelves = shelves
        self.compact()

    # Inside

    def _priority_of(self, name: str) -> Object | None:
        if name:
            return self.peek("PriorityClass", "", name)
        return next((found for found in self.list("PriorityClass") if found.get("globalDefault")), None)

    def _check_namespace(self, row: Kind, key: Key) -> None:
        if not row.namespaced:
            return
        namespace = self._objects["Namespace"].get(("", key[0]))
        if namespace is None:
            raise errors.not_found(KINDS["Namespace"], key[0])
        if namespace.object["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {key[0]} because it is being terminated"
            cause = errors.Cause(
                "NamespaceTerminating", "metadata.namespace", f"namespace {key[0]} is being terminated"
            )
            raise errors.forbidden(row, key[1], why, [cause])

    def _put(self, row: Kind, new: Object, before: Stored | None) -> Stored:
        self.version += 1
        self.changes += 1
        meta = new["metadata"]
        meta["resourceVersion"] = str(self.version)
        stored = Stored(row, new)
        if before is not None:
            self._index(before, present=False)
        self._objects[row.kind][(meta.get("namespace", ""), meta["name"])] = stored
        self._index(stored, present=True)
        type_ = ADDED if before is None else MODIFIED
        self._journals[row.kind].append(Event(self.version, type_, stored, before))
        return stored

    def _remove(self, before: Stored, last: Object) -> Stored:
        self.version += 1
        self.changes += 1
        meta = last["metadata"]
        meta["resourceVersion"] = str(self.version)
        self._index(before, present=False)
        del self._objects[before.kind.kind][(meta.get("namespace", ""), meta["name"])]
        stored = Stored(before.kind, last)
        self._journals[before.kind.kind].append(Event(self.version, DELETED, stored, before))
        return stored

    def _index(self, stored: Stored, *, present: bool) -> None:
        kind, obj = stored.kind.kind, stored.object
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if kind == "Pod" and (node := obj.get("spec", {}).get("nodeName")):
            _toggle(self._on_node, node, key, present=present)
        for owner in meta.get("ownerReferences") or ():
            _toggle(self._owned, owner["uid"], (kind, key), present=present)

    def __iter__(self) -> Iterator[Stored]:
        for objects in self._objects.values():
            yield from objects.values()


def _toggle(index: dict[str, set[Any]], where: str, what: Any, *, present: bool) -> None:
    if present:
        index.setdefault(where, set()).add(what)
        return
    members = index.get(where, set())
    members.discard(what)
    if not members:
        index.pop(where, None)
