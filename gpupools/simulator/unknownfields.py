"""Fields that a kind does not have, and values of the wrong type: refused, warned of, or dropped.

Works on what clients send, before defaults; the fields are in schema.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gpupools.simulator.errors import ApiError, Cause, bad_request
from gpupools.simulator.fieldsets import list_problems
from gpupools.simulator.kinds import Kind, Object
from gpupools.simulator.problems import shown
from gpupools.simulator.schema import STRUCTS
from gpupools.simulator.values import parse_time

Headers = tuple[tuple[str, str], ...]

_JSON_NAMES = ((bool, "bool"), (str, "string"), (int, "number"), (float, "number"), (dict, "object"), (list, "array"))
# Types of the schema -> (Python types, the Go type's name in messages).
_SCALARS: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "string"),
    "bool": ((bool,), "bool"),
    "int32": ((int,), "int32"),
    "int64": ((int,), "int64"),
    "[]byte": ((str,), "[]uint8"),
    "Time": ((str,), "v1.Time"),
    "Quantity": ((str, int, float), "resource.Quantity"),
    "IntOrString": ((str, int), "intstr.IntOrString"),
    "object": ((dict,), "map[string]interface {}"),
}


class _WrongType(Exception):
    """A value of the wrong type, in Go's words and in those of server-side apply."""

    def __init__(self, text: str, for_apply: str = "") -> None:
        super().__init__(text)
        self.for_apply = for_apply or text


class _Twice(dict[str, Any]):
    """A JSON object with keys that came more than once."""

    keys_again: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    twice = _Twice(found)
    again = []
    for key, _ in pairs:
        if key in seen:
            again.append(key)
        seen.add(key)
    twice.keys_again = tuple(dict.fromkeys(again))
    return twice


def repeated_fields(body: bytes) -> list[str]:
    """Return the paths of fields that a JSON body has more than once; of each the last one counts."""
    try:
        return list(_repeated(json.loads(body, object_pairs_hook=_pairs), ""))
    except ValueError:
        # No JSON, but YAML or protobuf; those who read them have their own say about repetitions.
        return []


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value, _Twice):
            yield from (f"{path}.{key}" if path else key for key in value.keys_again)
        for key, inner in value.items():
            yield from _repeated(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _repeated(inner, f"{path}[{index}]")


def check_fields(row: Kind, obj: Object, mode: str, *, what: str, patch: str = "", body: bytes = b"") -> Headers:
    """Check an object that a client sent, dropping unknown fields and nulls in place; return warnings as headers.

    ``mode`` is fieldValidation's: Strict refuses unknown fields, Warn (the default) and Ignore drop them. ``what`` is
    create, update, patch or apply: each words its refusal in its own way. ``body`` is what was sent, to find repeated
    fields in where the client asks for a mode; ``patch`` is what a patch's refusal shows. Wrong types are always
    refused: 400, 422 in a patch, 500 in an apply.
    """
    unknown: list[str] = []
    try:
        _walk_struct(obj, row.kind, "", "", unknown)
    except _WrongType as error:
        if what == "apply":
            raise _untyped(row, obj, [error.for_apply]) from error
        if what == "patch":
            raise _bad_patch(str(error), patch) from error
        raise bad_request(
            f'{row.kind} in version "{row.version}" cannot be handled as a {row.kind}: {error}'
        ) from error
    if what == "apply":
        said = [f".{path}: field not declared in schema" for path in unknown]
        said += list_problems({"kind": row.kind, **obj})
        if said:
            raise _untyped(row, obj, said)
    if mode == "Ignore":
        return ()
    # Looked for only where somebody asks, as kubectl always does: it takes reading the body once more.
    said = [f'duplicate field "{path}"' for path in (repeated_fields(body) if mode and body else ())]
    said += [f'unknown field "{path}"' for path in unknown]
    if not said:
        return ()
    if mode == "Strict":
        raise _strict(row, said, what, patch)
    return tuple(("warning", f'299 - "{text.replace(chr(34), chr(92) + chr(34))}"') for text in said)


def check_shape(kind: str, obj: Object) -> Object:
    """Check a body that is not kept (DeleteOptions, Binding ...), dropping what its kind does not have; 400."""
    try:
        _walk_struct(obj, kind, "", "", [])
    except _WrongType as error:
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
    return obj


def _untyped(row: Kind, obj: Object, said: list[str]) -> ApiError:
    """What server-side apply says to a configuration that does not fit the schema; it gives no reason."""
    meta = obj.get("metadata") or {}
    where = f"{meta.get('namespace', '')}/{meta.get('name', '')}; {row.api_version}, Kind={row.kind}"
    text = said[0] if len(said) == 1 else "\n  ".join(("errors:", *said))
    return ApiError(500, "", f"failed to create typed patch object ({where}): {text}")


def _handled(row: Kind) -> str:
    return f'{row.kind} in version "{row.version}" cannot be handled as a {row.kind}'


def _strict(row: Kind, said: list[str], what: str, patch: str) -> ApiError:
    text = f"strict decoding error: {', '.join(said)}"
    if what != "patch":
        return bad_request(f"{_handled(row)}: {text}")
    return _bad_patch(text, patch)


def _bad_patch(text: str, patch: str) -> ApiError:
    message = f"Invalid value: {shown(patch)}: {text}"
    return ApiError(422, "Invalid", f' "" is invalid: patch: {message}', [Cause("FieldValueInvalid", "patch", message)])


def _walk_struct(value: Any, struct: str, path: str, dotted: str, unknown: list[str]) -> None:
    """Check a struct; ``path`` has list indexes, ``dotted`` has none, as Go's messages want it."""
    fields = STRUCTS[struct]
    for key in list(value):
        here, plain = (f"{path}.{key}", f"{dotted}.{key}") if path else (key, key)
        type_ = fields.get(key)
        if type_ is None:
            if not path and key in ("apiVersion", "kind"):
                continue
            unknown.append(here)
            del value[key]
        elif type_ == "any":
            continue
        elif value[key] is None:
            # The one time that Kubernetes writes out although it is never set.
            if key != "lastProbeTime":
                del value[key]
        else:
            _walk(value[key], type_, here, f"{struct}.{plain}", plain, unknown)


def _walk(value: Any, type_: str, path: str, named: str, dotted: str, unknown: list[str]) -> None:
    if type_ in _SCALARS:
        allowed, go_name = _SCALARS[type_]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise _mismatch(value, named, go_name, path, type_)
        if type_ == "[]byte":
            _check_base64(value)
        elif type_ == "Time":
            _check_time(value)
        elif type_.startswith("int") and not -(2**63) <= value < 2**63:
            raise _WrongType(f"json: cannot unmarshal number {value} into Go struct field {named} of type {go_name}")
    elif type_ == "any":
        return
    elif type_.startswith("[]"):
        if not isinstance(value, list):
            raise _mismatch(value, named, f"[]{_go_name(type_[2:])}", path, type_)
        for index, item in enumerate(value):
            _walk(item, type_[2:], f"{path}[{index}]", named, dotted, unknown)
    elif type_.startswith("map["):
        inner = type_[4:-1]
        if not isinstance(value, dict):
            raise _mismatch(value, named, f"map[string]{_go_name(inner)}", path, type_)
        for key in [key for key, item in value.items() if item is None]:
            # Go reads a null in a map of words as the empty word, and in one of quantities as zero.
            value[key] = "0" if inner == "Quantity" else ""
        for key, item in value.items():
            _walk(item, inner, f"{path}.{key}", named, dotted, unknown)
    elif not isinstance(value, dict):
        raise _mismatch(value, named, _go_name(type_), path, type_)
    else:
        _walk_struct(value, type_, path, dotted, unknown)


def _check_base64(text: str) -> None:
    found = re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", text.replace("\n", ""))
    if not found:
        odd = re.search(r"[^A-Za-z0-9+/\n]", text)
        raise _WrongType(f"illegal base64 data at input byte {odd.start() if odd else len(text) // 4 * 4}")


def _check_time(text: str) -> None:
    try:
        moment = parse_time(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        layout = "2006-01-02T15:04:05Z07:00"
        raise _WrongType(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')


def _go_name(type_: str) -> str:
    return _SCALARS[type_][1] if type_ in _SCALARS else f"v1.{type_}"


def _mismatch(value: Any, named: str, go_name: str, path: str, type_: str) -> _WrongType:
    json_name = next((name for kind, name in _JSON_NAMES if isinstance(value, kind)), "null")
    text = f"json: cannot unmarshal {json_name} into Go struct field {named} of type {go_name}"
    if type_.startswith("[]") and type_ != "[]byte":
        wanted = "list"
    elif type_ in ("string", "[]byte", "Time"):
        wanted = "string"
    else:
        wanted = {"bool": "boolean", "int32": "numeric (int or float)", "int64": "numeric (int or float)"}.get(
            type_, "map"
        )
    return _WrongType(text, f".{path}: expected {wanted}, got &{{{value}}}")
