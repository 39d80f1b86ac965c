"""One thread that follows one kind of objects: list in pages, watch, and list again when the watch is lost.

It hands lists and events to its sink and keeps no object itself. Nothing here knows what the objects mean.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec
import urllib3

from gpupools.clusters.channel import Channel, cut, unreachable
from gpupools.clusters.listing import Listing, list_all
from gpupools.clusters.translate import Event, Kind, event
from gpupools.errors import ConsoleError, Refused, Unreachable

LONGEST_LINE = 16 * 1024 * 1024  # bytes of one event
_BLOCK = 64 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often and how long, in seconds.

    ``silence``: bookmarks come about once a minute, so a longer silence is a half-open connection. ``settled``: a
    watch that lived so long was no failure. ``ring``: the shortest time between two rings of a reflector.
    """

    watch: tuple[int, int] = (240, 300)
    silence: float = 90.0
    settled: float = 5.0
    first_delay: float = 0.25
    longest_delay: float = 30.0
    ring: float = 0.1


@dataclass(slots=True)
class Counts:
    """What happened since the start, for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    failures: int = 0
    skipped: int = 0


class Sink(Protocol):
    """Who takes what a feed finds. Called from the feed's thread."""

    def listed(self, kind: Kind, listing: Listing) -> None: ...
    def told(self, kind: Kind, events: Sequence[Event]) -> None: ...
    def stirred(self) -> None:
        """The feed's own state changed: ``settled``, ``open`` or ``error``."""


class _Gone(Exception):
    """The version that we watched from is no longer known to the server: 410, as an answer or as an event."""


class Feed:
    """The thread of one kind. Its public attributes are written by it alone.

    ``settled``: was listed, or may not be read and is not ``required``. ``open``: a watch runs. ``error``: why not,
    as a sentence. ``last_seen``: when the server last said anything.
    """

    def __init__(
        self, kind: Kind, channel: Channel, sink: Sink, *, pace: Pace, required: bool, stopping: threading.Event
    ) -> None:
        self.kind = kind
        self.required = required
        self.settled = False
        self.open = False
        self.error = ""
        self.last_seen: datetime | None = None
        self.counts = Counts()
        self._channel = channel
        self._sink = sink
        self._pace = pace
        self._stopping = stopping
        self._version = ""  # to watch from; empty: list first
        self._heard = False  # whether this watch told anything
        self._opened: float | None = None  # when this watch was opened, monotonic
        self._failures = 0  # bad watches in a row
        self._response: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._run, name=f"feed-{kind.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def interrupt(self) -> None:
        """Wake the thread out of a read; it ends once ``stopping`` is set."""
        response = self._response
        if response is None:
            return
        try:
            response.shutdown()  # closing would not wake the other thread
        except (ValueError, OSError, RuntimeError):
            return  # it was closed a moment ago

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end of the thread."""
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._heard, self._opened = False, None
            failed = True
            try:
                self._round()
                failed = False
            except ConsoleError as error:
                self._fail(error)
            # Without this a fault of ours would end the thread and leave a copy that looks alive and is not.
            except Exception:  # noqa: BLE001  # the loop guard of this thread
                _log.exception("the feed of %s failed", self.kind.name)
                self._version = ""
                self._fail(Unreachable("The console could not make sense of the cluster's answer."))
            self._rest(failed)

    def _round(self) -> None:
        """List if no version is known, then watch until the watch ends."""
        try:
            if not self._version:
                self._list()
            self._watch()
        except _Gone:
            self._version = ""
        except Refused as error:
            if error.data.get("status") != 410:
                raise
            self._version = ""

    def _rest(self, failed: bool) -> None:
        """Wait before the next round: not at all after a good watch, longer after each bad one in a row.

        A watch that ends at once without a word is a bad one, even where the server calls it a success.
        """
        lasted = time.monotonic() - self._opened if self._opened is not None else 0.0
        if self._heard or lasted >= self._pace.settled:
            self._failures = 1 if failed or lasted < 1.0 else 0
        else:
            self._failures += 1
        self.counts.failures += failed
        if self._failures:
            delay = self._pace.first_delay * 2 ** min(self._failures - 1, 16)
            jitter = random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, keeps no secret
            self._stopping.wait(min(self._pace.longest_delay, delay) * jitter)

    def _list(self) -> None:
        listing = list_all(self._channel, self.kind)
        self.counts.lists += 1
        self.counts.skipped += len(listing.unreadable)
        self.last_seen = datetime.now(UTC)
        self._sink.listed(self.kind, listing)
        self._version = listing.version
        if not self.settled:
            self.settled = True
            self._sink.stirred()

    def _watch(self) -> None:
        seconds = random.randint(*self._pace.watch)  # noqa: S311  # spreads load, keeps no secret
        silence = min(self._pace.silence, seconds + 30)
        query = (
            *self.kind.query,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(seconds)),
        )
        response = self._channel.stream(self.kind.path, query=query, silence_seconds=silence)
        self._response = response
        try:
            if self._stopping.is_set():
                return
            self._opened = time.monotonic()
            self._is_open()
            for lines in _lines(response):
                self._take(lines)
        except urllib3.exceptions.ReadTimeoutError:
            # Half-open, or a server without bookmarks. Watching on from the same version tells which.
            _log.info("the watch of %s was silent for %g s", self.kind.name, silence)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if not self._stopping.is_set():
                raise unreachable(error, silence) from None
        except ValueError:
            if not self._stopping.is_set():  # else it is a TLS socket that ``interrupt`` has shut
                raise
        finally:
            self._response = None
            self.open = False
            response.close()

    def _is_open(self) -> None:
        had_error, self.error = bool(self.error), ""
        self.last_seen = datetime.now(UTC)
        self.open = True
        self.counts.watches += 1
        if had_error:
            self._sink.stirred()

    def _take(self, lines: Sequence[bytes]) -> None:
        """Hand on the events of some lines, up to the one that ends the watch if there is one."""
        events: list[Event] = []
        end: Exception | None = None
        for line in lines:
            try:
                one = event(self.kind, line)
            except msgspec.DecodeError:
                # What was lost with the line only a new list can tell.
                _log.warning("a watch of %s sent a line that is no event", self.kind.name)
                end = _Gone()
                break
            if one.type == "ERROR":
                said = cut(one.message) or str(one.code)
                end = _Gone() if one.code == 410 else Unreachable(f"The cluster ended a watch: {said}.")
                break
            self._count(one)
            events.append(one)
        self.last_seen = datetime.now(UTC)
        if events:
            self._heard = True
            self._sink.told(self.kind, events)
            self._version = next((e.version for e in reversed(events) if e.version), self._version)
        if end is not None:
            raise end

    def _count(self, one: Event) -> None:
        if one.type == "BOOKMARK":
            self.counts.bookmarks += 1
            return
        self.counts.events += 1
        if one.seen is None and one.type != "DELETED":
            self.counts.skipped += 1

    def _fail(self, error: ConsoleError) -> None:
        message = f"{self.kind.name}: {error.message}"
        changed, self.error = message != self.error, message
        if isinstance(error, Refused) and not self.required:
            changed, self.settled = changed or not self.settled, True
        if changed:
            _log.warning("%s", message)
            self._sink.stirred()


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[list[bytes]]:
    """Yield complete lines as they come, all those of one read together."""
    rest = b""
    while block := response.read1(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise Unreachable("The cluster sent an event that is too large.")
        complete = [line for line in lines if line.strip()]
        if complete:
            yield complete
