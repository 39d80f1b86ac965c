"""What a local console consists of: each process, its command, what makes it ready."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpupools.management import probes
from gpupools.management.broker import broker_command, broker_program
from gpupools.management.process import Child

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ground:
    """What the processes share: folder, addresses, environment."""

    folder: Path
    host: str
    port: int
    redis_url: str
    fleet: str
    speed: float
    environment: Mapping[str, str]

    @property
    def web_url(self) -> str:
        """The address to open in a browser on this machine."""
        host = LOOPBACK if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104  # read, not bound
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    @property
    def cluster_folder(self) -> Path:
        """Where the embedded cluster keeps its state and what is needed to reach it."""
        return self.folder / "cluster"

    def log(self, name: str) -> Path:
        """The log file of one process."""
        return self.folder / "logs" / f"{name}.log"

    def command(self, *arguments: str) -> list[str]:
        """The command line of one of manage.py's commands."""
        return [sys.executable, str(ROOT / "manage.py"), *arguments]


def broker(ground: Ground, *, port: int) -> Child:
    """The embedded broker. Raises NoBroker where no program is found."""
    program = broker_program()
    return Child(
        name="broker",
        command=broker_command(program, port=port, folder=ground.folder / "broker"),
        environment=ground.environment,
        log=ground.log("broker"),
        ready=lambda child: probes.broker_answers(ground.redis_url),
        note=f"{Path(program).name} on {LOOPBACK}:{port}",
        is_server=True,
    )


def cluster(ground: Ground) -> Child:
    """The embedded cluster: Kubernetes and ACK APIs on loopback."""
    folder = ground.cluster_folder
    ready_file = folder / "ready.json"
    options = ["--fleet", ground.fleet, "--speed", str(ground.speed)]
    options += ["--dir", str(folder), "--state", str(folder / "state.json")]
    return Child(
        name="cluster",
        command=ground.command("runsimulator", *options),
        environment=ground.environment,
        log=ground.log("cluster"),
        # The file of an earlier run carries another process id.
        ready=lambda child: child.pid is not None and probes.read_json(ready_file).get("pid") == child.pid,
        before=lambda: ready_file.unlink(missing_ok=True),
        note=f"embedded; kubectl --kubeconfig {folder / 'kubeconfig'} get nodes",
        is_server=True,
    )


def worker(ground: Ground) -> Child:
    """The task worker."""
    # The port tells two consoles apart that share a broker.
    node = f"worker-{ground.port}@console"
    return Child(
        name="worker",
        command=[
            sys.executable,
            "-m",
            "celery",
            "-A",
            "console",
            "worker",
            "--pool",
            "threads",
            "--concurrency",
            "4",
            "--hostname",
            node,
            "--without-gossip",
            "--without-mingle",
            "--loglevel",
            "INFO",
        ],  # fmt: skip
        environment=ground.environment,
        log=ground.log("worker"),
        ready=lambda child: probes.worker_answers(ground.redis_url, node),
        stop_seconds=20,
        note="4 threads",
    )


def beat(ground: Ground) -> Child:
    """The clock that rings for periodic tasks."""
    schedule = ground.folder / "beat-schedule"

    def schedules() -> list[Path]:
        # The database behind it may add a suffix.
        return sorted(ground.folder.glob("beat-schedule*"))

    def forget() -> None:
        # A schedule torn by kill -9 cannot be opened; its entries are fixed intervals, nothing is lost.
        for path in schedules():
            path.unlink()

    return Child(
        name="beat",
        command=[
            sys.executable,
            "-m",
            "celery",
            "-A",
            "console",
            "beat",
            "--schedule",
            str(schedule),
            "--pidfile",
            "",
            "--loglevel",
            "INFO",
        ],  # fmt: skip
        environment=ground.environment,
        log=ground.log("beat"),
        ready=lambda child: any(path.stat().st_size for path in schedules()),
        before=forget,
        note="periodic tasks",
    )


def watcher(ground: Ground, *, clusters: int) -> Child:
    """The process that follows every connected cluster; ready when it has published what it sees."""
    seen: dict[bytes, bytes | None] = {}

    def remember() -> None:
        seen.clear()
        seen.update(probes.pictures(ground.redis_url))

    def has_published(child: Child) -> bool:
        now = probes.pictures(ground.redis_url)
        # Once it has been ready, clusters may have been disconnected meanwhile: then running is enough.
        return clusters == 0 or child.was_ready or any(seen.get(key) != picture for key, picture in now.items())

    return Child(
        name="watcher",
        command=ground.command("watchclusters"),
        environment=ground.environment,
        log=ground.log("watcher"),
        ready=has_published,
        before=remember,
        note=f"{clusters} cluster{'' if clusters == 1 else 's'} connected",
    )


def web(ground: Ground) -> Child:
    """The web server: pages, REST, live pages."""
    host = LOOPBACK if ground.host in {"0.0.0.0", "::"} else ground.host  # noqa: S104  # read, not bound
    return Child(
        name="web",
        command=[
            sys.executable,
            "-m",
            "uvicorn",
            "console.asgi:application",
            "--host",
            ground.host,
            "--port",
            str(ground.port),
            "--lifespan",
            "off",
            "--no-access-log",
            "--timeout-graceful-shutdown",
            "3",
        ],  # fmt: skip
        environment=ground.environment,
        log=ground.log("web"),
        ready=lambda child: probes.web_is_ready(host, ground.port),
        note=ground.web_url,
    )
