"""Mode changes: asked for by one person, decided by another, carried out by a worker.

Asking and deciding is here; what people do to a change that is under way is in courses.py, what the worker does in
steps.py. An approval is bound to the exact
difference and to the facts it was made on: when one of them moves, the change lapses and says what moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from gpupools.domain import plans
from gpupools.domain.changes import Move, State
from gpupools.domain.modes import Mode
from gpupools.domain.plans import policy_of
from gpupools.domain.routes import Way
from gpupools.errors import Conflict, ConsoleError, Invalid, NotAllowed
from gpupools.models import ModeChange, NodePool, Push, Role
from gpupools.services import audit, bell, changefacts, changequeue, changerules, courses, notices, radii
from gpupools.services.access import SYSTEM, Actor
from gpupools.services.changefacts import Seen
from gpupools.services.changerules import Wish
from gpupools.services.courses import abandon, confirm, pause, retry, roll_back
from gpupools.services.holdings import release
from gpupools.services.moves import check, move
from gpupools.services.poolspecs import unlike

__all__ = [
    "abandon",
    "approve",
    "confirm",
    "expire_due",
    "pause",
    "reject",
    "release",
    "request",
    "retry",
    "roll_back",
    "undo",
    "visible_radius",
    "what_moved",
    "withdraw",
]


# -- Asking


def request(
    actor: Actor,
    pool: NodePool,
    *,
    target_mode: str = "",
    target_policy: str | None = None,
    holders: str = ModeChange.Holders.WAIT,
    way: str = Way.WHOLE,
    batch_size: int = 0,
    node_names: Sequence[str] = (),
    target_pool: NodePool | None = None,
    undoes: ModeChange | None = None,
    reason: str,
) -> ModeChange:
    """Ask for a change of a pool's mode or policy, or of the pool of nodes; another person approves it.

    A change by which no node changes mode or policy needs nobody: it is approved by its rule, and says so. Raises
    Invalid with an error per field, Conflict when an open change holds a pool (code ``change-open``) or its nodes
    are ACK's and cannot be written from here, Unreachable when nothing is known of the cluster.
    """
    cluster = pool.cluster
    actor.require(Role.OPERATOR, cluster)
    if actor.user is None:
        raise NotAllowed("Only a person or a token asks for a mode change.", code="needs-user")
    wish = changerules.checked(
        pool,
        target_mode=target_mode,
        target_policy=target_policy,
        holders=holders,
        way=way,
        batch_size=batch_size,
        node_names=node_names,
        target_pool=target_pool,
        reason=reason,
    )
    if pool.state in (NodePool.State.GONE, NodePool.State.DELETING):
        raise Conflict(f"{pool.name} is {pool.get_state_display().lower()}.", code="gone", pool=pool.name)
    changequeue.check_not_held({pool.pk: pool, wish.home.pk: wish.home}.values())
    seen = changefacts.see(pool, wish.node_names)
    changerules.check_possible(wish, seen)
    _check_changes_anything(wish, seen)
    change = _row(actor, wish, seen, undoes)
    with transaction.atomic():
        try:
            with transaction.atomic():
                change.save(force_insert=True)
        except IntegrityError as error:
            raise changequeue.held(pool) from error
        changequeue.hold(change)
        audit.record(
            actor,
            "change.request",
            change,
            cluster=cluster,
            old={"mode": change.from_mode, "policy": change.from_policy},
            new={"mode": change.target_mode, "policy": change.target_policy},
            holders=change.holders,
            way=change.way,
            nodes=list(wish.node_names),
            target_pool=change.target_pool.name if change.target_pool else "",
            undoes=undoes.pk if undoes else None,
            pods=len(change.blast_radius),
            reason=wish.reason,
        )
        if change.rule:
            move(change, Move.APPROVE, SYSTEM, note=change.rule, decided_at=change.requested_at)
            _take_off(actor, change, seen)
        else:
            notices.waiting(change)
        bell.ring_cluster(cluster.pk)
    return change


def _row(actor: Actor, wish: Wish, seen: Seen, undoes: ModeChange | None) -> ModeChange:
    now = timezone.now()
    return ModeChange(
        pool=wish.pool,
        from_policy=wish.pool.policy,
        target_mode=wish.mode.value,
        target_policy=wish.policy.value if wish.policy else "",
        holders=wish.holders,
        way=wish.way.value,
        batch_size=wish.batch,
        node_names=list(wish.node_names),
        target_pool=wish.home if wish.home.pk != wish.pool.pk else None,
        undoes=undoes,
        rule=changerules.rule_for(wish, seen),
        reason=wish.reason,
        requested_by=actor.user,
        requested_at=now,
        expires_at=now + timedelta(hours=settings.GPUPOOLS_CHANGE_EXPIRY_HOURS),
        **changerules.judged(wish, seen),
    )


def _check_changes_anything(wish: Wish, seen: Seen) -> None:
    pool, mode, policy = wish.pool, wish.mode, wish.policy
    if wish.way in (Way.MOVE, Way.JOIN) or pool.mode != mode or policy_of(pool.policy) != policy:
        return
    if not unlike(seen.nodes, mode, policy):
        with_policy = f" with {policy.value}" if policy else ""
        raise Invalid.field(
            "target_mode",
            f"{pool.name} and all its nodes are {mode.value}{with_policy} already.",
            code="same",
            found=mode.value,
        )


def undo(actor: Actor, change: ModeChange, *, reason: str, holders: str = "") -> ModeChange:
    """Ask for the way back of an applied change: a change of its own, which somebody decides on."""
    actor.require(Role.OPERATOR, change.pool.cluster)
    wishes: dict[str, Any] = courses.undo_wishes(change)
    pool = change.target_pool or change.pool
    return request(actor, pool, **{**wishes, "holders": holders or change.holders, "reason": reason, "undoes": change})


# -- Deciding


def approve(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Let a change go ahead; a worker carries it out from here.

    Raises NotAllowed for whoever asked for it (code ``self-approval``, superuser or not), Conflict when the
    change is not pending any more, or when something moved since the request: then it lapses.
    """
    reason = changerules.check_may_decide(actor, change, reason)
    check(change, Move.APPROVE)
    now = timezone.now()
    if change.expires_at <= now:
        _expire(change)
        raise Conflict("This change has expired; ask for it again.", code="expired", change=change.pk)
    change.pool.refresh_from_db()
    seen = changefacts.see(change.pool, change.node_names)
    moved = what_moved(change, seen)
    if moved:
        note = " ".join(moved)
        with transaction.atomic():
            move(change, Move.LAPSE, actor, note=note)
        raise Conflict(
            f"The change has lapsed, for something moved since the request. {note}", code="lapsed", moved=moved
        )
    with transaction.atomic():
        note = "Approved by whoever asked for it." if actor.user_id == change.requested_by_id else ""
        move(change, Move.APPROVE, actor, note=note, decided_by=actor.user, decided_at=now, decision_reason=reason)
        _take_off(actor, change, seen)
    return change


def reject(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Decide against a change. The same rules of who and why as for ``approve``."""
    reason = changerules.check_may_decide(actor, change, reason)
    with transaction.atomic():
        move(change, Move.REJECT, actor, decided_by=actor.user, decided_at=timezone.now(), decision_reason=reason)
    return change


def withdraw(actor: Actor, change: ModeChange) -> ModeChange:
    """Take a request back before it has started; only whoever made it can."""
    actor.require(Role.VIEWER, change.pool.cluster)
    if actor.user_id is None or actor.user_id != change.requested_by_id:
        raise NotAllowed("Only whoever asked for a change can withdraw it.", code="not-the-requester")
    with transaction.atomic():
        move(change, Move.WITHDRAW, actor)
    return change


def _take_off(actor: Actor, change: ModeChange, seen: Seen) -> None:
    changequeue.write_steps(change, changerules.steps_of(changerules.wish_of(change), seen))
    changequeue.enqueue(actor, change)


def what_moved(change: ModeChange, seen: Seen) -> list[str]:
    """Compare the facts that a change was asked for on with what is seen now; return what moved, in sentences."""
    facts = changefacts.facts(change.target_pool or change.pool, seen, Mode(change.target_mode))
    if plans.fingerprint(facts) == change.fingerprint:
        return []
    return plans.moved(change.diff["facts"], facts) or ["Something about the pool moved."]


# -- By the clock


def expire_due() -> int:
    """Let changes expire that nobody decided on or started in time; wake those whose worker got lost.

    Returns how many were touched.
    """
    touched = 0
    waiting = [State.PENDING.value, State.APPROVED.value]
    for change in ModeChange.objects.filter(state__in=waiting, expires_at__lte=timezone.now()):
        touched += _expire(change)
    running = [State.APPROVED.value, State.APPLYING.value, State.ROLLING_BACK.value]
    for change in ModeChange.objects.filter(state__in=running).select_related("pool__cluster"):
        queued = Push.objects.filter(
            cluster=change.pool.cluster, target=changequeue.target_of(change), state=Push.State.QUEUED
        )
        if not queued.exists():
            try:
                with transaction.atomic():
                    changequeue.enqueue(SYSTEM, change)
                touched += 1
            except Conflict:
                continue
    return touched


def _expire(change: ModeChange) -> int:
    try:
        with transaction.atomic():
            move(change, Move.EXPIRE, SYSTEM, note="Nobody decided on it, or it did not start, in time.")
    except ConsoleError:
        return 0  # decided, or expired by another tick, a moment ago
    return 1


# -- Looking


def visible_radius(actor: Actor, change: ModeChange) -> list[dict[str, Any]]:
    """Return the pods that a change hits; those of namespaces out of the actor's reach have no name."""
    return radii.visible(actor, change.pool.cluster, change.blast_radius)
