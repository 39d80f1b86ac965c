"""What applying an object would change: two objects as lines of path and value. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpupools.domain.modes import OP_LABEL

# What the server writes by itself is no part of what was asked for.
_SERVERS = (
    "metadata.managedFields", "metadata.resourceVersion", "metadata.uid", "metadata.generation",
    "metadata.creationTimestamp", "metadata.selfLink", f"metadata.annotations[{OP_LABEL}]", "status",
)  # fmt: skip
LONGEST = 200


class Line(msgspec.Struct, frozen=True):
    """One value that would change; empty ``before`` or ``after``: it is not there."""

    path: str
    before: str
    after: str


def differences(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[Line]:
    """Return every value that differs, by path. Entries of lists are told apart by name, or else by place."""
    old, new = dict(_leaves(before or {}, "")), dict(_leaves(after, ""))
    return [
        Line(path, old.get(path, "")[:LONGEST], new.get(path, "")[:LONGEST])
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path) and not path.startswith(_SERVERS)
    ]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            plain = str(key).replace("-", "").isalnum()
            yield from _leaves(inner, f"{path}.{key}".lstrip(".") if plain else f"{path}[{key}]")
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            name = inner.get("name") if isinstance(inner, Mapping) else None
            yield from _leaves(inner, f"{path}[{name if isinstance(name, str) else index}]")
    else:
        yield path, value if isinstance(value, str) else msgspec.json.encode(value).decode()
