"""The embedded cluster without its sockets: store, logs, state file, and the loops that bring it to life."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from gpupools.simulator import ackkeys, fleet
from gpupools.simulator.ackapi import AckApi
from gpupools.simulator.auth import Tokens
from gpupools.simulator.clock import Clock
from gpupools.simulator.control import Control
from gpupools.simulator.engine import Engine
from gpupools.simulator.execs import ExecSockets
from gpupools.simulator.frontdoor import FrontDoor
from gpupools.simulator.housekeeping import keep_clean
from gpupools.simulator.logs import LogBook
from gpupools.simulator.server import KubernetesApi
from gpupools.simulator.statefile import StateFile
from gpupools.simulator.store import Store


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says. Port 0: the port of the last time when it is free, else any.

    ``ack_port`` None: no ACK OpenAPI. ``state`` None: objects live as long as the process.
    """

    fleet: str
    directory: Path
    port: int = 0
    ack_port: int | None = 0
    speed: float = 1.0
    state: Path | None = None
    cluster_id: str = ""


class Cluster:
    """Everything that lives in one embedded cluster."""

    def __init__(self, options: Options, plan: fleet.Fleet) -> None:
        self._options = options
        self._fleet = plan
        self.version = plan.cluster.version
        self.clock = Clock(options.speed)
        self.store = Store(now=self.clock.now)
        self.logbook = LogBook()
        self._state = StateFile(options.state, self.store, self.logbook) if options.state else None
        if self._state is not None:
            self._state.load()
        self.store.bootstrap()
        self._keys = ackkeys.kept(options.directory, cluster_id=options.cluster_id)
        self._engine = Engine(self.store, self.clock, self.logbook, plan, self._keys)

    @classmethod
    async def open(cls, options: Options) -> Cluster:
        """Read the fleet and the state; what the state has is not made anew."""
        cluster = cls(options, fleet.load(options.fleet))
        cluster._engine.prepare()
        return cluster

    async def live(self) -> None:
        """Run every loop until cancelled, or until one fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._engine.run(), name="engine")
            group.create_task(keep_clean(self.store, self.logbook), name="housekeeping")
            if self._state is not None:
                group.create_task(self._state.keep_saving(), name="state")

    def close(self) -> None:
        """Save what is to be kept."""
        if self._state is not None:
            self._state.save()

    def front_door(self, api: KubernetesApi, tokens: Tokens, control_token: str) -> FrontDoor:
        """Return the application of the Kubernetes port: the API behind faults, control endpoint and exec."""
        engine = self._engine
        control = Control(engine.faults, engine.fault_actions, control_token)
        sockets = ExecSockets(tokens, engine.kubelet.situation, speed=self._options.speed)
        return FrontDoor(api, control, engine.faults, sockets=sockets)

    def ack_application(self) -> AckApi:
        """Return the ACK OpenAPI; it hands out the kubeconfig that lies in the directory."""
        return self._engine.ack_application(lambda: (self._options.directory / "kubeconfig").read_text("utf-8"))

    def ack_access(self) -> dict[str, str]:
        """Return what a client of the OpenAPI needs besides its address."""
        return {
            "cluster_id": self._keys.cluster_id,
            "region": self._fleet.cluster.region,
            "access_key_id": self._keys.access_key_id,
            "access_key_secret": self._keys.access_key_secret,
        }
