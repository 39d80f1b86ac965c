"""Runs the tests in the invocations that they need, and ends with one line that counts them all.

The browser's tests are an invocation of their own: their driver keeps an event loop running in the main thread.
With GPUPOOLS_TEST_POSTGRES_URL, what writes rows is tested on PostgreSQL too. Exits non-zero if anything failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
ON_POSTGRESQL = ("tests/services", "tests/api", "tests/models")


def invocations() -> list[tuple[str, list[str], dict[str, str]]]:
    """Return title, pytest arguments and extra environment of each run."""
    runs: list[tuple[str, list[str], dict[str, str]]] = [("all but the browser", ["tests"], {})]
    folders = [name for name in ON_POSTGRESQL if (ROOT / name).is_dir()]
    if os.environ.get("GPUPOOLS_TEST_POSTGRES_URL") and folders:
        # The API document states the bounds of SQLite's numbers, whichever database serves it.
        arguments = [*folders, "--ignore=tests/api/test_schema.py"]
        runs.append(("rows on PostgreSQL", arguments, {"GPUPOOLS_TEST_DATABASE": "postgresql"}))
    runs.append(("in the browser", ["tests/e2e"], {}))
    return runs


def counts(report: Path) -> Counter[str]:
    """Read how many tests did what from pytest's JUnit report; nothing when there is none."""
    found: Counter[str] = Counter()
    if not report.exists():
        return found
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314  # pytest's own file
        number = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
        found["failed"] += number["failures"] + number["errors"]
        found["skipped"] += number["skipped"]
        found["passed"] += number["tests"] - number["failures"] - number["errors"] - number["skipped"]
    return found


def main() -> int:
    """Run everything, whatever fails, and say it in one line."""
    total: Counter[str] = Counter()
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, arguments, extra) in enumerate(invocations()):
            print(f"\n== Tests: {title}", flush=True)  # noqa: T201  # a script of the build
            report = Path(folder, f"{number}.xml")
            command = [sys.executable, "-m", "pytest", *arguments, "--quiet", f"--junit-xml={report}", *sys.argv[1:]]
            code = subprocess.run(command, cwd=ROOT, env={**os.environ, **extra}, check=False).returncode  # noqa: S603  # our own command
            status = status or code
            total += counts(report)
    line = f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped"
    print(f"\n{line}", flush=True)  # noqa: T201  # a script of the build
    return status


if __name__ == "__main__":
    sys.exit(main())
