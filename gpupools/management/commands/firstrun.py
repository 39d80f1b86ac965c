"""`manage.py firstrun`: what `manage.py up` asks for between migrating and serving. Prints one JSON object."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from gpupools.errors import ConsoleError
from gpupools.models import Cluster
from gpupools.services import bootstrap


class Command(BaseCommand):
    """Make the first accounts if there are none, and connect the embedded cluster."""

    help = "Make the first accounts, load the built-in templates, connect the embedded cluster (used by `up`)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--embedded", type=Path, help="folder that the embedded cluster has written")

    def handle(self, **options: object) -> None:
        """Print {"accounts": [[name, password], ...], "clusters": number}: each password only this once."""
        folder = options["embedded"]
        kubeconfig, ack = "", {}
        if isinstance(folder, Path):
            kubeconfig = (folder / "kubeconfig").read_text(encoding="utf-8")
            if (folder / "ack.json").is_file():
                ack = json.loads((folder / "ack.json").read_text(encoding="utf-8"))
        try:
            accounts = bootstrap.first_run(kubeconfig=kubeconfig, ack=ack)
        except ConsoleError as error:
            raise CommandError(error.message) from error
        self.stdout.write(json.dumps({"accounts": accounts, "clusters": Cluster.objects.count()}))
