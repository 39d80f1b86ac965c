"""One child process: its command, its log, whether it is ready, how it is stopped. Knows no other child."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launch.py")
MAX_LOG_BYTES = 10 * 1024 * 1024
TAIL_LINES = 15

Ready = Callable[["Child"], bool]


def guarded(command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command and ends it when this process ends, however it does."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *command]


@dataclass
class Child:
    """A command that must keep running while the console does.

    `ready` asks the running process, not the clock. `before` puts the ground in order for each start.
    `is_server` marks what the other children use: it is stopped after them.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    ready: Ready
    start_seconds: float = 60
    stop_seconds: float = 10
    note: str = ""
    is_server: bool = False
    before: Callable[[], None] = lambda: None
    started_at: float = 0.0
    is_ready: bool = False
    was_ready: bool = False
    failed_starts: int = 0
    quick_deaths: int = 0
    again_at: float | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """The process id, or None when it does not run."""
        return self._process.pid if self._process is not None and self.exit_code is None else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last run, negative for a signal; None while it runs or before that."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start the command in a session of its own, so that Ctrl-C reaches only the supervisor."""
        self.before()
        self.keep_log_small()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # the command is the supervisor's own
                guarded(self.command),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started_at = time.monotonic()
        self.is_ready = False
        self.again_at = None

    def ask_to_stop(self) -> None:
        """Ask the process to end; it may take its time."""
        if self.pid is not None and self._process is not None:
            self._process.terminate()

    def wait_stopped(self) -> None:
        """Wait for its end, and kill it with all it started when it takes longer than it may."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout=self.stop_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def keep_log_small(self) -> None:
        """Move a log that has grown too large aside, also while the process writes to it (it appends)."""
        if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
            shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
            os.truncate(self.log, 0)

    def tail(self) -> str:
        """Return the last lines of the log, to be shown with a failure."""
        return tail(self.log)


def tail(log: Path) -> str:
    """Return the last lines of a log file, or a word that there are none."""
    if not log.exists():
        return "(no log)"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16 * 1024))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:]) or "(the log is empty)"
