"""Unknown fields in what clients send: refused, warned of, or dropped, as ``fieldValidation`` asks."""

from __future__ import annotations

from gpupools.simulator.kinds import Kind, Object


def check_fields(row: Kind, obj: Object, mode: str, *, what: str) -> tuple[tuple[str, str], ...]:
    """Return warning headers."""
    return ()
