"""What the ACK SDK's models hold, from and to the values of the port. It makes no call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from alibabacloud_cs20151215 import models

from gpupools.clusters.port import AutoScaling, PoolFacts, PoolSpec
from gpupools.domain.gpus import Taint
from gpupools.domain.modes import OP_LABEL, mode_labels


def group_change(there: PoolFacts, spec: PoolSpec) -> Any | None:
    """Return what is to change of the machines, or nothing.

    The SDK writes an empty list for every list that is not given (disks, tags), so a group is sent only for a reason.
    """
    types = list(spec.instance_types) or list(there.instance_types)
    if spec.desired_size == there.desired_size and types == list(there.instance_types):
        return None
    return models.ModifyClusterNodePoolRequestScalingGroup(desired_size=spec.desired_size, instance_types=types)


def scaling(wanted: AutoScaling) -> dict[str, Any]:
    """Return auto scaling as ACK takes it."""
    if not wanted.enable:
        return {"enable": False}
    kind = {"type": wanted.kind} if wanted.kind else {}
    return {"enable": True, "min_instances": wanted.min_instances, "max_instances": wanted.max_instances, **kind}


def scaling_change(there: PoolFacts, spec: PoolSpec) -> Any | None:
    """Return how auto scaling is to change, or nothing. ACK never changes its type."""
    if spec.auto_scaling is None or spec.auto_scaling == there.auto_scaling:
        return None
    return models.ModifyClusterNodePoolRequestAutoScaling(**scaling(replace(spec.auto_scaling, kind="")))


def tags(spec: PoolSpec, op_id: str) -> list[Any]:
    """Return every label of a pool: free ones, those of its mode, and the operation's id."""
    labels = {**spec.labels, **(mode_labels(spec.mode, spec.policy) if spec.mode else {}), OP_LABEL: op_id}
    return [models.Tag(key=key, value=value) for key, value in labels.items()]


def taints(spec: PoolSpec) -> list[Any]:
    """Return a pool's taints as ACK takes them."""
    return [models.Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in spec.taints]


def pool_facts(pool: Any) -> PoolFacts:
    """Read a node pool."""
    info, group, status, config = pool.nodepool_info, pool.scaling_group, pool.status, pool.kubernetes_config
    labels = {tag.key: tag.value or "" for tag in (config.labels if config else None) or ()}
    taints = (config.taints if config else None) or ()
    return PoolFacts(
        pool_id=info.nodepool_id or "",
        name=info.name or "",
        state=(status.state if status else None) or "active",
        labels={key: value for key, value in labels.items() if key != OP_LABEL},
        taints=tuple(Taint(taint.key or "", taint.value or "", taint.effect or "") for taint in taints),
        instance_types=tuple((group.instance_types if group else None) or ()),
        desired_size=(group.desired_size if group else None) or 0,
        total_nodes=(status.total_nodes if status else None) or 0,
        healthy_nodes=(status.healthy_nodes if status else None) or 0,
        failed_nodes=(status.failed_nodes if status else None) or 0,
        op_id=labels.get(OP_LABEL, ""),
        auto_scaling=_scaling_facts(pool.auto_scaling),
        cpu_policy=(config.cpu_policy if config else None) or "",
    )


def _scaling_facts(found: Any) -> AutoScaling:
    if found is None or not found.enable:
        return AutoScaling()
    return AutoScaling(True, found.min_instances or 0, found.max_instances or 0, found.type or "")
