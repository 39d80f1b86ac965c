"""Which operations need a second person, how they are asked for, and how a request moves: by one conditional UPDATE.

It knows who may ask and decide, and nothing of what an operation does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from gpupools.domain import plans, requests
from gpupools.domain.changes import Move, State
from gpupools.domain.requests import Kind
from gpupools.errors import Conflict, NotAllowed
from gpupools.models import AuditEntry, Cluster, NodePool, OperationRequest, Role
from gpupools.services import audit, bell, notices
from gpupools.services.access import Actor
from gpupools.services.changerules import needed
from gpupools.services.radii import Radius

ACTIONS: Final = {
    Move.APPROVE: "request.approve",
    Move.REJECT: "request.reject",
    Move.WITHDRAW: "request.withdraw",
    Move.EXPIRE: "request.expire",
    Move.LAPSE: "request.lapse",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """An operation as it is asked for, with every word checked. ``diff``: (what, old, new), for people."""

    kind: Kind
    cluster: Cluster
    target: str
    radius: Radius
    params: Mapping[str, Any]
    diff: Sequence[tuple[str, str, str]]
    pool: NodePool | None = None


def needed_for(kind: Kind) -> bool:
    """Tell whether the policy wants a second person for a kind of operation."""
    return kind in settings.GPUPOOLS_APPROVAL_REQUIRED


def ask(actor: Actor, wish: Wish, *, reason: str) -> OperationRequest:
    """Write a request that waits for somebody else, and tell who may decide.

    Raises Conflict (code ``request-open``) while the same is asked for already. It holds nothing: what is done to the
    pool or component meanwhile makes it lapse.
    """
    if actor.user is None:
        raise NotAllowed("Only a person or a token asks for this; somebody else decides.", code="needs-user")
    now = timezone.now()
    request = OperationRequest(
        cluster=wish.cluster,
        kind=wish.kind.value,
        pool=wish.pool,
        component="" if wish.pool else wish.target,
        target=wish.target,
        params=dict(wish.params),
        diff=[{"what": what, "old": old, "new": new} for what, old, new in wish.diff],
        blast_radius=wish.radius.as_json(),
        warnings=[{"code": code, "message": message} for code, message in _warnings(wish.radius)],
        facts=wish.radius.facts,
        fingerprint=plans.fingerprint(wish.radius.facts),
        reason=reason,
        requested_by=actor.user,
        requested_at=now,
        expires_at=now + timedelta(hours=settings.GPUPOOLS_CHANGE_EXPIRY_HOURS),
    )
    with transaction.atomic():
        try:
            with transaction.atomic():
                request.save(force_insert=True)
        except IntegrityError as error:
            raise _asked_already(wish) from error
        pods = len(wish.radius.pods)
        audit.record(actor, "request.make", request, cluster=wish.cluster, **_about(request), pods=pods, reason=reason)
        notices.waiting(request)
        bell.ring_cluster(wish.cluster.pk)
    return request


def _asked_already(wish: Wish) -> Conflict:
    pending = OperationRequest.objects.filter(
        cluster=wish.cluster, kind=wish.kind.value, target=wish.target, state=State.PENDING.value
    ).first()
    who = f" by {pending.requested_by}" if pending else ""
    return Conflict(
        f"This is asked for already{who} and waits for a decision.",
        code="request-open",
        request=pending.pk if pending else None,
    )


def _warnings(radius: Radius) -> Iterable[tuple[str, str]]:
    if radius.lost:
        many = "1 pod has no owner and does" if radius.lost == 1 else f"{radius.lost} pods have no owner and do"
        yield "lost-pods", f"{many} not come back."


def check_may_decide(actor: Actor, request: OperationRequest, reason: str) -> str:
    """Let an administrator decide who is not the requester, with a reason; return the reason."""
    actor.require(Role.ADMIN, request.cluster)
    if actor.user_id is None:
        raise NotAllowed("Only a person or a token decides on this.", code="needs-user")
    if actor.user_id == request.requested_by_id and not settings.GPUPOOLS_ALLOW_SELF_APPROVAL:
        raise NotAllowed("A second person must decide on this.", code="self-approval")
    return needed(reason, "Say why: the decision is kept with its reason.")


def check(request: OperationRequest, made: Move) -> State:
    """Return where a move leads, or refuse it with the state that the request is in and who moved it there."""
    try:
        return requests.next_state(State(request.state), made)
    except Conflict as error:
        who = _last_mover(request)
        said = f"{error.message} {who} moved it there." if who else error.message
        raise Conflict(said, code=error.code, state=request.state, move=made.value, moved_by=who) from None


def move(request: OperationRequest, made: Move, actor: Actor, *, note: str = "", **fields: object) -> None:
    """Make a move; must be called inside a transaction, and refreshes the row.

    Raises Conflict when the table has no such move from the state that ``request`` was read in (code
    ``illegal-move``), or when somebody else has moved it since (code ``stale``).
    """
    before, after = request.state, check(request, made)
    moved = OperationRequest.objects.filter(pk=request.pk, state=before).update(
        state=after.value, note=note, ended_at=timezone.now(), **fields
    )
    if not moved:
        now = OperationRequest.objects.filter(pk=request.pk).values_list("state", flat=True).first() or "gone"
        who = _last_mover(request)
        raise Conflict(
            f"This was decided meanwhile{f' by {who}' if who else ''}: it is {now} now.",
            code="stale",
            request=request.pk,
            state=now,
            moved_by=who,
        )
    request.refresh_from_db()
    reason = str(fields.get("decision_reason", ""))
    audit.record(
        actor,
        ACTIONS[made],
        request,
        cluster=request.cluster,
        **_about(request),
        old=before,
        new=after.value,
        note=note,
        reason=reason,
    )
    bell.ring_cluster(request.cluster_id)


def _about(request: OperationRequest) -> dict[str, object]:
    return {"kind": request.kind, "target": request.target, "requested_by": request.requested_by.get_username()}


def _last_mover(request: OperationRequest) -> str:
    moves = AuditEntry.objects.filter(
        object_type="operationrequest", object_id=str(request.pk), action__in=ACTIONS.values()
    )
    return moves.order_by("-pk").values_list("actor_name", flat=True).first() or ""
