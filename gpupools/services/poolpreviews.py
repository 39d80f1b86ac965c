"""What an edit of a pool would do to each of its nodes, before anybody saves it. It looks, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

from gpupools.clusters.labelled import ours_on
from gpupools.domain import requests
from gpupools.domain.advice import Advice
from gpupools.domain.gpus import GpuNode, Pod, Taint
from gpupools.domain.modes import MODES, PLACEMENT_LABEL, POOL_LABEL, Mode
from gpupools.domain.nodewrites import Group, KeyWrite, Wishes, differences, grouped, node_writes, taint_key
from gpupools.models import Cluster, NodePool, Role
from gpupools.services import changefacts, poolrules
from gpupools.services.access import Actor
from gpupools.services.drift import Drift, drifted, wanted_labels, wanted_taints
from gpupools.services.poolspecs import names, spec_of, taints_to_json, unlike


@dataclass(frozen=True, slots=True)
class NodePreview:
    """One node of the pool. ``writes``: what saving changes on it, or, where existing nodes are left alone, in what it
    then differs from the pool. ``drift``: in what it differs from the pool today.
    """

    node: str
    writes: tuple[KeyWrite, ...]
    drift: tuple[Drift, ...]
    changes_mode: bool


@dataclass(frozen=True, slots=True)
class EditPreview:
    """An edit as it would be saved. ``pool_writes``: the pool's own labels and taints, before and after.

    ``evicted``: (namespace, pod) of pods that a new NoExecute taint ends; an empty name is one that may not be seen.
    """

    pool: NodePool
    update_nodes: bool
    pool_writes: tuple[KeyWrite, ...]
    nodes: tuple[NodePreview, ...]
    evicted: tuple[tuple[str, str], ...]
    advice: tuple[Advice, ...]

    @property
    def touched(self) -> tuple[NodePreview, ...]:
        """The nodes on which something is written, or would differ."""
        return tuple(each for each in self.nodes if each.writes)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The nodes by what happens to them."""
        return grouped((each.node, each.writes) for each in self.nodes)

    @property
    def drifting(self) -> tuple[NodePreview, ...]:
        """The nodes that differ from the pool today, before any edit."""
        return tuple(each for each in self.nodes if each.drift)

    @property
    def refused(self) -> tuple[str, ...]:
        """The nodes whose mode saving would change: it is refused, and a mode change is asked for instead."""
        return tuple(each.node for each in self.nodes if each.changes_mode)

    @property
    def changes_nothing(self) -> bool:
        """Whether pool and nodes are already as the edit wants them."""
        return not self.pool_writes and not (self.update_nodes and self.touched)


def edit(
    actor: Actor,
    pool: NodePool,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint | Mapping[str, str]] | None = None,
    update_nodes: bool = False,
) -> EditPreview:
    """Say what ``pools.edit`` with the same words would do to the pool and to each of its nodes.

    Raises Invalid with an error per field as saving does, Unreachable when the nodes cannot be looked at.
    """
    actor.require(Role.VIEWER, pool.cluster)
    after = copy(pool)
    after.labels = dict(pool.labels) if labels is None else dict(labels)
    after.taints = pool.taints if taints is None else taints_to_json(poolrules.as_taints(taints))
    poolrules.check_edit(pool, after.labels, wanted_taints(after))
    seen = changefacts.see(pool)
    reaches = update_nodes or pool.cluster.provider == Cluster.Provider.KUBERNETES
    spec = spec_of(pool)
    leaving = {node.name for node in unlike(seen.nodes, spec.mode, spec.policy)} if reaches else set()
    rows = tuple(
        NodePreview(
            node.name,
            node_writes(node, _wishes(after), owned=_owned(pool, node)),
            tuple(drifted(pool, [node])),
            node.name in leaving,
        )
        for node in sorted(seen.nodes, key=lambda node: node.name)
    )
    hit = _evicted(actor, after, seen.nodes, seen.pods) if reaches else ()
    changes = differences(_wishes(pool), _wishes(after))
    advice = tuple(_advice(pool, rows, changes, hit, reaches=reaches))
    return EditPreview(pool, reaches, changes, rows, hit, advice)


def _wishes(pool: NodePool) -> Wishes:
    labels = wanted_labels(pool)
    if pool.cluster.provider == Cluster.Provider.KUBERNETES:
        labels[POOL_LABEL] = pool.pool_id or pool.name
    return Wishes(labels, wanted_taints(pool))


def _owned(pool: NodePool, node: GpuNode) -> set[str]:
    """Return what may be taken off a node. Off ACK, a note on the node says what the pool had put there."""
    if pool.cluster.provider == Cluster.Provider.ACK:
        return {*pool.labels, *(taint_key(each) for each in wanted_taints(pool))}
    ours = ours_on(node)
    keys = {*ours.labels, *(taint_key(Taint(key, effect=effect)) for key, effect in ours.taints)}
    # The choice of cards means nothing where they are handed out whole, so there it goes as well.
    return keys if not pool.mode or MODES[Mode(pool.mode)].shared else {*keys, PLACEMENT_LABEL}


def _evicted(
    actor: Actor, after: NodePool, nodes: Iterable[GpuNode], pods: Iterable[Pod]
) -> tuple[tuple[str, str], ...]:
    """Name the pods that a NoExecute taint ends which their node does not carry yet."""
    shown = actor.namespaces(after.cluster)
    return tuple(
        sorted(
            (pod.namespace, pod.name) if shown is None or pod.namespace in shown else ("", "")
            for pod in requests.evicted(nodes, pods, wanted_taints(after))
        )
    )


def _advice(
    pool: NodePool,
    rows: Iterable[NodePreview],
    changes: Iterable[KeyWrite],
    evicted: tuple[tuple[str, str], ...],
    *,
    reaches: bool,
) -> Iterable[Advice]:
    rows = tuple(rows)
    on_ack = pool.cluster.provider == Cluster.Provider.ACK
    differing = [each.node for each in rows if each.writes]
    if not reaches and differing:
        yield Advice(
            "nodes-will-differ",
            f"{len(differing)} of {len(rows)} nodes keep what they carry and then differ from the pool: "
            f"{_listed(differing)}. Only nodes that join later get the new labels and taints.",
        )
    if reaches and on_ack and any(write.new is None for each in rows for write in each.writes):
        yield Advice(
            "removal-unsure",
            "ACK does not document whether it takes a label or taint off nodes that exist; what stays there is "
            "shown on the nodes afterwards.",
        )
    if reaches and (drift := [each.node for each in rows if each.drift]):
        yield Advice(
            "overwrites-drift",
            f"What somebody else wrote on {_listed(drift)} is brought back to what the pool wants.",
        )
    if evicted:
        yield Advice(
            "evicts-pods",
            f"A NoExecute taint ends {len(evicted)} running pods that do not tolerate it, at once.",
        )
    if not any(True for _ in changes) and not (reaches and differing):
        yield Advice("changes-nothing", "The pool and its nodes are as this edit wants them already.")


def _listed(found: list[str]) -> str:
    return names(GpuNode(name) for name in found)
