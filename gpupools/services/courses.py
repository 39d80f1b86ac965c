"""What people do to a mode change under way: pause, go on, give up, roll back, confirm; and how it is undone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from gpupools.domain import plans, routes
from gpupools.domain.changes import Move, State
from gpupools.domain.disruptions import is_pinned
from gpupools.domain.gpus import GpuNode
from gpupools.domain.modes import Mode, mode_of_label
from gpupools.domain.routes import Way
from gpupools.errors import Conflict, Refused, Unreachable
from gpupools.models import ChangeStep, Cluster, ModeChange, Role
from gpupools.services import audit, bell, changefacts, changequeue, changerules, holdings, notices, pushes, radii
from gpupools.services.access import Actor
from gpupools.services.changequeue import enqueue, target_of
from gpupools.services.moves import check, move, refusal
from gpupools.services.site import listed


def pause(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Stop a change between two steps; what is cordoned stays so until it is resumed or abandoned."""
    actor.require(Role.OPERATOR, change.pool.cluster)
    reason = changerules.needed(reason, "Say why the change is paused.")
    with transaction.atomic():
        move(change, Move.PAUSE, actor, note=f"Paused by {actor.name}: {reason}")
        notices.paused(change, by=actor)
    return change


def retry(actor: Actor, change: ModeChange, *, reason: str = "") -> ModeChange:
    """Go on with the same plan: a failed change from the step that failed, a paused one from where it stopped.

    Where it paused for pods that nobody had seen at the request, going on is a decision like the first one: an
    administrator's, never the requester's, with a reason. After a roll-back that failed, all steps are looked at
    again: each does only what is still to be done.
    """
    newcomers = _newcomers(change)
    if newcomers:
        reason = changerules.check_may_decide(actor, change, reason)
    else:
        actor.require(Role.OPERATOR, change.pool.cluster)
    made = Move.RESUME if change.state == State.PAUSED else Move.RETRY
    with transaction.atomic():
        move(change, made, actor, note=reason, remembered=_approving(change, newcomers))
        back, _ = change.steps.filter(is_rollback=True).delete()
        again = change.steps.exclude(kind=routes.PREFLIGHT) if back else change.steps.exclude(state="done")
        _reset(again)
        _go_on(actor, change)
    return change


def _newcomers(change: ModeChange) -> list[dict[str, str]]:
    """Return the pods for whose sake the change is paused."""
    if change.state != State.PAUSED:
        return []
    running = change.steps.filter(state=ChangeStep.State.RUNNING).first()
    return list(running.learned.get("newcomers", ())) if running else []


def _approving(change: ModeChange, came: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Return what a change remembers once somebody has decided over pods that came since the request."""
    # A change that paused before owners were kept has none to know stand-ins by.
    rows = [{"namespace": "", "owner": "", **each} for each in came]
    return {**change.remembered, "approved_later": [*change.remembered.get("approved_later", ()), *rows]}


def _reset(steps: Iterable[ChangeStep]) -> None:
    ChangeStep.objects.filter(pk__in=[step.pk for step in steps]).update(
        state=ChangeStep.State.WAITING, detail="", learned={}, started_at=None, finished_at=None, waiting_since=None
    )


def _go_on(actor: Actor, change: ModeChange) -> None:
    # A worker that has not noticed the pause yet still holds the push, and just goes on.
    if target_of(change) not in pushes.in_flight(change.pool.cluster):
        enqueue(actor, change)


def abandon(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Give a paused or failed change up. What it cordoned is uncordoned and auto scaling that it paused goes on.

    Labels that it wrote stay, as drift; a machine that it took out and did not put back stays outside, and is named.
    """
    actor.require(Role.OPERATOR, change.pool.cluster)
    reason = changerules.needed(reason, "Say why the change is given up.")
    with transaction.atomic():
        move(change, Move.ABANDON, actor, note=reason)
        # What failed stays told; nothing of what was under way runs on.
        given_up = change.steps.exclude(state__in=[ChangeStep.State.DONE, ChangeStep.State.FAILED])
        given_up.update(state=ChangeStep.State.SKIPPED, finished_at=timezone.now())
        # Pausing ends the queued bit as soon as a worker looks at it; nobody need wait for that.
        pushes.supersede(change.pool.cluster, target_of(change), kinds={changequeue.STEP}, by="giving the change up")
        holdings.let_go(actor, change)
    return change


def roll_back(actor: Actor, change: ModeChange, *, reason: str, approved_pods: Collection[str] = ()) -> ModeChange:
    """Bring the nodes of a paused or failed change back to where it found them, by steps of their own.

    It only takes back what an administrator had approved, so an operator may: pods that nobody had seen then are waited
    for, not evicted. Those that are named in ``approved_pods`` (namespace/name, of ``newcomers_back``) are evicted too
    where the request said so; that is a decision like the first one: an administrator's, never the requester's. Raises
    Unreachable when pods are named and nobody knows them.
    """
    actor.require(Role.OPERATOR, change.pool.cluster)
    reason = changerules.needed(reason, "Say why the change is rolled back.")
    came: list[dict[str, str]] = []
    if approved_pods:
        reason = changerules.check_may_decide(actor, change, reason)
        check(change, Move.ROLL_BACK)
        came = [each for each in newcomers_back(change) if each["pod"] in approved_pods]
    note = f"{reason} Approved to be evicted too: {listed(each['pod'] for each in came)}." if came else reason
    with transaction.atomic():
        move(change, Move.ROLL_BACK, actor, note=note, remembered=_approving(change, came))
        change.steps.filter(is_rollback=True).delete()
        unfinished = change.steps.exclude(state=ChangeStep.State.DONE)
        unfinished.update(state=ChangeStep.State.SKIPPED, finished_at=timezone.now())
        changequeue.write_steps(change, steps_back(change), is_rollback=True)
        _go_on(actor, change)
    return change


def steps_back(change: ModeChange) -> tuple[routes.Step, ...]:
    """Return the steps that would bring a change's nodes back, by what it has done so far."""
    begun = set(change.steps.filter(is_rollback=False).exclude(started_at=None).values_list("kind", flat=True))
    machines = change.remembered.get("machines", {}) if routes.REMOVE in begun else {}
    named = sorted(each["name"] for each in change.diff.get("facts", {}).get("nodes", {}).values())
    renamed = change.remembered.get("renamed", {})
    taken = {*machines, *(renamed.get(name, name) for name in machines)}
    steps = routes.back(
        to_mode=Mode(change.from_mode) if change.from_mode else None,
        nodes=sorted(machines) or named,
        evict=change.holders == ModeChange.Holders.EVICT,
        owns_nodes=change.pool.cluster.provider == Cluster.Provider.ACK,
        machines=bool(machines),
        labels=bool(begun & {routes.WRITE_LABELS, routes.WRITE_POOL}),
        others=sorted(set(change.remembered.get("ours", ())) - taken) if machines else (),
    )
    if not change.remembered.get("scaling"):
        return steps
    resume = routes.Step(routes.RESUME_SCALING, "Let auto scaling of the pool go on")
    return *steps[:-1], resume, steps[-1]


def newcomers_back(change: ModeChange) -> list[dict[str, str]]:
    """Return the pods on the nodes to be brought back that nobody has decided over: {uid, namespace, pod, owner, node}.

    ``pod`` is namespace/name. A roll-back waits for them. Raises Unreachable when nobody knows.
    """
    steps = [step for step in steps_back(change) if step.kind == routes.DRAIN]
    if not steps or change.holders != ModeChange.Holders.EVICT:
        return []
    seen = changefacts.see(change.pool, changefacts.names_now(change))
    nodes = [node for node in seen.nodes if _comes_back(change, node)]
    due = [pod for pod in plans.holders(nodes, seen.pods) if not is_pinned(pod)]
    return [changefacts.pod_row(pod) for pod in changefacts.newcomers(change, due, seen.pods)]


def visible_newcomers_back(actor: Actor, change: ModeChange) -> list[dict[str, Any]] | None:
    """Return ``newcomers_back`` as the actor may see them; None when nobody knows them now."""
    try:
        return radii.visible(actor, change.pool.cluster, newcomers_back(change))
    except (Refused, Unreachable):
        return None


def _comes_back(change: ModeChange, node: GpuNode) -> bool:
    """Tell whether a roll-back would empty a node: one that is not as the change found it."""
    machines, renamed = change.remembered.get("machines", {}), change.remembered.get("renamed", {})
    if machines:
        moved = {renamed.get(name, name) for name in machines}
        return node.name in moved and node.uid not in change.remembered.get("uids", {}).values()
    found = change.diff.get("facts", {}).get("nodes", {}).get(node.uid)
    mode = (mode_of_label(found["mode"] or None) if found else None) or Mode(change.from_mode or Mode.EXCLUSIVE)
    return node.declared is not mode


def confirm(actor: Actor, change: ModeChange, *, reason: str) -> ModeChange:
    """Say that the step which waits for a person is done. ``reason``: what was done, kept with who did it."""
    actor.require(Role.OPERATOR, change.pool.cluster)
    reason = changerules.needed(reason, "Say what was done: it is kept with the step.")
    step = waiting_for_a_person(change)
    if step is None:
        raise refusal(change, "No step of this change waits for a person", "nothing-to-confirm")
    with transaction.atomic():
        free = ChangeStep.objects.filter(pk=step.pk, confirmed_at=None, state=ChangeStep.State.RUNNING)
        if not free.update(confirmed_by=actor.user, confirmed_at=timezone.now()):
            raise Conflict("This step was confirmed meanwhile.", code="stale", change=change.pk)
        audit.record(actor, "change.confirm", change, cluster=change.pool.cluster, step=step.title, reason=reason)
        changequeue.wake(change)
        bell.ring_cluster(change.pool.cluster_id)
    return change


def waiting_for_a_person(change: ModeChange) -> ChangeStep | None:
    """Return the step that a person is to do and confirm, if one is due."""
    if change.state != State.APPLYING:
        return None
    due = change.steps.filter(kind__in=routes.MANUAL, state=ChangeStep.State.RUNNING, confirmed_at=None)
    return due.order_by("position").first()


def undo_wishes(change: ModeChange) -> dict[str, object]:
    """Return what to ask for to undo an applied change: the way back, for ``changes.request``."""
    if change.state != State.APPLIED:
        raise refusal(change, "Only an applied change is undone", "not-applied")
    moved = sorted(change.node_names or (each["name"] for each in change.diff["facts"]["nodes"].values()))
    if change.way == Way.MOVE:
        return {"target_pool": change.pool, "node_names": moved, "way": Way.MOVE, "batch_size": change.batch_size}
    if change.way == Way.JOIN:
        raise Conflict("Nodes that came into a pool are taken out of it on the pool's page.", code="take-out")
    return {
        "target_mode": change.from_mode or Mode.EXCLUSIVE.value,
        "target_policy": change.from_policy or None,
        "way": change.way,
        "batch_size": change.batch_size,
    }
