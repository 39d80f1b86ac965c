"""events.k8s.io/v1: the same events as core v1 ones, in the newer words."""

from __future__ import annotations

from gpupools.simulator.kinds import Object

# core v1 field -> events.k8s.io/v1 field, where only the name differs.
_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _RENAMED.items()}


def to_events_v1(obj: Object) -> Object:
    """Return a core event in the words of events.k8s.io/v1."""
    viewed = {_RENAMED.get(key, key): value for key, value in obj.items()}
    return {**viewed, "apiVersion": "events.k8s.io/v1", "kind": "Event"}


def to_core(obj: Object) -> Object:
    """Return an events.k8s.io/v1 event in the words of the core one, as it is stored."""
    core = {_BACK.get(key, key): value for key, value in obj.items()}
    return {**core, "apiVersion": "v1", "kind": "Event"}
