"""The queue of operations on clusters: the row is the queue. What is done with a row is not known here.

A request enqueues a row in its own transaction. A worker claims it by a conditional UPDATE that sets a lease
and raises the fence, and writes what became of it only while the fence is still its own. A worker that dies
leaves a lease that runs out; the next one starts by looking whether the operation (``op_id``) has landed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, F, Q
from django.utils import timezone

from gpupools.errors import Conflict, ConsoleError, Unreachable
from gpupools.models import Cluster, Push
from gpupools.services import audit, bell
from gpupools.services.access import SYSTEM, Actor

logger = logging.getLogger(__name__)

# Tries without any progress before a push is parked: with the back-off below, about seven minutes.
MAX_TRIES = 12
BACK_OFF_SECONDS = 2.0
BACK_OFF_CAP_SECONDS = 60.0
# One run of the drainer stops claiming after this, so that it ends long before the task's time limit.
RUN_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Done:
    """The operation has landed. ``write`` changes rows in the transaction that closes the push."""

    detail: str = ""
    write: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Progress, but not the end: look again after ``seconds``; ``learned`` is merged into the row's first.

    ``write`` changes rows in the transaction that stores what was learned.
    """

    seconds: float
    learned: Mapping[str, Any] = field(default_factory=dict)
    detail: str = ""
    write: Callable[[], None] | None = None


Outcome = Done | Again


@dataclass(frozen=True, slots=True)
class Handler:
    """How a kind of push is carried out.

    ``run`` makes one probe or one call and returns; it raises Unreachable to be tried again later with a
    growing pause, any other ConsoleError to fail at once. ``failed`` writes the failure into the rows
    concerned, in the transaction that parks the push.
    """

    run: Callable[[Push], Outcome]
    failed: Callable[[Push, str], None] | None = None


def lease_seconds() -> float:
    """How long a claim holds: longer than any one call, short enough to replace a killed worker soon."""
    return float(3 * settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS)


def enqueue(actor: Actor, *, kind: str, cluster: Cluster, target: str, payload: Mapping[str, Any]) -> Push:
    """Queue an operation in the caller's transaction and ring for a worker after its commit.

    Raises Conflict (code ``busy``) while another operation on the same target is in flight.
    """
    now = timezone.now()
    try:
        with transaction.atomic():
            push = Push.objects.create(
                cluster=cluster,
                kind=kind,
                target=target,
                payload=dict(payload),
                due_at=now,
                created_at=now,
                requested_by=actor.user,
            )
    except IntegrityError as error:
        raise Conflict(
            f"Another operation on {target} is under way; try again when it is done.",
            code="busy",
            target=target,
        ) from error
    bell.ring_push()
    bell.ring_cluster(cluster.pk)
    return push


def in_flight(cluster: Cluster) -> set[str]:
    """Return the targets of a cluster that have a queued push."""
    return set(Push.objects.filter(cluster=cluster, state=Push.State.QUEUED).values_list("target", flat=True))


def wake(cluster: Cluster, target: str) -> None:
    """Make a queued operation due now, and ring for a worker after the caller's commit."""
    Push.objects.filter(cluster=cluster, target=target, state=Push.State.QUEUED).update(due_at=timezone.now())
    bell.ring_push()


def supersede(cluster: Cluster, target: str, *, kinds: Collection[str], by: str) -> bool:
    """End a queued operation that only waits, in the caller's transaction, so that another may take its place.

    One that a worker is carrying out this very moment is left alone: its call may be on the way.
    """
    now = timezone.now()
    waiting = Push.objects.filter(cluster=cluster, target=target, kind__in=kinds, state=Push.State.QUEUED)
    ended = waiting.filter(Q(lease_until=None) | Q(lease_until__lte=now)).update(
        state=Push.State.FAILED, error=f"Superseded by {by}.", finished_at=now, lease_until=None, fence=F("fence") + 1
    )
    return bool(ended)


def claim(*, skip: Collection[int] = ()) -> Push | None:
    """Take the row that has been due longest; None when nothing is due. ``skip``: keys of clusters to leave alone.

    The UPDATE names the fence that was read: of two workers with one candidate, one goes on to the next.
    """
    now = timezone.now()
    due = Push.objects.filter(state=Push.State.QUEUED, due_at__lte=now).filter(
        Q(lease_until=None) | Q(lease_until__lte=now)
    )
    for candidate in due.exclude(cluster__in=skip).order_by("due_at", "pk")[:20]:
        taken = due.filter(pk=candidate.pk, fence=candidate.fence).update(
            lease_until=now + timedelta(seconds=lease_seconds()),
            fence=F("fence") + 1,
            attempts=F("attempts") + 1,
        )
        if taken:
            return Push.objects.select_related("cluster", "requested_by").get(pk=candidate.pk)
    return None


def hold(push: Push, *, calls: int = 2) -> None:
    """Renew the lease right before a write that must not be made twice; raise when it was lost.

    ``calls``: how many calls the write takes, with those that look first; each may last two time-outs, one to connect
    and one to be answered.
    """
    longest = 2.0 * calls * settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS
    until = timezone.now() + timedelta(seconds=max(lease_seconds(), longest))
    if not _mine(push).update(lease_until=until):
        raise LostLease()


def note_progress(push: Push) -> None:
    """Count tries anew, in the middle of a run: what was done so far is kept, whatever becomes of this worker."""
    if push.attempts > 1 and _mine(push).update(attempts=1):
        push.attempts = 1


def is_held(push: Push) -> Exists:
    """Return the condition that no other worker has a push by now, for updates of rows that are written under it."""
    return Exists(_mine(push))


class LostLease(Conflict):
    """Another worker has the row by now; whoever sees this must stop without a trace."""

    default_code = "lost-lease"

    def __init__(self) -> None:
        super().__init__("Another worker has taken this operation over.")


def carry_out(push: Push, handler: Handler) -> bool:
    """Run the handler once for a claimed row and write what became of it; tell whether its cluster answered."""
    if push.attempts > MAX_TRIES:
        _park(push, handler, push.error or "The worker ended each time before this operation was done.")
        return True
    try:
        outcome = handler.run(push)
        _settle(push, outcome)
    except LostLease:
        logger.warning("Push %s (%s) was taken over by another worker.", push.pk, push.kind)
    except Unreachable as error:
        _try_later(push, handler, error.message, floor_seconds=float(error.retry_after_seconds))
        return False
    except ConsoleError as error:
        _park(push, handler, _sentence(error))
    return True


def drain(handlers: Mapping[str, Handler]) -> int:
    """Carry out what is due until nothing is or the run was long enough; return how many were taken."""
    started = timezone.now()
    taken = 0
    # A cluster that did not answer costs a run one time-out, however many rows it has: others are waiting too.
    silent: set[int] = set()
    while timezone.now() - started < timedelta(seconds=RUN_SECONDS) and (push := claim(skip=silent)) is not None:
        taken += 1
        handler = handlers.get(push.kind)
        if handler is None:
            _park(push, None, f"Nothing here carries out operations of kind {push.kind}.")
            continue
        try:
            if not carry_out(push, handler):
                silent.add(push.cluster_id)
        except Exception:  # noqa: BLE001  # the queue's one guard: a defect in a handler must not stop the others
            logger.exception("Push %s (%s %s) hit a defect of the console.", push.pk, push.kind, push.target)
            _try_later(push, handler, "The console itself failed at this; its log says how.", floor_seconds=0.0)
    return taken


def _mine(push: Push) -> Any:
    return Push.objects.filter(pk=push.pk, fence=push.fence, state=Push.State.QUEUED)


@transaction.atomic
def _settle(push: Push, outcome: Outcome) -> None:
    now = timezone.now()
    if isinstance(outcome, Again):
        learned = {**push.learned, **outcome.learned}
        due_at = now + timedelta(seconds=outcome.seconds)
        # Progress: tries count from here again.
        if not _mine(push).update(learned=learned, due_at=due_at, lease_until=None, attempts=0, error=""):
            raise LostLease()
        push.learned = learned
    else:
        _close(push, Push.State.DONE, "", now)
        audit.record(SYSTEM, "push.done", push, cluster=push.cluster, **_about(push), detail=outcome.detail)
    if outcome.write is not None:
        outcome.write()
    bell.ring_cluster(push.cluster_id)


def _try_later(push: Push, handler: Handler, sentence: str, *, floor_seconds: float) -> None:
    if push.attempts >= MAX_TRIES:
        _park(push, handler, f"Given up after {push.attempts} tries. {sentence}")
        return
    pause = min(BACK_OFF_CAP_SECONDS, BACK_OFF_SECONDS * 2 ** (push.attempts - 1))
    # Jitter, so that all rows of a cluster that came back do not arrive at once.
    seconds = max(floor_seconds, pause) * random.uniform(0.75, 1.25)  # noqa: S311  # nothing secret about a pause
    due_at = timezone.now() + timedelta(seconds=seconds)
    with transaction.atomic():
        _mine(push).update(due_at=due_at, lease_until=None, error=sentence[:1000])
        bell.ring_cluster(push.cluster_id)


def _park(push: Push, handler: Handler | None, sentence: str) -> None:
    try:
        with transaction.atomic():
            _close(push, Push.State.FAILED, sentence[:1000], timezone.now())
            if handler is not None and handler.failed is not None:
                handler.failed(push, sentence)
            audit.record(SYSTEM, "push.failed", push, cluster=push.cluster, **_about(push), error=sentence[:1000])
            bell.ring_cluster(push.cluster_id)
    except LostLease:
        logger.warning("Push %s (%s) was taken over by another worker.", push.pk, push.kind)


def _close(push: Push, state: Push.State, error: str, now: datetime) -> None:
    if not _mine(push).update(state=state, error=error, lease_until=None, finished_at=now):
        raise LostLease()
    push.state, push.error, push.finished_at = state, error, now


def _about(push: Push) -> dict[str, object]:
    requested_by = push.requested_by.get_username() if push.requested_by else SYSTEM.name
    return {"kind": push.kind, "target": push.target, "op_id": str(push.op_id), "requested_by": requested_by}


def _sentence(error: ConsoleError) -> str:
    details = [f"{each.field}: {each.message}" for each in error.errors if each.message != error.message]
    return " ".join([error.message, *details])
