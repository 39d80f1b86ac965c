"""`manage.py bench`: how long the rules take on a fleet of the openb shape. Prints one JSON object, then a table."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gpupools.management import benchfleet, benching
from gpupools.management.benching import Measure


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1_000_000:
        raise ArgumentTypeError("must be from 1 to 1000000")
    return number


class Command(BaseCommand):
    """Measure and print."""

    help = (
        "Measure folding, events, previews and decisions in CPU time, on 1,213 nodes and the pods of the openb trace."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--csv", type=Path, help="folder with the trace's own two files, instead of the compact form"
        )
        parser.add_argument("--pods", type=_count, default=10_000, help="pods of the fleet (default 10000)")
        parser.add_argument("--repeat", type=_count, default=5, help="how often each is done; the best counts")
        parser.add_argument("--no-paths", action="store_true", help="leave out the comparison with the official client")

    def handle(self, **options: Any) -> None:
        """Run every measure once."""
        try:
            folder = options["csv"]
            shapes = benchfleet.of_files(folder, options["pods"]) if folder else benchfleet.compact(options["pods"])
        except (OSError, KeyError, ValueError) as error:
            raise CommandError(f"The trace's files cannot be read: {error}") from error
        made = benching.fleet(shapes)
        measures = benching.run(made, repeat=options["repeat"])
        report: dict[str, object] = {
            "version": settings.GPUPOOLS_VERSION,
            "machine": benching.machine(),
            "fleet": made.figures,
        }
        if not options["no_paths"]:
            ratios, report["raw_list"] = benching.paths(made)
            measures += ratios
        report["measures"] = [measure.as_dict() for measure in measures]
        self.stdout.write(json.dumps(report))
        for measure in measures:
            self.stdout.write(_line(measure))


def _line(measure: Measure) -> str:
    begin = f"{measure.name:<38}{measure.seconds * 1000:>12.3f} ms CPU"
    if not measure.bar_unit:
        return begin
    met = measure.as_dict()
    said = "stretch met" if met["stretch_met"] else "met" if met["bar_met"] else "MISSED"
    bar = f"bar {measure.bar:g}, stretch {measure.stretch:g}"
    return f"{begin}{measure.value:>12,.3f} {measure.bar_unit:<11}{bar:<26}{said}"
