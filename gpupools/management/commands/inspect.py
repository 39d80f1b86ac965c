"""Print what the cards of a cluster's shared nodes hold, as ``kubectl inspect cgpu`` lays it out, or as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gpupools.domain import inspect as tables
from gpupools.errors import ConsoleError
from gpupools.models import Cluster
from gpupools.services import allocation
from gpupools.services.rows import timestamp


class Command(BaseCommand):
    """The tables of allocated and total memory units per card, from the current picture."""

    help = "Print allocated and total GPU memory per card, as 'kubectl inspect cgpu' does."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the node, and the cluster where more than one is connected."""
        parser.add_argument("node", nargs="?", default="", help="only this node")
        parser.add_argument("--cluster", default="", help="name of the cluster; needed when there are several")
        parser.add_argument("-d", action="store_true", dest="details", help="also the pods, node by node")
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object instead of tables")
        parser.add_argument(
            "--whole",
            action="store_true",
            help="also nodes whose cards are handed out whole (of a node that is named, always)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the table."""
        cluster = _cluster(options["cluster"])
        try:
            picture = allocation.current(cluster)
        except ConsoleError as error:
            raise CommandError(error.message) from error
        if picture is None:
            raise CommandError(f"Nothing is known of cluster {cluster.name} yet. Is the watcher running?")
        folds = allocation.allocations(picture)
        if node := options["node"]:
            if node not in folds:
                raise CommandError(f"Cluster {cluster.name} has no GPU node {node}.")
            folds = {node: folds[node]}
        nodes = {each.name: each for each in picture.nodes}
        chosen = [folds[name] for name in sorted(folds)]
        if options["as_json"]:
            found = {"cluster": cluster.name, "taken_at": timestamp(picture.taken_at), **tables.document(chosen, nodes)}
            self.stdout.write(json.dumps(found, indent=2))
            return
        shown = tables.details if options["details"] else tables.table
        self.stdout.write(shown(chosen, nodes), ending="")
        # A node that was named and shares no card has its figures in the other table.
        if options["whole"] or (options["node"] and not any(fold.memory_units for fold in chosen)):
            self.stdout.write(tables.whole_table(chosen), ending="")


def _cluster(name: str) -> Cluster:
    found = list(Cluster.objects.filter(name=name) if name else Cluster.objects.all())
    if len(found) == 1:
        return found[0]
    names = ", ".join(Cluster.objects.values_list("name", flat=True)) or "none"
    if name:
        raise CommandError(f"There is no cluster {name}; connected: {names}.")
    raise CommandError(f"Name a cluster with --cluster; connected: {names}.")
