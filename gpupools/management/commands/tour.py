"""`manage.py tour`: the main job, headless, through the REST API of a console that it starts itself."""

from __future__ import annotations

import signal
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from gpupools.management.supervisor import Supervisor
from gpupools.management.touring import cleanup, jobs, pools
from gpupools.management.touring.client import Client, wait_for
from gpupools.management.touring.ground import SETTLE_SECONDS, Ground
from gpupools.management.touring.report import Failed, Report

OWN, GIVEN = "embedded", "tour"
# The embedded cluster's clock: a training Job of a minute need not take one.
SPEED = 5.0


class Command(BaseCommand):
    """Connect, make pools of every mode, run Jobs, change a mode with approval, show what every card holds."""

    help = (
        "Do the main job through the REST API of a console started for it: against the embedded cluster, or with "
        "--kubeconfig against any Kubernetes cluster. Prints one JSON object, then allocation tables; progress goes to "
        "standard error. Exit 0 only if no step failed."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--kubeconfig", type=Path, help="file that leads to a cluster; without it, the embedded one"
        )
        parser.add_argument("--context", default="", help="context of the kubeconfig; else its current one")
        parser.add_argument(
            "--nodes", default="", help="comma-separated nodes that pools may be made of: seven or more"
        )
        parser.add_argument("--data-dir", type=Path, help="folder for the console's data; else one that is thrown away")

    def handle(self, **options: object) -> None:
        """Run the tour and print its report."""
        path, context = options["kubeconfig"], str(options["context"])
        names = tuple(name.strip() for name in str(options["nodes"]).split(",") if name.strip())
        if path is not None and not names:
            raise CommandError("With --kubeconfig, name the nodes that may be used: --nodes A,B,…")
        if path is None and (names or context):
            raise CommandError("--nodes and --context go with --kubeconfig.")
        try:
            given = path.read_text(encoding="utf-8") if isinstance(path, Path) else ""
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--kubeconfig {path} cannot be read: {error}") from error
        report = Report(say=self._say, whole=path is None)
        with tempfile.TemporaryDirectory(prefix="gpupools-tour-") as scratch:
            folder = options["data_dir"] if isinstance(options["data_dir"], Path) else Path(scratch) / "data"
            # Rows and broker of its own: those that the environment names are somebody's console.
            env = {"GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS": "true", "DATABASE_URL": "", "REDIS_URL": ""}
            supervisor = Supervisor(folder, 0, simulator=path is None, speed=SPEED, env=env, say=self._say)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, _interrupt)
            try:
                self._tour(supervisor, report, given=given, context=context, names=names)
            finally:
                supervisor.stop()
                self.stdout.write(report.as_text())
        if report.failed:
            sys.exit(1)

    def _tour(
        self, supervisor: Supervisor, report: Report, *, given: str, context: str, names: tuple[str, ...]
    ) -> None:
        with report.step("start the console") as step:
            supervisor.start()
            step.detail = supervisor.url
            accounts = dict(supervisor.accounts)
            if not {"admin", "operator"} <= set(accounts):
                raise Failed("this data folder has been used before: its passwords are not known any more")
        if report.failed:
            return
        with report.step("sign in and issue tokens"):
            admin = Client.sign_in(supervisor.url, "admin", accounts["admin"], role="admin")
            operator = Client.sign_in(supervisor.url, "operator", accounts["operator"], role="operator")
        if report.failed:
            return
        ground = Ground(admin, operator, report, GIVEN if given else OWN, names)
        kubernetes, before = None, {}
        with report.step("connect") as step:
            if given:
                kubernetes = cleanup.reach(given, context)
                before = cleanup.remember(kubernetes, names)
                body = {"name": GIVEN, "provider": "kubernetes", "kubeconfig": given, "context": context}
                admin.post("clusters/", body)
            held, row = wait_for(
                lambda: admin.get(f"clusters/{ground.cluster}/"),
                seconds=SETTLE_SECONDS,
                what=lambda row: row["state"] == "connected",
            )
            step.detail = f"{row['provider']} {row['version']} {row['spec']}".strip()
            if not held:
                raise Failed(f"the cluster is {row['state']}: {row['last_error']}")
            held, _ = wait_for(ground.node_rows, seconds=SETTLE_SECONDS, what=bool)
            if not held:
                raise Failed("the watcher shows no nodes")
        if report.failed:
            return
        try:
            pools.install_components(ground)
            pools.make_pools(ground)
            pools.verify_nodes(ground)
            jobs.run_documented_jobs(ground)
            jobs.hold_cards_in_each_mode(ground)
            jobs.show_binpack(ground)
            jobs.show_spread(ground)
            jobs.show_tables(ground)
            pools.change_mode(ground)
        finally:
            if kubernetes is not None:
                cleanup.clean_up(ground, kubernetes, before)

    def _say(self, line: str) -> None:
        self.stderr.write(line)


def _interrupt(*_: object) -> None:
    """End at the next point where Python looks: steps and report are still written."""
    raise KeyboardInterrupt
