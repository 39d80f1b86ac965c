"""Time of the embedded cluster: delays are divided by the speed, timestamps are always the wall clock's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime


class Clock:
    """The one source of time of the embedded cluster. ``speed`` 10 makes a delay of 5 s last half a second."""

    def __init__(self, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be above zero, not {speed}")
        self.speed = speed

    def now(self) -> datetime:
        """Return the wall clock's time, aware, in UTC."""
        return datetime.now(UTC)

    def stamp(self) -> str:
        """Return now as the API server writes it, to the second: ``2026-01-02T03:04:05Z``."""
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def micro_stamp(self) -> str:
        """Return now as Kubernetes' MicroTime: ``2026-01-02T03:04:05.000006Z``."""
        return self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def nanoseconds(self) -> int:
        """Return nanoseconds since the epoch, as the scheduler's annotations count."""
        return time.time_ns()

    def later(self, delay_seconds: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Call back after a simulated delay."""
        return asyncio.get_running_loop().call_later(max(0.0, delay_seconds) / self.speed, callback)

    def simulated_seconds_since(self, stamp: str) -> float:
        """Return how much simulated time has passed since a timestamp written by ``stamp``."""
        return max(0.0, (self.now() - parse_stamp(stamp)).total_seconds()) * self.speed


def parse_stamp(stamp: str) -> datetime:
    """Read a timestamp of the API, with or without fractions of a second."""
    return datetime.fromisoformat(stamp.replace("Z", "+00:00"))
