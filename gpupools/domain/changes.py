"""The life of a mode change as one table of states and moves, and who may decide. Pure; it knows no rows."""

from __future__ import annotations

from enum import StrEnum

from gpupools.errors import Conflict, NotAllowed


class State(StrEnum):
    """Where a mode change stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    LAPSED = "lapsed"
    APPLYING = "applying"
    APPLIED = "applied"
    FAILED = "failed"
    PAUSED = "paused"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    ABANDONED = "abandoned"


class Move(StrEnum):
    """What can happen to a mode change."""

    APPROVE = "approve"
    REJECT = "reject"
    WITHDRAW = "withdraw"
    EXPIRE = "expire"
    LAPSE = "lapse"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    ROLL_BACK = "roll_back"
    FINISH_ROLL_BACK = "finish_roll_back"
    ABANDON = "abandon"


MOVES: dict[tuple[State, Move], State] = {
    (State.PENDING, Move.APPROVE): State.APPROVED,
    (State.PENDING, Move.REJECT): State.REJECTED,
    (State.PENDING, Move.WITHDRAW): State.WITHDRAWN,
    (State.PENDING, Move.EXPIRE): State.EXPIRED,
    (State.PENDING, Move.LAPSE): State.LAPSED,
    (State.APPROVED, Move.START): State.APPLYING,
    (State.APPROVED, Move.WITHDRAW): State.WITHDRAWN,
    (State.APPROVED, Move.EXPIRE): State.EXPIRED,
    (State.APPROVED, Move.LAPSE): State.LAPSED,
    (State.APPLYING, Move.SUCCEED): State.APPLIED,
    (State.APPLYING, Move.FAIL): State.FAILED,
    (State.APPLYING, Move.PAUSE): State.PAUSED,
    (State.PAUSED, Move.RESUME): State.APPLYING,
    (State.PAUSED, Move.ROLL_BACK): State.ROLLING_BACK,
    (State.PAUSED, Move.ABANDON): State.ABANDONED,
    (State.FAILED, Move.RETRY): State.APPLYING,
    (State.FAILED, Move.ROLL_BACK): State.ROLLING_BACK,
    (State.FAILED, Move.ABANDON): State.ABANDONED,
    (State.ROLLING_BACK, Move.FINISH_ROLL_BACK): State.ROLLED_BACK,
    (State.ROLLING_BACK, Move.FAIL): State.FAILED,
}

# A state that nothing leads out of is final; every other state holds the pool.
OPEN: frozenset[State] = frozenset(before for before, _ in MOVES)


def next_state(state: State, move: Move) -> State:
    """Return where the move leads; raise Conflict when the table has no such move."""
    try:
        return MOVES[state, move]
    except KeyError:
        raise Conflict(
            f"Cannot {move.value.replace('_', ' ')}: the change is {state.value.replace('_', ' ')}.",
            code="illegal-move",
            state=state.value,
            move=move.value,
        ) from None


def moves_from(state: State) -> tuple[Move, ...]:
    """Return the moves that are possible in a state, in the table's order."""
    return tuple(move for before, move in MOVES if before is state)


def check_decider(*, requester: int, decider: int) -> None:
    """Refuse that a person decides on their own request, whatever their role."""
    if requester == decider:
        raise NotAllowed("A second person must decide on a mode change.", code="self-approval")
