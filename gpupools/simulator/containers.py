"""One container on its node: pulling its image, running its program, ending, starting again with back-off.

A little state machine over wall-clock deadlines; it prints into the log book and says what happened to whoever
listens. It knows no store: its pod asks it for its status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from gpupools.simulator.clock import parse_stamp
from gpupools.simulator.images import digest, full_image, pull_problem, pull_seconds, refusal, size_bytes
from gpupools.simulator.records import NORMAL, WARNING
from gpupools.simulator.shell import FOREVER, OutOfMemory, Step

_FIRST_BACKOFF_SECONDS = 10.0
_LAST_BACKOFF_SECONDS = 300.0
_CALM_AFTER_SECONDS = 600.0  # a container that ran this long starts again without back-off
_PULL_ERROR_SECONDS = 2.0
_START_SECONDS = 0.3


class Stage(StrEnum):
    """Where a container is."""

    NEW = "new"
    PULLING = "pulling"
    PULL_FAILED = "pull-failed"
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing-off"
    ENDED = "ended"


@dataclass(slots=True)
class Outcome:
    """How a run of a container ended."""

    exit_code: int
    reason: str
    started: datetime
    ended: datetime
    message: str = ""

    def state(self, container_id: str) -> dict[str, Any]:
        """Return it as a ``terminated`` state of the API."""
        terminated = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": stamp(self.started),
            "finishedAt": stamp(self.ended),
            "containerID": container_id,
        }
        if self.message:
            terminated["message"] = self.message
        return terminated


def stamp(moment: datetime) -> str:
    """Return a time as the API has it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class Container:
    """One container of a pod. The callables are its node's: they tell events and print lines.

    ``restarts``: whether it starts again after it ended with a code, by the pod's restart policy.
    """

    name: str
    image: str
    pod_uid: str
    pod_name: str
    speed: float
    start_program: Callable[[datetime], Iterator[Step]]
    restart_after: Callable[[int], bool]
    images: set[str]
    tell: Callable[[str, str, str], None]
    open_log: Callable[[str], None]
    print_line: Callable[[str, str, datetime], None]
    close_log: Callable[[str], None]
    start_error: str = ""
    is_init: bool = False
    sidecar: bool = False
    stage: Stage = Stage.NEW
    deadline: datetime | None = None
    restarts: int = 0
    started: datetime | None = None
    last: Outcome | None = None
    ended: Outcome | None = None
    pull_failures: int = 0
    pull_policy: str = "IfNotPresent"
    pull_reason: str = ""
    pull_words: str = ""
    backoff_seconds: float = 0.0
    _steps: Iterator[Step] | None = field(default=None, repr=False)
    _next: Step | None = field(default=None, repr=False)
    _silent_until: float = field(default=-1.0, repr=False)

    @property
    def running(self) -> bool:
        """Whether its program runs now."""
        return self.stage is Stage.RUNNING

    def advance(self, now: datetime) -> None:
        """Do everything that is due by now."""
        while True:
            before = (self.stage, self.deadline)
            match self.stage:
                case Stage.NEW:
                    self._pull(now)
                case Stage.PULLING if self._due(now):
                    self._pulled(now)
                case Stage.PULL_FAILED if self._due(now):
                    self._pull_again(now)
                case Stage.STARTING if self._due(now):
                    self._start(now)
                case Stage.RUNNING:
                    self._run(now)
                case Stage.BACKING_OFF if self._due(now):
                    self.restarts += 1
                    self._pull(now)
            if (self.stage, self.deadline) == before:
                return

    def _due(self, now: datetime) -> bool:
        return self.deadline is not None and now >= self.deadline

    def _after(self, now: datetime, seconds: float) -> datetime:
        return now + timedelta(seconds=seconds / self.speed)

    # Image

    def _pull(self, now: datetime) -> None:
        present = self.image in self.images
        self.pull_reason, self.pull_words = refusal(self.image, self.pull_policy, present=present)
        if self.pull_reason:
            self.tell(WARNING, "Failed" if present else self.pull_reason, self.pull_words)
            self.tell(WARNING, "Failed", f"Error: {self.pull_reason}")
            self.stage, self.deadline = Stage.PULL_FAILED, self._after(now, _LAST_BACKOFF_SECONDS)
            return
        if present and self.pull_policy != "Always":
            self.tell(NORMAL, "Pulled", f'Container image "{self.image}" already present on machine')
            self._prepare(now)
            return
        self.tell(NORMAL, "Pulling", f'Pulling image "{self.image}"')
        # What is there already is only compared with the registry.
        seconds = 0.3 if present else pull_seconds(self.image)
        self.stage, self.deadline = Stage.PULLING, self._after(now, seconds)

    def _pulled(self, now: datetime) -> None:
        problem = pull_problem(self.image)
        if not problem:
            took = f"{0.3 if self.image in self.images else pull_seconds(self.image):.1f}s"
            message = (
                f'Successfully pulled image "{self.image}" in {took} ({took} including waiting). '
                f"Image size: {size_bytes(self.image)} bytes."
            )
            self.tell(NORMAL, "Pulled", message)
            self.images.add(self.image)
            self._prepare(now)
            return
        self.pull_failures += 1
        self.pull_reason, self.pull_words = "ErrImagePull", problem
        self.tell(WARNING, "Failed", f'Failed to pull image "{self.image}": {problem}')
        self.tell(WARNING, "Failed", "Error: ErrImagePull")
        self.stage, self.deadline = Stage.PULL_FAILED, self._after(now, _PULL_ERROR_SECONDS)

    def _pull_again(self, now: datetime) -> None:
        if self.pull_reason == "ErrImagePull":
            self.pull_reason = "ImagePullBackOff"
            self.tell(NORMAL, "BackOff", f'Back-off pulling image "{self.image}"')
            self.tell(WARNING, "Failed", "Error: ImagePullBackOff")
            delay = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2 ** min(self.pull_failures - 1, 10))
            self.deadline = self._after(now, delay)
            return
        self._pull(now)

    # Program

    def _prepare(self, now: datetime) -> None:
        self.stage, self.deadline = Stage.STARTING, self._after(now, _START_SECONDS)

    def _start(self, now: datetime) -> None:
        self.tell(NORMAL, "Created", f"Created container: {self.name}")
        self.started = now
        self.open_log(self.name)
        if self.start_error:
            self.tell(WARNING, "Failed", f"Error: {self.start_error}")
            self._end(now, 128, "StartError", self.start_error)
            return
        self.tell(NORMAL, "Started", f"Started container {self.name}")
        self.stage, self.deadline = Stage.RUNNING, None
        self._begin()

    def _begin(self) -> None:
        assert self.started is not None  # noqa: S101  # set by the only two callers
        self._steps = self.start_program(self.started)
        self._next = None

    def resume(self, lines_printed: int) -> None:
        """Take up a program that was running when the cluster was stopped: what it printed is not printed again."""
        self.stage = Stage.RUNNING
        self._begin()
        self._silent_until = float(lines_printed)

    def _run(self, now: datetime) -> None:
        assert self.started is not None and self._steps is not None  # noqa: S101  # a running container has both
        while True:
            if self._next is None:
                try:
                    self._next = next(self._steps)
                except StopIteration as end:
                    code = int(end.value or 0)
                    reason = "OOMKilled" if isinstance(end.value, OutOfMemory) else "Error"
                    self._end(self.deadline or now, code, reason if code else "Completed")
                    return
            offset, line = self._next
            if offset == FOREVER:
                self.deadline = None
                return
            self.deadline = self._after(self.started, offset)
            if now < self.deadline:
                return
            if line is not None:
                if self._silent_until > 0:
                    self._silent_until -= 1
                else:
                    self.print_line(self.name, line, self.deadline)
            self._next = None

    def _end(self, now: datetime, code: int, reason: str, message: str = "") -> None:
        assert self.started is not None  # noqa: S101  # only what was started ends
        outcome = Outcome(code, reason, self.started, now, message)
        self.close_log(self.name)
        self._steps = self._next = None
        if not self.restart_after(code):
            self.ended = outcome
            self.stage, self.deadline = Stage.ENDED, None
            return
        ran_seconds = (outcome.ended - outcome.started).total_seconds() * self.speed
        self.last = outcome
        self.backoff_seconds = self._backoff(ran_seconds)
        if self.backoff_seconds > 1.0:
            message = f"Back-off restarting failed container {self.name} in pod {self.pod_name}"
            self.tell(WARNING, "BackOff", message)
        self.stage, self.deadline = Stage.BACKING_OFF, self._after(now, self.backoff_seconds)

    def _backoff(self, ran_seconds: float) -> float:
        if ran_seconds > _CALM_AFTER_SECONDS or not self.restarts:
            return 1.0
        return float(min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2 ** min(self.restarts - 1, 10)))

    def crash(self, now: datetime, line: str, code: int) -> None:
        """End a running program from outside, as a driver does to its clients; the restart policy decides what next."""
        if self.stage is Stage.RUNNING:
            self.print_line(self.name, line, now)
            self._end(now, code, "Error")

    def kill(self, now: datetime, *, code: int = 143) -> None:
        """End the program because the pod is going: it dies of the signal, or (137) when its grace is over."""
        if self.stage is Stage.RUNNING and self.started is not None:
            self.ended = Outcome(code, "Error", self.started, now)
            self.close_log(self.name)
            self._steps = self._next = None
        elif self.ended is None:
            self.ended = self.last
        self.stage, self.deadline = Stage.ENDED, None

    # Status

    @property
    def container_id(self) -> str:
        """The runtime's id of the current run."""
        return f"containerd://{digest(f'{self.pod_uid}/{self.name}/{self.restarts}')}"

    def status(self) -> dict[str, Any]:
        """Return the container's entry in the pod's status."""
        entry: dict[str, Any] = {
            "name": self.name,
            "image": full_image(self.image) if self.started else self.image,
            "imageID": f"{full_image(self.image)}@sha256:{digest(self.image)}" if self.started else "",
            "ready": self.running or (self.is_init and self.ended is not None and self.ended.exit_code == 0),
            "started": self.running,
            "restartCount": self.restarts,
            "state": self._state(),
            "lastState": {"terminated": self.last.state(self._previous_id)} if self.last else {},
        }
        if self.started:
            entry["containerID"] = self.container_id
        return entry

    @property
    def _previous_id(self) -> str:
        runs_back = self.restarts if self.stage is Stage.BACKING_OFF else self.restarts - 1
        return f"containerd://{digest(f'{self.pod_uid}/{self.name}/{max(0, runs_back)}')}"

    def _state(self) -> dict[str, Any]:
        if self.ended is not None:
            return {"terminated": self.ended.state(self.container_id)}
        if self.running and self.started is not None:
            return {"running": {"startedAt": stamp(self.started)}}
        if self.pull_reason:
            message = self.pull_words
            if self.pull_reason == "ImagePullBackOff":
                message = f'Back-off pulling image "{self.image}": ErrImagePull: {self.pull_words}'
            return {"waiting": {"reason": self.pull_reason, "message": message}}
        if self.stage is Stage.BACKING_OFF and self.backoff_seconds > 1.0:
            message = (
                f"back-off {self.backoff_seconds:.0f}s restarting failed container={self.name} "
                f"pod={self.pod_name}({self.pod_uid})"
            )
            return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        if self.last is not None and self.stage is Stage.BACKING_OFF:
            return {"terminated": self.last.state(self._previous_id)}
        return {"waiting": {"reason": "ContainerCreating"}}

    def restore(self, status: Mapping[str, Any], lines_printed: int) -> None:
        """Take up where a saved status says that the container was."""
        self.restarts = status.get("restartCount", 0)
        state = status.get("state") or {}
        if last := (status.get("lastState") or {}).get("terminated"):
            self.last = _outcome(last)
        if running := state.get("running"):
            self.images.add(self.image)
            self.started = parse_stamp(running["startedAt"])
            self.resume(lines_printed)
        elif terminated := state.get("terminated"):
            self.images.add(self.image)
            outcome = _outcome(terminated)
            self.started = outcome.started
            if self.restart_after(outcome.exit_code):
                self.last, self.stage, self.deadline = outcome, Stage.BACKING_OFF, outcome.ended
            else:
                self.ended, self.stage = outcome, Stage.ENDED


def _outcome(terminated: Mapping[str, Any]) -> Outcome:
    return Outcome(
        terminated.get("exitCode", 0),
        terminated.get("reason", ""),
        parse_stamp(terminated["startedAt"]),
        parse_stamp(terminated["finishedAt"]),
        terminated.get("message", ""),
    )
