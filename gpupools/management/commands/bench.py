"""`manage.py bench`: how long the rules take on a fleet of a given size. Prints one JSON object, then a table."""

from __future__ import annotations

import json
import platform
import resource
import sys
from argparse import ArgumentParser, ArgumentTypeError

from django.conf import settings
from django.core.management.base import BaseCommand

from gpupools.management import benching


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1_000_000:
        raise ArgumentTypeError("must be from 1 to 1000000")
    return number


class Command(BaseCommand):
    """Measure and print."""

    help = "Measure reading, folding, previewing and keeping on a made-up fleet."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--nodes", type=_count, default=1000, help="GPU nodes of eight cards (default 1000)")
        parser.add_argument("--pods", type=_count, default=10_000, help="pods that hold cards (default 10000)")
        parser.add_argument("--repeat", type=_count, default=3, help="how often each is done; the best counts")

    def handle(self, **options: int) -> None:
        """Run every measure once."""
        found = benching.run(nodes=options["nodes"], pods=options["pods"], repeat=options["repeat"])
        # Kilobytes on Linux, bytes on macOS.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = {
            "version": settings.GPUPOOLS_VERSION,
            "python": platform.python_version(),
            "nodes": options["nodes"],
            "pods": options["pods"],
            "peak_memory_mib": round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024)),
            "measures": [measure.as_dict() for measure in found],
        }
        self.stdout.write(json.dumps(report))
        for measure in found:
            per_second = f"{measure.units / measure.seconds:>14,.0f} {measure.unit}/s"
            self.stdout.write(f"{measure.name:<24}{measure.seconds * 1000:>12.3f} ms{per_second}")
