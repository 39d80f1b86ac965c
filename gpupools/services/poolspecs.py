"""A pool's wishes between its row, the queue and the provider; and which nodes are the pool's. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpupools.clusters.port import AutoScaling, PoolSpec
from gpupools.domain.gpus import GpuNode, Picture, Taint
from gpupools.domain.modes import (
    MODE_LABEL,
    MODES,
    OP_LABEL,
    PLACEMENT_LABEL,
    POOL_LABEL,
    Mode,
    PlacementPolicy,
    mode_of_label,
)
from gpupools.models import Cluster, NodePool
from gpupools.services.drift import pool_label, wanted_taints

# Labels that are typed fields or bookkeeping, never a person's free labels.
NOT_FREE = frozenset({MODE_LABEL, PLACEMENT_LABEL, OP_LABEL, POOL_LABEL})


def target_of(pool: NodePool) -> str:
    """Return what the queue calls a pool: one push at a time is in flight for it."""
    return f"pool:{pool.pk}"


def spec_of(pool: NodePool) -> PoolSpec:
    """Return what the row wants of the provider. Without a declared mode, no mode label is written."""
    return PoolSpec(
        name=pool.name,
        mode=Mode(pool.mode) if pool.mode else None,
        policy=PlacementPolicy(pool.policy) if pool.policy else None,
        labels=dict(pool.labels),
        taints=wanted_taints(pool),
        instance_types=tuple(pool.instance_types),
        desired_size=pool.desired_size,
        node_names=tuple(pool.node_names),
        vswitch_ids=tuple(pool.vswitch_ids),
    )


def to_json(spec: PoolSpec) -> dict[str, Any]:
    """Return a spec as the payload of a push."""
    return {
        "name": spec.name,
        "mode": spec.mode.value if spec.mode else "",
        "policy": spec.policy.value if spec.policy else "",
        "labels": dict(spec.labels),
        "taints": taints_to_json(spec.taints),
        "instance_types": list(spec.instance_types),
        "desired_size": spec.desired_size,
        "node_names": list(spec.node_names),
        "vswitch_ids": list(spec.vswitch_ids),
        # None leaves it as it is; {} turns it off.
        "auto_scaling": None if spec.auto_scaling is None else scaling_to_json(spec.auto_scaling),
    }


def from_json(payload: Mapping[str, Any]) -> PoolSpec:
    """Read a spec from the payload of a push."""
    return PoolSpec(
        name=payload["name"],
        mode=Mode(payload["mode"]) if payload["mode"] else None,
        policy=PlacementPolicy(payload["policy"]) if payload["policy"] else None,
        labels=dict(payload["labels"]),
        taints=tuple(Taint(**each) for each in payload["taints"]),
        instance_types=tuple(payload["instance_types"]),
        desired_size=payload["desired_size"],
        node_names=tuple(payload["node_names"]),
        vswitch_ids=tuple(payload["vswitch_ids"]),
        auto_scaling=None if payload.get("auto_scaling") is None else scaling_from_json(payload["auto_scaling"]),
    )


def taints_to_json(taints: Iterable[Taint]) -> list[dict[str, str]]:
    """Return taints as rows and payloads keep them."""
    return [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints]


def scaling_to_json(scaling: AutoScaling | None) -> dict[str, Any]:
    """Return auto scaling as rows and payloads keep it; empty where it is off."""
    if scaling is None or not scaling.enable:
        return {}
    return {
        "enable": True,
        "min_instances": scaling.min_instances,
        "max_instances": scaling.max_instances,
        "type": scaling.kind,
    }


def scaling_from_json(kept: Mapping[str, Any]) -> AutoScaling:
    """Read auto scaling from a row or payload."""
    if not kept.get("enable"):
        return AutoScaling()
    return AutoScaling(True, kept["min_instances"], kept["max_instances"], kept.get("type", ""))


def free_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a provider's pool that are a person's own."""
    return {key: value for key, value in labels.items() if key not in NOT_FREE}


def mode_and_policy(labels: Mapping[str, str]) -> tuple[str, str]:
    """Read mode and policy from a pool's labels, as rows keep them.

    A pool without the label has declared nothing, so its mode is empty; so is one that nobody knows.
    """
    mode = mode_of_label(labels[MODE_LABEL]) if MODE_LABEL in labels else None
    if mode is None:
        return "", ""
    if not MODES[mode].shared:
        return mode.value, ""
    spread = labels.get(PLACEMENT_LABEL) == PlacementPolicy.SPREAD
    return mode.value, (PlacementPolicy.SPREAD if spread else PlacementPolicy.BINPACK).value


def members(pool: NodePool, nodes: Iterable[GpuNode]) -> list[GpuNode]:
    """Return the nodes of a pool: by the label that says so, and those that a pool being made has named."""
    label, value = pool_label(pool.cluster), pool.pool_id or pool.name
    named = set(pool.node_names) if pool.cluster.provider == Cluster.Provider.KUBERNETES else set()
    return [
        node for node in nodes if node.labels.get(label) == value or (node.name in named and label not in node.labels)
    ]


def nodes_of(pool: NodePool, picture: Picture) -> list[GpuNode]:
    """Return the nodes of a pool as the current picture has them."""
    return members(pool, picture.nodes)


def unlike(nodes: Iterable[GpuNode], mode: Mode | None, policy: PlacementPolicy | None) -> list[GpuNode]:
    """Return the nodes that these labels would put into another mode, or another choice of cards.

    Without a mode no node is changed. Writing ``default`` where the label is absent changes nothing either.
    """
    if mode is None:
        return []
    wanted = (policy or PlacementPolicy.BINPACK) if MODES[mode].shared else None
    return [node for node in nodes if node.declared is not mode or (wanted and node.policy is not wanted)]


def names(nodes: Iterable[GpuNode], *, most: int = 5) -> str:
    """Return node names for a sentence, cut after a few."""
    listed = sorted(node.name for node in nodes)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
