"""``manage.py benchcluster``: how fast the embedded cluster is under the openb fleet. One JSON object, then a table."""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gpupools.management.embedded import clusterbench, openbload


class Command(BaseCommand):
    """Measure and print."""

    help = "Measure the embedded cluster with 1,523 nodes and about 8,000 pods (Linux)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--pods", type=int, default=openbload.TOTAL, help="pods in all (default: the trace's)")
        parser.add_argument("--speed", type=float, default=10.0, help="of the cluster's clock (default 10)")

    def handle(self, **options: Any) -> None:
        """Run every measure once."""
        if not Path("/proc/self/stat").exists():
            raise CommandError("CPU seconds of another process can be read on Linux only.")
        if options["pods"] < 2000:
            raise CommandError("--pods must be at least 2000: so many are measured to Running.")
        with tempfile.TemporaryDirectory(prefix="benchcluster-") as directory:
            found = clusterbench.run(
                Path(directory), pods=options["pods"], speed=options["speed"], say=self.stderr.write
            )
        self.stdout.write(json.dumps({"pods": options["pods"], "measures": [result.as_dict() for result in found]}))
        for result in found:
            bar = f"bar {'at most' if result.at_most else 'at least'} {result.bar:g}"
            met = "met" if result.met else "MISSED"
            self.stdout.write(
                f"{result.name:<46}{result.value:>10,.2f} {result.unit:<11}{bar:<20}{met:<8}"
                f"{result.wall_seconds:>8.2f} s wall {result.cpu_seconds:>8.2f} s CPU{_pace(result.per_wall_second)}"
            )


def _pace(per_second: float | None) -> str:
    return f" {per_second:>8,.0f}/s by the clock" if per_second else ""
