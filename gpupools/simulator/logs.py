"""What containers print: the kubelet writes lines here, the log endpoint reads and follows them.

Bounded per container; knows nothing of pods beyond a uid and a container's name.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

LINES_KEPT = 2000

Line = tuple[datetime, str]


@dataclass(slots=True)
class ContainerLog:
    """The lines of one run of a container. ``closed``: the run is over, nothing follows."""

    lines: deque[Line] = field(default_factory=lambda: deque(maxlen=LINES_KEPT))
    closed: bool = False
    # Number of lines ever written; a follower counts with it, since old lines fall out at the front.
    written: int = 0
    waiting: set[asyncio.Future[None]] = field(default_factory=set)

    def wake(self) -> None:
        """Tell followers that there is something new."""
        waiting, self.waiting = self.waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)


class LogBook:
    """Logs by (pod uid, container name), each with the current run and the one before it."""

    def __init__(self) -> None:
        self._current: dict[tuple[str, str], ContainerLog] = {}
        self._previous: dict[tuple[str, str], ContainerLog] = {}

    def start(self, uid: str, container: str) -> None:
        """Begin a run of a container; what the run before printed stays readable as the previous log."""
        key = (uid, container)
        before = self._current.pop(key, None)
        if before is not None:
            before.closed = True
            before.wake()
            self._previous[key] = before
        self._current[key] = ContainerLog()

    def write(self, uid: str, container: str, text: str, at: datetime) -> None:
        """Append text (one or several lines) printed at ``at``; starts the first run when none was."""
        log = self._current.setdefault((uid, container), ContainerLog())
        for line in text.splitlines():
            log.lines.append((at, line))
            log.written += 1
        log.wake()

    def end(self, uid: str, container: str) -> None:
        """Say that the current run is over: followers finish after the last line."""
        log = self._current.setdefault((uid, container), ContainerLog())
        log.closed = True
        log.wake()

    def forget(self, uid: str) -> None:
        """Drop everything of a pod that is gone; followers finish."""
        for logs in (self._current, self._previous):
            for key in [key for key in logs if key[0] == uid]:
                log = logs.pop(key)
                log.closed = True
                log.wake()

    def has(self, uid: str, container: str, *, previous: bool = False) -> bool:
        """Return whether there was such a run."""
        return (uid, container) in (self._previous if previous else self._current)

    def lines(self, uid: str, container: str, *, previous: bool = False) -> list[Line]:
        """Return what is kept of a run: (time, line), oldest first; empty when nothing was printed."""
        log = (self._previous if previous else self._current).get((uid, container))
        return list(log.lines) if log else []

    async def follow(self, uid: str, container: str) -> AsyncIterator[list[Line]]:
        """Yield what is there, then what is printed, in batches, until the run ends."""
        log = self._current.setdefault((uid, container), ContainerLog())
        seen = 0
        while True:
            fresh = min(log.written - seen, len(log.lines))
            if fresh:
                seen = log.written
                yield list(log.lines)[-fresh:]
                continue
            if log.closed:
                return
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            log.waiting.add(future)
            try:
                await future
            finally:
                log.waiting.discard(future)

    def dump(self) -> list[dict[str, Any]]:
        """Return the current runs as JSON values, for the state file."""
        return [
            {
                "uid": uid,
                "container": container,
                "closed": log.closed,
                "lines": [[at.isoformat(), line] for at, line in log.lines],
            }
            for (uid, container), log in self._current.items()
        ]

    def load(self, dumped: list[dict[str, Any]]) -> None:
        """Take back what ``dump`` gave."""
        for entry in dumped:
            log = ContainerLog(closed=entry["closed"])
            for at, line in entry["lines"]:
                log.lines.append((datetime.fromisoformat(at).astimezone(UTC), line))
            log.written = len(log.lines)
            self._current[(entry["uid"], entry["container"])] = log
