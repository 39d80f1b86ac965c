"""A pool with two nodes, and asking for changes of its mode: what tests of mode changes start from."""

from __future__ import annotations

from typing import Any

from gpupools.domain.changes import State
from gpupools.models import ModeChange, NodePool, OperationRequest
from gpupools.services import changes, requests
from gpupools.services.access import Actor
from tests.domain.builders import a_node

WHY = "The vision team needs shared cards."
POOL = {"gpupools.internal/pool": "shared"}
MODE = "ack.node.gpu.schedule"


def two_nodes(**fields: Any) -> list[Any]:
    return [a_node("n1", "exclusive", labels=POOL, **fields), a_node("n2", "exclusive", labels=POOL, **fields)]


def asked(actor: Actor, pool: NodePool, **wishes: Any) -> ModeChange:
    return changes.request(actor, pool, **{"target_mode": "cgpu", "reason": WHY, **wishes})


def in_state(actor: Actor, pool: NodePool, state: State) -> ModeChange:
    change = asked(actor, pool)
    ModeChange.objects.filter(pk=change.pk).update(state=state.value)
    change.refresh_from_db()
    return change


def let(admin: Actor, made: object, **more: Any) -> OperationRequest:
    """Approve, as a second person, what was asked for."""
    assert isinstance(made, OperationRequest), f"{made!r} was done at once"
    return requests.approve(admin, made, reason="Agreed.", **more)
