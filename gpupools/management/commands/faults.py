"""``manage.py faults``: break the embedded cluster on purpose, and mend it again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gpupools.management.embedded.faulthttp import FaultHttp, FaultRefusal


def field(text: str) -> tuple[str, Any]:
    """Read ``name=value``: a value is JSON where it can be, else text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


class Command(BaseCommand):
    """Talks to the control endpoint of a running embedded cluster."""

    help = "Begin, list and end faults of a running embedded cluster (faults kinds lists what can go wrong)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        default = settings.GPUPOOLS_DATA_DIR / "cluster"
        parser.add_argument("--dir", type=Path, default=default, help=f"the cluster's directory (default {default})")
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("kinds", help="list what can go wrong")
        actions.add_parser("list", help="list what is wrong now")
        begin = actions.add_parser("begin", help="begin a fault: begin node-down node=cn-hangzhou.192.0.2.4")
        begin.add_argument("kind")
        begin.add_argument("fields", nargs="*", type=field, metavar="name=value")
        end = actions.add_parser("end", help="end a fault by its id, or all")
        end.add_argument("id", help="the fault's id, or all")

    def handle(self, **options: object) -> None:
        """Do one thing."""
        given = argparse.Namespace(**options)
        try:
            api = FaultHttp(given.dir)
            try:
                self._do(api, given)
            finally:
                api.close()
        except FaultRefusal as error:
            raise CommandError(str(error)) from error

    def _do(self, api: FaultHttp, given: argparse.Namespace) -> None:
        if given.action == "kinds":
            for kind in api.call("GET", "/kinds")["kinds"]:
                self.stdout.write(f"{kind['kind']:<16} {' '.join(kind['what'].split())}")
                self.stdout.write(f"{'':<16} {', '.join(f'{name}={value}' for name, value in kind['fields'].items())}")
        elif given.action == "begin":
            begun = api.call("POST", "/faults", {"kind": given.kind, **dict(given.fields)})
            self.stdout.write(f"{begun['id']} {given.kind}")
        else:
            if given.action == "end":
                api.call("DELETE", "/faults" if given.id == "all" else f"/faults/{given.id}")
            for active in api.call("GET", "/faults")["faults"]:
                fault = {name: value for name, value in active["fault"].items() if name != "kind"}
                self.stdout.write(f"{active['id']} {active['fault']['kind']} hits={active['hits']} {fault}")
