"""Turns stored objects into the shape that a client asked for: plain, Table, or metadata alone.

Plain answers are put together from JSON that was encoded once per version; nothing is encoded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from gpupools.simulator import eventviews, tables
from gpupools.simulator.errors import bad_request
from gpupools.simulator.journal import Stored
from gpupools.simulator.kinds import Kind, Object
from gpupools.simulator.wire import Form, Request, Target, encode

META_VERSION = "meta.k8s.io/v1"


def metadata_only(obj: Object) -> Object:
    """Return an object's PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META_VERSION, "metadata": obj["metadata"]}


class Presenter:
    """Shapes the answers of one request."""

    def __init__(self, request: Request, target: Target, now: Callable[[], datetime]) -> None:
        self.row: Kind = target.row
        self.form: Form = request.form()
        self._now = now
        self._embed = request.query.get("includeObject", "Metadata")
        if self._embed not in ("None", "Metadata", "Object", ""):
            raise bad_request(f'unrecognized includeObject value: "{self._embed}"')
        self._as_events_v1 = target.group == "events.k8s.io" and target.row.kind == "Event"
        self.api_version = "events.k8s.io/v1" if self._as_events_v1 else self.row.api_version
        self._columns_sent = False

    @property
    def plain(self) -> bool:
        """Whether stored JSON can be sent as it is."""
        return not self.form.shape and not self._as_events_v1

    def _viewed(self, obj: Object) -> Object:
        return eventviews.to_events_v1(obj) if self._as_events_v1 else obj

    def one(self, stored: Stored) -> bytes:
        """Return the answer that is one object."""
        if self.plain:
            return stored.body
        if self.form.shape == "Table":
            version = stored.object["metadata"].get("resourceVersion", "")
            return encode(self._table([stored.object], {"resourceVersion": version}, definitions=True))
        if self.form.shape.startswith("PartialObjectMetadata"):
            return encode(metadata_only(stored.object))
        return encode(self._viewed(stored.object))

    def many(self, found: Sequence[Stored], meta: Object) -> bytes:
        """Return the answer that is a list; ``meta`` holds its resourceVersion and continue token."""
        if self.form.shape == "Table":
            return encode(self._table([stored.object for stored in found], meta, definitions=True))
        if self.form.shape.startswith("PartialObjectMetadata"):
            items = [metadata_only(stored.object) for stored in found]
            kind = "PartialObjectMetadataList"
            return encode({"kind": kind, "apiVersion": META_VERSION, "metadata": meta, "items": items})
        head = f'{{"kind":"{self.row.kind}List","apiVersion":"{self.api_version}","metadata":'.encode()
        if self.plain:
            parts = [stored.item for stored in found]
        else:
            parts = [encode(self._viewed(stored.object)) for stored in found]
        return b"".join((head, encode(meta), b',"items":[', b",".join(parts), b"]}"))

    def event_object(self, stored: Stored) -> bytes:
        """Return the object of a watch event; only the first Table of a stream names its columns."""
        if self.form.shape != "Table":
            return self.one(stored)
        version = stored.object["metadata"].get("resourceVersion", "")
        first, self._columns_sent = not self._columns_sent, True
        return encode(self._table([stored.object], {"resourceVersion": version}, definitions=first))

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Return the object of a BOOKMARK event."""
        meta: Object = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_events_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: Object = {"kind": self.row.kind, "apiVersion": self.api_version, "metadata": meta}
        if self.form.shape == "Table":
            return encode(self._table([], {"resourceVersion": str(version)}, definitions=False))
        if self.form.shape.startswith("PartialObjectMetadata"):
            return encode(metadata_only(obj))
        return encode(obj)

    def _table(self, objects: Sequence[Object], meta: Object, *, definitions: bool) -> Object:
        now = self._now()
        kind = self.row.kind
        rows = [tables.row(kind, obj, now, embed=self._embedded(obj)) for obj in objects]
        head: dict[str, Any] = {"kind": "Table", "apiVersion": META_VERSION, "metadata": meta}
        return {**head, "columnDefinitions": tables.columns(kind) if definitions else None, "rows": rows}

    def _embedded(self, obj: Object) -> Object | None:
        if self._embed == "None":
            return None
        return self._viewed(obj) if self._embed == "Object" else metadata_only(obj)
