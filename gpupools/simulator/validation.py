"""What the API server refuses, in its wording."""

from __future__ import annotations

from gpupools.simulator.kinds import Kind, Object


def check_create(row: Kind, obj: Object) -> None:
    """Raise 422 when a new object breaks rules."""


def check_update(row: Kind, new: Object, old: Object, subresource: str) -> None:
    """Raise 422 when a changed object breaks rules, or changes what may not change."""
