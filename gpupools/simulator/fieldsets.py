"""Sets of fields as managedFields hold them: paths of steps ``f:name``, ``k:{"name":"x"}``, ``v:"word"``.

Pure functions between objects, sets of paths and the FieldsV1 form; who owns a set is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gpupools.simulator.kinds import Object
from gpupools.simulator.structure import APPLY_KEYS, ATOMIC_ITEMS, ATOMIC_MAPS, KEY_DEFAULTS, SETS

Path = tuple[str, ...]

# Fields that the server alone writes; nobody owns them.
_NOT_OWNED = frozenset(
    (
        ("f:apiVersion",),
        ("f:kind",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "creationTimestamp",
                "deletionGracePeriodSeconds",
                "deletionTimestamp",
                "generation",
                "managedFields",
                "name",
                "namespace",
                "resourceVersion",
                "selfLink",
                "uid",
            )
        ),
    )
)


def item_step(name: str, item: Any) -> str:
    """Return the step to an item of the keyed list or set ``name``."""
    if name in SETS:
        return "v:" + msgspec.json.encode(item).decode()
    keys = {key: item.get(key, KEY_DEFAULTS.get(key)) for key in APPLY_KEYS[name]}
    found = {key: value for key, value in sorted(keys.items()) if value is not None}
    return "k:" + msgspec.json.encode(found).decode()


def is_keyed(name: str, value: list[Any], kind: str) -> bool:
    """Return whether the items of a list are owned one by one. A Job's conditions are the exception by kind."""
    if name in SETS:
        return True
    if name not in APPLY_KEYS or (kind == "Job" and name == "conditions"):
        return False
    return all(isinstance(item, dict) for item in value)


def list_problems(obj: Object) -> Iterator[str]:
    """Say which lists of an applied configuration cannot be told item from item, as the real server says it."""
    for key, value in obj.items():
        yield from _list_problems(key, value, (f"f:{key}",), obj.get("kind", ""))


def _list_problems(name: str, value: Any, path: Path, kind: str) -> Iterator[str]:
    if isinstance(value, dict) and name not in ATOMIC_MAPS:
        for key, inner in value.items():
            yield from _list_problems(key, inner, (*path, f"f:{key}"), kind)
    if not isinstance(value, list) or not is_keyed(name, value, kind):
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        missing = [key for key in APPLY_KEYS.get(name, ()) if item.get(key, KEY_DEFAULTS.get(key)) is None]
        if missing:
            yield (
                f"{text_of(path)}: element {index}: associative list with keys has an element that omits key field "
                f'"{missing[0]}" (and doesn\'t have default value)'
            )
            continue
        step = item_step(name, item)
        if step in seen:
            yield f"{text_of(path)}: duplicate entries for key {text_of((step,))}"
        seen.add(step)
        if isinstance(item, dict) and name not in ATOMIC_ITEMS:
            for key, inner in item.items():
                yield from _list_problems(key, inner, (*path, step, f"f:{key}"), kind)


# Branches that even an empty object of its kind has, so that nobody ever adds them.
_ALWAYS_THERE = frozenset(("metadata", "spec", "status", "template", "containers", "updateStrategy", "source"))


def leaves(obj: Object, *, branches: bool = False) -> dict[Path, Any]:
    """Return every ownable field of an object with its value; list items are there with a value of None.

    With ``branches`` the maps and lists above them are there too, with None, as updates own what they add.
    """
    found: dict[Path, Any] = {}
    kind = obj.get("kind", "")
    for key, value in obj.items():
        _walk(key, value, (f"f:{key}",), kind, found, branches=branches)
    return {path: value for path, value in found.items() if path not in _NOT_OWNED and path[:2] not in _NOT_OWNED}


def _walk(name: str, value: Any, path: Path, kind: str, found: dict[Path, Any], *, branches: bool) -> None:
    if isinstance(value, dict) and value and name not in ATOMIC_MAPS:
        if branches and name not in _ALWAYS_THERE:
            found[path] = None
        for key, inner in value.items():
            _walk(key, inner, (*path, f"f:{key}"), kind, found, branches=branches)
    elif isinstance(value, list) and value and is_keyed(name, value, kind):
        if branches and name not in _ALWAYS_THERE:
            found[path] = None
        for item in value:
            place = (*path, item_step(name, item))
            if name in ATOMIC_ITEMS:
                found[place] = item
                continue
            found[place] = None
            if isinstance(item, dict):
                for key, inner in item.items():
                    _walk(key, inner, (*place, f"f:{key}"), kind, found, branches=branches)
    elif value not in ({}, []) or not branches or name not in _ALWAYS_THERE:
        found[path] = value


def to_fields_v1(paths: Iterable[Path]) -> Object:
    """Return the nested form; a path that has others below it is marked with a dot."""
    root: Object = {}
    for path in sorted(paths):
        place = root
        for step in path:
            place = place.setdefault(step, {})
        place["."] = {}
    _drop_dots(root)
    return root


def _drop_dots(place: Object) -> None:
    if len(place) == 1:
        place.pop(".", None)
    for key, inner in place.items():
        if key != ".":
            _drop_dots(inner)


def from_fields_v1(fields: Object, prefix: Path = ()) -> set[Path]:
    """Return the paths of the nested form."""
    found: set[Path] = set()
    for step, inner in fields.items():
        if step == ".":
            found.add(prefix)
        elif not inner:
            found.add((*prefix, step))
        else:
            found |= from_fields_v1(inner, (*prefix, step))
    return found


def is_step(text: str) -> bool:
    """Return whether this can stand in the FieldsV1 form."""
    if text == "." or text.startswith("f:"):
        return True
    try:
        said = msgspec.json.decode(text[2:])
    except msgspec.DecodeError:
        return False
    return text.startswith("v:") or (text.startswith("k:") and isinstance(said, dict))


def text_of(path: Path) -> str:
    """Return a path as conflict messages word it: ``.spec.containers[name="a"].image``."""
    words = []
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            words.append(f".{rest}")
        elif kind == "k":
            keys = msgspec.json.decode(rest)
            words.append("[" + ",".join(f"{k}={msgspec.json.encode(v).decode()}" for k, v in keys.items()) + "]")
        else:
            words.append(f"[={rest}]")
    return "".join(words)
