"""What a mode change still holds of its cluster: cordons, auto scaling that it paused, machines in no pool.

Letting go of it is a push of its own, after the change was given up; it looks first, so doing it twice does no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import transaction
from django.db.models import F

from gpupools.clusters.port import AutoScaling
from gpupools.domain import routes
from gpupools.domain.changes import OPEN
from gpupools.domain.routes import Way
from gpupools.models import ChangeStep, Cluster, ModeChange, NodePool, Push, Role
from gpupools.services import audit, bell, changequeue, gateways, pushes
from gpupools.services.access import SYSTEM, Actor
from gpupools.services.changefacts import is_member
from gpupools.services.machinesteps import held_scaling, spec_as_it_is
from gpupools.services.moves import refusal
from gpupools.services.poolspecs import target_of
from gpupools.services.pushes import Again, Done, Outcome
from gpupools.services.site import LOOK_AGAIN_SECONDS, listed
from gpupools.services.steps import BATCH

# What a note of an ended change goes on with when that failed.
NOT_GIVEN_BACK: Final = "Not given back yet:"
_OPEN: Final = frozenset(state.value for state in OPEN)


@dataclass(frozen=True, slots=True)
class Held:
    """Nodes that a change has cordoned, auto scaling that it has switched off, machines that it left in no pool.

    ``outside``: what the node was called -> its machine's id. Nobody puts those back but a person or a roll-back.
    ``ours``: nodes that it set out to cordon, ``cordoned`` those of them that were seen to be so.
    """

    ours: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()
    scaling: AutoScaling | None = None
    outside: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self.cordoned or self.scaling or self.outside)

    @property
    def is_returnable(self) -> bool:
        """Whether the console can give something of it back by itself."""
        return bool(self.ours or self.scaling)

    def sentences(self) -> list[str]:
        """Say each part in words."""
        said = []
        if self.cordoned:
            said.append(f"Cordoned by this change: {listed(self.cordoned)}.")
        if self.scaling:
            bounds = f"{self.scaling.min_instances} to {self.scaling.max_instances} machines"
            said.append(f"Auto scaling of the pool is off; it was on, for {bounds}.")
        if self.outside:
            said.append(f"In no node pool: {listed(f'{name} ({machine})' for name, machine in self.outside)}.")
        return said


def held_by(change: ModeChange, steps: Sequence[ChangeStep] | None = None) -> Held:
    """Return what a change holds, by what was last seen of its steps. ``steps``: those of the change, in order."""
    remembered: dict[str, Any] = change.remembered
    machines: dict[str, str] = remembered.get("machines", {})
    outside: set[str] = set()
    gone: set[str] = set()  # with their Node went its cordon
    still_open: set[str] = set()
    for step in change.steps.all() if steps is None else steps:
        if step.kind == routes.REMOVE:
            outside |= set(step.learned.get("done", ()))
            gone |= set(step.learned.get("done", ()))
        elif step.kind == routes.ATTACH:
            outside -= set(step.learned.get("done", ()))
        elif step.kind == routes.CORDON:
            gone -= set(step.learned.get("done", ()))
            still_open = still_open - set(step.learned.get("done", ())) | set(step.learned.get("left", ()))
    ours = tuple(name for name in remembered.get("ours", ()) if name not in gone)
    return Held(
        ours,
        tuple(name for name in ours if name not in still_open),
        held_scaling(change),
        tuple((name, machines.get(name, "")) for name in sorted(outside)),
    )


def is_letting_go(change: ModeChange) -> bool:
    """Tell whether a push that gives things back is queued."""
    target = changequeue.target_of(change)
    return Push.objects.filter(kind=changequeue.RELEASE, target=target, state=Push.State.QUEUED).exists()


def let_go(actor: Actor, change: ModeChange) -> None:
    """Queue giving back what can be given back; must be called in a transaction."""
    if held_by(change).is_returnable or _may_have_moved(change):
        changequeue.enqueue(actor, change, changequeue.RELEASE)


def release(actor: Actor, change: ModeChange, *, reason: str = "") -> ModeChange:
    """Give back what an ended change still holds: uncordon its nodes, switch auto scaling on again.

    That happens by itself when a change is given up; this is for when the cluster was away or refused it then.
    Raises Conflict while the change is open, when nothing is held, or while it is being given back already.
    """
    actor.require(Role.OPERATOR, change.pool.cluster)
    if change.state in _OPEN:
        raise refusal(change, "A change that is under way keeps what it holds", "change-open")
    if not held_by(change).is_returnable:
        raise refusal(change, "There is nothing to give back", "nothing-held")
    with transaction.atomic():
        let_go(actor, change)
        audit.record(actor, "change.release", change, cluster=change.pool.cluster, reason=reason.strip())
        bell.ring_cluster(change.pool.cluster_id)
    return change


def push_release(push: Push) -> Outcome:
    """Open the nodes that a given-up change closed and switch its pool's auto scaling on again, a little at a time."""
    change = ModeChange.objects.select_related("pool__cluster", "target_pool").filter(pk=push.payload["change"]).first()
    held = held_by(change) if change else Held()
    if change is None or not (held.is_returnable or _may_have_moved(change)):
        return Done("Nothing is held.")
    if target_of(change.pool) in pushes.in_flight(push.cluster):
        return Again(LOOK_AGAIN_SECONDS, detail="Another operation on the pool is under way.")
    with gateways.pools_of(push.cluster) as (kubernetes, provider):
        renamed = change.remembered.get("renamed", {})
        ours = {*held.ours, *(renamed.get(name, name) for name in held.ours)}
        nodes = kubernetes.nodes()
        closed = [node for node in nodes if node.name in ours and node.unschedulable]
        for node in closed[:BATCH]:
            pushes.hold(push)
            kubernetes.cordon(node.name, unschedulable=False, op_id=str(push.op_id))
        if closed:
            return Again(0.0, detail=f"Uncordoning {routes.counted(len(closed))}.")
        facts = provider.pool(change.pool.pool_id) if held.scaling else None
        if held.scaling and facts is not None and not facts.auto_scaling.enable:
            pushes.hold(push)
            spec = replace(spec_as_it_is(facts), auto_scaling=held.scaling)
            provider.modify(change.pool.pool_id, spec, update_nodes=False, op_id=str(push.op_id))
            return Again(1.0, detail="ACK is switching auto scaling on again.")
    home = change.target_pool or change.pool
    joined = _named(change) & {node.name for node in nodes if is_member(home, node)}
    return Done("Given back.", lambda: _forget(change, held, joined))


def _may_have_moved(change: ModeChange) -> bool:
    """Tell whether nodes may be in another pool than the rows say: on plain Kubernetes a label puts them there."""
    return change.way in (Way.MOVE, Way.JOIN) and change.pool.cluster.provider == Cluster.Provider.KUBERNETES


def _named(change: ModeChange) -> set[str]:
    return {each["name"] for each in change.diff.get("facts", {}).get("nodes", {}).values()}


def hand_over(change: ModeChange, moved: set[str]) -> None:
    """Let the rows of the pools name their nodes: on plain Kubernetes they say which nodes are wanted."""
    home = change.target_pool or change.pool
    for pool in (change.pool, home):
        pool.refresh_from_db()
        named = set(pool.node_names) - moved | (moved if pool.pk == home.pk else set())
        NodePool.objects.filter(pk=pool.pk).update(
            node_names=sorted(named), desired_size=len(named), version=F("version") + 1
        )


def _forget(change: ModeChange, held: Held, joined: set[str]) -> None:
    if joined and _may_have_moved(change):
        hand_over(change, joined)
    remembered = {**change.remembered, "ours": [], "scaling": None}
    note = change.note.partition(NOT_GIVEN_BACK)[0].strip()
    ModeChange.objects.filter(pk=change.pk).update(remembered=remembered, note=note)
    if not held.is_returnable:
        return
    audit.record(
        SYSTEM,
        "change.released",
        change,
        cluster=change.pool.cluster,
        uncordoned=list(held.ours),
        auto_scaling=[held.scaling.min_instances, held.scaling.max_instances] if held.scaling else [],
    )


def push_release_failed(push: Push, sentence: str) -> None:
    """Say on the change that it still holds something, and why; called where the push is parked."""
    change = ModeChange.objects.filter(pk=push.payload["change"]).first()
    if change is not None:
        before = change.note.partition(NOT_GIVEN_BACK)[0].strip()
        note = f"{before} {NOT_GIVEN_BACK} {sentence}".strip()
        ModeChange.objects.filter(pk=change.pk).update(note=note)
