"""Small things about values of the API that everything here needs: times, copies, generated names."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def utc_now() -> datetime:
    """Return the wall clock's time."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """Return a time as metav1.Time has it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Read a time of the API; ValueError when it is none."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def copy_of(value: Any) -> Any:
    """Return a copy of decoded JSON that shares no dict and no list with the original."""
    if isinstance(value, dict):
        return {key: copy_of(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copy_of(inner) for inner in value]
    return value


def generated_name(prefix: str) -> str:
    """Return ``prefix`` with five random letters, as generateName does."""
    return prefix[:58] + "".join(secrets.choice(NAME_ALPHABET) for _ in range(5))
