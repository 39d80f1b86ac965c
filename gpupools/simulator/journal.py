"""The log of changes per kind, from which watches are served: numbered, bounded, compactable, read by cursor.

A reader keeps only the version it has seen, so a thousand readers cost no copies; one that falls behind the
log's end is told so (410), like a watch of a real API server. It knows nothing of HTTP or of object rules.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import islice

import msgspec

from gpupools.simulator.errors import expired
from gpupools.simulator.kinds import Kind, Object

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

_encode = msgspec.json.Encoder().encode
# So many of the newest events keep their JSON; watchers further behind have it made anew.
_ENCODED_EVENTS = 512


class Stored:
    """One version of one object, with its JSON made at most once.

    ``object`` is shared between everybody: it must never be changed in place.
    """

    __slots__ = ("_body", "kind", "object", "superseded")

    def __init__(self, kind: Kind, obj: Object) -> None:
        # There is a newer version, or none any more: only late watchers still ask for this one.
        self.superseded = False
        self.kind = kind
        self.object = obj
        self._body: bytes | None = None

    @property
    def item(self) -> bytes:
        """The JSON as an item of a typed list: without kind and apiVersion."""
        if self._body is None:
            bare = {key: value for key, value in self.object.items() if key not in ("kind", "apiVersion")}
            self._body = _encode(bare)
        return self._body

    def forget_json(self) -> None:
        """Give the JSON's memory back when hardly anybody will ask for it again."""
        if self.superseded:
            self._body = None

    @property
    def body(self) -> bytes:
        """The JSON as an answer of its own, with kind and apiVersion."""
        head = f'{{"kind":"{self.kind.kind}","apiVersion":"{self.kind.api_version}",'.encode()
        return head + self.item[1:]


class Event:
    """One change: ``type`` ADDED, MODIFIED or DELETED, the new version, the previous one (None: ADDED)."""

    __slots__ = ("previous", "stored", "type", "version")

    def __init__(self, version: int, type_: str, stored: Stored, previous: Stored | None) -> None:
        self.version = version
        self.type = type_
        self.stored = stored
        self.previous = previous

    @property
    def kind(self) -> str:
        """The kind's name, ``Pod``."""
        return self.stored.kind.kind

    @property
    def object(self) -> Object:
        """The new version of the object; shared, read only."""
        return self.stored.object

    @property
    def line(self) -> bytes:
        """The event as a watch sends it; the object in it is encoded once for all watchers."""
        return watch_line(self.type, self.stored.body)


def watch_line(type_: str, body: bytes) -> bytes:
    """Return one line of a watch stream."""
    return b'{"type":"' + type_.encode() + b'","object":' + body + b"}\n"


class Journal:
    """The last events of one kind. ``compacted`` is the newest version that is no longer in the log."""

    def __init__(self, *, size: int, compacted: int) -> None:
        self.size = size
        self.compacted = compacted
        self.last = compacted
        self._events: deque[Event] = deque()
        self._waiting: set[asyncio.Future[None]] = set()

    def append(self, event: Event) -> None:
        """Add the newest event and wake everybody who waits for one."""
        self._events.append(event)
        self.last = event.version
        if event.previous is not None:
            event.previous.superseded = True
            event.stored.superseded = event.type == DELETED
        if len(self._events) > _ENCODED_EVENTS:
            self._events[-_ENCODED_EVENTS].stored.forget_json()
        if len(self._events) > self.size:
            self.compacted = self._events.popleft().version
        self._wake()

    def compact(self, version: int) -> None:
        """Forget everything up to and including ``version``; readers that are behind get 410 at once."""
        while self._events and self._events[0].version <= version:
            self._events.popleft()
        self.compacted = max(self.compacted, version)
        self._wake()

    def since(self, version: int) -> list[Event]:
        """Return the events after ``version``, oldest first. Raises 410 when some of them are gone."""
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        if version >= self.last:
            return []
        # Readers are nearly always close to the end, so count from there.
        newer = 0
        for event in reversed(self._events):
            if event.version <= version:
                break
            newer += 1
        return list(islice(self._events, len(self._events) - newer, None))

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def add_waiter(self, future: asyncio.Future[None]) -> None:
        """Have ``future`` resolved at the next event or compaction."""
        self._waiting.add(future)

    def drop_waiter(self, future: asyncio.Future[None]) -> None:
        """Stop waiting; harmless when the future was woken already."""
        self._waiting.discard(future)


class Feed:
    """A cursor over the journals of some kinds: ``async for event in feed``, or ``await feed.batch()``."""

    def __init__(self, journals: Iterable[Journal], version: int) -> None:
        self._journals = tuple(journals)
        self.version = version

    def ready(self) -> list[Event]:
        """Return what happened since the last call, oldest first, at once. Raises 410 when too far behind."""
        events = [event for journal in self._journals for event in journal.since(self.version)]
        if len(self._journals) > 1:
            events.sort(key=lambda event: event.version)
        if events:
            self.version = events[-1].version
        return events

    async def batch(self, timeout_seconds: float | None = None) -> list[Event]:
        """Wait until something happened and return all of it; an empty list when the time ran out first."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while True:
            events = self.ready()
            if events:
                return events
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return []
            future: asyncio.Future[None] = loop.create_future()
            for journal in self._journals:
                journal.add_waiter(future)
            try:
                await asyncio.wait((future,), timeout=left)
            finally:
                for journal in self._journals:
                    journal.drop_waiter(future)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            for event in await self.batch():
                yield event
