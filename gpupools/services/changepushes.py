"""Carrying mode changes out: one step, or a little of one, per run of the push; nothing waits in here.

Where a change stands is in its rows alone, so any worker goes on where another was cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from django.db.models import F, QuerySet
from django.utils import timezone

from gpupools.domain.changes import Move, State
from gpupools.domain.routes import MANUAL, Way
from gpupools.errors import Conflict, ConsoleError, Unreachable
from gpupools.models import ChangeStep, Cluster, ModeChange, NodePool, Push
from gpupools.services import (
    audit,
    changefacts,
    changequeue,
    changes,
    gateways,
    holdings,
    machinesteps,
    notices,
    pushes,
    stepprogress,
)
from gpupools.services.access import SYSTEM
from gpupools.services.moves import move
from gpupools.services.poolspecs import target_of
from gpupools.services.pushes import Again, Done, Handler, Outcome
from gpupools.services.site import LOOK_AGAIN_SECONDS, Result, Site, Stopped, Waiting

# How long another operation on a pool of ACK may keep a step from its call.
POOL_BUSY: Final = timedelta(minutes=30)


def push_change_step(push: Push) -> Outcome:
    """Carry out the next bit of an approved change.

    The facts that the approval is bound to are looked at once more before the first step: if one moved, the change
    lapses here.
    """
    change = _change(push)
    if change is None:
        return Done("The change is gone.")
    if {target_of(pool) for pool in changequeue.pools_of(change)} & pushes.in_flight(push.cluster):
        # The pool is still being made or edited by what was queued before the change was approved.
        return Again(LOOK_AGAIN_SECONDS, detail="Another operation on the pool is under way.")
    if change.state == State.APPROVED:
        return _start(change)
    if change.state not in (State.APPLYING, State.ROLLING_BACK):
        return Done(f"The change is {change.state}.")
    back = change.state == State.ROLLING_BACK
    ended = (ChangeStep.State.DONE, ChangeStep.State.SKIPPED)
    steps_due = change.steps.filter(is_rollback=back).exclude(state__in=ended)
    step = steps_due.select_related("confirmed_by").order_by("position").first()
    if step is None:
        return Done("Carried out.", lambda: _succeed(change))
    _begin(push, step)
    try:
        with gateways.pools_of(push.cluster) as (kubernetes, provider):
            seen = changefacts.look(change.pool, kubernetes, changefacts.names_now(change))
            result = _carry_out(Site(push, change, step, kubernetes, provider, seen))
    except Unreachable as error:
        _note(ChangeStep.objects.filter(pushes.is_held(push), pk=step.pk), error.message)
        stepprogress.note_trouble(push, step, error.code)
        raise
    except pushes.LostLease:
        raise
    except ConsoleError as error:
        is_right = error.data.get("status") in (401, 403)
        stepprogress.note_trouble(push, step, "forbidden" if is_right else error.code)
        raise
    return _outcome(change, step, result)


def _carry_out(site: Site) -> Result:
    stepprogress.note(site)
    try:
        result = _step(site)
        stepprogress.note_trouble(site.push, site.step)
        return result
    except (pushes.LostLease, Unreachable):
        raise
    except ConsoleError:
        # What was done before the refusal is done: look once more, so that the failure can name it.
        with suppress(ConsoleError):
            site.seen = changefacts.look(site.pool, site.kubernetes, changefacts.names_now(site.change))
            stepprogress.note(site)
        raise


def _step(site: Site) -> Result:
    try:
        return machinesteps.STEPS[site.step.kind](site)
    except Conflict as error:
        # ACK says so while something else is done to the pool: it refused the call, so it may be made again later.
        if not error.data.get("ack_code"):
            raise
        return site.wait(error.message, POOL_BUSY)


def _start(change: ModeChange) -> Outcome:
    with gateways.kubernetes_of(change.pool.cluster) as kubernetes:
        # The cluster itself, not the picture: from here on it is written to.
        seen = changefacts.look(change.pool, kubernetes, change.node_names)
    moved = changes.what_moved(change, seen)
    if moved:
        return Done("The change has lapsed.", lambda: move(change, Move.LAPSE, SYSTEM, note=" ".join(moved)))
    return Again(0.0, write=lambda: move(change, Move.START, SYSTEM, started_at=timezone.now()))


def _begin(push: Push, step: ChangeStep) -> None:
    if step.state == ChangeStep.State.RUNNING:
        return
    step.state, step.started_at = ChangeStep.State.RUNNING, timezone.now()
    # A worker that was stopped for long must not begin again what another has ended meanwhile.
    row = ChangeStep.objects.filter(pushes.is_held(push), pk=step.pk)
    if not row.update(state=step.state, started_at=step.started_at):
        raise pushes.LostLease()


def _outcome(change: ModeChange, step: ChangeStep, result: Result) -> Outcome:
    if isinstance(result, Stopped):
        note = result.note
        return Done(note, lambda: _stop(change, step, note))
    if isinstance(result, Waiting):
        detail = result.detail
        if step.kind in MANUAL and step.confirmed_at is None:
            return Again(result.seconds, detail=detail, write=lambda: _hand_over(change, step, detail))
        return Again(result.seconds, detail=detail, write=lambda: _note(_row(step), detail))
    return Again(0.0, detail=result.detail, write=_finisher(change, step, result.detail))


def _row(step: ChangeStep) -> QuerySet[ChangeStep]:
    return ChangeStep.objects.filter(pk=step.pk)


def _note(row: QuerySet[ChangeStep], detail: str) -> None:
    # What it waits for since when: the clock starts again when it waits for something else.
    row.exclude(detail=detail[:1000]).update(detail=detail[:1000], waiting_since=timezone.now())


def _hand_over(change: ModeChange, step: ChangeStep, detail: str) -> None:
    """Say that a person is waited for, and tell people whenever there is something new to say."""
    if ChangeStep.objects.filter(pk=step.pk).exclude(detail=detail[:1000]).exists():
        notices.needs_person(change)
    _note(_row(step), detail)


def _stop(change: ModeChange, step: ChangeStep, note: str) -> None:
    _note(_row(step), note)
    move(change, Move.PAUSE, SYSTEM, note=note)
    notices.paused(change)


def _finisher(change: ModeChange, step: ChangeStep, detail: str) -> Callable[[], None]:
    def finish() -> None:
        _row(step).update(state=ChangeStep.State.DONE, detail=detail[:1000], finished_at=timezone.now())
        audit.record(
            SYSTEM, "change.step", change, cluster=change.pool.cluster, step=step.kind, title=step.title, detail=detail
        )

    return finish


def _succeed(change: ModeChange) -> None:
    """Close the change, and let the rows of its pools say what is true now."""
    if change.state == State.ROLLING_BACK:
        move(change, Move.FINISH_ROLL_BACK, SYSTEM, note=change.note)
        return
    move(change, Move.SUCCEED, SYSTEM)
    if change.way in (Way.MOVE, Way.JOIN):
        if change.pool.cluster.provider == Cluster.Provider.KUBERNETES:
            holdings.hand_over(change, {each["name"] for each in change.diff["facts"]["nodes"].values()})
        return
    NodePool.objects.filter(pk=change.pool_id).update(
        mode=change.target_mode, policy=change.target_policy, version=F("version") + 1
    )


def _failed(push: Push, sentence: str) -> None:
    """Let the change fail at the step that could not be carried out; called in the transaction that parks the push."""
    change = _change(push)
    if change is None:
        return
    if change.state == State.APPROVED:
        # It never started: there is nothing to retry, and the request can be made again.
        move(change, Move.LAPSE, SYSTEM, note=sentence)
        return
    if change.state not in (State.APPLYING, State.ROLLING_BACK):
        return
    for step in change.steps.filter(state=ChangeStep.State.RUNNING):
        sentence = " ".join(filter(None, (_closed(sentence), stepprogress.told(step))))
        ChangeStep.objects.filter(pk=step.pk).update(
            state=ChangeStep.State.FAILED, detail=sentence[:1000], finished_at=timezone.now()
        )
    move(change, Move.FAIL, SYSTEM, note=sentence)
    notices.failed(change)


def _closed(sentence: str) -> str:
    """Return a sentence with its full stop: not every cluster's words have one."""
    return sentence if sentence.endswith((".", "…")) else f"{sentence}."


def _change(push: Push) -> ModeChange | None:
    found = ModeChange.objects.select_related("pool__cluster", "target_pool__cluster", "requested_by").filter(
        pk=push.payload["change"]
    )
    return found.first()


HANDLERS = {
    changequeue.STEP: Handler(push_change_step, _failed),
    changequeue.RELEASE: Handler(holdings.push_release, holdings.push_release_failed),
}
