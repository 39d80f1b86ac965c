"""Faults on command, for tests: begun through the control endpoint, ended when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpupools.management.embedded.faulthttp import FaultHttp
from tests.simulator.harness import SimulatorProcess


class Breaker:
    """The control endpoint of one simulator."""

    def __init__(self, simulator: SimulatorProcess) -> None:
        self.http = FaultHttp(simulator.directory)

    def begin(self, kind: str, **fields: Any) -> str:
        """Begin a fault and return its id."""
        return str(self.http.call("POST", "/faults", {"kind": kind, **fields})["id"])

    def end(self, id_: str) -> None:
        """End one fault."""
        self.http.call("DELETE", f"/faults/{id_}")

    def hits(self, id_: str) -> int:
        """Return how often a fault that is on hit."""
        return next(active["hits"] for active in self.http.call("GET", "/faults")["faults"] if active["id"] == id_)


@contextmanager
def breaking(simulator: SimulatorProcess) -> Iterator[Breaker]:
    """Give a breaker; every fault ends with it."""
    breaker = Breaker(simulator)
    try:
        yield breaker
    finally:
        breaker.http.call("DELETE", "/faults")
        breaker.http.close()
