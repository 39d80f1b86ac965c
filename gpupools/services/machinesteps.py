"""Steps of a mode change that move machines between pools (ACK), hold auto scaling, or wait for a person.

As in steps.py: each looks first whether it is done, keeps what it will need before a call, and makes one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from gpupools.clusters.port import AutoScaling, PoolFacts, PoolSpec
from gpupools.domain import routes
from gpupools.domain.modes import Mode, PlacementPolicy, mode_labels
from gpupools.errors import Conflict
from gpupools.models import ModeChange, NodePool
from gpupools.services import handsteps, pushes, steps
from gpupools.services.poolspecs import free_labels, mode_and_policy
from gpupools.services.site import Finished, Result, Site, Waiting, listed

INSTANCE_LABEL: Final = "alibabacloud.com/ecs-instance-id"
REMOVAL: Final = timedelta(minutes=30)
ATTACHMENT: Final = timedelta(minutes=60)
SCALING: Final = timedelta(minutes=10)


def write_pool(site: Site) -> Result:
    """Write the labels of the pool alone: nodes get them when they join it again."""
    facts = _facts(site, site.pool)
    wanted = mode_labels(site.mode, site.policy)
    unwritten = [] if steps.carries(facts.labels, wanted) else site.nodes
    return steps.write_pool(site, [] if "task_id" in site.step.learned else unwritten, update_nodes=False)


def remove(site: Site) -> Result:
    """Take the machines of a batch out of their pool, once, when nothing holds their cards any more."""
    machines = _machines(site)
    if waiting := steps.not_ready_for_labels(site):
        return waiting
    if running := steps.running_task(site, "take the machines out", REMOVAL):
        return running
    there = site.provider.instances(site.away.pool_id)
    renewed = {node.name for node in site.nodes if site.is_renewed(node)}
    due = {name: machine for name, machine in machines.items() if machine in there and name not in renewed}
    left = [node.name for node in site.nodes if not site.is_renewed(node) and node.name in machines]
    if not due and not left:
        return Finished(f"{_named(machines)} left {site.away.name}; the machines are kept.")
    if due and "task_id" not in site.step.learned:
        # The pool and its machines, by the hundred, are looked at once more before the call itself.
        pushes.hold(site.push, calls=3 + len(there) // 100)
        started = site.provider.remove(site.away.pool_id, sorted(due.values()))
        site.learn(task_id=started.task_id)
        return Waiting(f"ACK is taking {listed(sorted(due))} out of {site.away.name}.", 1.0)
    missing = f"{listed(sorted({*due, *left}))} did not leave {site.away.name}"
    steps.check_task_known(site, missing)
    return site.wait(f"{missing} yet.", REMOVAL)


def attach(site: Site) -> Result:
    """Let the machines of a batch join the pool that they shall be in, and wait until their nodes are ready."""
    machines = _machines(site)
    if running := steps.running_task(site, "set the machines up", ATTACHMENT):
        return running
    there = site.provider.instances(site.home.pool_id)
    unnamed = [name for name, machine in machines.items() if not there.get(machine)]
    if unnamed and "task_id" not in site.step.learned:
        pushes.hold(site.push)
        # Also where all are on their way: the answer that named the task may have been lost.
        started = site.provider.attach(site.home.pool_id, sorted(machines[name] for name in unnamed))
        site.learn(task_id=started.task_id)
        return Waiting(f"ACK is setting {listed(sorted(unnamed))} up for {site.home.name}.", 1.0)
    if unnamed:
        missing = f"{listed(sorted(unnamed))} did not join {site.home.name}"
        steps.check_task_known(site, missing)
        return site.wait(f"{missing} yet.", ATTACHMENT)
    if renamed := {name: there[machine] for name, machine in machines.items() if there[machine] != name}:
        site.remember(renamed={**site.change.remembered.get("renamed", {}), **renamed})
    ready = {node.name for node in site.seen.fleet if node.ready}
    waiting = [there[machine] for machine in machines.values() if there[machine] not in ready]
    if waiting:
        return site.wait(f"{listed(sorted(waiting))} joined and is not ready yet.", ATTACHMENT)
    return Finished(f"{_named(machines)} joined {site.home.name}.")


def _named(machines: Mapping[str, str]) -> str:
    return listed(sorted(machines)) if machines else "No machine"


def _machines(site: Site) -> dict[str, str]:
    """Return the batch's nodes with their machines' ids, kept from before the first of them was taken out.

    On the way back without those that never left.
    """
    stayed = {node.name for node in site.nodes if site.has_stayed(node)}
    wanted = [name for name in site.step.node_names if name not in stayed]
    kept: dict[str, str] = site.change.remembered.get(site.key("machines"), {})
    unknown = [name for name in wanted if name not in kept]
    if not unknown:
        return {name: kept[name] for name in wanted}
    nodes = {node.name: node for node in site.seen.nodes}
    by_name = {name: machine for machine, name in site.provider.instances(site.away.pool_id).items() if name}
    found, uids = {}, {}
    for name in unknown:
        node = nodes.get(site.name_now(name))
        machine = (node.labels.get(INSTANCE_LABEL) if node else None) or by_name.get(site.name_now(name))
        # On the way back a machine may be in neither pool; it is known from the way there.
        machine = machine or site.change.remembered.get("machines", {}).get(name)
        if not machine:
            raise Conflict(f"ACK does not say which machine the node {name} is.", code="no-machine", node=name)
        found[name], uids[name] = machine, node.uid if node else ""
    site.remember(
        **{
            site.key("machines"): {**kept, **found},
            site.key("uids"): {**site.change.remembered.get(site.key("uids"), {}), **uids},
        }
    )
    return {name: {**kept, **found}[name] for name in wanted}


def pause_scaling(site: Site) -> Result:
    """Hold auto scaling, so that ACK makes and removes no machine of the pool meanwhile."""
    facts = _facts(site, site.pool)
    if not facts.auto_scaling.enable:
        return Finished("Auto scaling is held." if held_scaling(site.change) else "Auto scaling is off.")
    found = facts.auto_scaling
    site.remember(scaling={"min": found.min_instances, "max": found.max_instances, "kind": found.kind})
    return _scale(site, facts, AutoScaling())


def resume_scaling(site: Site) -> Result:
    """Let auto scaling go on within the bounds that it had."""
    wanted = held_scaling(site.change)
    facts = _facts(site, site.pool)
    if wanted is None or facts.auto_scaling.enable:
        site.remember(scaling=None)
        return Finished("Auto scaling is as it was before.")
    return _scale(site, facts, wanted)


def held_scaling(change: ModeChange) -> AutoScaling | None:
    """Return the auto scaling that a change has switched off and not yet on again."""
    kept = change.remembered.get("scaling")
    return AutoScaling(True, kept["min"], kept["max"], kept["kind"]) if kept else None


def _scale(site: Site, facts: PoolFacts, wanted: AutoScaling) -> Result:
    pushes.hold(site.push)
    site.provider.modify(
        site.pool.pool_id,
        replace(spec_as_it_is(facts), auto_scaling=wanted),
        update_nodes=False,
        op_id=site.op_id(f"scaling-{wanted.enable}"),
    )
    return site.wait("ACK is changing auto scaling.", SCALING, 1.0)


def spec_as_it_is(facts: PoolFacts) -> PoolSpec:
    """Return what a pool is now as a wish, to change one thing of it and nothing else."""
    mode, policy = mode_and_policy(facts.labels)
    return PoolSpec(
        name=facts.name,
        mode=Mode(mode) if mode else None,
        policy=PlacementPolicy(policy) if policy else None,
        labels=free_labels(facts.labels),
        taints=facts.taints,
        instance_types=facts.instance_types,
        desired_size=facts.desired_size,
    )


def _facts(site: Site, pool: NodePool) -> PoolFacts:
    facts = site.provider.pool(pool.pool_id)
    if facts is None:
        raise Conflict(f"{pool.name} is gone from ACK.", code="gone")
    return facts


STEPS: Final[Mapping[str, Callable[[Site], Result]]] = {
    **steps.STEPS,
    routes.WRITE_POOL: write_pool,
    routes.REMOVE: remove,
    routes.ATTACH: attach,
    routes.PAUSE_SCALING: pause_scaling,
    routes.RESUME_SCALING: resume_scaling,
    routes.RESTART: handsteps.by_hand,
    routes.READD: handsteps.by_hand,
}
