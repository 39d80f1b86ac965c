"""A Job or Pod against the fields that Kubernetes has for it: values of another type, and fields that are not there.

The facts are in podfields.py. It says what is wrong and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from gpupools.domain.podfields import STRUCTS
from gpupools.errors import FieldError

# Type -> (Python types that it takes, what a person reads, what is allowed).
_SCALARS: dict[str, tuple[tuple[type, ...], str, str]] = {
    "string": ((str,), "a text", "text; put it in quotes"),
    "[]byte": ((str,), "a text", "base64 text"),
    "Time": ((str,), "an instant", "text such as 2026-01-31T12:00:00Z"),
    "bool": ((bool,), "true or false", "true or false, without quotes"),
    "int32": ((int,), "a whole number", "a whole number, without quotes"),
    "int64": ((int,), "a whole number", "a whole number, without quotes"),
    "Quantity": ((str, int, float), "an amount", "an amount such as 4, 500m or 16Gi"),
    "IntOrString": ((str, int), "a number or a text", "a number or a text"),
}
# Where a field that stands in the wrong place usually belongs.
_HOMES = (("PodSpec", "the pod's spec"), ("Container", "a container"), ("JobSpec", "the Job's spec"))
_NOT_LOOKED_INTO = ("any", "object")


class UnknownField(msgspec.Struct, frozen=True):
    """A field that Kubernetes does not have there, with the one that was most likely meant, if any."""

    path: str
    name: str
    nearest: str


def unknown_fields(kind: str, raw: Mapping[str, Any]) -> Iterator[UnknownField]:
    """Find the fields of a Job or Pod that its kind does not have. What has another type is passed over."""
    own = {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}
    yield from _unknown(own, kind, "")


def _unknown(value: Any, type_: str, path: str) -> Iterator[UnknownField]:
    if type_.startswith("[]") and isinstance(value, list):
        for position, item in enumerate(value):
            yield from _unknown(item, type_[2:], f"{path}[{position}]")
    if not isinstance(value, dict) or type_ not in STRUCTS:
        return
    fields = STRUCTS[type_]
    for key, inner in value.items():
        name = str(key)
        here = f"{path}.{name}" if path else name
        if name in fields:
            yield from _unknown(inner, fields[name], here)
        else:
            yield UnknownField(here[:200], name[:80], _nearest(name, type_))


def _nearest(name: str, struct: str) -> str:
    lowered = {field.lower(): field for field in STRUCTS[struct]}
    if close := get_close_matches(name[:80].lower(), lowered, n=1, cutoff=0.7):
        return lowered[close[0]]
    return next((f"{name} in {home}" for other, home in _HOMES if name in STRUCTS[other]), "")


def wrong_types(kind: str, raw: Mapping[str, Any]) -> Iterator[FieldError]:
    """Find single values that the API server cannot read as the type of their field, as kubectl would hand them over.

    Null is no value, and a mapping or a list in the wrong place is for others to find.
    """
    for key, type_ in STRUCTS[kind].items():
        if key != "status":
            yield from _wrong(raw.get(key), type_, key)


def _wrong(value: Any, type_: str, path: str) -> Iterator[FieldError]:
    if value is None or type_ in _NOT_LOOKED_INTO:
        return
    if type_ in _SCALARS:
        allowed, noun, advice = _SCALARS[type_]
        # To Python, but to nobody else, true is a number.
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            sentence = f"'{path}' is {noun}, and this is {_shown(value)}."
            yield FieldError(path, sentence, found=_found(value), allowed=advice)
    elif isinstance(value, list) and type_.startswith("[]"):
        for position, item in enumerate(value):
            yield from _wrong(item, type_[2:], f"{path}[{position}]")
    elif isinstance(value, dict) and type_.startswith("map["):
        for key, item in value.items():
            yield from _wrong(item, type_[4:-1], f"{path}.{key}")
    elif isinstance(value, dict) and type_ in STRUCTS:
        for key, field in STRUCTS[type_].items():
            yield from _wrong(value.get(key), field, f"{path}.{key}")


def _found(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[:80]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return f"{_found(value)} to kubectl, as yes, no, on, off, y and n are too"
    if isinstance(value, (int, float)):
        return f"the number {_found(value)} to kubectl"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a text"
