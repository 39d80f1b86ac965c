"""What the API server fills in when a manifest leaves it out."""

from __future__ import annotations

from gpupools.simulator.kinds import Kind, Object


def for_create(row: Kind, obj: Object) -> None:
    """Fill the defaults of a new object, in place."""
    if row.kind == "Namespace":
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        obj["status"] = {"phase": "Active"}
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get(
            "name", ""
        )


def for_update(row: Kind, new: Object, old: Object) -> None:
    """Fill the defaults of a replaced object, in place."""
