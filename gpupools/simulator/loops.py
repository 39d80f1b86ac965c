"""The engine under every controller of the embedded cluster: events ring, keys queue, state is read and written.

A reconciler says which keys an event concerns and puts one key right at a time. It never learns which event came.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from gpupools.simulator.clock import Clock
from gpupools.simulator.errors import ApiError
from gpupools.simulator.journal import Event
from gpupools.simulator.store import Store

log = logging.getLogger(__name__)

_SLICE_SECONDS = 0.02  # how long one loop may keep the HTTP side waiting
_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 20.0


Key = TypeVar("Key", bound=Hashable)


class Reconciler(Protocol[Key]):
    """One controller. ``reconcile`` returns the simulated seconds after which to look again, or None."""

    @property
    def name(self) -> str:
        """What the log calls it."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds whose events it hears."""

    def keys_of(self, event: Event) -> Iterable[Key]:
        """Name what an event concerns."""

    def all_keys(self) -> Iterable[Key]:
        """Name everything there is: at the start, and after missing events."""

    def reconcile(self, key: Key) -> float | None:
        """Compare the state with the wish and write the difference; twice does no more than once."""


class Loop(Generic[Key]):
    """Runs one reconciler: keys are deduplicated, handled one at a time, and come back with back-off when they fail."""

    def __init__(self, reconciler: Reconciler[Key], store: Store, clock: Clock) -> None:
        self._reconciler = reconciler
        self._store = store
        self._clock = clock
        self._queue: dict[Key, None] = {}
        self._awake = asyncio.Event()
        # With the moment that each is due: handles of very short delays do not know it.
        self._timers: dict[Key, tuple[float, asyncio.Handle]] = {}
        self._failures: dict[Key, int] = {}

    def add(self, key: Key) -> None:
        """Have a key looked at soon."""
        self._queue[key] = None
        self._awake.set()

    def add_later(self, key: Key, delay_seconds: float) -> None:
        """Have a key looked at after a simulated delay, or sooner when that was asked for before."""
        timer = self._timers.get(key)
        due = asyncio.get_running_loop().time() + max(0.0, delay_seconds) / self._clock.speed
        if timer is not None:
            if timer[0] <= due:
                return
            timer[1].cancel()
        self._timers[key] = (due, self._clock.later(delay_seconds, lambda: self._fire(key)))

    def _fire(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(), name=f"{self._reconciler.name}.listen")
                group.create_task(self._work(), name=f"{self._reconciler.name}.work")
        finally:
            for _, timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _listen(self) -> None:
        while True:
            feed = self._store.subscribe(*self._reconciler.kinds)
            for key in self._reconciler.all_keys():
                self.add(key)
            try:
                while True:
                    for event in await feed.batch():
                        for key in self._reconciler.keys_of(event):
                            self.add(key)
            except ApiError as error:
                # Too far behind the event log, as a watch can be: look at everything again.
                log.info("%s starts over: %s", self._reconciler.name, error.message)

    async def _work(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await self._awake.wait()
            started = clock()
            while self._queue and clock() - started < _SLICE_SECONDS:
                key = next(iter(self._queue))
                del self._queue[key]
                self._handle(key)
            if not self._queue:
                self._awake.clear()
            await asyncio.sleep(0)

    def _handle(self, key: Key) -> None:
        try:
            again = self._reconciler.reconcile(key)
        except ApiError as error:
            # The store refused a write, mostly because the object went away in between: read it again.
            log.info("%s: %s: %s", self._reconciler.name, key, error.message)
            self._retry(key)
        except Exception:  # noqa: BLE001  # the one guard: an odd object must not stop the cluster for all others
            log.exception("%s failed on %s", self._reconciler.name, key)
            self._retry(key)
        else:
            self._failures.pop(key, None)
            if again is not None:
                self.add_later(key, again)

    def _retry(self, key: Key) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_later(key, min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2**failures) * self._clock.speed)
