"""Carrying mode changes out: one step, or a little of one, per run of the push; nothing waits in here.

Where a change stands is in its rows alone, so any worker goes on where another was cut off.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import F
from django.utils import timezone

from gpupools.domain.changes import Move, State
from gpupools.errors import Unreachable
from gpupools.models import ChangeStep, ModeChange, NodePool, Push
from gpupools.services import audit, changefacts, changes, gateways, pushes, steps
from gpupools.services.access import SYSTEM
from gpupools.services.moves import move
from gpupools.services.poolspecs import target_of
from gpupools.services.pushes import Again, Done, Handler, Outcome


def push_change_step(push: Push) -> Outcome:
    """Carry out the next bit of an approved change.

    The facts that the approval is bound to are looked at once more before the first step: if one moved, the change
    lapses here.
    """
    change = _change(push)
    if change is None:
        return Done("The change is gone.")
    if target_of(change.pool) in pushes.in_flight(push.cluster):
        # The pool is still being made or edited by what was queued before the change was approved.
        return Again(steps.LOOK_AGAIN_SECONDS, detail="Another operation on the pool is under way.")
    if change.state == State.APPROVED:
        return _start(change)
    if change.state != State.APPLYING:
        return Done(f"The change is {change.state}.")
    step = change.steps.exclude(state=ChangeStep.State.DONE).order_by("position").first()
    if step is None:
        return Done("Carried out.", lambda: _succeed(change))
    _begin(step)
    try:
        with gateways.pools_of(push.cluster) as (kubernetes, provider):
            seen = changefacts.look(change.pool, kubernetes)
            site = steps.Site(push, change, step, kubernetes, provider, seen)
            result = steps.STEPS[step.kind](site)
    except Unreachable as error:
        ChangeStep.objects.filter(pk=step.pk).update(detail=error.message[:1000])
        raise
    return _outcome(change, step, result)


def _start(change: ModeChange) -> Outcome:
    with gateways.kubernetes_of(change.pool.cluster) as kubernetes:
        # The cluster itself, not the picture: from here on it is written to.
        seen = changefacts.look(change.pool, kubernetes)
    moved = changes.what_moved(change, seen)
    if moved:
        return Done("The change has lapsed.", lambda: move(change, Move.LAPSE, SYSTEM, note=" ".join(moved)))
    return Again(0.0, write=lambda: move(change, Move.START, SYSTEM, started_at=timezone.now()))


def _begin(step: ChangeStep) -> None:
    if step.state == ChangeStep.State.RUNNING:
        return
    step.state, step.started_at = ChangeStep.State.RUNNING, timezone.now()
    step.save(update_fields=["state", "started_at"])


def _outcome(change: ModeChange, step: ChangeStep, result: steps.Result) -> Outcome:
    if isinstance(result, steps.Stopped):
        note = result.note
        return Done(note, lambda: _stop(change, step, note))
    if isinstance(result, steps.Waiting):
        detail = result.detail
        return Again(result.seconds, detail=detail, write=lambda: _note(step, detail))
    return Again(0.0, detail=result.detail, write=_finisher(change, step, result.detail))


def _note(step: ChangeStep, detail: str) -> None:
    ChangeStep.objects.filter(pk=step.pk).update(detail=detail[:1000])


def _stop(change: ModeChange, step: ChangeStep, note: str) -> None:
    _note(step, note)
    move(change, Move.PAUSE, SYSTEM, note=note)


def _finisher(change: ModeChange, step: ChangeStep, detail: str) -> Callable[[], None]:
    def finish() -> None:
        ChangeStep.objects.filter(pk=step.pk).update(
            state=ChangeStep.State.DONE, detail=detail[:1000], finished_at=timezone.now()
        )
        audit.record(
            SYSTEM, "change.step", change, cluster=change.pool.cluster, step=step.kind, title=step.title, detail=detail
        )

    return finish


def _succeed(change: ModeChange) -> None:
    """Close the change, and let the pool's row say what is true now."""
    move(change, Move.SUCCEED, SYSTEM)
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
    if change.state != State.APPLYING:
        return
    change.steps.filter(state=ChangeStep.State.RUNNING).update(
        state=ChangeStep.State.FAILED, detail=sentence[:1000], finished_at=timezone.now()
    )
    move(change, Move.FAIL, SYSTEM, note=sentence)


def push_uncordon(push: Push) -> Outcome:
    """Open the nodes that a change closed before it was given up."""
    change = _change(push)
    ours = set(change.remembered.get("ours", ())) if change else set()
    if change is None or not ours:
        return Done("Nothing is cordoned.")
    with gateways.kubernetes_of(push.cluster) as kubernetes:
        closed = [node for node in kubernetes.nodes() if node.name in ours and node.unschedulable]
        for node in closed[: steps.BATCH]:
            kubernetes.cordon(node.name, unschedulable=False, op_id=str(push.op_id))
    if closed:
        return Again(0.0, detail=f"Uncordoning {len(closed)} nodes.")
    return Done("Uncordoned.", lambda: _forget_cordons(change))


def _forget_cordons(change: ModeChange) -> None:
    ModeChange.objects.filter(pk=change.pk).update(remembered={**change.remembered, "ours": []})


def _change(push: Push) -> ModeChange | None:
    found = ModeChange.objects.select_related("pool__cluster", "requested_by").filter(pk=push.payload["change"])
    return found.first()


HANDLERS = {
    changes.STEP: Handler(push_change_step, _failed),
    changes.UNCORDON: Handler(push_uncordon),
}
