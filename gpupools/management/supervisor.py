"""Runs a whole console on one machine: starts its processes, restarts what dies, stops all in reverse.

One thread starts, watches and stops every child; callers only wait. It knows commands, not what they do.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gpupools.errors import Conflict, ConsoleError
from gpupools.management import console_processes as parts
from gpupools.management import probes
from gpupools.management.broker import NoBroker
from gpupools.management.datadir import DataLock, keep_secrets, prepare
from gpupools.management.process import Child, guarded, tail

LOOK_SECONDS = 0.2
MAX_FAILED_STARTS = 3
BACK_OFF_SECONDS = (0.5, 1, 2, 4, 8, 15)
SETTLED_SECONDS = 30
ONCE_SECONDS = 120


class StartFailed(ConsoleError):
    """The console could not be started or kept running; the sentence says which part and why."""

    default_code = "start-failed"


class Stopped(Exception):
    """Somebody asked to stop while the console was starting."""


class Supervisor:
    """A console on one data folder. `port=0` takes a free one; `env` is laid over our environment."""

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        simulator: bool = True,
        fleet: str = "demo",
        host: str = parts.LOOPBACK,
        env: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.host = host
        self.port = port
        self.accounts: list[tuple[str, str]] = []
        self.failure: StartFailed | None = None
        self._simulator = simulator
        self._fleet = fleet
        self._environment = {**os.environ, **(env or {})}
        self._say = say
        self._children: list[Child] = []
        self._lock = DataLock(self.data_dir)
        self._stop = threading.Event()
        self._settled = threading.Event()
        # Not a daemon: the kernel ends children with the thread that started them, so it must end last.
        self._keeper = threading.Thread(target=self._keep, name="supervisor")

    @property
    def url(self) -> str:
        """The console's address, without a closing slash."""
        return self._ground.web_url.rstrip("/")

    @property
    def redis_url(self) -> str:
        """The broker's address."""
        return self._environment["REDIS_URL"]

    @property
    def stopping(self) -> bool:
        """Whether it stops, or has been asked to."""
        return self._stop.is_set()

    def start(self) -> None:
        """Start everything and return when all of it is ready.

        Raises:
            ConsoleError: the folder or the port is in use, or a part does not start. Nothing is left running.
        """
        prepare(self.data_dir)
        self._lock.take()
        try:
            self._lay_ground()
        except ConsoleError:
            self._lock.release()
            raise
        self._keeper.start()
        self._settled.wait()
        if self.failure is not None:
            self._keeper.join()
            raise self.failure

    def wait(self) -> int:
        """Wait until the console ends; return 0 after a wished stop, 1 when it could not be kept running."""
        self._keeper.join()
        return 1 if self.failure is not None else 0

    def ask_to_stop(self) -> None:
        """Begin to stop; safe in a signal handler."""
        self._stop.set()

    def stop(self) -> None:
        """Stop every process, in reverse order, and wait for it. Harmless when nothing runs."""
        self._stop.set()
        if self._keeper.is_alive():
            self._keeper.join()

    def pid_of(self, name: str) -> int | None:
        """Return the process id of broker, cluster, worker, beat, watcher or web; None when it is not up."""
        return next((child.pid for child in self._children if child.name == name), None)

    def _lay_ground(self) -> None:
        if self.port == 0:
            self.port = probes.free_port()
        elif not probes.port_is_free(self.host, self.port):
            raise Conflict(
                f"Port {self.port} on {self.host} is taken by another program. "
                f"Choose another one: make run PORT={self.port + 1}",
                code="port-taken",
            )
        keep_secrets(self.data_dir, self._environment)
        self._broker_port = 0 if self._environment.get("REDIS_URL") else probes.free_port()
        self._environment |= {
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONUNBUFFERED": "1",
            "GPUPOOLS_DATA_DIR": str(self.data_dir),
            "GPUPOOLS_HOST": self.host,
            "PORT": str(self.port),
        }
        if self._broker_port:
            self._environment["REDIS_URL"] = f"redis://{parts.LOOPBACK}:{self._broker_port}/0"
        if self._simulator:
            self._environment["GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS"] = "true"
        self._ground = parts.Ground(
            folder=self.data_dir,
            host=self.host,
            port=self.port,
            redis_url=self.redis_url,
            fleet=self._fleet,
            environment=self._environment,
        )

    def _keep(self) -> None:
        """Body of the one thread: start, watch until asked to stop, stop."""
        try:
            self._start_all()
            self._settled.set()
            while not self._stop.wait(LOOK_SECONDS):
                for child in self._children:
                    child.keep_log_small()
                    self._advance(child)
        except Stopped:
            pass
        except StartFailed as failure:
            self.failure = failure
        finally:
            self._stop_all()
            self._lock.release()
            self._settled.set()

    def _start_all(self) -> None:
        if self._broker_port:
            try:
                broker = parts.broker(self._ground, port=self._broker_port)
            except NoBroker as error:
                raise StartFailed(str(error), code="no-broker") from error
            self._spawn(broker)
            self._wait_ready(broker)
        elif not probes.broker_answers(self.redis_url):
            raise StartFailed("The broker that REDIS_URL names does not answer.", code="no-broker")
        if self._simulator:
            # It starts while the database is made ready.
            cluster = parts.cluster(self._ground)
            self._spawn(cluster)
        self._run_once("migrate", "migrate", "--no-input", "--verbosity", "0")
        self._tell(
            "database",
            "ready",
            None,
            "of DATABASE_URL" if self._environment.get("DATABASE_URL") else "SQLite",
        )
        if self._simulator:
            self._wait_ready(cluster)
        clusters = self._first_run()
        together = [
            parts.worker(self._ground),
            parts.beat(self._ground),
            parts.watcher(self._ground, clusters=clusters),
            parts.web(self._ground),
        ]
        for child in together:
            self._spawn(child)
        for child in together:
            self._wait_ready(child)

    def _first_run(self) -> int:
        """Make the first accounts, connect the embedded cluster; return how many clusters are connected."""
        arguments = ["firstrun"]
        if self._simulator:
            arguments += ["--embedded", str(self._ground.cluster_folder)]
        answer = json.loads(self._run_once("firstrun", *arguments))
        self.accounts = [(name, password) for name, password in answer["accounts"]]
        return int(answer["clusters"])

    def _run_once(self, name: str, *arguments: str) -> str:
        """Run one of manage.py's commands to its end and return what it printed."""
        log = self._ground.log(name)
        with log.open("wb") as errors:
            process = subprocess.Popen(  # noqa: S603  # our own command
                guarded(self._ground.command(*arguments)),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                text=True,
            )
            deadline = time.monotonic() + ONCE_SECONDS
            printed = None
            while printed is None:
                try:
                    printed, _ = process.communicate(timeout=LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    if self._stop.is_set() or time.monotonic() > deadline:
                        process.kill()
                        process.communicate()
                        if self._stop.is_set():
                            raise Stopped from None
                        raise StartFailed(f"`manage.py {name}` takes more than {ONCE_SECONDS} s.") from None
        if process.returncode != 0:
            raise StartFailed(f"`manage.py {name}` failed. The end of {log}:\n{tail(log)}")
        return printed

    def _spawn(self, child: Child) -> None:
        if child not in self._children:
            self._children.append(child)
        child.start()

    def _wait_ready(self, child: Child) -> None:
        while not child.is_ready:
            self._advance(child)
            if self._stop.wait(LOOK_SECONDS):
                raise Stopped

    def _advance(self, child: Child) -> None:
        """Take one look at a child and do the next thing: ask whether it is ready, or start it again."""
        now = time.monotonic()
        if child.exit_code is not None:
            if child.again_at is None:
                self._plan_restart(child, now)
            elif now >= child.again_at:
                self._spawn(child)
        elif not child.is_ready:
            if child.ready(child):
                child.is_ready = child.was_ready = True
                child.failed_starts = 0
                self._tell(child.name, "ready", child.pid, child.note)
            elif now - child.started_at > child.start_seconds:
                raise StartFailed(
                    f"The {child.name} is not ready after {child.start_seconds:.0f} s. "
                    f"The end of {child.log}:\n{child.tail()}"
                )

    def _plan_restart(self, child: Child, now: float) -> None:
        """Set when a dead child starts again, later each time it dies young. Gives up in the end."""
        code = child.exit_code
        if not child.is_ready:
            child.failed_starts += 1
        if child.failed_starts >= MAX_FAILED_STARTS:
            raise StartFailed(
                f"The {child.name} ended {MAX_FAILED_STARTS} times before it was ready, "
                f"last with exit code {code}. The end of {child.log}:\n{child.tail()}"
            )
        if now - child.started_at > SETTLED_SECONDS:
            child.quick_deaths = 0
        pause_seconds = BACK_OFF_SECONDS[min(child.quick_deaths, len(BACK_OFF_SECONDS) - 1)]
        child.quick_deaths += 1
        child.again_at = now + pause_seconds
        self._tell(child.name, "ended", None, f"exit code {code}; starts again in {pause_seconds} s")

    def _stop_all(self) -> None:
        """Stop in reverse order; the four that only use the others go together."""
        servers = {"broker", "cluster"}
        clients = [child for child in reversed(self._children) if child.name not in servers]
        for child in clients:
            child.ask_to_stop()
        for child in clients:
            child.wait_stopped()
        for child in reversed(self._children):
            if child.name in servers:
                child.ask_to_stop()
                child.wait_stopped()
        if self._children:
            self._say("Stopped.")

    def _tell(self, name: str, state: str, pid: int | None, note: str) -> None:
        self._say(f"  {name:<9} {state:<6} {f'pid {pid}' if pid else '':<12} {note}".rstrip())
