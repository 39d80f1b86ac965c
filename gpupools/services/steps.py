"""Each step of a mode change against the cluster. A step first looks whether it is done, then does a little.

So it may be cut off anywhere and run again. It moves no change and closes no push: changepushes.py does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from gpupools.clusters.port import PoolSpec
from gpupools.domain import plans
from gpupools.domain.changes import State
from gpupools.domain.components import CATALOGUE
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import PLACEMENT_LABEL, Component, Mode, PlacementPolicy, mode_labels
from gpupools.errors import Conflict, Refused, Unreachable
from gpupools.models import ChangeStep, Cluster, ModeChange, NodePool, Push
from gpupools.services import changefacts, pushes
from gpupools.services.changefacts import Seen, node_changes
from gpupools.services.gateways import Kubernetes, PoolProvider
from gpupools.services.poolspecs import free_labels, names

# Nodes that are written to in one run: the run stays far below the time limit of a task.
BATCH: Final = 10
LOOK_AGAIN_SECONDS: Final = 2.0
# How long a step may make no end before the change fails and a person looks. Waiting for holders has no end.
EVICTION: Final = timedelta(minutes=30)
LABELS: Final = timedelta(minutes=15)
DAEMON: Final = timedelta(minutes=10)
RESOURCES: Final = timedelta(minutes=10)
VERIFICATION: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Finished:
    """The step is done."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The step is not done; look again after ``seconds``."""

    detail: str
    seconds: float = LOOK_AGAIN_SECONDS


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person must look before the change may go on."""

    note: str


Result = Finished | Waiting | Stopped


@dataclass(slots=True)
class Site:
    """One step of one change, with the cluster opened and looked at."""

    push: Push
    change: ModeChange
    step: ChangeStep
    kubernetes: Kubernetes
    provider: PoolProvider
    seen: Seen

    @property
    def pool(self) -> NodePool:
        return self.change.pool

    @property
    def mode(self) -> Mode:
        return Mode(self.change.target_mode)

    @property
    def policy(self) -> PlacementPolicy | None:
        return plans.policy_of(self.change.target_policy)

    @property
    def is_ack(self) -> bool:
        return self.pool.cluster.provider == Cluster.Provider.ACK

    def leaving(self) -> list[GpuNode]:
        """Return the nodes that are still in another mode."""
        return self.seen.unlike(self.mode)

    def due(self, node: GpuNode) -> list[plans.LabelChange]:
        """Return the labels that are still to be written to a node."""
        return node_changes(self.pool, node, self.mode, self.policy)

    def op_id(self, what: str) -> str:
        """Return the id of one call of this step: the same when the call is tried again."""
        return str(uuid.uuid5(self.push.op_id, f"{self.step.kind}:{what}"))

    def ours(self) -> set[str]:
        """Return the nodes that this change has cordoned."""
        return set(self.change.remembered.get("ours", ()))

    def remember(self, **facts: Any) -> None:
        """Keep facts on the change before anything depends on them. Raises Conflict when it was moved meanwhile."""
        remembered = {**self.change.remembered, **facts}
        kept = ModeChange.objects.filter(pk=self.change.pk, state=State.APPLYING.value).update(remembered=remembered)
        if not kept:
            raise pushes.LostLease()
        self.change.remembered = remembered

    def learn(self, **facts: Any) -> None:
        """Keep facts on the step before anything waits on them."""
        self.step.learned = {**self.step.learned, **facts}
        ChangeStep.objects.filter(pk=self.step.pk).update(learned=self.step.learned)

    def overdue(self, limit: timedelta) -> bool:
        """Tell whether the step has run for longer than that."""
        return self.step.started_at is not None and timezone.now() - self.step.started_at > limit

    def wait(self, detail: str, limit: timedelta, seconds: float = LOOK_AGAIN_SECONDS) -> Waiting:
        """Wait on, unless the step has waited for too long: then the change fails with what is missing."""
        if self.overdue(limit):
            minutes = int(limit.total_seconds() // 60)
            raise Conflict(f"After {minutes} minutes still: {detail}", code="step-overdue")
        return Waiting(detail, seconds)


def preflight(site: Site) -> Result:
    """Look for pods that hold cards and that nobody has seen when the change was asked for."""
    present = changefacts.components(site.pool.cluster, site.mode, site.seen.workloads)
    if changefacts.mps_is_missing(site.mode, present):
        raise Conflict(
            "ack-mps-control is not in the cluster any more; mode mps needs it first.", code="needs-component"
        )
    known = {each["uid"] for each in site.change.blast_radius} | set(site.change.remembered.get("acknowledged", ()))
    holders = plans.holders(site.leaving(), site.seen.pods)
    newcomers = [pod for pod in holders if pod.uid not in known and not pod.terminating]
    if newcomers:
        site.learn(newcomers=[{"uid": pod.uid, "pod": _name(pod), "node": pod.node} for pod in newcomers])
        return Stopped(
            f"{_count(newcomers)} came to hold cards since the request: {_listed(_name(pod) for pod in newcomers)}."
        )
    return Finished("Nothing moved since the request.")


def cordon(site: Site) -> Result:
    """Close the nodes to new pods, and remember first which of them were closed before."""
    return _secure(site) or Finished(_cordoned(site))


def _secure(site: Site) -> Waiting | None:
    """See that every node that leaves its mode is cordoned; None when all are."""
    leaving = site.leaving()
    before, ours = set(site.change.remembered.get("before", ())), site.ours()
    unknown = [node for node in leaving if node.name not in before | ours]
    if unknown:
        before |= {node.name for node in unknown if node.unschedulable}
        ours |= {node.name for node in unknown if not node.unschedulable}
        site.remember(before=sorted(before), ours=sorted(ours))
    still_open = [node for node in leaving if not node.unschedulable]
    if not still_open:
        return None
    for node in still_open[:BATCH]:
        _set_cordon(site, node, unschedulable=True)
    return Waiting(f"Cordoning {len(still_open)} of {len(leaving)} nodes.", 0.0)


def _cordoned(site: Site) -> str:
    before = site.change.remembered.get("before", ())
    said = f"Cordoned {names(site.leaving())}."
    return f"{said} Cordoned before: {_listed(before)}." if before else said


def drain(site: Site) -> Result:
    """Wait until no pod holds a card of the old mode, or evict those that do."""
    if waiting := _secure(site):
        return waiting
    holders = plans.holders(site.leaving(), site.seen.pods)
    if not holders:
        return Finished("No pod holds a card any more.")
    detail = _holding(holders)
    if site.change.holders == ModeChange.Holders.WAIT:
        return Waiting(detail)
    try:
        for pod in [pod for pod in holders if not pod.terminating][:BATCH]:
            site.kubernetes.evict(pod.namespace, pod.name)
    except Unreachable as error:
        # A disruption budget says no for now; were it the whole cluster, the next look would tell.
        detail = f"{detail} {error.message}"
    return site.wait(detail, EVICTION)


def _holding(holders: list[Pod]) -> str:
    on_node: dict[str, list[str]] = {}
    for pod in holders:
        on_node.setdefault(pod.node, []).append(_name(pod))
    parts = [
        f"{len(pods)} pod{'s' if len(pods) > 1 else ''} still hold{'' if len(pods) > 1 else 's'} cards on {node}: "
        f"{_listed(pods)}"
        for node, pods in sorted(on_node.items())
    ]
    return _cut("; ".join(parts) + ".")


def write_labels(site: Site) -> Result:
    """Write the mode's labels: by one call for the whole pool on ACK, node by node elsewhere.

    Nodes that leave another mode are written to only while they are cordoned and nothing holds their cards.
    """
    unwritten = [node for node in site.seen.nodes if site.due(node)]
    if site.is_ack:
        return _write_pool(site, unwritten)
    if not unwritten:
        return Finished(f"{len(site.seen.nodes)} nodes carry the labels.")
    if waiting := _not_ready_for_labels(site):
        return waiting
    for node in unwritten[:BATCH]:
        labels = {change.key: change.new or None for change in site.due(node)}
        pushes.hold(site.push)
        site.kubernetes.label_node(node.name, labels=labels, op_id=site.op_id(node.name))
    return site.wait(f"Labelling {names(unwritten)}.", LABELS, 0.0)


def _not_ready_for_labels(site: Site) -> Waiting | None:
    if waiting := _secure(site):
        return waiting
    holders = plans.holders(site.leaving(), site.seen.pods)
    return Waiting(_holding(holders)) if holders else None


def _write_pool(site: Site, unwritten: list[GpuNode]) -> Result:
    """Write the pool's labels and let ACK carry them to the nodes; its task is looked after from here on."""
    facts = site.provider.pool(site.pool.pool_id)
    if facts is None:
        raise Conflict(f"{site.pool.name} is gone from ACK.", code="gone")
    if "task_id" in site.step.learned:
        task = site.provider.task(site.step.learned["task_id"])
        if task.state == "fail":
            raise Refused(f"ACK could not write the labels: {task.message or 'it gave no reason'}.", code="task-failed")
        if task.state == "running":
            return site.wait("ACK is writing the labels.", LABELS)
        if unwritten:
            return site.wait(f"The labels have not reached {names(unwritten)} yet.", LABELS)
        return Finished(f"The pool and its {len(site.seen.nodes)} nodes carry the labels.")
    wanted = mode_labels(site.mode, site.policy)
    if not unwritten and _carries(facts.labels, wanted):
        return Finished("The pool carries the labels already.")
    if waiting := _not_ready_for_labels(site):
        return waiting
    spec = PoolSpec(
        name=facts.name,
        mode=site.mode,
        policy=site.policy,
        # As ACK has them now: what somebody edited there meanwhile is not ours to undo.
        labels=free_labels(facts.labels),
        taints=facts.taints,
        instance_types=facts.instance_types,
        desired_size=facts.desired_size,
        vswitch_ids=tuple(site.pool.vswitch_ids),
    )
    pushes.hold(site.push)
    started = site.provider.modify(
        site.pool.pool_id, spec, update_nodes=bool(site.seen.nodes), op_id=site.op_id(site.pool.pool_id)
    )
    site.learn(task_id=started.task_id)
    return Waiting("ACK is writing the labels.", 1.0)


def _carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items()) and (
        PLACEMENT_LABEL in wanted or PLACEMENT_LABEL not in labels
    )


def wait_daemon(site: Site) -> Result:
    """Wait until the MPS control daemon is ready on every node."""
    wanted = {each.name for each in CATALOGUE[Component.MPS_CONTROL].daemonsets}
    ready = {
        pod.node
        for pod in site.seen.pods
        if pod.owner_kind == "DaemonSet" and pod.owner_name in wanted and pod.ready and not pod.terminating
    }
    lacking = [node for node in site.seen.nodes if node.name not in ready]
    if not lacking:
        return Finished(f"The MPS daemon is ready on {len(site.seen.nodes)} nodes.")
    return site.wait(f"The MPS daemon is not ready on {names(lacking)}.", DAEMON)


def wait_resources(site: Site) -> Result:
    """Wait until every node reports the new mode's resources and nothing of the others."""
    lacking = _lacking(site)
    if not lacking:
        return Finished(f"{len(site.seen.nodes)} nodes report mode {site.mode.value}.")
    return site.wait(lacking, RESOURCES)


def _lacking(site: Site) -> str:
    parts = []
    for node in site.seen.nodes:
        missing = plans.waiting_for(node, site.mode)
        if missing:
            parts.append(f"{node.name}{'' if node.ready else ' (NotReady)'}: {', '.join(missing)}")
    return _cut("; ".join(parts) + ".") if parts else ""


def uncordon(site: Site) -> Result:
    """Open the nodes that this change closed, and no others."""
    closed = [node for node in site.seen.nodes if node.name in site.ours() and node.unschedulable]
    if not closed:
        opened = site.ours()
        site.remember(ours=[])
        return Finished(f"Uncordoned {_listed(sorted(opened))}." if opened else "Nothing was cordoned by this change.")
    for node in closed[:BATCH]:
        _set_cordon(site, node, unschedulable=False)
    return Waiting(f"Uncordoning {names(closed)}.", 0.0)


def verify(site: Site) -> Result:
    """See that pool and nodes carry the labels, and that the nodes report what the mode stands for."""
    wrong = [node for node in site.seen.nodes if site.due(node)]
    if wrong:
        return site.wait(f"{names(wrong)} do not carry the labels.", VERIFICATION)
    if site.is_ack:
        facts = site.provider.pool(site.pool.pool_id)
        if facts is None or not _carries(facts.labels, mode_labels(site.mode, site.policy)):
            return site.wait(f"The node pool {site.pool.name} does not carry the labels.", VERIFICATION)
    if site.change.steps.filter(kind=plans.WAIT_RESOURCES).exists() and (lacking := _lacking(site)):
        return site.wait(lacking, VERIFICATION)
    return Finished(f"{site.pool.name} and its {len(site.seen.nodes)} nodes are {site.mode.value}.")


STEPS: Final[Mapping[str, Callable[[Site], Result]]] = {
    plans.PREFLIGHT: preflight,
    plans.CORDON: cordon,
    plans.DRAIN: drain,
    plans.WRITE_LABELS: write_labels,
    plans.WAIT_DAEMON: wait_daemon,
    plans.WAIT_RESOURCES: wait_resources,
    plans.UNCORDON: uncordon,
    plans.VERIFY: verify,
}


def _set_cordon(site: Site, node: GpuNode, *, unschedulable: bool) -> None:
    try:
        site.kubernetes.cordon(node.name, unschedulable=unschedulable, op_id=site.op_id(node.name))
    except Refused as error:
        # A node that left the cluster needs nothing any more.
        if error.code != "not-found":
            raise


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _count(pods: list[Pod]) -> str:
    return "1 pod" if len(pods) == 1 else f"{len(pods)} pods"


def _listed(items: Iterable[str], *, most: int = 5) -> str:
    listed = list(items)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")


def _cut(text: str, longest: int = 900) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
