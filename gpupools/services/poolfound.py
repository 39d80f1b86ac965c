"""What is found of a pool beside what it wants: nodes, their modes and cards, and which differ. It only looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpupools.models import NodePool
from gpupools.services import nodes
from gpupools.services.access import Actor
from gpupools.services.nodes import NodeFacts


@dataclass(frozen=True, slots=True)
class Found:
    """A pool's nodes, counted. ``modes`` and ``card_models``: how many GPU nodes have which; ``unknown`` is one too.

    ``drifting``: names of the nodes that differ from the pool; ``changing``: of those that a change is writing now.
    """

    nodes: int
    ready: int
    modes: Mapping[str, int]
    card_models: Mapping[str, int]
    drifting: tuple[str, ...]
    changing: tuple[str, ...] = ()


def found(rows: Iterable[NodeFacts]) -> Found:
    """Count the nodes of one pool."""
    every = tuple(rows)
    with_gpus = [row for row in every if row.node.is_gpu]
    return Found(
        len(every),
        sum(row.node.ready for row in every),
        dict(sorted(Counter(row.mode or "unknown" for row in with_gpus).items())),
        dict(sorted(Counter(row.node.card_model or "unknown" for row in with_gpus).items())),
        tuple(row.name for row in every if row.drift),
        tuple(row.name for row in every if row.changing),
    )


def of(actor: Actor, pool: NodePool) -> tuple[float | None, Found | None]:
    """Return what is found of a pool and the instant that it is true of; None: nothing of the cluster is known yet."""
    listing = nodes.listing(actor, pool.cluster)
    if listing.taken_at is None:
        return None, None
    return listing.taken_at, found(
        row for row in listing.rows if row.pool_row is not None and row.pool_row.pk == pool.pk
    )
