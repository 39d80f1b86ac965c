"""``manage.py runsimulator``: the embedded cluster, a process of its own that speaks the real protocols."""

from __future__ import annotations

import argparse
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from gpupools.simulator.cluster import Options
from gpupools.simulator.fleet import FleetError
from gpupools.simulator.process import AlreadyRunning, run
from gpupools.simulator.statefile import StateError


def _speed(text: str) -> float:
    speed = float(text)
    if not 0.01 <= speed <= 1000:
        raise argparse.ArgumentTypeError("must be from 0.01 to 1000")
    return speed


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("must be from 0 to 65535; 0 takes a free one")
    return port


class Command(BaseCommand):
    """Runs until SIGTERM or Ctrl-C; ``ready.json`` in its directory says where it serves."""

    help = "Run the embedded Kubernetes cluster with its ACK OpenAPI, on loopback."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--dir", required=True, type=Path, help="where kubeconfig, ack.json and ready.json go")
        parser.add_argument("--fleet", default="demo", help="a built-in fleet (demo, small, openb) or a YAML file")
        parser.add_argument("--port", default=0, type=_port, help="of the Kubernetes API (default: the last, or free)")
        parser.add_argument("--ack-port", default=0, type=_port, help="of the ACK OpenAPI (default: the last, or free)")
        parser.add_argument("--no-ack", action="store_true", help="serve no ACK OpenAPI")
        parser.add_argument("--speed", default=1.0, type=_speed, help="how many times faster delays pass")
        parser.add_argument("--state", type=Path, help="file that keeps the objects over restarts")
        parser.add_argument("--cluster-id", default="", help="ACK's id of the cluster (default: made once)")

    def handle(self, *args: object, **options: object) -> None:
        """Run it."""
        given = argparse.Namespace(**options)
        try:
            run(
                Options(
                    fleet=given.fleet,
                    directory=given.dir.resolve(),
                    port=given.port,
                    ack_port=None if given.no_ack else given.ack_port,
                    speed=given.speed,
                    state=given.state.resolve() if given.state else None,
                    cluster_id=given.cluster_id,
                )
            )
        except (AlreadyRunning, FleetError, StateError) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"The embedded cluster cannot start: {error}") from error
