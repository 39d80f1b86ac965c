"""JSON patch, JSON merge patch and strategic merge patch, on copies of decoded JSON.

Pure functions; which lists merge by which key is in structure.py. Server-side apply is in ownership.py.
"""

from __future__ import annotations

import re
from typing import Any

from gpupools.simulator.errors import ApiError, bad_request
from gpupools.simulator.kinds import Object
from gpupools.simulator.structure import PATCH_KEYS, SETS
from gpupools.simulator.values import copy_of


def _unprocessable() -> ApiError:
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


# JSON patch (RFC 6902)

_MOST_OPERATIONS = 10_000


def json_patch(obj: Object, operations: Any) -> Object:
    """Apply a list of operations; 400 when it is no patch, 422 when a path or a test does not hold."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > _MOST_OPERATIONS:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(operations)}",
        )
    document: Any = copy_of(obj)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("error decoding patch: an operation needs op and path")
        document = _operate(document, operation)
    if not isinstance(document, dict):
        raise _unprocessable()
    return document


def _operate(document: Any, operation: Object) -> Any:
    name, path = operation.get("op"), _pointer(operation["path"])
    if name in ("add", "replace", "test") and "value" not in operation:
        raise _unprocessable()
    if name == "test":
        if _at(document, path) != operation["value"]:
            raise _unprocessable()
        return document
    if name == "add":
        return _add(document, path, copy_of(operation["value"]))
    if name == "replace":
        _at(document, path)
        return _set(document, path, copy_of(operation["value"]))
    if name == "remove":
        return _remove(document, path)
    if name in ("move", "copy") and isinstance(operation.get("from"), str):
        origin = _pointer(operation["from"])
        value = copy_of(_at(document, origin))
        if name == "move":
            document = _remove(document, origin)
        return _add(document, path, value)
    raise _unprocessable()


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise _unprocessable()
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(items: list[Any], part: str, *, insert: bool = False) -> int:
    if insert and part == "-":
        return len(items)
    if not re.fullmatch(r"-?[0-9]+", part):
        raise _unprocessable()
    # Counted from the end when below zero, as the API server's library does.
    index = int(part) if int(part) >= 0 else len(items) + insert + int(part)
    if not 0 <= index < len(items) + insert:
        raise _unprocessable()
    return index


def _at(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(document, part)]
        else:
            raise _unprocessable()
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _at(document, path[:-1])
    if isinstance(holder, dict):
        holder[path[-1]] = value
    elif isinstance(holder, list):
        holder.insert(_index(holder, path[-1], insert=True), value)
    else:
        raise _unprocessable()
    return document


def _set(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _at(document, path[:-1])
    if isinstance(holder, dict):
        holder[path[-1]] = value
    else:
        holder[_index(holder, path[-1])] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    _at(document, path)
    if not path:
        raise _unprocessable()
    holder = _at(document, path[:-1])
    if isinstance(holder, dict):
        del holder[path[-1]]
    else:
        del holder[_index(holder, path[-1])]
    return document


# JSON merge patch (RFC 7386)


def merge_patch(obj: Any, patch: Any) -> Any:
    """Apply a merge patch: maps merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return copy_of(patch)
    merged = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# Strategic merge patch


def strategic_merge(obj: Any, patch: Object) -> Object:
    """Apply a strategic merge patch with Kubernetes' merge keys and directives; 400 when it is malformed."""
    current: Object = dict(obj) if isinstance(obj, dict) else {}
    directive = patch.get("$patch")
    if directive == "replace":
        return _cleaned({key: value for key, value in patch.items() if key != "$patch"})
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    if "$retainKeys" in patch:
        kept = patch["$retainKeys"]
        current = {key: value for key, value in current.items() if key in kept}
    orders: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if key.startswith("$setElementOrder/"):
            orders[key.partition("/")[2]] = value
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            current[name] = [item for item in current.get(name) or () if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            current.pop(key, None)
        elif isinstance(value, dict):
            current[key] = strategic_merge(current.get(key), value)
        elif isinstance(value, list):
            current[key] = _merged_list(key, current.get(key), value)
        else:
            current[key] = value
    for name, order in orders.items():
        if isinstance(current.get(name), list):
            live = obj.get(name) if isinstance(obj, dict) else None
            current[name] = _ordered(name, current[name], order, live or [])
    return copy_of(current)


def _cleaned(value: Any) -> Any:
    """Return a value as it is set where nothing was: without directives and nulls."""
    if isinstance(value, dict):
        return strategic_merge({}, value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value if not (isinstance(item, dict) and "$patch" in item)]
    return value


def _merged_list(name: str, current: Any, patch: list[Any]) -> list[Any]:
    live = list(current) if isinstance(current, list) else []
    if name in SETS:
        return live + [item for item in patch if item not in live]
    key = PATCH_KEYS.get(name)
    if key is None or any(not isinstance(item, dict) for item in (*live, *patch)):
        return [_cleaned(item) for item in patch]
    if any(item.get("$patch") == "replace" for item in patch):
        return [_cleaned(item) for item in patch if "$patch" not in item]
    for item in patch:
        if key not in item:
            # The real server gives this one without a reason.
            raise ApiError(500, "", f"map: {go_text(item)} does not contain declared merge key: {key}")
        place = next((index for index, found in enumerate(live) if found.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            live = [found for found in live if found.get(key) != item[key]]
        elif place is None:
            live.append(_cleaned(item))
        else:
            live[place] = strategic_merge(live[place], item)
    return live


def go_text(value: Any) -> str:
    """Return decoded JSON as Go prints it: ``map[a:b c:[1 2]]``."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(go_text(item) for item in value)}]"
    if value is None or isinstance(value, bool):
        return {None: "<nil>", True: "true", False: "false"}[value]
    return str(value)


def _ordered(name: str, merged: list[Any], order: list[Any], live: list[Any]) -> list[Any]:
    """Sort a merged list: what ``order`` names in its order, the rest where it stood relative to live."""
    key = PATCH_KEYS.get(name)

    def identity(item: Any) -> Any:
        return item.get(key) if key is not None and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    places = {identity(item): index for index, item in enumerate(live)}
    named = sorted((m for m in merged if identity(m) in wanted), key=lambda m: wanted.index(identity(m)))
    others = [m for m in merged if identity(m) not in wanted]
    result: list[Any] = []
    while named and others:
        first, other = places.get(identity(named[0])), places.get(identity(others[0]), len(live))
        result.append(others.pop(0) if first is not None and other < first else named.pop(0))
    return result + named + others
