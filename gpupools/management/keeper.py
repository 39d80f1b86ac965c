"""Keeps child processes running: waits until each is ready, starts again what dies, stops all in reverse.

To be used by one thread alone, the same for its whole life: the kernel ends a child with the thread that started it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpupools.errors import ConsoleError
from gpupools.management.process import Child

LOOK_SECONDS = 0.2
MAX_FAILED_STARTS = 3
BACK_OFF_SECONDS = (0.5, 1, 2, 4, 8, 15)
SETTLED_SECONDS = 30


class StartFailed(ConsoleError):
    """The console could not be started or kept running; the sentence says which part and why."""

    default_code = "start-failed"


class Stopped(Exception):
    """Somebody asked to stop while the console was starting."""


class Keeper:
    """The children of one console. `stop` is set by whoever wants it all to end; `say` takes lines for a person."""

    def __init__(self, *, stop: threading.Event, say: Callable[[str], None]) -> None:
        self.children: list[Child] = []
        self._stop = stop
        self._say = say

    def keep(self) -> None:
        """Look after all children until asked to stop. Raises StartFailed when one cannot be kept running."""
        while not self._stop.wait(LOOK_SECONDS):
            for child in self.children:
                child.keep_log_small()
                self._advance(child)

    def spawn(self, child: Child) -> None:
        """Start a child and keep it from now on."""
        if child not in self.children:
            self.children.append(child)
        child.start()

    def wait_ready(self, child: Child) -> None:
        """Return when the child is ready. Raises StartFailed, or Stopped when all is to end meanwhile."""
        while not child.is_ready:
            self._advance(child)
            if self._stop.wait(LOOK_SECONDS):
                raise Stopped

    def _advance(self, child: Child) -> None:
        """Take one look at a child and do the next thing: ask whether it is ready, or start it again."""
        now = time.monotonic()
        if child.exit_code is not None:
            if child.again_at is None:
                self._plan_restart(child, now)
            elif now >= child.again_at:
                self.spawn(child)
        elif not child.is_ready:
            if child.ready(child):
                child.is_ready = child.was_ready = True
                child.failed_starts = 0
                self.tell(child.name, "ready", child.pid, child.note)
            elif now - child.started_at > child.start_seconds:
                raise StartFailed(
                    f"The {child.name} is not ready after {child.start_seconds:.0f} s. "
                    f"The end of {child.log}:\n{child.tail()}"
                )

    def _plan_restart(self, child: Child, now: float) -> None:
        """Set when a dead child starts again, later each time it dies young. Gives up in the end."""
        code = child.exit_code
        if not child.is_ready:
            child.failed_starts += 1
        if child.failed_starts >= MAX_FAILED_STARTS:
            raise StartFailed(
                f"The {child.name} ended {MAX_FAILED_STARTS} times before it was ready, "
                f"last with exit code {code}. The end of {child.log}:\n{child.tail()}"
            )
        if now - child.started_at > SETTLED_SECONDS:
            child.quick_deaths = 0
        pause_seconds = BACK_OFF_SECONDS[min(child.quick_deaths, len(BACK_OFF_SECONDS) - 1)]
        child.quick_deaths += 1
        child.again_at = now + pause_seconds
        self.tell(child.name, "ended", None, f"exit code {code}; starts again in {pause_seconds} s")

    def stop_all(self) -> None:
        """Stop in reverse order of start: first, together, what only uses the others, then the servers."""
        clients = [child for child in reversed(self.children) if not child.is_server]
        for child in clients:
            child.ask_to_stop()
        for child in clients:
            child.wait_stopped()
        for child in reversed(self.children):
            if child.is_server:
                child.ask_to_stop()
                child.wait_stopped()
        if self.children:
            self._say("Stopped.")

    def tell(self, name: str, state: str, pid: int | None, note: str) -> None:
        """Say one line about one part."""
        self._say(f"  {name:<9} {state:<6} {f'pid {pid}' if pid else '':<12} {note}".rstrip())
