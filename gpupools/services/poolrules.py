"""What a node pool may be: every rule on names, modes, labels, nodes and sizes, with an error per field.

It reads rows to know what is taken and installed, and writes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpupools.clusters.port import AutoScaling, PoolSpec
from gpupools.domain.advice import scaling_kind_for
from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.instances import looks_like_instance_type
from gpupools.domain.labels import MOST_LABELS, check_labels, check_pool_name, check_taints
from gpupools.domain.modes import (
    ACK_POOL_LABEL,
    CHOOSABLE,
    MODES,
    OP_LABEL,
    POOL_LABEL,
    Component,
    Mode,
    PlacementPolicy,
    mode_labels,
)
from gpupools.errors import FieldError, Invalid
from gpupools.models import Cluster, ComponentState, NodePool

PRO_SPEC = "ack.pro"
_VSWITCH = re.compile(r"vsw-[a-z0-9]{1,60}")
MOST_INSTANCE_TYPES = 10  # ACK's limit for a node pool
SCALING_TYPES = ("cpu", "gpu", "gpushare", "spot")
LARGEST_SIZE = 5000  # nodes of the largest ACK cluster
_PRESENT = (ComponentState.State.INSTALLED, ComponentState.State.DEGRADED)


def as_taints(taints: Iterable[Taint | Mapping[str, str]]) -> tuple[Taint, ...]:
    """Read taints as doors give them: values, or mappings with key, value and effect."""
    return tuple(
        each
        if isinstance(each, Taint)
        else Taint(each.get("key", ""), each.get("value", ""), each.get("effect", "NoSchedule"))
        for each in taints
    )


def checked(
    cluster: Cluster,
    *,
    name: str,
    mode: str,
    policy: str | None,
    instance_types: Sequence[str],
    desired_size: int,
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    node_names: Sequence[str],
    vswitch_ids: Sequence[str],
    auto_scaling: Mapping[str, Any] | None = None,
) -> PoolSpec:
    """Check everything about a new pool that needs no look at the cluster; raise Invalid with all field errors."""
    mode_errors, chosen = _mode(cluster, mode)
    policy_errors, card_choice = _policy(chosen, policy)
    errors = [*_name(cluster, name), *mode_errors, *policy_errors]
    errors += _labels(cluster, labels, chosen, card_choice)
    errors += check_taints(taints)
    scaling = None
    if cluster.provider == Cluster.Provider.ACK:
        errors += [*_instance_types(instance_types), *_size(desired_size), *_unexpected("node_names", node_names)]
        errors += _vswitches(vswitch_ids)
        bad_bounds, scaling = _scaling(
            auto_scaling or {}, desired_size, kind=scaling_kind_for(chosen) if chosen else ""
        )
        errors += bad_bounds
    else:
        errors += [*_node_names(node_names), *_unexpected("instance_types", instance_types)]
        errors += _unexpected("vswitch_ids", vswitch_ids)
        if (auto_scaling or {}).get("enable"):
            errors += _unexpected("auto_scaling", ["enable"])
        if desired_size not in (0, len(node_names)):
            errors += _unexpected("desired_size", [str(desired_size)])
        desired_size = len(node_names)
    if errors:
        raise Invalid("The node pool cannot be made like this.", errors=errors)
    return PoolSpec(
        name=name,
        mode=chosen,
        policy=card_choice,
        labels=dict(labels),
        taints=tuple(taints),
        instance_types=tuple(instance_types),
        desired_size=desired_size,
        node_names=tuple(node_names),
        vswitch_ids=tuple(vswitch_ids),
        auto_scaling=scaling,
    )


def check_edit(pool: NodePool, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
    """Check free labels and taints of a pool that exists; raise Invalid with all field errors.

    A label or taint that the pool has already, perhaps from elsewhere, may stay whatever it is.
    """
    kept = {f"labels.{key}" for key, value in labels.items() if pool.labels.get(key) == value}
    kept |= {
        f"taints.{position}"
        for position, taint in enumerate(taints)
        if {"key": taint.key, "value": taint.value, "effect": taint.effect} in pool.taints
    }
    found = [*_labels(pool.cluster, labels, Mode.CGPU, None), *check_taints(taints)]
    errors = [error for error in found if error.code == "twice" or not _is_in(error.field, kept)]
    if errors:
        raise Invalid("The node pool cannot be edited like this.", errors=errors)


def check_size(cluster: Cluster, desired_size: int) -> None:
    """Check the wanted number of machines; only ACK makes and removes machines."""
    if cluster.provider != Cluster.Provider.ACK:
        raise Invalid.field(
            "desired_size",
            "A node pool on plain Kubernetes has the nodes named for it; the console makes no machines there.",
            code="not-scalable",
            found=str(desired_size),
        )
    if errors := _size(desired_size):
        raise Invalid(errors[0].message, errors=errors)


def checked_scaling(pool: NodePool, wanted: Mapping[str, Any], desired_size: int) -> AutoScaling:
    """Check auto scaling and its bounds; ACK never changes its type. Raises Invalid with all field errors."""
    errors, scaling = _scaling(wanted, desired_size, fixed=str(pool.auto_scaling.get("type") or ""))
    if errors:
        raise Invalid("The node pool cannot be scaled like this.", errors=errors)
    return scaling


def _scaling(
    wanted: Mapping[str, Any], desired_size: int, *, kind: str = "", fixed: str = ""
) -> tuple[list[FieldError], AutoScaling]:
    """Read auto scaling. ``kind``: the type where none is given; ``fixed``: the one that the pool has for good."""
    if not wanted.get("enable"):
        return [], AutoScaling()
    least, most = int(wanted.get("min_instances") or 0), int(wanted.get("max_instances") or 0)
    kind = str(wanted.get("type") or fixed or kind)
    errors = []
    if not 0 <= least <= most or not 1 <= most <= LARGEST_SIZE:
        message = "The smallest size is at most the largest one."
        allowed = f"0 to the largest size, and that 1 to {LARGEST_SIZE}"
        errors.append(FieldError("auto_scaling.min_instances", message, "bad-bounds", f"{least} to {most}", allowed))
    elif not least <= desired_size <= most:
        message = "The wanted size lies between the bounds of auto scaling."
        errors.append(FieldError("desired_size", message, "out-of-bounds", str(desired_size), f"{least} to {most}"))
    if kind and kind not in SCALING_TYPES:
        allowed = ", ".join(SCALING_TYPES)
        errors.append(FieldError("auto_scaling.type", "ACK knows no such type.", "unknown", kind[:80], allowed))
    elif fixed and kind != fixed:
        message = "ACK does not change the type of auto scaling after it was set."
        errors.append(FieldError("auto_scaling.type", message, "fixed", kind, fixed))
    return errors, AutoScaling(True, least, most, kind)


def _is_in(path: str, kept: set[str]) -> bool:
    # A label's key may have dots in it, a taint's place has none.
    return path in kept or (path.startswith("taints.") and ".".join(path.split(".")[:2]) in kept)


def check_nodes(cluster: Cluster, spec: PoolSpec, nodes: Iterable[GpuNode]) -> None:
    """Check the named nodes against the nodes there are; raise Invalid on ``node_names``."""
    found = {node.name: node for node in nodes}
    owners = {
        name: pool.name
        for pool in NodePool.objects.filter(cluster=cluster).exclude(state=NodePool.State.GONE)
        for name in pool.node_names
    }
    errors = []
    for name in spec.node_names:
        node = found.get(name)
        if node is None:
            errors.append(FieldError("node_names", f"There is no node {name}.", "unknown", name))
        elif ACK_POOL_LABEL in node.labels:
            errors.append(
                FieldError(
                    "node_names",
                    f"{name} belongs to a node pool of ACK, whose labels must be changed there. "
                    "Connect the cluster with provider ack instead.",
                    "ack-node",
                    name,
                )
            )
        elif owner := node.labels.get(POOL_LABEL) or owners.get(name):
            errors.append(FieldError("node_names", f"{name} belongs to the node pool {owner}.", "owned", name))
    if errors:
        raise Invalid("These nodes cannot be a node pool.", errors=errors)


def _name(cluster: Cluster, name: str) -> list[FieldError]:
    if errors := check_pool_name(name):
        return errors
    taken = NodePool.objects.filter(cluster=cluster, name=name).exclude(state=NodePool.State.GONE)
    if taken.exists():
        return [FieldError("name", f"{cluster.name} has a node pool of this name.", "taken", name)]
    return []


def _mode(cluster: Cluster, text: str) -> tuple[list[FieldError], Mode | None]:
    allowed = ", ".join(CHOOSABLE)
    if text not in CHOOSABLE:
        known = text in Mode.__members__.values()
        message = "This mode is only shown here, not set." if known else "There is no such scheduling mode."
        return [FieldError("mode", message, "read-only" if known else "unknown", str(text)[:80], allowed)], None
    mode = Mode(text)
    facts = MODES[mode]
    if facts.needs_pro and cluster.spec and not cluster.spec.startswith(PRO_SPEC):
        message = f"Mode {mode.value} needs an ACK managed Pro cluster; this one is {cluster.spec}."
        basic = ", ".join(each for each in CHOOSABLE if not MODES[each].needs_pro)
        return [FieldError("mode", message, "needs-pro", mode.value, basic)], mode
    # The other components may come after the pool, and the page says that they are missing. A node that is
    # labelled mps before its daemon runs there hands out cards that no pod can use.
    if Component.MPS_CONTROL in facts.components:
        rows = ComponentState.objects.filter(cluster=cluster, name=Component.MPS_CONTROL, state__in=_PRESENT)
        if not rows.exists():
            message = "Mode mps needs the MPS Control Daemon (ack-mps-control) in the cluster first: install it."
            return [FieldError("mode", message, "needs-component", mode.value)], mode
    return [], mode


def _policy(mode: Mode | None, text: str | None) -> tuple[list[FieldError], PlacementPolicy | None]:
    if mode is not None and not MODES[mode].shared:
        if not text:
            return [], None
        message = f"A placement policy has no effect in mode {mode.value}: its cards are handed out whole."
        return [FieldError("policy", message, "no-effect", text, "nothing")], None
    if not text:
        return [], PlacementPolicy.BINPACK
    try:
        return [], PlacementPolicy(text)
    except ValueError:
        allowed = ", ".join(PlacementPolicy)
        return [FieldError("policy", "There is no such placement policy.", "unknown", text[:80], allowed)], None


def _labels(
    cluster: Cluster, labels: Mapping[str, str], mode: Mode | None, policy: PlacementPolicy | None
) -> list[FieldError]:
    errors = check_labels(labels)
    if cluster.provider != Cluster.Provider.ACK or any(each.code == "too-many" for each in errors):
        return errors
    # The mode's labels and the one that names the operation count towards ACK's limit as well.
    ours = len({*mode_labels(mode or Mode.CGPU, policy), OP_LABEL})
    if len(labels) + ours > MOST_LABELS:
        message = f"ACK allows {MOST_LABELS} labels on a node pool, and the console needs {ours} of them."
        allowed = f"at most {MOST_LABELS - ours}"
        errors.append(FieldError("labels", message, "too-many", str(len(labels)), allowed))
    return errors


def _instance_types(types: Sequence[str]) -> list[FieldError]:
    if not types:
        message = "Choose at least one instance type: ACK makes the machines of this pool."
        return [FieldError("instance_types", message, "required", allowed="for instance ecs.gn7i-c8g1.2xlarge")]
    if len(types) > MOST_INSTANCE_TYPES:
        return [
            FieldError(
                "instance_types",
                "These are too many instance types.",
                "too-many",
                str(len(types)),
                f"at most {MOST_INSTANCE_TYPES}",
            )
        ]
    return [
        FieldError(
            "instance_types", "This is not an ECS instance type.", found=each[:80], allowed="ecs.<family>.<size>"
        )
        for each in types
        if not looks_like_instance_type(each)
    ] + _twice("instance_types", types)


def _vswitches(ids: Sequence[str]) -> list[FieldError]:
    return [
        FieldError("vswitch_ids", "This is not the id of a vSwitch.", "bad-id", each[:80], "vsw-<letters and digits>")
        for each in ids
        if not _VSWITCH.fullmatch(each)
    ] + _twice("vswitch_ids", ids)


def _size(size: int) -> list[FieldError]:
    if 0 <= size <= LARGEST_SIZE:
        return []
    allowed = f"0 to {LARGEST_SIZE}"
    return [FieldError("desired_size", "A node pool cannot have this size.", found=str(size), allowed=allowed)]


def _node_names(given: Sequence[str]) -> list[FieldError]:
    if not given:
        message = "Name the nodes of this pool: on plain Kubernetes the console makes no machines."
        return [FieldError("node_names", message, "required", allowed="names of nodes of the cluster")]
    return _twice("node_names", given)


def _twice(field: str, given: Sequence[str]) -> list[FieldError]:
    twice = sorted(each for each, count in Counter(given).items() if count > 1)
    return [FieldError(field, f"{each} stands here twice.", "twice", each) for each in twice]


def _unexpected(field: str, given: Sequence[str]) -> list[FieldError]:
    if not given:
        return []
    message = "This does not go with the cluster's provider."
    return [FieldError(field, message, "unexpected", ", ".join(given)[:200], "nothing")]
