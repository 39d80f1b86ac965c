"""`manage.py up`: the whole console on this machine, with an embedded cluster, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gpupools.errors import ConsoleError
from gpupools.management.supervisor import Supervisor

ROLES = {"admin": "administrator", "operator": "operator"}


class Command(BaseCommand):
    """Start everything, say where it is, keep it running, stop it cleanly."""

    help = "Run the whole console on this machine, with an embedded cluster, until Ctrl-C."
    # The children check for themselves; a data folder that is about to be made must not be complained about.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--port", type=_port, default=settings.GPUPOOLS_PORT, help="port of the web server")
        parser.add_argument("--host", default=settings.GPUPOOLS_HOST, help="address that it listens on")
        parser.add_argument("--data-dir", type=Path, default=settings.GPUPOOLS_DATA_DIR, help="folder for all data")
        parser.add_argument("--fleet", default="demo", help="fleet of the embedded cluster")
        parser.add_argument("--speed", type=float, default=1.0, help="how much faster the embedded cluster's clock is")
        parser.add_argument("--no-simulator", action="store_true", help="run without the embedded cluster")
        parser.add_argument("--quiet", action="store_true", help="say only failures and first passwords")

    def handle(self, **options: object) -> None:
        """Run until a signal or a failure."""
        quiet = bool(options["quiet"])
        supervisor = Supervisor(
            options["data_dir"],
            options["port"],
            host=options["host"],
            fleet=options["fleet"],
            speed=options["speed"],
            simulator=not options["no_simulator"],
            say=(lambda line: None) if quiet else self._say,
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: supervisor.ask_to_stop())
        if not quiet:
            self._say(f"GPU Pools Console {settings.GPUPOOLS_VERSION}, data in {supervisor.data_dir}")
        try:
            supervisor.start()
        except ConsoleError as error:
            raise CommandError(error.message) from error
        self._show_accounts(supervisor)
        if not quiet and not supervisor.stopping:
            self._say(f"\n  Open {supervisor.url}/   (Ctrl-C stops everything; logs: {supervisor.data_dir}/logs)\n")
        supervisor.wait()
        if supervisor.failure is not None:
            raise CommandError(supervisor.failure.message)

    def _show_accounts(self, supervisor: Supervisor) -> None:
        if not supervisor.accounts:
            return
        self._say("\n  First run: these accounts were made. Their passwords are shown only now.")
        for name, password in supervisor.accounts:
            self._say(f"    {ROLES.get(name, 'account'):<14} {name:<10} {password}")

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        # Also when the output is a pipe: whoever reads it waits for these lines.
        sys.stdout.flush()


def _port(text: str) -> int:
    """Read a port number; 0 takes a free one."""
    number = int(text)
    if not 0 <= number <= 65535:
        raise ValueError(text)
    return number
