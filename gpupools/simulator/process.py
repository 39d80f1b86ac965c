"""The embedded cluster as one process: two listening sockets, the store behind them, the loops that move it.

Wires the parts together, keeps ports and secrets in its directory, says when it is ready, and stops cleanly.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import gc
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import yaml

from gpupools.simulator import control
from gpupools.simulator.auth import Tokens
from gpupools.simulator.cluster import Cluster, Options
from gpupools.simulator.files import write_atomically
from gpupools.simulator.server import KubernetesApi
from gpupools.simulator.tls import Authority

log = logging.getLogger(__name__)

CONTEXT = "embedded"
HOST = "127.0.0.1"
# Requests that are being answered get this long after a signal; open streams are ended at once.
STOP_SECONDS = 1


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the process: there are two of them in it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.up.set()

    async def finish(self) -> None:
        """Take no more connections, let running requests end, and drop those that are idle."""
        self.should_exit = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while self.server_state.tasks:
                    await asyncio.wait(tuple(self.server_state.tasks))
                while any(c.transport.get_write_buffer_size() for c in self.server_state.connections):
                    await asyncio.sleep(0.02)
        # Idle clients would be waited for: TLS wants them to say goodbye, and most never do.
        self.force_exit = True
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Ports:
    """The ports of the last run, kept in ``<directory>/ports.json``."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "ports.json"
        self._last: dict[str, int] = {}
        if self._path.exists():
            self._last = msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])

    def bind(self, name: str, wanted: int) -> socket.socket:
        """Return a listening socket: on ``wanted``, else on the last run's port, else on any free one."""
        choices = (wanted,) if wanted else (self._last.get(name, 0), 0)
        for port in choices:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((HOST, port))
            except OSError:
                sock.close()
                if port == choices[-1]:
                    raise
                continue
            sock.listen(256)
            sock.setblocking(False)
            self._last[name] = sock.getsockname()[1]
            return sock
        raise AssertionError("unreachable: the last choice returns or raises")

    def save(self) -> None:
        """Write down what was bound."""
        write_atomically(self._path, msgspec.json.encode(self._last))


def kubeconfig(server: str, authority: Authority, token: str, user: str) -> bytes:
    """Return a kubeconfig with everything inside: the authority's certificate and a bearer token."""
    ca = base64.b64encode(authority.ca_certificate.read_bytes()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": ca}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": "default"}}],
        "current-context": CONTEXT,
    }
    return yaml.safe_dump(content, sort_keys=False).encode()


class AlreadyRunning(Exception):
    """Another process runs on the same directory; the message says so."""


@contextlib.contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Hold the directory for this process; the kernel lets go of it however the process ends."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AlreadyRunning(f"An embedded cluster is running in {directory} already.") from error
        yield
    finally:
        os.close(descriptor)


class Process:
    """One run of the embedded cluster in its directory."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._directory = options.directory
        self._ready_file = options.directory / "ready.json"
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal comes; raises what a part of the cluster failed with."""
        options, directory = self._options, self._directory
        self._ready_file.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)

        authority, tokens = Authority(directory), Tokens(directory)
        authority.ensure()
        tokens.ensure()
        cluster = await Cluster.open(options)
        api = KubernetesApi(cluster.store, cluster.logbook, tokens, version=cluster.version)
        ports = Ports(directory)
        sockets = {"kubernetes": ports.bind("kubernetes", options.port)}
        servers = [_server(cluster.front_door(api, tokens, control.kept(directory).token), authority)]
        if options.ack_port is not None:
            sockets["ack"] = ports.bind("ack", options.ack_port)
            servers.append(_server(cluster.ack_application()))
        ports.save()
        addresses = {name: f"{HOST}:{sock.getsockname()[1]}" for name, sock in sockets.items()}

        parts = [
            asyncio.create_task(server.serve(sockets=[sock]), name=f"serve-{name}")
            for server, (name, sock) in zip(servers, sockets.items(), strict=True)
        ]
        parts.append(asyncio.create_task(cluster.live(), name="cluster"))
        parts.append(asyncio.create_task(self._stop.wait(), name="signal"))
        ready = asyncio.gather(*(server.up.wait() for server in servers))
        await asyncio.wait((ready, *parts), return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and not self._stop.is_set():
            self._announce(addresses, authority, tokens, cluster)
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()

        self._ready_file.unlink(missing_ok=True)
        api.stop()
        for part in parts[len(servers) :]:
            part.cancel()
        await asyncio.gather(*(server.finish() for server in servers))
        ended = await asyncio.gather(*parts, return_exceptions=True)
        cluster.close()
        for result in ended:
            if isinstance(result, Exception):
                raise result

    def _announce(self, addresses: dict[str, str], authority: Authority, tokens: Tokens, cluster: Cluster) -> None:
        """Write the files that clients start from; ready.json last, since its being there means all is well."""
        server = f"https://{addresses['kubernetes']}"
        for role, token in tokens.by_role.items():
            name = "kubeconfig" if role == "admin" else f"kubeconfig-{role}"
            write_atomically(self._directory / name, kubeconfig(server, authority, token, f"embedded-{role}"))
        control.announce(self._directory, server, authority.ca_certificate)
        ready: dict[str, object] = {"server": server, "pid": os.getpid()}
        ack_file = self._directory / "ack.json"
        if "ack" in addresses:
            ready["ack_endpoint"] = addresses["ack"]
            access = {"endpoint": addresses["ack"], "protocol": "http", **cluster.ack_access()}
            write_atomically(ack_file, msgspec.json.encode(access))
        else:
            ack_file.unlink(missing_ok=True)
        write_atomically(self._ready_file, msgspec.json.encode(ready))
        log.info("serving at %s", server)


def _server(application: Any, authority: Authority | None = None) -> _Server:
    secure = {"ssl_certfile": str(authority.certificate), "ssl_keyfile": str(authority.key)} if authority else {}
    config = uvicorn.Config(
        application,
        http="httptools",
        ws="websockets-sansio",
        # Frames of exec are keys and pasted lines.
        ws_max_size=1024 * 1024,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        # Longer than clients keep idle connections, so that they never write into one that we just closed.
        timeout_keep_alive=120,
        timeout_graceful_shutdown=STOP_SECONDS,
        **secure,
    )
    return _Server(config)


def run(options: Options) -> None:
    """Run the embedded cluster until a signal ends it."""
    options.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Millions of long-lived dicts and few cycles: looking through all of them as often as by default costs a tenth.
    gc.set_threshold(50_000, 20, 50)
    loop_factory = uvicorn.Config("", loop="auto").get_loop_factory()
    with only_one(options.directory), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(Process(options).run())
