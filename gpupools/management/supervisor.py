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
from gpupools.management.keeper import LOOK_SECONDS, Keeper, StartFailed, Stopped
from gpupools.management.process import guarded, tail

ONCE_SECONDS = 120


class Supervisor:
    """A console on one data folder. `port=0` takes a free one; `env` is laid over our environment.

    `speed` is how many times faster than ours the embedded cluster's clock runs.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        simulator: bool = True,
        fleet: str = "demo",
        speed: float = 1.0,
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
        self._speed = speed
        self._environment = {**os.environ, **(env or {})}
        self._broker_port = 0
        self._lock = DataLock(self.data_dir)
        self._stop = threading.Event()
        self._settled = threading.Event()
        self._keeper = Keeper(stop=self._stop, say=say)
        # Not a daemon: the kernel ends children with the thread that started them, so it must end last.
        self._thread = threading.Thread(target=self._run, name="supervisor")

    @property
    def url(self) -> str:
        """The console's address, without a closing slash; known once it has been started."""
        return self._ground.web_url.rstrip("/")

    @property
    def redis_url(self) -> str:
        """The broker's address; known once the console has been started."""
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
        self._thread.start()
        self._settled.wait()
        if self.failure is not None:
            self._thread.join()
            raise self.failure

    def wait(self) -> int:
        """Wait until the console ends; return 0 after a wished stop, 1 when it could not be kept running."""
        self._thread.join()
        return 1 if self.failure is not None else 0

    def ask_to_stop(self) -> None:
        """Begin to stop; safe in a signal handler."""
        self._stop.set()

    def stop(self) -> None:
        """Stop every process, in reverse order, and wait for it. Harmless when nothing runs."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def pid_of(self, name: str) -> int | None:
        """Return the process id of broker, cluster, worker, beat, watcher or web; None when it is not up."""
        return next((child.pid for child in self._keeper.children if child.name == name), None)

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
            (self.data_dir / "broker" / "url").write_text(f"{self.redis_url}\n", encoding="utf-8")
        if self._simulator:
            self._environment["GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS"] = "true"
        self._ground = parts.Ground(
            folder=self.data_dir,
            host=self.host,
            port=self.port,
            redis_url=self.redis_url,
            fleet=self._fleet,
            speed=self._speed,
            environment=self._environment,
        )

    def _run(self) -> None:
        """Body of the one thread: start, watch until asked to stop, stop."""
        # Stands unless the thread ends in one of the foreseen ways.
        failure: StartFailed | None = StartFailed("The supervisor itself failed; the traceback above says where.")
        try:
            self._start_all()
            self._settled.set()
            self._keeper.keep()
            failure = None
        except Stopped:
            failure = None
        except StartFailed as known:
            failure = known
        finally:
            self._keeper.stop_all()
            self._lock.release()
            self.failure = failure
            self._settled.set()

    def _start_all(self) -> None:
        if self._broker_port:
            try:
                broker = parts.broker(self._ground, port=self._broker_port)
            except NoBroker as error:
                raise StartFailed(str(error), code="no-broker") from error
            self._keeper.spawn(broker)
            self._keeper.wait_ready(broker)
        elif not probes.broker_answers(self.redis_url):
            raise StartFailed("The broker that REDIS_URL names does not answer.", code="no-broker")
        if self._simulator:
            # It starts while the database is made ready.
            cluster = parts.cluster(self._ground)
            self._keeper.spawn(cluster)
        self._run_once("migrate", "migrate", "--no-input", "--verbosity", "0")
        self._keeper.tell(
            "database",
            "ready",
            None,
            "of DATABASE_URL" if self._environment.get("DATABASE_URL") else "SQLite",
        )
        if self._simulator:
            self._keeper.wait_ready(cluster)
        clusters = self._first_run()
        together = [
            parts.worker(self._ground),
            parts.beat(self._ground),
            parts.watcher(self._ground, clusters=clusters),
            parts.web(self._ground),
        ]
        for child in together:
            self._keeper.spawn(child)
        for child in together:
            self._keeper.wait_ready(child)

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
