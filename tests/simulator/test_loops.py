"""The engine under every controller: keys come back when they are due, under either event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest
import uvloop

from gpupools.simulator.clock import Clock
from gpupools.simulator.journal import Event
from gpupools.simulator.loops import Loop
from gpupools.simulator.store import Store


class Counting:
    """Notes which keys it was asked to put right; wants to see none again."""

    name = "counting"
    kinds = ("ConfigMap",)

    def __init__(self, wanted: int, done: asyncio.Event) -> None:
        self.seen: list[str] = []
        self._wanted, self._done = wanted, done

    def keys_of(self, event: Event) -> Iterable[str]:
        return ()

    def all_keys(self) -> Iterable[str]:
        return ()

    def reconcile(self, key: str) -> float | None:
        self.seen.append(key)
        if len(self.seen) == self._wanted:
            self._done.set()
        return None


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_key_that_is_due_at_once_may_be_asked_for_again_sooner_or_later(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def body() -> list[str]:
        done = asyncio.Event()
        reconciler = Counting(2, done)
        loop = Loop(reconciler, Store(), Clock(10))
        running = asyncio.create_task(loop.run())
        loop.add_later("a", 0.0)
        loop.add_later("a", 0.0)
        loop.add_later("a", 5.0)
        loop.add_later("b", 5.0)
        loop.add_later("b", 0.1)
        await asyncio.wait_for(done.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return reconciler.seen

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(body()) == ["a", "b"]
