"""Each step of a mode change against the cluster. A step first looks whether it is done, then does a little.

So it may be cut off anywhere and run again. It moves no change and closes no push: changepushes.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from gpupools.clusters.port import PoolSpec
from gpupools.domain import plans, routes
from gpupools.domain.components import CATALOGUE
from gpupools.domain.disruptions import is_pinned
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import PLACEMENT_LABEL, Component, mode_labels
from gpupools.domain.routes import Way
from gpupools.errors import Conflict, Refused, Unreachable
from gpupools.models import ModeChange
from gpupools.services import changefacts, pushes
from gpupools.services.poolspecs import free_labels, names, spec_of
from gpupools.services.site import Finished, Result, Site, Stopped, Waiting, cut, listed

# Nodes that are written to in one run: the run stays far below the time limit of a task.
BATCH: Final = 10
# How long a step may make no end before the change fails and a person looks. Waiting for holders has no end.
EVICTION: Final = timedelta(minutes=30)
LABELS: Final = timedelta(minutes=15)
DAEMON: Final = timedelta(minutes=10)
RESOURCES: Final = timedelta(minutes=10)
VERIFICATION: Final = timedelta(minutes=1)


def preflight(site: Site) -> Result:
    """Look for pods that hold cards and that nobody has seen when the change was asked for."""
    present = changefacts.components(site.pool.cluster, site.mode, site.seen.workloads)
    if changefacts.mps_is_missing(site.mode, present):
        raise Conflict(
            "ack-mps-control is not in the cluster any more; mode mps needs it first.", code="needs-component"
        )
    if stopped := _newcomers(site):
        return stopped
    return Finished("Nothing moved since the request.")


def _newcomers(site: Site) -> Stopped | None:
    """Stop when pods hold cards of these nodes that nobody has seen when the change was asked for."""
    came = changefacts.newcomers(site.change, plans.holders(site.closing(), site.seen.pods), site.seen.pods)
    return _stopped(site, came) if came else None


def _stopped(site: Site, newcomers: list[Pod]) -> Stopped:
    site.learn(newcomers=[changefacts.pod_row(pod) for pod in newcomers])
    return Stopped(
        f"{_count(newcomers)} came to hold cards since the request: {listed(_name(pod) for pod in newcomers)}."
    )


def cordon(site: Site) -> Result:
    """Close the nodes to new pods, and remember first which of them were closed before."""
    return _secure(site) or Finished(_cordoned(site))


def _secure(site: Site) -> Waiting | None:
    """See that every node that leaves its mode or pool is cordoned; None when all are."""
    leaving = site.closing()
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
    return Waiting(f"Cordoning {len(still_open)} of {routes.counted(len(leaving))}.", 0.0)


def _cordoned(site: Site) -> str:
    before = site.change.remembered.get("before", ())
    said = f"Cordoned {names(site.closing())}."
    return f"{said} Cordoned before: {listed(before)}." if before else said


def drain(site: Site) -> Result:
    """Wait until no pod holds a card of the old mode, or evict those that do.

    Only pods that somebody has decided over are evicted. For others the way there stops, so that somebody decides; the
    way back, which nobody decides on, waits until they end.
    """
    if waiting := _secure(site):
        return waiting
    holders = plans.holders(site.closing(), site.seen.pods)
    if not holders:
        return Finished("No pod holds a card any more.")
    detail = _holding(holders)
    if site.change.holders == ModeChange.Holders.WAIT:
        return Waiting(detail)
    due = [pod for pod in holders if not (pod.terminating or is_pinned(pod))]
    # Until it was cordoned, a node was open: pods that started there meanwhile are not evicted unseen.
    newcomers = changefacts.newcomers(site.change, due, site.seen.pods)
    if newcomers and not site.step.is_rollback:
        return _stopped(site, newcomers)
    if newcomers:
        named = listed(_name(pod) for pod in newcomers)
        detail = f"{detail} Not evicted, for nobody has approved that: {named}. It goes on when they have ended."
    spared = {pod.uid for pod in newcomers}
    refused = _evict(site, [pod for pod in due if pod.uid not in spared])
    said = cut(" ".join([detail, *refused]))
    return Waiting(said) if spared == {pod.uid for pod in due} and due else site.wait(said, EVICTION)


def _evict(site: Site, pods: Sequence[Pod]) -> list[str]:
    """Ask for the eviction of a few pods, those first that were not refused before; say which may not go, and why."""
    before: dict[str, str] = dict(site.step.learned.get("refused", ()))
    order = {uid: place for place, uid in enumerate(before)}
    asked = sorted(pods, key=lambda pod: order.get(pod.uid, -1))[:BATCH]
    said: dict[str, str] = {}
    for pod in asked:
        # A pod that came anew under the same name is not this change's to evict.
        pushes.hold(site.push)
        try:
            site.kubernetes.evict(pod.namespace, pod.name)
        except Conflict as error:
            said[pod.uid] = error.message
        except Unreachable as error:
            # What the API server cannot do for one pod (two budgets cover it) it may do for the others.
            if error.data.get("status") != 500:
                raise
            said[pod.uid] = error.message
    still = {pod.uid for pod in pods} - {pod.uid for pod in asked}
    # Pairs and not a map: who was refused last is asked last, and a JSON column keeps no order of keys.
    refused = [[uid, text] for uid, text in before.items() if uid in still] + [[uid, said[uid]] for uid in said]
    if refused or before:
        site.learn(refused=refused)
    by_reason: dict[str, list[str]] = {}
    for uid, text in refused:
        by_reason.setdefault(text, []).extend(_name(pod) for pod in pods if pod.uid == uid)
    return [
        f"{listed(sorted(named), most=3)} may not be evicted now: {text}" for text, named in sorted(by_reason.items())
    ][:3]


def _holding(holders: list[Pod]) -> str:
    on_node: dict[str, list[str]] = {}
    for pod in holders:
        on_node.setdefault(pod.node, []).append(f"{_name(pod)}{' (ending)' if pod.terminating else ''}")
    parts = [
        f"{len(pods)} pod{'s' if len(pods) > 1 else ''} still hold{'' if len(pods) > 1 else 's'} cards on {node}: "
        f"{listed(pods)}"
        for node, pods in sorted(on_node.items())
    ]
    said = cut("; ".join(parts) + ".", 600)
    if pinned := [pod for pod in holders if is_pinned(pod)]:
        them = "them" if len(pinned) > 1 else "it"
        said += f" Never evicted are {listed(_name(pod) for pod in pinned)}: take {them} off the node yourself."
    return said


def write_labels(site: Site) -> Result:
    """Write the mode's labels: by one call for the whole pool on ACK, node by node elsewhere.

    Nodes that leave another mode are written to only while they are cordoned and nothing holds their cards.
    """
    if site.is_ack:
        return write_pool(site, [node for node in site.nodes if site.due(node)], update_nodes=True)
    unwritten = [node for node in site.nodes if site.due(node) or site.is_strange(node) or _must_leave(site, node)]
    if not unwritten:
        return Finished(f"The labels are on {routes.counted(len(site.nodes))}.")
    if waiting := not_ready_for_labels(site):
        return waiting
    for node in unwritten[:BATCH]:
        pushes.hold(site.push)
        _write_node(site, node)
    return site.wait(f"Labelling {names(unwritten)}.", LABELS, 0.0)


def _must_leave(site: Site, node: GpuNode) -> bool:
    """Tell whether a node that was in no pool before is to be taken out of the one that it was put into."""
    return site.step.is_rollback and site.change.way == Way.JOIN and changefacts.is_member(site.pool, node)


def _write_node(site: Site, node: GpuNode) -> None:
    op_id = site.op_id(node.name)
    if _must_leave(site, node):
        site.provider.leave(site.pool.pool_id or site.pool.name, [node.name], op_id=op_id)
    elif site.is_strange(node):
        # The mode's labels go with the pool's, in one write.
        spec = replace(spec_of(site.home), mode=site.goal(node), policy=site.policy)
        site.provider.place(spec, [node.name], op_id=op_id)
    if labels := {change.key: change.new or None for change in site.due(node)}:
        site.kubernetes.label_node(node.name, labels=labels, op_id=op_id)


def not_ready_for_labels(site: Site) -> Waiting | None:
    """Wait until the nodes that leave another mode are cordoned and nothing holds their cards."""
    if waiting := _secure(site):
        return waiting
    holders = plans.holders(site.closing(), site.seen.pods)
    return Waiting(_holding(holders)) if holders else None


def write_pool(site: Site, unwritten: Sequence[GpuNode], *, update_nodes: bool) -> Result:
    """Write the pool's labels and let ACK carry them to the nodes; its task is looked after from here on."""
    facts = site.provider.pool(site.pool.pool_id)
    if facts is None:
        raise Conflict(f"{site.pool.name} is gone from ACK.", code="gone")
    if running := running_task(site, "write the labels", LABELS):
        return running
    if "task_id" in site.step.learned:
        if unwritten:
            missing = f"The labels have not reached {names(unwritten)}"
            check_task_known(site, missing)
            return site.wait(f"{missing} yet.", LABELS)
        if not update_nodes:
            return Finished("The pool carries the labels; its nodes get them when they join it again.")
        return Finished(f"The pool and its {routes.counted(len(site.seen.nodes))} carry the labels.")
    if not unwritten and carries(facts.labels, mode_labels(site.mode, site.policy)):
        return Finished("The pool carries the labels already.")
    if update_nodes and (waiting := not_ready_for_labels(site)):
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
    # ACK carries nothing to nodes where nothing of the pool changes; the operation's id among its labels does.
    started = site.provider.modify(
        site.pool.pool_id, spec, update_nodes=update_nodes and bool(site.nodes), op_id=site.op_id(site.pool.pool_id)
    )
    site.learn(task_id=started.task_id)
    return Waiting("ACK is writing the labels.", 1.0)


def running_task(site: Site, what: str, limit: timedelta) -> Waiting | None:
    """Look after the task of a call, if there is one: a failed task fails the step, an ended one is None.

    A task that ACK does not know any more counts as ended: what it did is seen at the nodes.
    """
    task_id = site.step.learned.get("task_id")
    if not task_id:
        return None
    try:
        task = site.provider.task(task_id)
    except Refused as error:
        if error.data.get("status") != 404:
            raise
        site.learn(forgotten=True)
        return None
    if task.state == "fail" or task.failed and task.state != "running":
        reason = (task.message or f"it failed for {listed(task.failed) or 'no reason that it gives'}").rstrip(".")
        raise Refused(f"ACK could not {what}: {reason} (task {task_id}).", code="task-failed", task_id=task_id)
    return site.wait(f"ACK's task {task_id} to {what} is running.", limit) if task.state == "running" else None


def check_task_known(site: Site, missing: str) -> None:
    """Stop waiting for a task that ACK knows no more: nothing is under way, and something is still to be done."""
    if site.step.learned.get("forgotten"):
        raise Refused(f"{missing}, and ACK knows nothing of the task {site.step.learned['task_id']} any more.",
                      code="task-gone")  # fmt: skip


def carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Tell whether a pool's labels declare a mode just so."""
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
    lacking = [node for node in site.nodes if node.name not in ready]
    if not lacking:
        return Finished(f"The MPS daemon is ready on {routes.counted(len(site.nodes))}.")
    return site.wait(f"The MPS daemon is not ready on {names(lacking)}.", DAEMON)


def wait_resources(site: Site) -> Result:
    """Wait until every node reports the new mode's resources and nothing of the others."""
    lacking = _lacking(site)
    if not lacking:
        return Finished(f"What the mode stands for is reported by {routes.counted(len(site.nodes))}.")
    return site.wait(lacking, RESOURCES)


def _lacking(site: Site) -> str:
    parts = []
    for node in site.nodes:
        missing = plans.waiting_for(node, site.goal(node))
        if missing:
            parts.append(f"{node.name}{'' if node.ready else ' (NotReady)'}: {', '.join(missing)}")
    if not parts:
        return ""
    total = len(site.nodes)
    first, more = "; ".join(parts[:3]), len(parts) - 3
    rest = f"; and {more} more" if more > 0 else ""
    return cut(f"{total - len(parts)} of {routes.counted(total)} report it. {first}{rest}.")


def uncordon(site: Site) -> Result:
    """Open the nodes that this change closed, and no others; a machine that joined anew is closed as it was before."""
    closed = [node for node in site.nodes if node.name in site.ours() and node.unschedulable]
    before = {site.name_now(name) for name in site.change.remembered.get("before", ())}
    for node in [node for node in site.nodes if node.name in before and not node.unschedulable and _is_new(site, node)]:
        _set_cordon(site, node, unschedulable=True)
    if not closed:
        opened = site.ours() & {node.name for node in site.nodes} | set(site.step.learned.get("opened", ()))
        there = {node.name for node in site.seen.fleet}
        # Kept before they are forgotten: a worker that dies in between is followed by one that tells of them.
        site.learn(opened=sorted(opened))
        site.remember(ours=sorted((site.ours() - opened) & there))
        return Finished(f"Uncordoned {listed(sorted(opened))}." if opened else "Nothing was cordoned by this change.")
    for node in closed[:BATCH]:
        _set_cordon(site, node, unschedulable=False)
    return Waiting(f"Uncordoning {names(closed)}.", 0.0)


def _is_new(site: Site, node: GpuNode) -> bool:
    return site.is_by_machine and site.is_renewed(node)


def verify(site: Site) -> Result:
    """See that pool and nodes carry the labels, and that the nodes report what the mode stands for."""
    wrong = [node for node in site.nodes if site.due(node) or site.is_strange(node) or _must_leave(site, node)]
    if wrong:
        return site.wait(f"{names(wrong)} do not carry the labels.", VERIFICATION)
    if closed := [node for node in site.nodes if node.name in site.ours() and node.unschedulable]:
        return site.wait(f"Still cordoned by this change: {names(closed)}.", VERIFICATION)
    if site.is_ack and site.change.way != Way.MOVE:
        facts = site.provider.pool(site.pool.pool_id)
        if facts is None or not carries(facts.labels, mode_labels(site.mode, site.policy)):
            return site.wait(f"The node pool {site.pool.name} does not carry the labels.", VERIFICATION)
    waited = site.change.steps.filter(kind=routes.WAIT_RESOURCES, is_rollback=site.step.is_rollback)
    if waited.exists() and (lacking := _lacking(site)):
        return site.wait(lacking, VERIFICATION)
    if site.step.is_rollback:
        return Finished(f"As before again: {routes.counted(len(site.nodes))}.")
    return Finished(f"{site.home.name} and its {routes.counted(len(site.nodes))} are {site.mode.value}.")


STEPS: Final[Mapping[str, Callable[[Site], Result]]] = {
    routes.PREFLIGHT: preflight,
    routes.CORDON: cordon,
    routes.DRAIN: drain,
    routes.WRITE_LABELS: write_labels,
    routes.WAIT_DAEMON: wait_daemon,
    routes.WAIT_RESOURCES: wait_resources,
    routes.UNCORDON: uncordon,
    routes.VERIFY: verify,
}


def _set_cordon(site: Site, node: GpuNode, *, unschedulable: bool) -> None:
    # Whoever was stopped for long must not close a node that was opened again since.
    pushes.hold(site.push)
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
