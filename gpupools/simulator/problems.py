"""Causes of a 422, worded as the API server's field errors are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpupools.simulator.errors import Cause


class Problems:
    """Collects what is wrong with one object."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []

    def add(self, cause: Cause) -> None:
        """Add one problem."""
        self.causes.append(cause)

    def extend(self, causes: Iterable[Cause]) -> None:
        """Add several problems."""
        self.causes.extend(causes)


def shown(value: Any) -> str:
    """Return a value as field errors print it: text in quotes, structures as JSON."""
    return "null" if value is None else msgspec.json.encode(value).decode()


def wrong(field: str, value: Any, text: str) -> Cause:
    """A value that is not allowed."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {text}")


def required(field: str, text: str = "") -> Cause:
    """A field that is missing."""
    return Cause("FieldValueRequired", field, f"Required value: {text}" if text else "Required value")


def unsupported(field: str, value: Any, allowed: Sequence[str]) -> Cause:
    """A word that is none of the known ones."""
    words = ", ".join(f'"{word}"' for word in allowed)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {shown(value)}: supported values: {words}")


def duplicate(field: str, value: Any) -> Cause:
    """A value that may be there only once."""
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def absent(field: str, value: Any) -> Cause:
    """A name of something that is not there."""
    return Cause("FieldValueNotFound", field, f"Not found: {shown(value)}")


def forbidden(field: str, text: str) -> Cause:
    """A field that may not be set, or changed."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {text}")


def immutable(field: str, value: Any) -> Cause:
    """A field that may not change."""
    return wrong(field, value, "field is immutable")


def not_below_zero(value: Any, field: str, problems: Problems) -> None:
    """Check a whole number that may be absent."""
    if isinstance(value, int) and value < 0:
        problems.add(wrong(field, value, "must be greater than or equal to 0"))
