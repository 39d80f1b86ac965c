"""``manage.py loadpods``: fill a cluster with the pod mix of the openb trace, to try the console under load."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from gpupools.management.embedded import openbload
from gpupools.management.embedded.kubehttp import ApiRefusal, KubeHttp

THREADS = 8


class Command(BaseCommand):
    """Creates the pods and says how fast; they run until they are deleted."""

    help = "Create pods of the openb trace's mix (about 8,000 in all) in a cluster, or delete them again."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--kubeconfig", required=True, type=Path, help="of the cluster to fill")
        parser.add_argument("--count", type=int, default=openbload.TOTAL, help="number of pods (default: the trace's)")
        parser.add_argument("--namespace", default="openb", help="where they go; made when missing")
        parser.add_argument("--delete", action="store_true", help="delete the namespace with all its pods instead")

    def handle(self, **options: object) -> None:
        """Create or delete."""
        given = argparse.Namespace(**options)
        if not 1 <= given.count <= 100_000:
            raise CommandError("--count must be from 1 to 100000.")
        api = KubeHttp(given.kubeconfig)
        try:
            if given.delete:
                api.call("DELETE", f"/api/v1/namespaces/{given.namespace}")
                self.stdout.write(f"Namespace {given.namespace} is being deleted with all its pods.")
                return
            seconds = create(api, namespace=given.namespace, count=given.count)
        except ApiRefusal as error:
            raise CommandError(f"The API server refused: {error}") from error
        finally:
            api.close()
        self.stdout.write(f"{given.count} pods in {seconds:.1f} s, {given.count / seconds:.0f} per second.")


def create(api: KubeHttp, *, namespace: str, count: int) -> float:
    """Create the pods, several at a time; return the seconds that it took."""
    try:
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    except ApiRefusal as error:
        if error.status != 409:
            raise
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = [openbload.pod(f"openb-{number:05}", shape) for number, shape in enumerate(openbload.order(count))]
    begin = time.monotonic()
    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(lambda pod: api.raw("POST", path, pod), pods):
            pass
    return time.monotonic() - begin
