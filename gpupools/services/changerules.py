"""What may be asked of a pool's mode, who decides, and what a change would do to whom. It only reads rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.conf import settings

from gpupools.domain import outlook, plans, routes
from gpupools.domain.changes import check_decider
from gpupools.domain.disruptions import Budget
from gpupools.domain.gpus import GpuNode
from gpupools.domain.modes import ACK_POOL_LABEL, CHOOSABLE, MODES, Mode, PlacementPolicy, mode_labels
from gpupools.domain.routes import MOST_IN_BATCH, Step, Way
from gpupools.errors import Conflict, FieldError, Invalid, NotAllowed
from gpupools.models import Cluster, ModeChange, NodePool, Role
from gpupools.services import changefacts
from gpupools.services.access import Actor
from gpupools.services.changefacts import Seen
from gpupools.services.drift import pool_label
from gpupools.services.poolspecs import names, unlike

PRO_SPEC: Final = "ack.pro"
_UNUSABLE: Final = (NodePool.State.GONE, NodePool.State.DELETING, NodePool.State.FAILED)


@dataclass(frozen=True, slots=True)
class Wish:
    """A change as it is asked for, with every word checked. ``home``: the pool that its nodes are in afterwards."""

    mode: Mode
    policy: PlacementPolicy | None
    holders: str
    way: Way
    batch: int
    node_names: tuple[str, ...]
    pool: NodePool
    home: NodePool
    reason: str

    @property
    def evict(self) -> bool:
        """Whether pods that hold cards are evicted instead of waited for."""
        return self.holders == ModeChange.Holders.EVICT

    @property
    def is_by_machine(self) -> bool:
        """Whether nodes leave one pool of ACK for another, whatever their mode."""
        return self.way is Way.MOVE and self.pool.cluster.provider == Cluster.Provider.ACK


def checked(
    pool: NodePool,
    *,
    target_mode: str = "",
    target_policy: str | None = None,
    holders: str = ModeChange.Holders.WAIT,
    way: str = Way.WHOLE,
    batch_size: int = 0,
    node_names: Sequence[str] = (),
    target_pool: NodePool | None = None,
    reason: str,
) -> Wish:
    """Check what needs no look at the cluster, all of it at once. Raises Invalid with an error per field."""
    errors = _way_errors(pool, way, batch_size, node_names, target_pool)
    home = target_pool if way == Way.MOVE and target_pool else pool
    if target_policy and way in (Way.WHOLE, Way.BATCHES):
        # Whoever names a policy alone wants that, and the mode as it is.
        target_mode = target_mode or pool.mode
    if way in (Way.MOVE, Way.JOIN) and home.mode:
        # Where a node goes decides what it becomes.
        target_mode = target_mode or home.mode
        target_policy = target_policy or home.policy or None
        if target_mode != home.mode:
            message = f"{home.name} is {home.mode}: a node that comes into it gets that mode."
            errors.append(FieldError("target_mode", message, "other-mode", target_mode, home.mode))
    mode_errors, mode = _mode(pool.cluster, target_mode)
    policy_errors, policy = _policy(home, mode, target_policy)
    errors += [*mode_errors, *policy_errors]
    if holders not in ModeChange.Holders.values:
        allowed = ", ".join(ModeChange.Holders.values)
        errors.append(
            FieldError("holders", "This is not a way to treat holders.", "unknown", str(holders)[:80], allowed)
        )
    if not reason.strip():
        errors.append(FieldError("reason", "Say why the change is wanted: somebody else decides on it.", "required"))
    if errors or mode is None:
        raise Invalid("This mode change cannot be asked for.", errors=errors)
    return Wish(mode, policy, str(holders), Way(way), batch_size, tuple(sorted(node_names)), pool, home, reason.strip())


def _mode(cluster: Cluster, text: str) -> tuple[list[FieldError], Mode | None]:
    if text not in CHOOSABLE:
        is_foreign = text in list(Mode)
        message = "This mode is only shown here, not set." if is_foreign else "There is no such scheduling mode."
        code = "read-only" if is_foreign else "unknown"
        return [FieldError("target_mode", message, code, str(text)[:80], ", ".join(CHOOSABLE))], None
    mode = Mode(text)
    if not MODES[mode].needs_pro or not cluster.spec or cluster.spec.startswith(PRO_SPEC):
        return [], mode
    message = f"Mode {mode.value} needs an ACK managed Pro cluster; this one is {cluster.spec}."
    basic = ", ".join(each for each in CHOOSABLE if not MODES[each].needs_pro)
    return [FieldError("target_mode", message, "needs-pro", mode.value, basic)], mode


def _policy(home: NodePool, mode: Mode | None, text: str | None) -> tuple[list[FieldError], PlacementPolicy | None]:
    if text and text not in list(PlacementPolicy):
        allowed = ", ".join(PlacementPolicy)
        return [FieldError("target_policy", "There is no such placement policy.", "unknown", text[:80], allowed)], None
    if text and mode is not None and not MODES[mode].shared:
        message = f"A placement policy has no effect in mode {mode.value}: its cards are handed out whole."
        return [FieldError("target_policy", message, "no-effect", text, "nothing")], None
    if mode is not None and MODES[mode].shared:
        return [], PlacementPolicy(text or home.policy or PlacementPolicy.BINPACK)
    return [], None


def _way_errors(
    pool: NodePool, way: str, batch_size: int, node_names: Sequence[str], target_pool: NodePool | None
) -> list[FieldError]:
    if way not in list(Way):
        return [FieldError("way", "There is no such way.", "unknown", str(way)[:80], ", ".join(Way))]
    errors = []
    if not 0 <= batch_size <= MOST_IN_BATCH:
        allowed = f"0 to {MOST_IN_BATCH}"
        errors.append(
            FieldError("batch_size", "This is not a size of a batch.", found=str(batch_size), allowed=allowed)
        )
    if way == Way.BATCHES and not batch_size:
        errors.append(FieldError("batch_size", "Say how many nodes make a batch.", "required", "0", "1 or more"))
    if way in (Way.WHOLE, Way.BATCHES) and node_names:
        message = "A pool's mode is changed on all its nodes; single nodes are moved into another pool."
        errors.append(FieldError("node_names", message, "unexpected", ", ".join(node_names)[:200], "nothing"))
    if way == Way.JOIN:
        if pool.cluster.provider == Cluster.Provider.ACK:
            message = "On ACK a node comes into a pool with its machine: move it from its pool."
            errors.append(FieldError("way", message, "not-here", way, f"{Way.WHOLE}, {Way.BATCHES}, {Way.MOVE}"))
        if not node_names:
            errors.append(FieldError("node_names", "Name the nodes that shall come into the pool.", "required"))
    if way == Way.MOVE:
        errors += _target_errors(pool, target_pool)
    elif target_pool is not None:
        errors.append(FieldError("target_pool", "Only a move has another pool.", "unexpected", target_pool.name))
    if way in (Way.MOVE, Way.JOIN) and not (target_pool or pool).mode:
        message = "No mode was ever declared for this pool; change its mode first."
        errors.append(FieldError("target_mode", message, "undeclared", (target_pool or pool).name))
    return errors


def _target_errors(pool: NodePool, target: NodePool | None) -> list[FieldError]:
    if target is None:
        return [FieldError("target_pool", "Choose the pool that the nodes shall move into.", "required")]
    if target.cluster_id != pool.cluster_id or target.pk == pool.pk:
        message = "Choose another pool of the same cluster."
        return [FieldError("target_pool", message, "not-a-target", target.name)]
    if target.state in _UNUSABLE:
        message = f"{target.name} is {target.get_state_display().lower()}."
        return [FieldError("target_pool", message, "not-usable", target.state)]
    return []


def check_possible(wish: Wish, seen: Seen) -> None:
    """Refuse what could not be carried out."""
    cluster = wish.pool.cluster
    present = changefacts.components(cluster, wish.mode, seen.workloads)
    if changefacts.mps_is_missing(wish.mode, present):
        raise Invalid.field(
            "target_mode",
            "Mode mps needs the MPS Control Daemon (ack-mps-control) in the cluster first: install it.",
            code="needs-component",
            found=wish.mode.value,
        )
    if errors := _node_errors(wish, seen.nodes):
        raise Invalid("These nodes cannot be moved like this.", errors=errors)
    if wish.way in (Way.MOVE, Way.JOIN) and not seen.nodes:
        raise Invalid.field("node_names", f"{wish.pool.name} has no node to move.", code="empty")
    if cluster.provider == Cluster.Provider.KUBERNETES:
        foreign = [node for node in seen.nodes if ACK_POOL_LABEL in node.labels]
        if foreign:
            raise Conflict(
                f"{names(foreign)} belong to a node pool of ACK: writing their labels directly can break running "
                "GPU pods. Connect the cluster with provider ack, and change the mode of that node pool.",
                code="ack-node",
            )


def _node_errors(wish: Wish, nodes: Sequence[GpuNode]) -> list[FieldError]:
    there = {node.name: node for node in nodes}
    errors = [
        FieldError("node_names", f"There is no node {name}.", "unknown", name)
        for name in wish.node_names
        if name not in there
    ]
    label = pool_label(wish.pool.cluster)
    for name in wish.node_names:
        owner = there[name].labels.get(label, "") if name in there else ""
        if wish.way is Way.JOIN and owner:
            errors.append(FieldError("node_names", f"{name} is in the node pool {owner}: move it.", "owned", name))
        elif wish.way is Way.MOVE and name in there and not changefacts.is_member(wish.pool, there[name]):
            errors.append(FieldError("node_names", f"{name} is not in {wish.pool.name}.", "not-a-member", name))
    return errors


def judged(wish: Wish, seen: Seen) -> dict[str, Any]:
    """Return the columns that say what the change does and to whom."""
    leaving = leaving_of(wish, seen)
    declared = leaving[0].declared if leaving else None
    from_mode = Mode(wish.pool.mode) if wish.pool.mode and wish.way is not Way.JOIN else declared
    budgets = _budgets(wish, seen, leaving)
    affected = plans.blast_radius(leaving, seen.pods, from_mode=from_mode, evict=wish.evict, budgets=budgets or ())
    facts = changefacts.facts(wish.home, seen, wish.mode)
    warned = plans.warnings(from_mode, wish.mode, affected=affected, evict=wish.evict)
    warned += [
        ("component-missing", f"{name} is not installed: the nodes report no cards until it is.")
        for name, present in facts["components"].items()
        if not present
    ]
    pace = "one by one" if wish.batch < 2 else f"{wish.batch} at a time"
    if any(step.kind == routes.ATTACH for step in steps_of(wish, seen)):
        # What cannot be had back is read first.
        warned.insert(0, ("set-up-anew", f"Nodes leave their pool {pace} and join one anew; ACK wipes their disks."))
        if others := plans.bystanders(leaving, seen.pods):
            warned.append(plans.bystander_warning(others))
    if MODES[wish.mode].shared and wish.home.cpu_policy == "static":
        said = "ACK does not support shared cards on nodes with the static CPU policy."
        warned.append(("cpu-policy", f"{wish.home.name} has the CPU policy static. {said}"))
    room = _outlook(wish, seen, leaving)
    homeless = [f"{each['namespace']}/{each['pod']}" for each in room.get("homeless", ())]
    warned += plans.eviction_warnings(affected, homeless, budgets, seen.pods)
    return {
        "from_mode": from_mode.value if from_mode else "",
        "diff": {**changefacts.diff(wish.home, seen, wish.mode, wish.policy), "facts": facts},
        "blast_radius": [msgspec.to_builtins(each) for each in affected],
        "warnings": [{"code": code, "message": message} for code, message in warned],
        "fingerprint": plans.fingerprint(facts),
        "outlook": room,
    }


def _budgets(wish: Wish, seen: Seen, leaving: Sequence[GpuNode]) -> Sequence[Budget] | None:
    """Read the budgets where pods are to be evicted; no others matter."""
    if not wish.evict or not plans.holders(leaving, seen.pods):
        return ()
    return changefacts.budgets(wish.pool.cluster)


def _outlook(wish: Wish, seen: Seen, leaving: Sequence[GpuNode]) -> dict[str, Any]:
    if not leaving:
        return {}
    labels = {**mode_labels(wish.mode, wish.policy), **wish.home.labels}
    labels[pool_label(wish.home.cluster)] = wish.home.pool_id or wish.home.name
    beside = _beside(wish, seen, leaving)
    found = outlook.outlook(
        leaving, seen.fleet, seen.pods, mode=wish.mode, labels=labels, evict=wish.evict, beside=beside
    )
    built: dict[str, Any] = msgspec.to_builtins(found)
    return built


def _beside(wish: Wish, seen: Seen, leaving: Sequence[GpuNode]) -> list[GpuNode]:
    """Return the nodes that keep their mode and get another choice of cards."""
    gone = {node.name for node in leaving}
    kept = [node for node in seen.nodes if node.name not in gone]
    return [node for node in kept if changefacts.node_changes(wish.home, node, wish.mode, wish.policy)]


def leaving_of(wish: Wish, seen: Seen) -> list[GpuNode]:
    """Return the nodes that are cordoned and freed: those that leave their mode, or their machine's pool."""
    return list(seen.nodes) if wish.is_by_machine else seen.unlike(wish.mode)


def steps_of(wish: Wish, seen: Seen) -> tuple[Step, ...]:
    """Return the steps of a change as things are."""
    leaving = seen.unlike(wish.mode)
    declared = {node.declared for node in leaving}
    # Where nodes differ, the one that asks for most decides.
    from_mode = Mode.CGPU if Mode.CGPU in declared else next(iter(sorted(declared, key=str)), wish.mode)
    chosen = seen.nodes if wish.is_by_machine else leaving or seen.nodes
    return routes.plan(
        from_mode if leaving else wish.mode,
        wish.mode,
        nodes=[node.name for node in sorted(chosen, key=lambda node: node.name)],
        evict=wish.evict,
        owns_nodes=wish.pool.cluster.provider == Cluster.Provider.ACK,
        way=wish.way,
        batch=wish.batch,
        scaled=bool(wish.pool.auto_scaling.get("enable")),
        written=len(leaving) + len(_beside(wish, seen, leaving)) if leaving else 0,
    )


def wish_of(change: ModeChange) -> Wish:
    """Return a change that was asked for as a wish again."""
    return Wish(
        Mode(change.target_mode),
        plans.policy_of(change.target_policy),
        change.holders,
        Way(change.way),
        change.batch_size,
        tuple(change.node_names),
        change.pool,
        change.target_pool or change.pool,
        change.reason,
    )


def rule_for(wish: Wish, seen: Seen) -> str:
    """Say why nobody else need decide on a change, or nothing: a change of mode is always decided on."""
    if wish.is_by_machine or unlike(seen.nodes, wish.mode, wish.policy):
        return ""
    if wish.way is Way.MOVE:
        return "The nodes change their pool and keep their mode."
    if wish.way is Way.JOIN:
        return f"{names(seen.nodes)} {'is' if len(seen.nodes) == 1 else 'are'} {wish.mode.value} already."
    if not seen.nodes and wish.pool.mode == wish.mode.value:
        return "The pool is empty and keeps its mode."
    return ""


# -- Who decides


def check_may_decide(actor: Actor, change: ModeChange, reason: str) -> str:
    """Let an administrator decide who is not the requester, with a reason; return the reason."""
    actor.require(Role.ADMIN, change.pool.cluster)
    if actor.user_id is None:
        raise NotAllowed("Only a person or a token decides on a mode change.", code="needs-user")
    if not settings.GPUPOOLS_ALLOW_SELF_APPROVAL:
        check_decider(requester=change.requested_by_id, decider=actor.user_id)
    return needed(reason, "Say why: the decision is kept with its reason.")


def needed(reason: str, message: str) -> str:
    """Return a reason, or refuse that there is none."""
    if not reason.strip():
        raise Invalid.field("reason", message, code="required")
    return reason.strip()
