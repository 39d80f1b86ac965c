"""Moving a mode change from state to state: one conditional UPDATE, with its audit entry in the same transaction.

It knows the table of moves and nothing of clusters or of who may decide.
"""

from __future__ import annotations

from typing import Final

from django.utils import timezone

from gpupools.domain.changes import OPEN, Move, State, next_state
from gpupools.errors import Conflict
from gpupools.models import AuditEntry, ModeChange, PoolHold
from gpupools.services import audit, bell
from gpupools.services.access import Actor

ACTIONS: Final = {
    Move.APPROVE: "change.approve",
    Move.REJECT: "change.reject",
    Move.WITHDRAW: "change.withdraw",
    Move.EXPIRE: "change.expire",
    Move.LAPSE: "change.lapse",
    Move.START: "change.start",
    Move.SUCCEED: "change.applied",
    Move.FAIL: "change.failed",
    Move.PAUSE: "change.pause",
    Move.RESUME: "change.resume",
    Move.RETRY: "change.retry",
    Move.ROLL_BACK: "change.roll_back",
    Move.FINISH_ROLL_BACK: "change.rolled_back",
    Move.ABANDON: "change.abandon",
}


def check(change: ModeChange, made: Move) -> State:
    """Return where a move leads, or refuse it with the state that the change is in and who moved it there."""
    try:
        return next_state(State(change.state), made)
    except Conflict as error:
        who = _last_mover(change)
        said = f"{error.message} {who} moved it there." if who else error.message
        raise Conflict(said, code=error.code, state=change.state, move=made.value, moved_by=who) from None


def _last_mover(change: ModeChange) -> str:
    moves = AuditEntry.objects.filter(object_type="modechange", object_id=str(change.pk), action__in=ACTIONS.values())
    return moves.order_by("-pk").values_list("actor_name", flat=True).first() or ""


def move(change: ModeChange, made: Move, actor: Actor, *, note: str = "", **fields: object) -> None:
    """Make a move; must be called inside a transaction, and refreshes the row.

    Raises Conflict when the table has no such move from the state that ``change`` was read in (code
    ``illegal-move``), or when somebody else has moved it since (code ``stale``).
    """
    before = State(change.state)
    after = check(change, made)
    if after not in OPEN:
        fields["finished_at"] = timezone.now()
    moved = ModeChange.objects.filter(pk=change.pk, state=before.value).update(state=after.value, note=note, **fields)
    if not moved:
        now = ModeChange.objects.filter(pk=change.pk).values_list("state", flat=True).first() or "gone"
        who = _last_mover(change)
        raise Conflict(
            f"This change was moved on meanwhile{f' by {who}' if who else ''}: it is {now.replace('_', ' ')} now.",
            code="stale",
            change=change.pk,
            state=now,
            moved_by=who,
        )
    if after not in OPEN:
        PoolHold.objects.filter(change=change).delete()
    change.refresh_from_db()
    audit.record(
        actor,
        ACTIONS[made],
        change,
        cluster=change.pool.cluster,
        old=before.value,
        new=after.value,
        note=note,
        target_mode=change.target_mode,
        target_policy=change.target_policy,
        reason=str(fields.get("decision_reason", "")),
    )
    bell.ring_cluster(change.pool.cluster_id)
