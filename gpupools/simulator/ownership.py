"""Who owns which field: managedFields of updates, and server-side apply with conflicts, force and pruning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpupools.simulator.errors import ApiError, Cause
from gpupools.simulator.fieldsets import (
    Path,
    from_fields_v1,
    is_keyed,
    is_step,
    item_step,
    leaves,
    text_of,
    to_fields_v1,
)
from gpupools.simulator.kinds import Object
from gpupools.simulator.structure import ATOMIC_ITEMS, ATOMIC_MAPS
from gpupools.simulator.values import copy_of

_encode = msgspec.json.Encoder().encode
# Objects of one kind have the same fields, mostly: one tree for all of them saves most of their memory.
_MOST_TREES = 2000
_trees: dict[bytes, Object] = {}


def shared(tree: Object) -> Object:
    """Return the one copy of equal field trees; stored objects are never changed in place."""
    if len(_trees) > _MOST_TREES:
        _trees.clear()
    return _trees.setdefault(_encode(tree), tree)


@dataclass(slots=True)
class Owner:
    """One managedFields entry."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: set[Path] = field(default_factory=set)

    def is_for(self, manager: str, operation: str, subresource: str) -> bool:
        """Return whether this is the entry of that writer."""
        return (self.manager, self.operation, self.subresource) == (manager, operation, subresource)

    def entry(self) -> Object:
        """Return the entry as it stands in metadata."""
        return {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": shared(to_fields_v1(self.paths)),
            **({"subresource": self.subresource} if self.subresource else {}),
        }

    def named(self) -> str:
        """Return the owner as conflict messages word it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


def _owners(obj: Object | None) -> list[Owner]:
    entries = (obj or {}).get("metadata", {}).get("managedFields") or ()
    return [
        Owner(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            entry.get("time", ""),
            from_fields_v1(entry.get("fieldsV1") or {}),
        )
        for entry in entries
    ]


def _readable(entries: Any) -> bool:
    """Return whether these are entries of managedFields, and some."""
    return bool(entries) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("manager", ""), str)
        and entry.get("operation") in ("Apply", "Update")
        and entry.get("fieldsType", "FieldsV1") == "FieldsV1"
        and _is_tree(entry.get("fieldsV1"))
        for entry in entries
    )


def _is_tree(fields: Any) -> bool:
    return isinstance(fields, dict) and all(is_step(key) and _is_tree(inner) for key, inner in fields.items())


def _write(obj: Object, owners: Iterable[Owner]) -> None:
    entries = [owner.entry() for owner in owners if owner.paths]
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def _entry_of(owners: list[Owner], manager: str, operation: str, subresource: str, obj: Object) -> Owner:
    for owner in owners:
        if owner.is_for(manager, operation, subresource):
            return owner
    made = Owner(manager, operation, obj["apiVersion"], subresource, "")
    owners.append(made)
    return made


def note_update(old: Object | None, new: Object, *, manager: str, subresource: str, moment: str) -> None:
    """Enter the fields that differ between two versions under ``manager`` (operation Update), in place.

    Other owners lose what was changed; what is gone is nobody's. A client that empties managedFields resets them.
    """
    sent = new["metadata"].get("managedFields")
    # Taken from the client where it makes sense: kubectl hands fields from one manager to another so.
    owners = [] if sent == [{}] else _owners(new if _readable(sent) else old)
    before, after = leaves(old, branches=True) if old else {}, leaves(new, branches=True)
    changed = {
        path for path, value in after.items() if path not in before or (value is not None and before[path] != value)
    }
    gone = before.keys() - after.keys()
    if not changed and not gone:
        _write(new, owners)
        return
    for owner in owners:
        owner.paths -= gone
        if not owner.is_for(manager, "Update", subresource):
            # Items of keyed lists are shared by everybody who owns something in them.
            owner.paths -= {path for path in changed if after[path] is not None}
    if changed:
        mine = _entry_of(owners, manager, "Update", subresource, new)
        mine.paths |= changed
        mine.time = moment
    _write(new, owners)


def same_but_times(mine: list[Object] | None, theirs: list[Object] | None) -> bool:
    """Return whether two managedFields differ in nothing but times."""
    if mine is theirs or mine == theirs:
        return True

    def bare(entries: list[Object] | None) -> list[Object]:
        return [{key: value for key, value in entry.items() if key != "time"} for entry in entries or ()]

    return bare(mine) == bare(theirs)


def apply(live: Object | None, applied: Object, *, manager: str, subresource: str, force: bool, moment: str) -> Object:
    """Server-side apply: return the merged object with ownership entered.

    Fields that this manager applied before and leaves out now go, unless somebody else owns them too. A field that
    somebody else owns and that would change is a conflict (409), unless ``force``.
    """
    wanted = leaves(applied)
    kind = applied.get("kind", "")
    owners = _owners(live)
    merged = _merge(copy_of(live), applied, kind) if live else copy_of(applied)
    mine = _entry_of(owners, manager, "Apply", subresource, applied)
    others = [owner for owner in owners if owner is not mine]
    left_out = mine.paths - wanted.keys()
    # Items before their fields: an item without its key could not be found any more.
    for path in sorted(left_out, key=len):
        if _is_key(path):
            continue
        if not any(path in owner.paths or _below(path, owner.paths) for owner in others):
            _prune(merged, path)
    before, after = leaves(live, branches=True) if live else {}, leaves(merged, branches=True)
    changed = {
        path for path, value in after.items() if path not in before or (value is not None and before[path] != value)
    }
    conflicts = [
        (owner, path)
        for owner in others
        for path in sorted(owner.paths & changed & wanted.keys())
        if after[path] is not None
    ]
    if conflicts and not force:
        raise _conflict_error(conflicts)
    for owner, path in conflicts:
        owner.paths.discard(path)
    for owner in others:
        owner.paths -= before.keys() - after.keys()
    if mine.paths != wanted.keys() or changed or not mine.time:
        mine.time = moment
    mine.paths = set(wanted)
    _write(merged, owners)
    return merged


def _is_key(path: Path) -> bool:
    """Return whether a path is the very field that tells a list's item from the others; it goes with the item."""
    return len(path) > 1 and path[-2].startswith("k:") and f'"{path[-1][2:]}":' in path[-2]


def _below(path: Path, paths: set[Path]) -> bool:
    return any(len(other) > len(path) and other[: len(path)] == path for other in paths)


def _conflict_error(conflicts: list[tuple[Owner, Path]]) -> ApiError:
    causes = [
        Cause("FieldManagerConflict", text_of(path), f"conflict with {owner.named()}") for owner, path in conflicts
    ]
    if len(conflicts) == 1:
        owner, path = conflicts[0]
        text = f"Apply failed with 1 conflict: conflict with {owner.named()}: {text_of(path)}"
    else:
        by_owner: dict[str, list[str]] = {}
        for owner, path in conflicts:
            by_owner.setdefault(owner.named(), []).append(text_of(path))
        lines = []
        for name in sorted(by_owner):
            lines += [f"conflicts with {name}:", *(f"- {path}" for path in by_owner[name])]
        text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", text, causes)


def _merge(live: Any, applied: Any, kind: str, name: str = "") -> Any:
    """Merge an applied configuration into a live value, list items by their keys."""
    if isinstance(applied, dict) and isinstance(live, dict) and name not in ATOMIC_MAPS:
        for key, value in applied.items():
            live[key] = _merge(live[key], value, kind, key) if key in live else copy_of(value)
        return live
    if isinstance(applied, list) and isinstance(live, list) and is_keyed(name, [*live, *applied], kind):
        places = {item_step(name, item): index for index, item in enumerate(live)}
        for item in applied:
            step = item_step(name, item)
            if step in places and name not in ATOMIC_ITEMS:
                live[places[step]] = _merge(live[places[step]], item, kind)
            elif step in places:
                live[places[step]] = copy_of(item)
            else:
                live.append(copy_of(item))
        return live
    return copy_of(applied)


def _prune(obj: Object, path: Path) -> None:
    """Remove a field, and the maps and lists that it leaves empty."""
    trail: list[tuple[Any, Any]] = []
    place: Any = obj
    name = ""
    for step in path:
        if step.startswith("f:"):
            name = step[2:]
            if not isinstance(place, dict) or name not in place:
                return
            trail.append((place, name))
            place = place[name]
            continue
        if not isinstance(place, list):
            return
        index = next((i for i, item in enumerate(place) if item_step(name, item) == step), None)
        if index is None:
            return
        trail.append((place, index))
        place = place[index]
    holder, key = trail[-1]
    del holder[key]
    for holder, key in reversed(trail[:-1]):
        # Never the object's own metadata, and never what still holds something.
        if holder[key] or (holder is obj and key == "metadata"):
            return
        del holder[key]
