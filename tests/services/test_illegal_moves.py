"""Every deed on a change in every state: made where the table says so, else refused with the state, who and when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from gpupools.domain.changes import MOVES, Move, State
from gpupools.errors import Conflict
from gpupools.models import AuditEntry, ChangeStep, ModeChange, NodePool, Push, Role
from gpupools.services import changes, tokens
from gpupools.services.access import Actor
from tests.services.asking import in_state
from tests.services.builders import an_actor

pytestmark = pytest.mark.django_db
Deed = Callable[[Actor, Actor, ModeChange], Any]

# What people do, by its name in the API; whose token does it; the move that it is, or the one state it is for.
DEEDS: dict[str, tuple[Deed, Role, Move | State]] = {
    "approve": (lambda o, a, change: changes.approve(a, change, reason="yes"), Role.ADMIN, Move.APPROVE),
    "reject": (lambda o, a, change: changes.reject(a, change, reason="no"), Role.ADMIN, Move.REJECT),
    "withdraw": (lambda o, a, change: changes.withdraw(o, change), Role.OPERATOR, Move.WITHDRAW),
    "pause": (lambda o, a, change: changes.pause(o, change, reason="wait"), Role.OPERATOR, Move.PAUSE),
    "retry": (lambda o, a, change: changes.retry(o, change), Role.OPERATOR, Move.RETRY),
    "roll-back": (lambda o, a, change: changes.roll_back(o, change, reason="back"), Role.OPERATOR, Move.ROLL_BACK),
    "abandon": (lambda o, a, change: changes.abandon(o, change, reason="enough"), Role.OPERATOR, Move.ABANDON),
    "confirm": (lambda o, a, change: changes.confirm(o, change, reason="done"), Role.OPERATOR, State.APPLYING),
    "undo": (lambda o, a, change: changes.undo(o, change, reason="back"), Role.OPERATOR, State.APPLIED),
    "release": (lambda o, a, change: changes.release(o, change), Role.OPERATOR, State.ABANDONED),
}
ALL = [(name, state) for name in DEEDS for state in State]


def is_legal(name: str, state: State) -> bool:
    kind = DEEDS[name][2]
    if isinstance(kind, State):
        return state is kind
    if kind is Move.RETRY and state is State.PAUSED:
        kind = Move.RESUME
    return (state, kind) in MOVES


def brought(operator: Actor, admin: Actor, pool: NodePool, state: State) -> ModeChange:
    """A change in a state, to which the administrator has brought it three minutes ago."""
    change = in_state(operator, pool, state)
    ModeChange.objects.filter(pk=change.pk).update(finished_at=timezone.now())
    if state is not State.PENDING:
        AuditEntry.objects.create(
            at=timezone.now() - timedelta(minutes=3, seconds=5),
            actor=admin.user,
            actor_name=admin.name,
            action="change.pause",
            object_type="modechange",
            object_id=str(change.pk),
            object_label="a test",
        )
    return change


def told(state: State, operator: Actor, admin: Actor) -> str:
    who = f"{operator.name}, just now" if state is State.PENDING else f"{admin.name}, 3 min ago"
    return f"the change is {state.value.replace('_', ' ')} (by {who})."


REFUSED = [pair for pair in ALL if not is_legal(*pair)]


@pytest.mark.parametrize(("name", "state"), REFUSED)
def test_a_deed_that_the_state_does_not_allow_is_refused_with_the_state_and_who_and_when(
    operator: Actor, admin: Actor, pool: NodePool, name: str, state: State
) -> None:
    change = brought(operator, admin, pool, state)
    before = AuditEntry.objects.count()
    with pytest.raises(Conflict) as refused:
        DEEDS[name][0](operator, admin, change)
    assert refused.value.message.endswith(told(state, operator, admin))
    assert refused.value.data["state"] == state.value
    assert refused.value.data["moved_by"] == (operator.name if state is State.PENDING else admin.name)
    assert refused.value.data["moved_at"]
    change.refresh_from_db()
    assert change.state == state.value
    assert (AuditEntry.objects.count(), Push.objects.count(), ChangeStep.objects.count()) == (before, 0, 0)


@pytest.fixture
def client_of(operator: Actor, admin: Actor) -> Callable[[Role], APIClient]:
    def client(role: Role) -> APIClient:
        actor = admin if role is Role.ADMIN else operator
        _, text = tokens.issue(actor, name=f"token-{role}", role=role.value)
        made = APIClient()
        made.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
        return made

    return client


@pytest.mark.parametrize(("name", "state"), REFUSED)
def test_over_rest_the_same_deed_is_a_409_with_the_same_words(
    operator: Actor, admin: Actor, pool: NodePool, client_of: Callable[[Role], APIClient], name: str, state: State
) -> None:
    change = brought(operator, admin, pool, state)
    answer = client_of(DEEDS[name][1]).post(f"/api/v1/mode-changes/{change.pk}/{name}/", {"reason": "a test"})
    assert answer.status_code == 409, answer.content
    assert answer.json()["detail"].endswith(told(state, operator, admin))
    change.refresh_from_db()
    assert change.state == state.value


@pytest.mark.parametrize(
    ("name", "state"), [pair for pair in ALL if is_legal(*pair) and isinstance(DEEDS[pair[0]][2], Move)]
)
def test_a_deed_that_the_state_allows_is_done_over_rest(
    operator: Actor, admin: Actor, pool: NodePool, client_of: Callable[[Role], APIClient], name: str, state: State
) -> None:
    change = brought(operator, admin, pool, state)
    answer = client_of(DEEDS[name][1]).post(f"/api/v1/mode-changes/{change.pk}/{name}/", {"reason": "a test"})
    assert answer.status_code == 200, answer.content
    assert answer.json()["state"] != state.value


def test_nobody_but_the_requester_withdraws_whatever_the_state(pool: NodePool, operator: Actor, admin: Actor) -> None:
    stranger = an_actor(Role.OPERATOR, name="oskar")
    change = in_state(operator, pool, State.PENDING)
    _, text = tokens.issue(stranger, name="oskars", role=Role.OPERATOR.value)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    assert client.post(f"/api/v1/mode-changes/{change.pk}/withdraw/").status_code == 403
