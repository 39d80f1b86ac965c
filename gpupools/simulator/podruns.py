"""One pod on its node: sandbox, init containers in turn, main containers together, and the status that they make.

It puts containers together; who starts it, stores its status and deletes it is the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpupools.domain.gpus import Ask
from gpupools.simulator.cards import Grant
from gpupools.simulator.containers import Container, Stage, stamp
from gpupools.simulator.kinds import Object
from gpupools.simulator.nvidiasmi import VisibleCard
from gpupools.simulator.programs import Situation
from gpupools.simulator.records import condition_is, set_condition

_SANDBOX_SECONDS = 0.5
STOP_SECONDS = 2.0  # how long a program takes to stop when it is asked to


@dataclass(slots=True)
class PodRun:
    """A pod that a node took in."""

    uid: str
    node: str
    asked: Ask
    node_ip: str
    pod_ip: str
    admitted: datetime
    speed: float
    grant: Grant | None
    init: list[Container] = field(default_factory=list)
    main: list[Container] = field(default_factory=list)
    stopping_at: datetime | None = None
    # What a node's own daemons see: every card.
    node_cards: tuple[VisibleCard, ...] = ()
    situations: dict[str, Callable[[datetime], Situation]] = field(default_factory=dict)
    # The pod of the MPS control daemon whose client this one is; empty for all others.
    mps_daemon: str = ""

    @property
    def containers(self) -> list[Container]:
        """All containers, init containers first."""
        return [*self.init, *self.main]

    @property
    def sandbox_ready_at(self) -> datetime:
        """When the pod has its network."""
        return self.admitted + timedelta(seconds=_SANDBOX_SECONDS / self.speed)

    def advance(self, now: datetime) -> None:
        """Let every container do what is due."""
        if now < self.sandbox_ready_at:
            return
        for container in self.init:
            container.advance(now)
            done = container.ended is not None and container.ended.exit_code == 0
            if not (done or (container.sidecar and container.running)):
                return
        for container in self.main:
            container.advance(now)
        if self.main_over:
            for container in self.init:
                if container.sidecar and container.ended is None:
                    container.kill(now)

    def next_deadline(self, now: datetime) -> datetime | None:
        """Return when something is due next; None when nothing will happen by itself."""
        if now < self.sandbox_ready_at:
            return self.sandbox_ready_at
        due = [container.deadline for container in self.containers if container.deadline is not None]
        return min(due, default=None)

    def kill(self, now: datetime, *, code: int = 143) -> None:
        """End all containers."""
        for container in self.containers:
            container.kill(now, code=code)

    def visible_cards(self, *, by_daemon: bool, granted: bool) -> tuple[VisibleCard, ...]:
        """Return the cards that a container sees."""
        if by_daemon:
            return self.node_cards
        return self.grant.visible() if self.grant is not None and granted else ()

    @property
    def main_over(self) -> bool:
        """Whether every main container has ended for good."""
        return all(container.stage is Stage.ENDED for container in self.main)

    @property
    def init_failed(self) -> bool:
        """Whether an init container ended badly and will not start again."""
        return any(container.ended is not None and container.ended.exit_code != 0 for container in self.init)

    @property
    def initialized(self) -> bool:
        """Whether the main containers may start."""
        return all(
            (container.ended is not None and container.ended.exit_code == 0)
            or (container.sidecar and container.running)
            for container in self.init
        )

    def phase(self) -> str:
        """Return the pod's phase from its containers."""
        if self.init_failed:
            return "Failed"
        if self.main_over:
            good = all(container.ended is not None and container.ended.exit_code == 0 for container in self.main)
            return "Succeeded" if good else "Failed"
        started = any(container.started is not None for container in self.main)
        return "Running" if started else "Pending"

    def status(self, before: Object, now: datetime) -> Object:
        """Return the pod's whole status, taking over what other parties wrote into ``before``."""
        status: dict[str, Any] = {
            **before,
            "phase": self.phase(),
            "hostIP": self.node_ip,
            "hostIPs": [{"ip": self.node_ip}],
            "startTime": before.get("startTime") or stamp(self.admitted),
            "conditions": [dict(condition) for condition in before.get("conditions") or ()],
        }
        if now >= self.sandbox_ready_at:
            status["podIP"] = self.pod_ip
            status["podIPs"] = [{"ip": self.pod_ip}]
        if self.init:
            status["initContainerStatuses"] = [container.status() for container in self.init]
        status["containerStatuses"] = [self._main_status(container) for container in self.main]
        self._conditions(status, now)
        return status

    def _main_status(self, container: Container) -> dict[str, Any]:
        entry = container.status()
        waiting = entry["state"].get("waiting")
        if waiting and self.init and not self.initialized and waiting["reason"] == "ContainerCreating":
            waiting["reason"] = "PodInitializing"
        return entry

    def _conditions(self, status: dict[str, Any], now: datetime) -> None:
        at = stamp(now)
        over = status["phase"] in ("Succeeded", "Failed")
        all_ready = not over and all(container.running for container in self.main)
        network = now >= self.sandbox_ready_at and not over
        why = {}
        if status["phase"] == "Succeeded":
            why = {"reason": "PodCompleted"}
        elif status["phase"] == "Failed":
            why = {"reason": "PodFailed"}
        elif not all_ready:
            unready = " ".join(container.name for container in self.main if not container.running)
            why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{unready}]"}
        set_condition(status, "PodReadyToStartContainers", _word(network), at)
        if self.initialized:
            done = {"reason": "PodCompleted"} if status["phase"] == "Succeeded" else {}
            set_condition(status, "Initialized", "True", at, **done)
        else:
            waiting = " ".join(container.name for container in self.init if container.ended is None)
            message = f"containers with incomplete status: [{waiting}]"
            set_condition(status, "Initialized", "False", at, reason="ContainersNotInitialized", message=message)
        set_condition(status, "Ready", _word(all_ready), at, **why)
        set_condition(status, "ContainersReady", _word(all_ready), at, **why)
        if not condition_is(status, "PodScheduled"):
            set_condition(status, "PodScheduled", "True", at)


def _word(value: bool) -> str:
    return "True" if value else "False"
