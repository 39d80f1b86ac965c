"""Who owns which field: managedFields for updates and for server-side apply."""

from __future__ import annotations

from typing import Any

from gpupools.simulator.kinds import Object


def note_update(old: Object | None, new: Object, *, manager: str, subresource: str, moment: str) -> None:
    """Enter the fields that differ between two versions under ``manager`` (operation Update), in place."""


def same_but_times(mine: list[dict[str, Any]] | None, theirs: list[dict[str, Any]] | None) -> bool:
    """Return whether two managedFields differ in nothing but times."""

    def bare(entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        return [{key: value for key, value in entry.items() if key != "time"} for entry in entries or ()]

    return bare(mine) == bare(theirs)
