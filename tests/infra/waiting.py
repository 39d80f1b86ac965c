"""Waiting for conditions of real processes, for the tests of the supervisor."""

import time
from collections.abc import Callable
from pathlib import Path

LOOK_SECONDS = 0.02


def until(condition: Callable[[], object], seconds: float = 30) -> bool:
    """Wait for a condition; the clock only bounds the failure."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(LOOK_SECONDS)
    return False


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
