"""Starts the embedded cluster as the real process it is, for tests that talk to it over its sockets."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60


class SimulatorProcess:
    """``with SimulatorProcess(fleet="small") as simulator``: a running ``manage.py runsimulator``.

    Attributes once started: ``directory``, ``kubeconfig`` (path; the admin's), ``server`` (URL), ``ack`` (dict of
    ack.json, empty without the OpenAPI). ``stop()`` ends it with SIGTERM and returns its exit code; ``kill()`` ends
    it without warning; ``start()`` starts it again in the same directory.
    """

    def __init__(
        self,
        *,
        fleet: str = "small",
        directory: Path | None = None,
        ack: bool = False,
        speed: float = 10.0,
        state: bool = False,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="simulator-") if directory is None else None
        self.directory = directory or Path(self._temporary.name if self._temporary else "")
        self.kubeconfig = self.directory / "kubeconfig"
        self.server = ""
        self.ack: dict[str, Any] = {}
        self.log_path = self.directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._arguments = [
            "--fleet", fleet, "--dir", str(self.directory), "--speed", str(speed),
            *(() if ack else ("--no-ack",)),
            *(("--state", str(self.directory / "state.json")) if state else ()),
            *arguments,
        ]  # fmt: skip

    def start(self) -> SimulatorProcess:
        """Start it and wait until it says that it serves."""
        # Its standard output is a pipe that nobody else holds: when it dies early, the pipe says so at once.
        reader, writer = os.pipe()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "runsimulator", *self._arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(writer,),
                env={**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"},
            )
        os.close(writer)
        try:
            self._wait(reader)
        finally:
            os.close(reader)
        ready = json.loads((self.directory / "ready.json").read_text())
        self.server = ready["server"]
        ack_file = self.directory / "ack.json"
        self.ack = json.loads(ack_file.read_text()) if ack_file.exists() else {}
        return self

    def _wait(self, reader: int) -> None:
        process, ready = self._running(), self.directory / "ready.json"
        for _ in range(START_SECONDS * 20):
            if ready.exists() and json.loads(ready.read_text())["pid"] == process.pid:
                return
            # Ends early when the process does, since that closes the pipe.
            if select.select([reader], [], [], 0.05)[0]:
                break
        self.kill()
        raise RuntimeError(f"the simulator did not start:\n{self.log_path.read_text()[-4000:]}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the simulator is not started")
        return self._process

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._running().send_signal(number)

    def wait(self, timeout_seconds: float = 15.0) -> int:
        """Wait for the end and return the exit code."""
        return self._running().wait(timeout_seconds)

    def stop(self, timeout_seconds: float = 15.0) -> int:
        """End it as an operator does, and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_seconds)

    def kill(self) -> None:
        """End it without warning, as a crash does."""
        process = self._running()
        if process.poll() is None:
            process.kill()
        process.wait()

    def kubeconfig_of(self, role: str) -> Path:
        """Return the kubeconfig of ``admin``, ``operator`` or ``viewer``."""
        return self.kubeconfig if role == "admin" else self.directory / f"kubeconfig-{role}"

    def __enter__(self) -> SimulatorProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        died = self._process is not None and self._process.poll() not in (None, 0, -signal.SIGKILL)
        log = self.log_path.read_text()[-4000:] if died else ""
        if self._process is not None:
            self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()
        if died:
            raise RuntimeError(f"the simulator died meanwhile:\n{log}")
