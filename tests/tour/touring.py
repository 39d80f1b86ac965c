"""Runs `manage.py tour` as the process it is, and reads what it says while it says it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SECONDS = 420


class Tour:
    """A running tour. ``lines`` grows with its progress; ``pids`` has the newest process id of each part."""

    def __init__(self, *arguments: str) -> None:
        self.lines: list[str] = []
        self.pids: dict[str, int] = {}
        self._news = threading.Condition()
        environment = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "DATABASE_URL"}}
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "tour", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._out = ""
        self._threads = [threading.Thread(target=each) for each in (self._read_progress, self._read_report)]
        for thread in self._threads:
            thread.start()

    def _read_progress(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._news:
                self.lines.append(line.rstrip())
                if found := re.match(r"\s+(\w+)\s+ready\s+pid (\d+)", line):
                    self.pids[found[1]] = int(found[2])
                self._news.notify_all()
        with self._news:
            self.lines.append("(end)")
            self._news.notify_all()

    def _read_report(self) -> None:
        assert self._process.stdout is not None
        self._out = self._process.stdout.read()

    def wait_line(self, text: str) -> None:
        """Wait until a line of progress holds the text, or the tour ends."""
        with self._news:
            self._news.wait_for(
                lambda: any(text in line or line == "(end)" for line in self.lines), timeout=LONGEST_SECONDS
            )
        assert any(text in line for line in self.lines), self.lines[-15:]

    def kill(self, name: str) -> int:
        """End one part without warning; return the process id that it had."""
        pid = self.pids[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def finish(self) -> tuple[int, dict[str, Any], str]:
        """Wait for the end; return exit code, report and the text below it."""
        try:
            code = self._process.wait(timeout=LONGEST_SECONDS)
        finally:
            self.stop()
        report, end = json.JSONDecoder().raw_decode(self._out)
        return code, report, self._out[end:]

    def stop(self) -> None:
        """End the tour if it still runs, and read what is left."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=60)
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


def troubles(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps that are not ok."""
    return [step for step in report["steps"] if step["status"] != "ok"]
