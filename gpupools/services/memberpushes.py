"""Carrying nodes out of pools and machines into them: each run makes one probe or one call, as in poolpushes.py."""

from __future__ import annotations

from django.db.models import F

from gpupools.domain import plans
from gpupools.domain.modes import ACK_POOL_LABEL
from gpupools.errors import Conflict, Refused
from gpupools.models import NodePool, Push
from gpupools.services import gateways, members, poolpushes, pushes
from gpupools.services.gateways import Kubernetes, PoolProvider
from gpupools.services.machinesteps import INSTANCE_LABEL
from gpupools.services.poolspecs import names
from gpupools.services.pushes import Again, Done, Handler, Outcome

SECONDS = 1.0


def take_out(push: Push) -> Outcome:
    """Take the named nodes out of their pool, once."""
    pool = _pool(push)
    with gateways.pools_of(push.cluster) as (kubernetes, provider):
        if provider.owns_nodes:
            return _take_machines_out(push, pool, kubernetes, provider)
        provider.leave(pool.pool_id or pool.name, push.payload["nodes"], op_id=str(push.op_id))
    return Done("The nodes left the pool.", lambda: _forget(push))


def _take_machines_out(push: Push, pool: NodePool, kubernetes: Kubernetes, provider: PoolProvider) -> Outcome:
    named = set(push.payload["nodes"])
    nodes = [node for node in kubernetes.nodes() if node.name in named and ACK_POOL_LABEL in node.labels]
    if "machines" not in push.learned:
        for node in nodes:
            kubernetes.cordon(node.name, unschedulable=True, op_id=str(push.op_id))
        by_name = {name: machine for machine, name in provider.instances(pool.pool_id).items()}
        machines = {node.name: node.labels.get(INSTANCE_LABEL) or by_name.get(node.name, "") for node in nodes}
        return Again(0.0, {"machines": machines})
    if holders := plans.holders(nodes, kubernetes.pods()):
        busy = [node for node in nodes if node.name in {pod.node for pod in holders}]
        for node in nodes:
            kubernetes.cordon(node.name, unschedulable=False, op_id=str(push.op_id))
        raise Conflict(
            f"Pods came to hold cards on {names(busy)} meanwhile; nothing was taken out.", code="has-holders"
        )
    due = [str(machine) for machine in push.learned["machines"].values() if machine]
    if push.learned.get("task_id") and (running := _task(push, provider)):
        return running
    there = provider.instances(pool.pool_id)
    if not set(due) & set(there):
        return Done("The machines left the pool.", lambda: _forget(push))
    if push.learned.get("task_id"):
        return Again(SECONDS, detail="ACK is done; the machines are still listed.")
    pushes.hold(push, calls=3 + len(there) // 100)
    started = provider.remove(pool.pool_id, due)
    return Again(SECONDS, {"task_id": started.task_id})


def attach(push: Push) -> Outcome:
    """Let machines join a pool, once."""
    pool, wanted = _pool(push), set(push.payload["instances"])
    with gateways.pools_of(push.cluster) as (_, provider):
        if push.learned.get("task_id") and (running := _task(push, provider)):
            return running
        there = provider.instances(pool.pool_id)
        if wanted <= set(there) and all(there[machine] for machine in wanted):
            return Done("The machines joined the pool.")
        if wanted <= set(there) or push.learned.get("task_id"):
            return Again(SECONDS, detail="The machines are joining.")
        pushes.hold(push)
        started = provider.attach(pool.pool_id, sorted(wanted))
    return Again(SECONDS, {"task_id": started.task_id})


def _task(push: Push, provider: PoolProvider) -> Again | None:
    task = provider.task(push.learned["task_id"])
    if task.state == "fail":
        raise Refused(task.message or "ACK says that the task failed, without a reason.", code="task-failed")
    return Again(SECONDS, detail="ACK's task is running.") if task.state == "running" else None


def _pool(push: Push) -> NodePool:
    pool = NodePool.objects.filter(pk=push.payload["pool"]).first()
    if pool is None:
        raise Conflict("The console no longer has this node pool.", code="gone")
    return pool


def _forget(push: Push) -> None:
    """Let the row name the nodes that are left; on plain Kubernetes it says which are wanted."""
    pool = _pool(push)
    if not pool.node_names:
        return
    left = sorted(set(pool.node_names) - set(push.payload["nodes"]))
    NodePool.objects.filter(pk=pool.pk).update(node_names=left, desired_size=len(left), version=F("version") + 1)


HANDLERS = {
    members.TAKE_OUT: Handler(take_out, poolpushes.change_failed),
    members.ATTACH: Handler(attach, poolpushes.change_failed),
}
