"""Mode changes: asked for by one person, decided by another, carried out by a worker.

This is what people do to a change; what the worker does is in steps.py. An approval is bound to the exact
difference and to the facts it was made on: when one of them moves, the change lapses and says what moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from gpupools.domain import plans
from gpupools.domain.changes import OPEN, Move, State, check_decider, next_state
from gpupools.domain.modes import Mode
from gpupools.domain.plans import policy_of
from gpupools.errors import Conflict, ConsoleError, Invalid, NotAllowed
from gpupools.models import ChangeStep, Cluster, ModeChange, NodePool, Push, Role
from gpupools.services import audit, bell, changefacts, changerules, pushes
from gpupools.services.access import SYSTEM, Actor
from gpupools.services.changefacts import Seen
from gpupools.services.moves import move
from gpupools.services.poolspecs import unlike

STEP: Final = "change.step"
UNCORDON: Final = "change.uncordon"
ANOTHER_NAMESPACE: Final = "another namespace"


# -- Asking


def request(
    actor: Actor,
    pool: NodePool,
    *,
    target_mode: str,
    target_policy: str | None = None,
    holders: str = ModeChange.Holders.WAIT,
    reason: str,
) -> ModeChange:
    """Ask for a change of a pool's mode or policy; nothing happens before another person approves it.

    Raises Invalid with an error per field, Conflict when an open change holds the pool (code ``change-open``) or
    its nodes are ACK's and cannot be written from here, Unreachable when nothing is known of the cluster.
    """
    cluster = pool.cluster
    actor.require(Role.OPERATOR, cluster)
    if actor.user is None:
        raise NotAllowed("Only a person or a token asks for a mode change.", code="needs-user")
    mode, policy, holders, reason = changerules.checked(pool, target_mode, target_policy, holders, reason)
    if pool.state in (NodePool.State.GONE, NodePool.State.DELETING):
        raise Conflict(f"{pool.name} is {pool.get_state_display().lower()}.", code="gone", pool=pool.name)
    _check_not_held(pool)
    seen = changefacts.see(pool)
    changerules.check_possible(cluster, seen, mode)
    if pool.mode == mode and not unlike(seen.nodes, mode, policy) and policy_of(pool.policy) == policy:
        with_policy = f" with {policy.value}" if policy else ""
        raise Invalid.field(
            "target_mode",
            f"{pool.name} and all its nodes are {mode.value}{with_policy} already.",
            code="same",
            found=mode.value,
        )
    fields = changerules.judged(pool, seen, mode, policy, evict=holders == ModeChange.Holders.EVICT)
    now = timezone.now()
    change = ModeChange(
        pool=pool,
        from_policy=pool.policy,
        target_mode=mode.value,
        target_policy=policy.value if policy else "",
        holders=holders,
        reason=reason,
        requested_by=actor.user,
        requested_at=now,
        expires_at=now + timedelta(hours=settings.GPUPOOLS_CHANGE_EXPIRY_HOURS),
        **fields,
    )
    with transaction.atomic():
        try:
            with transaction.atomic():
                change.save(force_insert=True)
        except IntegrityError as error:
            raise _held(pool) from error
        audit.record(
            actor,
            "change.request",
            change,
            cluster=cluster,
            old={"mode": change.from_mode, "policy": change.from_policy},
            new={"mode": change.target_mode, "policy": change.target_policy},
            holders=holders,
            pods=len(change.blast_radius),
            reason=reason,
        )
        bell.ring_cluster(cluster.pk)
    return change


def _check_not_held(pool: NodePool) -> None:
    if ModeChange.objects.filter(pool=pool, state__in=[state.value for state in OPEN]).exists():
        raise _held(pool)


def _held(pool: NodePool) -> Conflict:
    return Conflict(
        f"An open mode change holds {pool.name}; it must be finished, rejected or withdrawn first.",
        code="change-open",
        pool=pool.name,
    )


# -- Deciding


def approve(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Let a change go ahead; a worker carries it out from here.

    Raises NotAllowed for whoever asked for it (code ``self-approval``, superuser or not), Conflict when the
    change is not pending any more, or when something moved since the request: then it lapses.
    """
    reason = _check_may_decide(actor, change, reason)
    next_state(State(change.state), Move.APPROVE)
    now = timezone.now()
    if change.expires_at <= now:
        _expire(change)
        raise Conflict("This change has expired; ask for it again.", code="expired", change=change.pk)
    change.pool.refresh_from_db()
    seen = changefacts.see(change.pool)
    moved = what_moved(change, seen)
    if moved:
        note = " ".join(moved)
        with transaction.atomic():
            move(change, Move.LAPSE, actor, note=note)
        raise Conflict(
            f"The change has lapsed, for something moved since the request. {note}", code="lapsed", moved=moved
        )
    with transaction.atomic():
        move(change, Move.APPROVE, actor, decided_by=actor.user, decided_at=now, decision_reason=reason)
        _write_steps(change, seen)
        _enqueue(actor, change)
    return change


def reject(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Decide against a change. The same rules of who and why as for ``approve``."""
    reason = _check_may_decide(actor, change, reason)
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


def _check_may_decide(actor: Actor, change: ModeChange, reason: str) -> str:
    actor.require(Role.ADMIN, change.pool.cluster)
    if actor.user_id is None:
        raise NotAllowed("Only a person or a token decides on a mode change.", code="needs-user")
    check_decider(requester=change.requested_by_id, decider=actor.user_id)
    return _reason(reason, "Say why: the decision is kept with its reason.")


def _reason(reason: str, message: str) -> str:
    if not reason.strip():
        raise Invalid.field("reason", message, code="required")
    return reason.strip()


def what_moved(change: ModeChange, seen: Seen) -> list[str]:
    """Compare the facts that a change was asked for on with what is seen now; return what moved, in sentences."""
    facts = changefacts.facts(change.pool, seen, Mode(change.target_mode))
    if plans.fingerprint(facts) == change.fingerprint:
        return []
    return plans.moved(change.diff["facts"], facts) or ["Something about the pool moved."]


def _write_steps(change: ModeChange, seen: Seen) -> None:
    mode = Mode(change.target_mode)
    leaving = seen.unlike(mode)
    steps: Sequence[plans.Step] = plans.plan(
        None if leaving else mode,
        mode,
        nodes=[node.name for node in leaving or seen.nodes],
        evict=change.holders == ModeChange.Holders.EVICT,
        owns_nodes=change.pool.cluster.provider == Cluster.Provider.ACK,
    )
    ChangeStep.objects.bulk_create(
        ChangeStep(change=change, position=position, kind=step.kind, title=step.title[:200])
        for position, step in enumerate(steps, start=1)
    )


def _enqueue(actor: Actor, change: ModeChange, kind: str = STEP) -> None:
    pushes.enqueue(
        actor, kind=kind, cluster=change.pool.cluster, target=target_of(change), payload={"change": change.pk}
    )


def target_of(change: ModeChange) -> str:
    """Return what the pushes of a change write to; the pool itself is held by the open change."""
    return f"change:{change.pk}"


# -- While it is carried out


def pause(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Stop a change between two steps; what is cordoned stays so until it is resumed or abandoned."""
    actor.require(Role.OPERATOR, change.pool.cluster)
    reason = _reason(reason, "Say why the change is paused.")
    with transaction.atomic():
        move(change, Move.PAUSE, actor, note=f"Paused by {actor.name}: {reason}")
    return change


def retry(actor: Actor, change: ModeChange, *, reason: str = "") -> ModeChange:
    """Go on with the same plan: a failed change from the step that failed, a paused one from where it stopped.

    Where it paused for pods that nobody had seen at the request, going on is a decision like the first one: an
    administrator's, never the requester's, with a reason.
    """
    newcomers = _newcomers(change)
    if newcomers:
        reason = _check_may_decide(actor, change, reason)
    else:
        actor.require(Role.OPERATOR, change.pool.cluster)
    made = Move.RESUME if change.state == State.PAUSED else Move.RETRY
    with transaction.atomic():
        known = [*change.remembered.get("acknowledged", ()), *newcomers]
        move(change, made, actor, note=reason, remembered={**change.remembered, "acknowledged": known})
        change.steps.filter(state__in=[ChangeStep.State.FAILED, ChangeStep.State.RUNNING]).update(
            state=ChangeStep.State.WAITING, detail="", learned={}, started_at=None, finished_at=None
        )
        # A worker that has not noticed the pause yet still holds the push, and just goes on.
        if target_of(change) not in pushes.in_flight(change.pool.cluster):
            _enqueue(actor, change)
    return change


def _newcomers(change: ModeChange) -> list[str]:
    """Return the UIDs of pods for whose sake the change is paused."""
    if change.state != State.PAUSED:
        return []
    running = change.steps.filter(state=ChangeStep.State.RUNNING).first()
    return [each["uid"] for each in running.learned.get("newcomers", ())] if running else []


def abandon(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Give a paused or failed change up. What it cordoned is uncordoned; labels that it wrote stay, as drift."""
    actor.require(Role.OPERATOR, change.pool.cluster)
    reason = _reason(reason, "Say why the change is given up.")
    with transaction.atomic():
        move(change, Move.ABANDON, actor, note=reason)
        if change.remembered.get("ours"):
            _enqueue(actor, change, UNCORDON)
    return change


# -- By the clock


def expire_due() -> int:
    """Let changes expire that nobody decided on or started in time; wake those whose worker got lost.

    Returns how many were touched.
    """
    touched = 0
    waiting = [State.PENDING.value, State.APPROVED.value]
    for change in ModeChange.objects.filter(state__in=waiting, expires_at__lte=timezone.now()):
        touched += _expire(change)
    running = [State.APPROVED.value, State.APPLYING.value]
    for change in ModeChange.objects.filter(state__in=running).select_related("pool__cluster"):
        queued = Push.objects.filter(cluster=change.pool.cluster, target=target_of(change), state=Push.State.QUEUED)
        if not queued.exists():
            try:
                with transaction.atomic():
                    _enqueue(SYSTEM, change)
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
    namespaces = actor.namespaces(change.pool.cluster)
    return [
        each
        if namespaces is None or each["namespace"] in namespaces
        else {**each, "uid": "", "namespace": "", "pod": ANOTHER_NAMESPACE, "owner": "", "sentence": ""}
        for each in change.blast_radius
    ]
