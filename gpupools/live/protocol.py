"""What goes over the sockets of live pages: the shapes of messages and the codes of closing. It sends nothing.

A page gets a snapshot first, then deltas whose sequence numbers follow each other without a gap, and a pulse every
two seconds that says how old the numbers are. A new epoch begins with a new snapshot.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, TypedDict

import msgspec

from gpupools.services.rows import NodeRow, TotalsRow


class Snapshot(TypedDict):
    """All GPU nodes. ``taken_at`` and ``totals`` are None while nothing is known of the cluster."""

    type: Literal["snapshot"]
    cluster: str
    epoch: int
    sequence: int
    taken_at: str | None
    error: str
    nodes: list[NodeRow]
    totals: TotalsRow | None


class Delta(TypedDict):
    """The rows that changed, whole, and the names of nodes that are gone; ``totals`` are of the whole cluster."""

    type: Literal["delta"]
    cluster: str
    epoch: int
    sequence: int
    taken_at: str
    nodes: list[NodeRow]
    removed: list[str]
    totals: TotalsRow


class Pulse(TypedDict):
    """Nothing changed up to ``taken_at``; or, with ``error``, nobody knows since then."""

    type: Literal["pulse"]
    cluster: str
    epoch: int
    sequence: int
    taken_at: str
    error: str


class Touched(TypedDict):
    """Something else about the cluster changed: a pool, a component, a change, a submission. Pages read it again."""

    type: Literal["touched"]


class Listening(TypedDict):
    """From here on the page hears of every change; what happened before, while it had no socket, it may have missed."""

    type: Literal["listening"]


class Frame(TypedDict):
    """What the publisher sends through the channel layer: a delta or pulse as JSON, with what routes it."""

    type: str
    kind: Literal["delta", "pulse"]
    epoch: int
    sequence: int
    sent_at: float
    text: str


class CloseCode(IntEnum):
    """Why the server closed a socket. The first three are final: trying again will not help."""

    SIGN_IN = 4401
    NOT_ALLOWED = 4403
    NO_SUCH_CLUSTER = 4404
    NOT_UNDERSTOOD = 4400
    TOO_SLOW = 4408
    TRY_LATER = 4503


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """What a page may send: ``resync`` asks for a new snapshot."""

    type: Literal["resync"]


# Longer than any request can be.
LONGEST_REQUEST = 200


def read_request(text: str) -> Request | None:
    """Read what a page sent; None when it is nothing that a page may send."""
    if len(text) > LONGEST_REQUEST:
        return None
    try:
        return msgspec.json.decode(text, type=Request)
    except msgspec.DecodeError:
        return None
