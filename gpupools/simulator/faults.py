"""Faults on command: what can go wrong on purpose in the embedded cluster, which of it does now, and how often it did.

Values and a registry; who is hit asks the registry. What happens at once when a fault begins or ends is in
faultactions.py. Faults live as long as the process; broken iron (cards) is kept on the node.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0, le=3600)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=253)]


class _Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", rename=None):
    """Base: a misspelt field is an error."""


class _Requests(_Fault, frozen=True):
    """A fault of requests: of these verbs and resources (empty: all), for so many of them (0: until it is ended)."""

    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    times: Count = 0

    def hits(self, verb: str, resource: str) -> bool:
        """Whether a request is meant."""
        return (not self.verbs or verb in self.verbs) and (not self.resources or resource in self.resources)


class Latency(_Requests, frozen=True, tag="latency"):
    """Answers come late, by wall-clock seconds."""

    seconds: Seconds = 1.0


class Error(_Requests, frozen=True, tag="error"):
    """Requests are refused: 429 (with Retry-After) or 5xx."""

    status: Annotated[int, Meta(ge=400, le=599)] = 503
    retry_after_seconds: Count = 0
    message: str = ""


class WatchDrop(_Requests, frozen=True, tag="watch-drop"):
    """Open watches break off now, in the middle of the answer. Happens once."""


class WatchFreeze(_Requests, frozen=True, tag="watch-freeze"):
    """Watches stay open and say nothing, not even bookmarks; what they hold back comes when the fault ends."""


class WatchDuplicate(_Requests, frozen=True, tag="watch-duplicate"):
    """Watches send everything twice."""


class WatchLate(_Requests, frozen=True, tag="watch-late"):
    """Watches send everything late, in order."""

    seconds: Seconds = 2.0


class Compaction(_Fault, frozen=True, tag="compaction"):
    """The event log is forgotten: watches and continue tokens from before get 410. Happens once.

    ``status``: watches that begin before it are answered with HTTP 410; else with an ERROR event in the stream.
    """

    status: bool = False


class NodeDown(_Fault, frozen=True, tag="node-down"):
    """A node's kubelet is dead (``unreachable``) or says that it is not ready (``not-ready``)."""

    node: Name
    how: Literal["unreachable", "not-ready"] = "unreachable"


class StuckPod(_Fault, frozen=True, tag="stuck-pod"):
    """A pod that is being deleted does not end."""

    pod: Name
    namespace: Name = "default"


class BindFail(_Fault, frozen=True, tag="bind-fail"):
    """Binds fail after cards were reserved: the pod stays pending with the annotations of a node it never got to.

    ``pod`` is the beginning of the names that are meant; empty: all.
    """

    pod: str = ""
    namespace: str = ""
    times: Count = 1

    def meant(self, namespace: str, pod: str) -> bool:
        """Whether a pod is meant."""
        return self.namespace in ("", namespace) and pod.startswith(self.pod)


class Labels(_Fault, frozen=True, tag="label"):
    """Somebody relabels a node with kubectl, past everybody (null takes a label off). Happens once."""

    node: Name
    labels: dict[str, str | None]


class Card(_Fault, frozen=True, tag="card"):
    """A card breaks with an XID error: the device plugin calls it unhealthy, capacity stays above allocatable."""

    node: Name
    index: Annotated[int, Meta(ge=0, le=15)] = 0
    xid: Annotated[int, Meta(ge=1, le=200)] = 79


class PluginRestart(_Fault, frozen=True, tag="plugin-restart"):
    """The device plugin's pod dies and comes back: the node shows 0 for a moment. Happens once."""

    node: Name


class Ecc(_Fault, frozen=True, tag="ecc"):
    """ECC of a node's cards is switched: on, a sixteenth of the memory is gone. Happens once, stays."""

    node: Name
    on: bool = True


class MixedCards(_Fault, frozen=True, tag="mixed-cards"):
    """A node turns out to have different cards (``MODEL:MIB`` each); the plugin counts all like the first."""

    node: Name
    cards: Annotated[tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9.\-]{1,60}:\d{3,7}$")], ...], Meta(min_length=2)]


class TaskFail(_Fault, frozen=True, tag="task-fail"):
    """ACK tasks of a type (empty: any) fail half way: after so many results (nodes, add-ons) of a stage.

    With a ``node``: they do all other nodes first, and fail for the machine of that one.
    """

    task_type: str = ""
    after: Count = 1
    node: str = ""
    code: str = "InternalError"
    message: str = "The operation failed half way."
    times: Count = 1


class AckError(_Fault, frozen=True, tag="ack-error"):
    """The ACK OpenAPI refuses calls (by default: throttles them) whose path contains a text."""

    status: Annotated[int, Meta(ge=400, le=599)] = 400
    code: str = "Throttling.User"
    message: str = "Request was denied due to user flow control."
    path: str = ""
    times: Count = 0


class AckLatency(_Fault, frozen=True, tag="ack-latency"):
    """The ACK OpenAPI answers late, by wall-clock seconds."""

    seconds: Seconds = 1.0
    times: Count = 0


Fault = (
    Latency
    | Error
    | WatchDrop
    | WatchFreeze
    | WatchDuplicate
    | WatchLate
    | Compaction
    | NodeDown
    | StuckPod
    | BindFail
    | Labels
    | Card
    | PluginRestart
    | Ecc
    | MixedCards
    | TaskFail
    | AckError
    | AckLatency
)
KINDS: tuple[type[_Fault], ...] = Fault.__args__
# These are over as soon as they happened.
ONCE = (WatchDrop, Compaction, Labels, PluginRestart, Ecc, MixedCards)

decoder = msgspec.json.Decoder(Fault)
Some = TypeVar("Some", bound=_Fault)
Listener = Callable[[Fault, bool], None]


@dataclass(slots=True)
class Active:
    """A fault that is on, and how often it hit."""

    id: str
    fault: Fault
    hits: int = 0

    def shown(self) -> dict[str, object]:
        """Return it as the control endpoint shows it."""
        return {"id": self.id, "hits": self.hits, "fault": msgspec.to_builtins(self.fault)}


class Faults:
    """Which faults are on."""

    def __init__(self) -> None:
        self._active: dict[str, Active] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Have ``listener`` called with every fault that begins (True) or ends (False)."""
        self._listeners.append(listener)

    def add(self, fault: Fault) -> Active:
        """Begin a fault. Those that happen once are over when this returns."""
        active = Active(secrets.token_hex(4), fault)
        if isinstance(fault, ONCE):
            active.hits = 1
        else:
            self._active[active.id] = active
        self._tell(fault, begins=True)
        return active

    def remove(self, id_: str) -> bool:
        """End a fault; return whether it was on."""
        active = self._active.pop(id_, None)
        if active is not None:
            self._tell(active.fault, begins=False)
        return active is not None

    def clear(self) -> None:
        """End all faults."""
        for id_ in list(self._active):
            self.remove(id_)

    def _tell(self, fault: Fault, *, begins: bool) -> None:
        for listener in self._listeners:
            listener(fault, begins)

    def all(self) -> list[Active]:
        """Return the faults that are on, oldest first."""
        return list(self._active.values())

    def of(self, kind: type[Some]) -> Iterator[Some]:
        """Return the faults of a kind that are on."""
        return (active.fault for active in self._active.values() if isinstance(active.fault, kind))

    def hit(self, kind: type[Some], met: Callable[[Some], bool]) -> Some | None:
        """Return the first fault of a kind that meets a condition, and count the hit; None without one.

        A fault with a number of times is over after its last.
        """
        for active in self._active.values():
            fault = active.fault
            if isinstance(fault, kind) and met(fault):
                active.hits += 1
                times = getattr(fault, "times", 0)
                if times and active.hits >= times:
                    self.remove(active.id)
                return fault
        return None

    def node_down(self, node: str) -> NodeDown | None:
        """Return what is wrong with a node's kubelet."""
        return next((fault for fault in self.of(NodeDown) if fault.node == node), None)

    def stuck(self, namespace: str, pod: str) -> bool:
        """Return whether a pod shall not end."""
        return any((fault.namespace, fault.pod) == (namespace, pod) for fault in self.of(StuckPod))
