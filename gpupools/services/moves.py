"""Moving a mode change from state to state: one conditional UPDATE, with its audit entry in the same transaction.

It knows the table of moves and nothing of clusters or of who may decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils import timezone

from gpupools.domain.changes import OPEN, Move, State, next_state
from gpupools.errors import Conflict
from gpupools.models import AuditEntry, ModeChange, PoolHold
from gpupools.services import audit, bell
from gpupools.services.access import Actor

REQUEST: Final = "change.request"
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


@dataclass(frozen=True, slots=True)
class Mover:
    """Who brought a change to the state that it is in, and when."""

    name: str
    at: datetime


def mover_of(change: ModeChange) -> Mover | None:
    """Return who moved a change last, or who asked for it; None where the log does not reach back."""
    told = AuditEntry.objects.filter(object_type="modechange", object_id=str(change.pk))
    moves = told.filter(action__in=[REQUEST, *ACTIONS.values()])
    last = moves.order_by("-pk").values_list("actor_name", "at").first()
    return Mover(*last) if last else None


def where(state: str, mover: Mover | None) -> str:
    """Say in which state a change is, and by whom and since when."""
    plain = state.replace("_", " ")
    return f"{plain} (by {mover.name}, {ago(mover.at)})" if mover else plain


def ago(at: datetime) -> str:
    """Say how long ago something was, for a sentence."""
    seconds = (timezone.now() - at).total_seconds()
    if seconds < 5:
        return "just now"
    if seconds < 60:
        return f"{int(seconds)} s ago"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h ago"
    return f"{int(seconds // 86400)} days ago"


def refusal(change: ModeChange, said: str, code: str, *, made: str = "") -> Conflict:
    """Return the refusal of something that the state of a change does not allow; ``said`` is what cannot be done."""
    mover = mover_of(change)
    return Conflict(
        f"{said}: the change is {where(change.state, mover)}.",
        code=code,
        state=change.state,
        moved_by=mover.name if mover else "",
        moved_at=mover.at.isoformat() if mover else "",
        move=made,
    )


def check(change: ModeChange, made: Move) -> State:
    """Return where a move leads, or refuse it with the state that the change is in, who moved it there and when."""
    try:
        return next_state(State(change.state), made)
    except Conflict as error:
        said = f"Cannot {made.value.replace('_', ' ')}"
        raise refusal(change, said, error.code, made=made.value) from None


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
        mover = mover_of(change)
        raise Conflict(
            f"This change was moved on meanwhile: it is {where(now, mover)} now.",
            code="stale",
            change=change.pk,
            state=now,
            moved_by=mover.name if mover else "",
            moved_at=mover.at.isoformat() if mover else "",
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
