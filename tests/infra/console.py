"""A console on a temporary folder by `manage.py up`, for tests that need the real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.infra.waiting import until

ROOT = Path(__file__).resolve().parents[2]
# Starting everything on a busy machine; only bounds a failure.
START_SECONDS = 180


class Up:
    """One `manage.py up` on a data folder, and what it has printed."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        ours = re.compile("GPUPOOLS_|DATABASE_URL|REDIS_URL|PORT$|DJANGO_")
        environment = {name: value for name, value in os.environ.items() if not ours.match(name)}
        self.output = data_dir.with_name(f"{data_dir.name}-{os.urandom(4).hex()}.out")
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "up", "--data-dir", str(data_dir), *options],
                env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT,
            )  # fmt: skip

    @property
    def text(self) -> str:
        return self.output.read_text()

    @property
    def url(self) -> str:
        return re.search(r"Open (http://\S+)/", self.text)[1]

    def pids(self) -> dict[str, int]:
        """The newest process id that it has told for each part."""
        return {name: int(pid) for name, pid in re.findall(r"^  (\w+) +ready +pid (\d+)", self.text, re.MULTILINE)}

    def wait_open(self) -> Up:
        assert until(lambda: "Open http" in self.text or self.process.poll() is not None, START_SECONDS)
        assert self.process.poll() is None, self.text
        return self

    @property
    def accounts(self) -> dict[str, str]:
        """Names and passwords that the first run has shown."""
        return dict(re.findall(r"^    \w+ +(admin|operator) +(\S+)$", self.text, re.MULTILINE))

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)
