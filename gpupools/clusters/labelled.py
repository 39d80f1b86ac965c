"""Node pools on plain Kubernetes: the nodes that carry ``gpupools.internal/pool: <name>``.

A pool has no object of its own, so its id is its name and a pool without nodes does not exist. Each write goes node by
node and may be repeated: a node that is as wanted is left alone. What we set on a node stands in an annotation, so
that we take back that and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from gpupools.clusters.port import Kubernetes, PoolFacts, PoolSpec, Started, TaskFacts
from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.modes import ACK_POOL_LABEL, MODE_LABEL, MODES, PLACEMENT_LABEL, POOL_LABEL, mode_labels
from gpupools.errors import Conflict, Invalid, Refused

OURS_ANNOTATION = "gpupools.internal/pool-labels"


class Ours(msgspec.Struct, frozen=True):
    """What a pool has set on one node besides mode and policy: free label keys, taints as (key, effect)."""

    labels: tuple[str, ...] = ()
    taints: tuple[tuple[str, str], ...] = ()


class LabelledPools:
    """Node pools as labels; implements ``port.PoolProvider``."""

    owns_nodes = False

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes

    def pools(self) -> list[PoolFacts]:
        """Return all pools that have a node."""
        members: dict[str, list[GpuNode]] = defaultdict(list)
        for node in self._kubernetes.nodes():
            if name := node.labels.get(POOL_LABEL):
                members[name].append(node)
        return [_facts(name, nodes) for name, nodes in sorted(members.items())]

    def pool(self, pool_id: str) -> PoolFacts | None:
        """Return one pool, None when no node carries its label."""
        members = self._members(pool_id)
        return _facts(pool_id, members) if members else None

    def find(self, op_id: str) -> PoolFacts | None:
        """Return nothing: a create may be half done, and repeating it does the other half."""
        return None

    def create(self, spec: PoolSpec, *, op_id: str) -> Started:
        """Make a pool of existing nodes. Nothing is written before every node of it was looked at."""
        if not spec.node_names:
            raise Invalid.field(
                "node_names",
                "On plain Kubernetes a pool is made of existing nodes: choose at least one.",
                code="required",
                allowed="names of nodes",
            )
        nodes = self._kubernetes.nodes()
        strangers = [n.name for n in nodes if n.labels.get(POOL_LABEL) == spec.name and n.name not in spec.node_names]
        if strangers:
            raise Conflict(f"A pool named {spec.name} is there already.", code="name-taken", nodes=strangers)
        for node in self._joining(spec.name, spec.node_names, nodes):
            self._write(node, spec, op_id)
        return Started(spec.name)

    def modify(self, pool_id: str, spec: PoolSpec, *, update_nodes: bool, op_id: str) -> Started:
        """Write labels and taints to the pool's nodes, if they shall reach existing nodes.

        Nodes of ``spec.node_names`` that are not in the pool yet join it; none leaves by being left out.
        """
        if spec.name != pool_id:
            raise Refused("A pool on plain Kubernetes cannot be renamed: its name is its label.", code="renamed")
        nodes = self._kubernetes.nodes()
        members = [node for node in nodes if node.labels.get(POOL_LABEL) == pool_id]
        names = {node.name for node in members}
        joining = self._joining(pool_id, [name for name in spec.node_names if name not in names], nodes)
        _refuse_ack_nodes(members)
        for node in [*(members if update_nodes else ()), *joining]:
            self._write(node, spec, op_id)
        return Started(pool_id)

    def delete(self, pool_id: str, *, force: bool, op_id: str) -> Started:
        """Take the pool's label, its free labels and its taints off the nodes; their mode stays as it is."""
        for node in self._members(pool_id):
            self._take_off(node, op_id)
        return Started(pool_id)

    def place(self, spec: PoolSpec, node_names: Sequence[str], *, op_id: str) -> Started:
        """Put nodes into a pool, also out of another one: what that one had set is taken off in the same write."""
        by_name = {node.name: node for node in self._kubernetes.nodes()}
        missing = [name for name in node_names if name not in by_name]
        if missing:
            raise Refused(f"The cluster has no node {missing[0]}.", code="not-found", nodes=missing)
        placed = [by_name[name] for name in node_names]
        _refuse_ack_nodes(placed)
        for node in placed:
            self._write(node, spec, op_id)
        return Started(spec.name)

    def leave(self, pool_id: str, node_names: Sequence[str], *, op_id: str) -> Started:
        """Take nodes out of a pool; one that is not in it is left alone."""
        named = set(node_names)
        for node in self._members(pool_id):
            if node.name in named:
                self._take_off(node, op_id)
        return Started(pool_id)

    def instances(self, pool_id: str) -> dict[str, str]:
        """Refuse: machines are not ours here."""
        raise _no_machines()

    def remove(self, pool_id: str, instance_ids: Sequence[str]) -> Started:
        """Refuse: machines are not ours here."""
        raise _no_machines()

    def attach(self, pool_id: str, instance_ids: Sequence[str]) -> Started:
        """Refuse: machines are not ours here."""
        raise _no_machines()

    def task(self, task_id: str) -> TaskFacts:
        """Return success: every call here is done when it returns."""
        return TaskFacts(task_id, "success")

    def node_names(self, pool_id: str) -> list[str]:
        """Return the names of the pool's nodes."""
        return sorted(node.name for node in self._members(pool_id))

    def _members(self, pool_id: str) -> list[GpuNode]:
        return [node for node in self._kubernetes.nodes() if node.labels.get(POOL_LABEL) == pool_id]

    def _joining(self, pool: str, names: Sequence[str], nodes: Sequence[GpuNode]) -> list[GpuNode]:
        """Return the named nodes; refuse them all if one is missing, ACK's, or in another pool."""
        by_name = {node.name: node for node in nodes}
        missing = [name for name in names if name not in by_name]
        if missing:
            raise Refused(f"The cluster has no node {missing[0]}.", code="not-found", nodes=missing)
        joining = [by_name[name] for name in names]
        _refuse_ack_nodes(joining)
        for node in joining:
            other = node.labels.get(POOL_LABEL, pool)
            if other != pool:
                raise Conflict(
                    f"The node {node.name} is in the pool {other} already.", code="in-another-pool", pool=other
                )
        return joining

    def _take_off(self, node: GpuNode, op_id: str) -> None:
        ours = ours_on(node)
        self._kubernetes.label_node(
            node.name,
            labels={POOL_LABEL: None, **dict.fromkeys(ours.labels)},
            taints_remove=[Taint(key, effect=effect) for key, effect in ours.taints],
            annotations={OURS_ANNOTATION: None},
            op_id=op_id,
        )

    def _write(self, node: GpuNode, spec: PoolSpec, op_id: str) -> None:
        before = ours_on(node)
        now = Ours(tuple(sorted(spec.labels)), tuple(sorted((t.key, t.effect) for t in spec.taints)))
        labels: dict[str, str | None] = dict.fromkeys(set(before.labels) - set(now.labels))
        labels |= spec.labels
        labels[POOL_LABEL] = spec.name
        if spec.mode is not None:
            # A policy without effect would only mislead; the mode's own label is never taken away.
            placement = {} if MODES[spec.mode].shared else {PLACEMENT_LABEL: None}
            labels |= {**placement, **mode_labels(spec.mode, spec.policy)}
        self._kubernetes.label_node(
            node.name,
            labels=labels,
            taints_add=spec.taints,
            taints_remove=[
                Taint(key, effect=effect) for key, effect in before.taints if (key, effect) not in now.taints
            ],
            annotations={OURS_ANNOTATION: msgspec.json.encode(now).decode()},
            op_id=op_id,
        )


def _refuse_ack_nodes(nodes: Sequence[GpuNode]) -> None:
    owned = [node.name for node in nodes if ACK_POOL_LABEL in node.labels]
    if owned:
        raise Refused(
            f"The node {owned[0]} belongs to an ACK node pool: labels written past ACK cause allocation errors. "
            "Connect this cluster by the ACK OpenAPI (access key and cluster id), and change its node pool there.",
            code="owned-by-ack",
            nodes=owned,
        )


def _no_machines() -> Refused:
    return Refused("On plain Kubernetes the console neither removes nor attaches machines.", code="no-machines")


def ours_on(node: GpuNode) -> Ours:
    """Read what we have set on a node; an annotation that somebody spoiled means that we take nothing back."""
    text = node.annotations.get(OURS_ANNOTATION, "")
    try:
        return msgspec.json.decode(text, type=Ours) if text else Ours()
    except msgspec.DecodeError:
        return Ours()


def _facts(name: str, nodes: Sequence[GpuNode]) -> PoolFacts:
    """Describe a pool by what all of its nodes have in common."""
    keys = {MODE_LABEL, PLACEMENT_LABEL, *(key for node in nodes for key in ours_on(node).labels)}
    ours = {taint for node in nodes for taint in ours_on(node).taints}
    ready = sum(node.ready for node in nodes)
    return PoolFacts(
        pool_id=name,
        name=name,
        state="active",
        labels=_common_labels([node.labels for node in nodes], keys),
        taints=tuple(
            taint
            for taint in nodes[0].taints
            if (taint.key, taint.effect) in ours and all(taint in node.taints for node in nodes)
        ),
        instance_types=tuple(sorted({node.instance_type for node in nodes if node.instance_type})),
        desired_size=len(nodes),
        total_nodes=len(nodes),
        healthy_nodes=ready,
        failed_nodes=len(nodes) - ready,
    )


def _common_labels(labels: Sequence[Mapping[str, str]], keys: set[str]) -> dict[str, str]:
    first, *others = labels
    return {
        key: first[key] for key in sorted(keys & first.keys()) if all(other.get(key) == first[key] for other in others)
    }
