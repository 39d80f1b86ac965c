"""What writes do to an object besides storing it: bookkeeping fields, isolation of status, marks of deletion.

Functions over plain dicts; it knows no store, and time only as an argument.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpupools.simulator import errors, ownership
from gpupools.simulator.kinds import Kind, Object
from gpupools.simulator.values import copy_of, stamp


def held(obj: Object) -> bool:
    """Return whether finalizers keep an object from going; a namespace has its own in spec."""
    if obj["metadata"].get("finalizers"):
        return True
    return obj["kind"] == "Namespace" and bool(obj.get("spec", {}).get("finalizers"))


def body(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def same(new: Object, old: Object) -> bool:
    """Return whether two versions differ in nothing but bookkeeping times."""
    if any(new.get(key) != old.get(key) for key in new.keys() | old.keys() if key != "metadata"):
        return False
    mine, theirs = new["metadata"], old["metadata"]
    if any(mine.get(key) != theirs.get(key) for key in mine.keys() | theirs.keys() if key != "managedFields"):
        return False
    return ownership.same_but_times(mine.get("managedFields"), theirs.get("managedFields"))


def merged_for_update(row: Kind, new: Object, old: Object, subresource: str) -> Object:
    """Put together what a client sent with what it cannot write here."""
    if subresource == "status":
        kept = {key: copy_of(value) for key, value in old.items() if key not in ("metadata", "status")}
        new = {**kept, "metadata": new["metadata"], "status": new.get("status", {})}
        new["metadata"]["ownerReferences"] = copy_of(old["metadata"].get("ownerReferences"))
    elif subresource == "finalize":
        finalizers = new.get("spec", {}).get("finalizers", [])
        new = {**copy_of(old), "metadata": new["metadata"], "spec": {"finalizers": finalizers}}
    elif row.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = copy_of(old["status"])
    if row.kind == "Namespace" and subresource != "finalize":
        new["spec"] = copy_of(old.get("spec", {}))
    new["apiVersion"], new["kind"] = row.api_version, row.kind
    meta, was = new["metadata"], old["metadata"]
    fixed = (
        "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
        "resourceVersion", "generateName",
    )  # fmt: skip
    for field in fixed:
        if field in was:
            meta[field] = was[field]
        else:
            meta.pop(field, None)
    if "managedFields" not in meta and "managedFields" in was:
        meta["managedFields"] = copy_of(was["managedFields"])
    for field in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if not meta.get(field):
            meta.pop(field, None)
    if was.get("deletionTimestamp"):
        added = [item for item in meta.get("finalizers", ()) if item not in was.get("finalizers", ())]
        if added:
            cause = errors.Cause(
                "FieldValueForbidden",
                "metadata.finalizers",
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{', '.join(repr(item) for item in added)}}}".replace("'", '"'),
            )
            raise errors.invalid(row, meta["name"], [cause])
    return new


def mark_deleted(row: Kind, obj: Object, grace_seconds: int | None, propagation: str, now: datetime) -> int:
    """Write what a delete request leaves on an object, and return the seconds of grace left to it."""
    meta = obj["metadata"]
    grace = 0
    if row.kind == "Pod":
        spec, phase = obj.get("spec", {}), obj.get("status", {}).get("phase")
        grace = spec.get("terminationGracePeriodSeconds", 30) if grace_seconds is None else grace_seconds
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            grace = 0
        elif grace < 0:
            grace = 1
    finalizers = [item for item in meta.get("finalizers", ()) if item not in ("foregroundDeletion", "orphan")]
    if propagation == "Foreground":
        finalizers.append("foregroundDeletion")
    elif propagation == "Orphan":
        finalizers.append("orphan")
    elif not propagation:
        finalizers = list(meta.get("finalizers", ()))
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    left = meta.get("deletionGracePeriodSeconds")
    if meta.get("deletionTimestamp") and left is not None and grace >= left:
        # A second request may shorten the grace, never lengthen it.
        return int(left)
    if row.counts_generation and "generation" in meta:
        meta["generation"] += 1
    meta["deletionTimestamp"] = stamp(now + timedelta(seconds=grace))
    meta["deletionGracePeriodSeconds"] = grace
    if row.kind == "Namespace":
        obj.setdefault("status", {})["phase"] = "Terminating"
    return grace
