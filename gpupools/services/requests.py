"""Deciding on requests for dangerous operations that are no mode change.

They are asked for where the operation is (poolcuts.py, pools.py, components.py, componentcare.py), and an approval
calls the same deed there, in one transaction with the decision. An approval is bound to the facts it was asked for on:
when one of them moves, the request lapses and says what moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import yaml
from django.db import transaction
from django.utils import timezone

from gpupools.domain import plans
from gpupools.domain import requests as rules
from gpupools.domain.changes import Move, State
from gpupools.domain.modes import Component
from gpupools.domain.requests import Kind
from gpupools.errors import Conflict, ConsoleError, NotAllowed, Refused, Unreachable
from gpupools.models import NodePool, OperationRequest, Push, Role
from gpupools.services import componentcare, components, endings, poolcuts, poolrules, pools, radii, requestrules
from gpupools.services.access import SYSTEM, Actor
from gpupools.services.radii import Radius
from gpupools.services.requestrules import check, move

MOVED: Final = "Something about it moved."
Deed = Callable[[Actor, OperationRequest, Radius, Mapping[str, object]], Push]


# -- What is done when a request is approved: the deed itself, with who may be hit and why


def _delete(actor: Actor, request: OperationRequest, radius: Radius, because: Mapping[str, object]) -> Push:
    pool = _pool_of(request)
    return poolcuts.remove(actor, pool, force=True, nodes=len(radius.nodes), radius=radius, **because)


def _scale(actor: Actor, request: OperationRequest, radius: Radius, because: Mapping[str, object]) -> Push:
    size, scaling = request.params["desired_size"], request.params["auto_scaling"]
    return poolcuts.set_size(actor, _pool_of(request), desired_size=size, scaling=scaling, radius=radius, **because)


def _taint(actor: Actor, request: OperationRequest, radius: Radius, because: Mapping[str, object]) -> Push:
    labels, taints = request.params["labels"], request.params["taints"]
    pool = _pool_of(request)
    return pools.write(actor, pool, labels=labels, taints=taints, update_nodes=True, radius=radius, **because)


def _uninstall(actor: Actor, request: OperationRequest, radius: Radius, because: Mapping[str, object]) -> Push:
    component = Component(request.component)
    return components.remove(actor, request.cluster, component, approved_pods=radius.pod_names, **because)


def _upgrade(actor: Actor, request: OperationRequest, radius: Radius, because: Mapping[str, object]) -> Push:
    component, payload = Component(request.component), request.params
    return componentcare.renew(
        actor, request.cluster, component, payload=payload, approved_pods=radius.pod_names, **because
    )


DEEDS: Mapping[Kind, Deed] = {
    Kind.FORCED_DELETE: _delete,
    Kind.SIZE_0: _scale,
    Kind.SCALE_DOWN: _scale,
    Kind.EVICTING_TAINT: _taint,
    Kind.COMPONENT_UNINSTALL: _uninstall,
    Kind.MPS_UPGRADE: _upgrade,
}


def _pool_of(request: OperationRequest) -> NodePool:
    pool = request.pool
    if pool is None:
        raise Conflict(f"The console no longer has the node pool {request.target}.", code="gone")
    return pool


# -- Deciding


def approve(
    actor: Actor, request: OperationRequest, *, reason: str, approved_pods: Sequence[str] = ()
) -> OperationRequest:
    """Let an operation go ahead, and queue it in the same transaction.

    Pods that end and have come since the request are named in ``approved_pods``: Conflict (code ``kills-pods``)
    otherwise. Raises NotAllowed for whoever asked for it (code ``self-approval``, superuser or not), Conflict when it
    is not pending any more, when a rule refuses it by now, or when something moved: then it lapses.
    """
    reason = requestrules.check_may_decide(actor, request, reason)
    check(request, Move.APPROVE)
    now = timezone.now()
    if request.expires_at <= now:
        _expire(request)
        raise Conflict("This request has expired; ask for it again.", code="expired", request=request.pk)
    radius = radius_now(request)
    if moved := what_moved(request, radius):
        with transaction.atomic():
            move(request, Move.LAPSE, actor, note=" ".join(moved))
        said = f"The request has lapsed, for something moved since. {' '.join(moved)}"
        raise Conflict(said, code="lapsed", moved=moved)
    came = endings.newcomers(request.blast_radius["pods"], radius.pods)
    said = "{many} would end that came since the request: {named}. Name them to approve that too."
    endings.check(came, approved_pods, said=said)
    with transaction.atomic():
        note = "Approved by whoever asked for it." if actor.user_id == request.requested_by_id else ""
        move(request, Move.APPROVE, actor, note=note, decided_by=actor.user, decided_at=now, decision_reason=reason)
        because = {
            "request": request.pk,
            "requested_by": request.requested_by.get_username(),
            "approved_by": actor.name,
            "reason": request.reason,
        }
        push = DEEDS[Kind(request.kind)](actor, request, radius, because)
        OperationRequest.objects.filter(pk=request.pk).update(push=push)
        request.push = push
    return request


def reject(actor: Actor, request: OperationRequest, *, reason: str) -> OperationRequest:
    """Decide against an operation. The same rules of who and why as for ``approve``."""
    reason = requestrules.check_may_decide(actor, request, reason)
    with transaction.atomic():
        now = timezone.now()
        move(request, Move.REJECT, actor, decided_by=actor.user, decided_at=now, decision_reason=reason)
    return request


def withdraw(actor: Actor, request: OperationRequest) -> OperationRequest:
    """Take a request back before somebody decides; only whoever made it can."""
    actor.require(Role.VIEWER, request.cluster)
    if actor.user_id is None or actor.user_id != request.requested_by_id:
        raise NotAllowed("Only whoever asked for it can withdraw it.", code="not-the-requester")
    with transaction.atomic():
        move(request, Move.WITHDRAW, actor)
    return request


# -- Looking


def radius_now(request: OperationRequest) -> Radius:
    """Return who would be hit now. Raises Unreachable when nobody knows."""
    if request.component:
        component = Component(request.component)
        pools = components.dependents(request.cluster, component)
        return radii.of_component(request.cluster, component, pools=pools)
    pool = _pool_of(request)
    pool.refresh_from_db()
    if request.kind == Kind.EVICTING_TAINT:
        return radii.of_taints(pool, poolrules.as_taints(request.params["taints"]))
    return radii.of_pool(pool, some=request.kind == Kind.SCALE_DOWN)


def what_moved(request: OperationRequest, radius: Radius) -> list[str]:
    """Compare the facts that an operation was asked for on with those of now; return what moved, in sentences."""
    if plans.fingerprint(radius.facts) == request.fingerprint:
        return []
    return rules.moved(request.facts, radius.facts) or [MOVED]


def manifests(request: OperationRequest) -> str:
    """Return the uploaded manifests that an approval applies, as YAML; empty without any. None is a Secret."""
    documents = request.params.get("documents") or ()
    return yaml.safe_dump_all(documents, sort_keys=False) if documents else ""


def visible_radius(actor: Actor, request: OperationRequest) -> dict[str, Any]:
    """Return who is hit; pods of namespaces out of the actor's reach have no name."""
    radius: dict[str, Any] = request.blast_radius
    return {**radius, "pods": radii.visible(actor, request.cluster, radius.get("pods", ()))}


# -- By the clock


def expire_due() -> int:
    """Let requests expire that nobody decided on in time, and lapse those that cannot be approved any more.

    Returns how many were touched. What cannot be read now is left for the next time.
    """
    touched = 0
    waiting = OperationRequest.objects.filter(state=State.PENDING.value).select_related("cluster", "pool__cluster")
    for request in waiting:
        if request.expires_at <= timezone.now():
            touched += _expire(request)
            continue
        try:
            moved = what_moved(request, radius_now(request))
        except (Unreachable, Refused):
            continue
        if moved:
            touched += _end(request, Move.LAPSE, " ".join(moved))
    return touched


def _expire(request: OperationRequest) -> int:
    return _end(request, Move.EXPIRE, "Nobody decided on it in time.")


def _end(request: OperationRequest, made: Move, note: str) -> int:
    try:
        with transaction.atomic():
            move(request, made, SYSTEM, note=note)
    except ConsoleError:
        return 0  # decided, or ended by another tick, a moment ago
    return 1
