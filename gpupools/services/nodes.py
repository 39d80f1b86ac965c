"""Looking at nodes: what they are, which pool they belong to, and the live checks of their mode.

Read from the current picture; nothing is asked of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpupools.domain import inspect
from gpupools.domain.checks import Check, node_checks
from gpupools.domain.gpus import GpuNode, NodeAllocation, Taint
from gpupools.errors import Missing
from gpupools.models import Cluster, NodePool, Role
from gpupools.services import allocation, drift
from gpupools.services.access import Actor
from gpupools.services.drift import Drift


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node with its pool, its fold and its checks. ``mode`` is None for a label value that nobody knows.

    ``changing``: differences that a change under way is writing, which are no drift.
    """

    node: GpuNode
    pool_row: NodePool | None
    allocation: NodeAllocation | None
    checks: tuple[Check, ...]
    drift: tuple[Drift, ...]
    changing: tuple[Drift, ...] = ()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def pool(self) -> str:
        """Name of its pool, empty without one."""
        return self.pool_row.name if self.pool_row else ""

    @property
    def mode(self) -> str | None:
        """The declared mode; empty for a node without GPUs."""
        declared = self.node.declared
        return "" if not self.node.is_gpu else declared.value if declared else None

    @property
    def verified(self) -> bool:
        """Whether the node is in its mode: no check says no, and what the mode reports is there."""
        return self.node.is_gpu and all(check.ok is not False for check in self.checks)

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The node's taints."""
        return self.node.taints


@dataclass(frozen=True, slots=True)
class Listing:
    """Nodes and the instant they are true of (seconds since 1970); None: nothing is known yet."""

    taken_at: float | None
    rows: tuple[NodeFacts, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """The allocation as text: shared cards as ``kubectl inspect cgpu`` has them, whole cards in a second table."""

    taken_at: float | None
    shared: str
    whole: str


def listing(actor: Actor, cluster: Cluster, *, name: str = "") -> Listing:
    """List the nodes of a cluster by name, or just one. Raises Unreachable when the broker is away."""
    actor.require(Role.VIEWER, cluster)
    picture = allocation.current(cluster)
    if picture is None:
        return Listing(None, ())
    chosen = [node for node in picture.nodes if name in ("", node.name)]
    folds = allocation.folds_of(picture, {node.name for node in chosen})
    pools, label = drift.pools_by_id(cluster), drift.pool_label(cluster)
    being_written = drift.writings(cluster)
    rows = []
    for node in sorted(chosen, key=lambda node: node.name):
        pool, fold = pools.get(node.labels.get(label, "")), folds.get(node.name)
        drifts, changing = drift.split(drift.drifted(pool, [node]) if pool else (), being_written)
        rows.append(NodeFacts(node, pool, fold, tuple(node_checks(node, fold)), drifts, changing))
    return Listing(picture.taken_at, tuple(rows))


def tables(actor: Actor, cluster: Cluster, *, node: str = "") -> Tables:
    """Lay the allocation out as text, for the whole cluster or one node; raises Missing for an unknown node."""
    found = listing(actor, cluster, name=node)
    if node and not found.rows:
        raise Missing(f"There is no node {node} in cluster {cluster.name}.", code="no-such-node")
    folds = [row.allocation for row in found.rows if row.allocation is not None]
    known = {row.name: row.node for row in found.rows}
    shared = inspect.table(folds, known, namespaces=actor.namespaces(cluster))
    return Tables(found.taken_at, shared, inspect.whole_table(folds))
