"""Values of placement: a node's state, what it says to an ask, and the preview made of all of them."""

from __future__ import annotations

import msgspec

from gpupools.domain.gpus import Gpu, GpuNode, HostPort, NodeAllocation
from gpupools.errors import FieldError

NO_ROOM = -1


class NodeState(msgspec.Struct, frozen=True, gc=False):
    """A node with all that is taken of it. ``requested`` is what the scheduler counts, ``pods`` how many it counts.

    ``rooms`` and ``core_rooms`` are what ACK's scheduler would still give of each card, in memory units and per
    cent: ``NO_ROOM`` for an unhealthy card. ``ports`` are the ports of the node that pods have taken.
    """

    node: GpuNode
    allocation: NodeAllocation
    requested: dict[str, int] = {}
    pods: int = 0
    ports: tuple[HostPort, ...] = ()
    rooms: tuple[int, ...] = ()
    core_rooms: tuple[int, ...] = ()


def room_of(gpu: Gpu) -> int:
    """Return the memory units of a card that ACK's scheduler would still give; an over-full card has none."""
    return max(0, gpu.memory_units - gpu.memory_units_withheld - gpu.memory_units_held) if gpu.healthy else NO_ROOM


def given_units(gpu: Gpu) -> int:
    """Return the memory units that ACK's scheduler takes a card for: fewer than it has while another one is sick."""
    return gpu.memory_units - gpu.memory_units_withheld


def core_room_of(gpu: Gpu) -> int:
    """Return the per cent of a card's compute that ACK's scheduler would still give."""
    return max(0, gpu.core_percent - gpu.core_percent_withheld - gpu.core_percent_held) if gpu.healthy else NO_ROOM


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """Why a node does not take a pod: the scheduler's sentence, a stable code, and figures.

    Codes: unschedulable, name, taint, affinity, ports, insufficient, mode, device, topology. ``asked``, ``free`` and
    ``best`` are amounts of ``resource``: wanted, free on the node, free on its best card. ``unresolvable``: no
    eviction could help.
    """

    node: str
    code: str
    reason: str
    resource: str = ""
    asked: int = 0
    free: int = 0
    best: int = 0
    unresolvable: bool = False


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What one node says. ``score`` ranks it among those that fit (0..100, ACK's for shared cards).

    ``cards`` is the predicted choice; ``tie_set`` all cards that may be chosen instead at the same score: it is
    longer than ``cards`` when the choice is not firm. Exclusive cards have no index, so both are empty there.
    ``preference`` is what preferred affinity and soft taints add, ``waits_for`` how many terminating pods have
    to end first.
    """

    node: str
    fits: bool
    rejections: tuple[Rejection, ...] = ()
    cards: tuple[int, ...] = ()
    score: float = 0.0
    tie_set: tuple[int, ...] = ()
    preference: int = 0
    waits_for: int = 0


class Preview(msgspec.Struct, frozen=True, gc=False):
    """Where a pod would land now.

    ``tie_nodes`` holds the chosen node and those that rank the same. ``message`` is kube-scheduler's text of the
    FailedScheduling event, empty when a node was chosen; ``prefilter`` the reason that stands for all nodes.
    ``problems``: the pod would not even be stored, or ACK documents it as invalid.
    """

    chosen: str | None = None
    cards: tuple[int, ...] = ()
    tie_nodes: tuple[str, ...] = ()
    tie_cards: tuple[int, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    message: str = ""
    prefilter: str = ""
    problems: tuple[FieldError, ...] = ()
