"""Two people who decide at the same instant, in two real threads with a connection each: one wins, one is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from gpupools.domain.changes import State
from gpupools.errors import Conflict
from gpupools.models import AuditEntry, ChangeStep, Cluster, ModeChange, NodePool, Push, Role
from gpupools.services import changes
from gpupools.services.access import Actor
from tests.services.asking import asked, in_state
from tests.services.builders import an_actor

pytestmark = [pytest.mark.django_db(transaction=True)]
Deed = Callable[[Actor, ModeChange], Any]
ROUNDS = 5


def approve(actor: Actor, change: ModeChange) -> Any:
    return changes.approve(actor, change, reason="yes")


def reject(actor: Actor, change: ModeChange) -> Any:
    return changes.reject(actor, change, reason="no")


def roll_back(actor: Actor, change: ModeChange) -> Any:
    return changes.roll_back(actor, change, reason="back")


def retry(actor: Actor, change: ModeChange) -> Any:
    return changes.retry(actor, change, reason="on")


def abandon(actor: Actor, change: ModeChange) -> Any:
    return changes.abandon(actor, change, reason="enough")


def at_once(pk: int, *deeds: tuple[Actor, Deed]) -> list[Conflict | None]:
    """Let each do their deed on a row of their own, read before any of them begins."""
    gate = threading.Barrier(len(deeds))

    def do(actor: Actor, deed: Deed) -> Conflict | None:
        try:
            change = ModeChange.objects.select_related("pool__cluster").get(pk=pk)
            gate.wait(timeout=30)
            deed(actor, change)
        except Conflict as error:
            return error
        finally:
            connection.close()
        return None

    with ThreadPoolExecutor(len(deeds)) as threads:
        return [each.result(timeout=60) for each in [threads.submit(do, *pair) for pair in deeds]]


@pytest.mark.parametrize(
    ("state", "deeds"),
    [
        (State.PENDING, (approve, approve)),
        (State.PENDING, (approve, reject)),
        (State.FAILED, (roll_back, retry)),
        (State.PAUSED, (abandon, roll_back)),
    ],
)
def test_one_of_two_wins_and_the_other_is_told_who_and_what(
    operator: Actor, admin: Actor, pool: NodePool, state: State, deeds: tuple[Deed, Deed]
) -> None:
    people = (admin, an_actor(Role.ADMIN, name="bert"))
    for _ in range(ROUNDS):
        change = in_state(operator, pool, state)
        before = AuditEntry.objects.count()
        told = at_once(change.pk, *zip(people, deeds, strict=True))
        change.refresh_from_db()
        [loser] = [error for error in told if error is not None]
        winner = people[told.index(None)]
        assert loser.code in ("stale", "illegal-move")
        assert f"{change.state.replace('_', ' ')} (by {winner.name}, just now)" in loser.message
        assert (loser.data["state"], loser.data["moved_by"]) == (change.state, winner.name)
        assert AuditEntry.objects.count() == before + 1
        assert Push.objects.filter(state=Push.State.QUEUED).count() <= 1
        Push.objects.all().delete()
        ChangeStep.objects.all().delete()
        ModeChange.objects.all().delete()


def test_of_two_requests_at_once_for_one_pool_one_is_made(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    other = an_actor(Role.OPERATOR, name="oskar")
    gate = threading.Barrier(2)

    def ask(actor: Actor) -> ModeChange | Conflict:
        try:
            own = NodePool.objects.select_related("cluster").get(pk=pool.pk)
            gate.wait(timeout=30)
            return asked(actor, own)
        except Conflict as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        found = [each.result(timeout=60) for each in [threads.submit(ask, actor) for actor in (operator, other)]]
    [refused] = [each for each in found if isinstance(each, Conflict)]
    assert refused.code == "change-open"
    assert ModeChange.objects.count() == 1
