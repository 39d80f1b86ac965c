"""Runs the kubectl binary against the server under test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BINARY = next(
    (path for path in (ROOT / ".venv/bin/kubectl", Path(shutil.which("kubectl") or "")) if path.is_file()), None
)
PATIENCE_SECONDS = 90


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl in a namespace, as one identity."""

    kubeconfig: Path
    namespace: str
    home: Path

    def environment(self) -> dict[str, str]:
        """Return kubectl's environment: nothing of the user's own."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        return [str(BINARY), "--namespace", self.namespace, *arguments]

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run it; fails the test on another exit code than the expected one."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env=self.environment(),
        )
        assert done.returncode == code, f"kubectl {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def read(self, *arguments: str) -> Any:
        """Return what ``kubectl get ... -o json`` prints."""
        return json.loads(self("get", *arguments, "-o", "json").stdout)


def table(text: str) -> list[list[str]]:
    """Return the rows of a table, split at two or more blanks."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
