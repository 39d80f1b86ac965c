"""Nodes that differ from what their pool wants: mode, card choice, labels, taints. It looks, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpupools.domain.changes import State
from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.modes import (
    ACK_POOL_LABEL,
    EXCLUSIVE_GPU,
    MODE_LABEL,
    PLACEMENT_LABEL,
    POOL_LABEL,
    Mode,
    PlacementPolicy,
    mode_labels,
)
from gpupools.models import Cluster, ModeChange, NodePool


@dataclass(frozen=True, slots=True)
class Drift:
    """One key of one node that is not as its pool wants it. Empty ``wanted`` or ``found`` means: not there.

    ``by`` is the field manager that wrote what was found, and ``since`` when, where the API server knows. ``change``:
    the mode change under way that is writing the key; 0: nobody's.
    """

    node: str
    key: str
    wanted: str
    found: str
    by: str = ""
    since: str = ""
    change: int = 0

    @property
    def is_mode(self) -> bool:
        """Whether bringing it back changes a mode or a card choice, which somebody must decide on."""
        return self.key in (MODE_LABEL, PLACEMENT_LABEL)


# By (node, key): the change that is writing it, and what it finds and leaves there.
Writings = Mapping[tuple[str, str], tuple[int, frozenset[str]]]
_WRITING: Final = (State.APPLYING.value, State.PAUSED.value, State.FAILED.value, State.ROLLING_BACK.value)


def writings(cluster: Cluster) -> Writings:
    """Return what the changes under way in a cluster are writing on its nodes."""
    found = {}
    for change in ModeChange.objects.filter(pool__cluster=cluster, state__in=_WRITING).only("pk", "diff"):
        for row in change.diff.get("nodes", ()):
            for each in row["labels"]:
                found[row["node"], each["key"]] = (change.pk, frozenset({each["old"], each["new"]}))
    return found


def split(drifts: Iterable[Drift], being_written: Writings) -> tuple[tuple[Drift, ...], tuple[Drift, ...]]:
    """Return (real drift, what a change under way is writing): half done, a change looks like drift and is none.

    A value that is neither what the change found nor what it writes is somebody else's, and drift.
    """
    real, changing = [], []
    for each in drifts:
        pk, values = being_written.get((each.node, each.key), (0, frozenset[str]()))
        if each.found in values:
            changing.append(replace(each, change=pk))
        else:
            real.append(each)
    return tuple(real), tuple(changing)


def pool_label(cluster: Cluster) -> str:
    """Return the node label that says which pool a node belongs to; its value is ``NodePool.pool_id``."""
    return ACK_POOL_LABEL if cluster.provider == Cluster.Provider.ACK else POOL_LABEL


def pools_by_id(cluster: Cluster) -> dict[str, NodePool]:
    """Return the pools of a cluster by the value that their nodes carry in ``pool_label``."""
    return {pool.pool_id or pool.name: pool for pool in NodePool.objects.filter(cluster=cluster)}


def pool_names(cluster: Cluster) -> dict[str, str]:
    """Return the names of a cluster's pools by what their nodes carry in ``pool_label``."""
    return {label: pool.name for label, pool in pools_by_id(cluster).items()}


def wanted_labels(pool: NodePool) -> dict[str, str]:
    """Return every label that a pool wants on its nodes: its free ones, and those of its mode once it has one."""
    labels = dict(pool.labels)
    if pool.mode:
        labels |= mode_labels(Mode(pool.mode), PlacementPolicy(pool.policy) if pool.policy else None)
    return labels


def wanted_taints(pool: NodePool) -> tuple[Taint, ...]:
    """Return the taints that a pool wants on its nodes."""
    return tuple(Taint(each["key"], each.get("value", ""), each.get("effect", "")) for each in pool.taints)


def drifted(pool: NodePool, nodes: Iterable[GpuNode]) -> list[Drift]:
    """Name every difference between what the pool wants and what its nodes carry.

    Labels and taints that the pool says nothing about are not its business.
    """
    labels, taints = wanted_labels(pool), wanted_taints(pool)
    return [drift for node in nodes for drift in _of_node(node, labels, taints)]


def _of_node(node: GpuNode, labels: Mapping[str, str], taints: Iterable[Taint]) -> Iterator[Drift]:
    for key, wanted in labels.items():
        found = node.labels.get(key)
        if found != wanted and not says_the_same(node, key, wanted, found):
            # Of a label that was taken off nobody is recorded.
            yield Drift(node.name, key, wanted, found or "", *(node.owners.get(key, ("", "")) if found else ("", "")))
    for taint in taints:
        if taint not in node.taints:
            other = next((each for each in node.taints if (each.key, each.effect) == (taint.key, taint.effect)), None)
            by = node.owners.get("taints", ("", ""))
            yield Drift(node.name, f"taint {taint.key}", _text(taint), _text(other) if other else "", *by)


def says_the_same(node: GpuNode, key: str, wanted: str, found: str | None) -> bool:
    """Tell whether a label that is not there means what is wanted.

    Without the mode's label a node that reports whole cards is exclusive all the same, and without a card choice ACK
    packs.
    """
    if key == MODE_LABEL:
        return found is None and wanted == "default" and node.allocatable.get(EXCLUSIVE_GPU, 0) > 0
    return key == PLACEMENT_LABEL and found is None and wanted == PlacementPolicy.BINPACK.value


def _text(taint: Taint) -> str:
    value = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"{value}:{taint.effect}"
