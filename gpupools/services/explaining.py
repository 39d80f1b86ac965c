"""Explaining a number: which pods make up a figure of a card, a node, a pool or the whole cluster.

Read from the current picture, so the sum is the number that pages show of the same instant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpupools.domain import explain as explaining
from gpupools.domain.explain import Figure, Part
from gpupools.domain.gpus import Holding, NodeAllocation
from gpupools.errors import Invalid, Missing
from gpupools.models import Cluster, Role
from gpupools.services import allocation, drift
from gpupools.services.access import Actor
from gpupools.services.rows import ANOTHER_NAMESPACE


@dataclass(frozen=True, slots=True)
class PodPart:
    """A pod behind a part; its names are hidden when it is in a namespace that one may not see."""

    namespace: str
    name: str
    owner: str
    releasing: bool
    hidden: bool


@dataclass(frozen=True, slots=True)
class NumberPart:
    """One summand, with the pool of its node. ``gpu`` None and ``lost`` as in ``domain.explain.Part``."""

    node: str
    pool: str
    gpu: int | None
    amount: int
    lost: str
    pods: tuple[PodPart, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A figure and all that makes it up, as of ``taken_at`` (seconds since 1970); None: nothing is known."""

    figure: Figure
    node: str
    gpu: int | None
    pool: str
    value: int | None
    parts: tuple[NumberPart, ...]
    taken_at: float | None


def figure_of(text: str) -> Figure:
    """Read the name of a figure; raises Invalid on ``figure``."""
    try:
        return Figure(text)
    except ValueError:
        allowed = ", ".join(Figure)
        raise Invalid.field(
            "figure", f"There is no figure {text[:40]!r}.", code="no-such-figure", found=text[:40], allowed=allowed
        ) from None


def explain(
    actor: Actor, cluster: Cluster, figure: Figure, *, node: str = "", gpu: int | None = None, pool: str = ""
) -> Number:
    """Explain a figure of one card (``node`` and ``gpu``), one node, one pool, or the cluster.

    Raises Missing for a node, card or pool that is not there, Invalid for a card without a node, a card of a node whose
    cards have no number, and a node that is not of the pool.
    """
    actor.require(Role.VIEWER, cluster)
    if gpu is not None and not node:
        raise Invalid.field("gpu", "Name the node of the card too.", code="needs-node", found=str(gpu))
    picture = allocation.current(cluster)
    if picture is None:
        return Number(figure, node, gpu, pool, None, (), None)
    folds = allocation.allocations(picture)
    rows, label = drift.pools_by_id(cluster), drift.pool_label(cluster)
    known = {each.name: rows.get(each.labels.get(label, "")) for each in picture.nodes}
    pools = {name: row.name if row else "" for name, row in known.items()}
    chosen = _chosen(cluster, folds, pools, node=node, pool=pool)
    if gpu is None:
        found = explaining.explain(chosen, figure)
    else:
        (fold,) = chosen
        _check_card(fold, gpu)
        found = explaining.explain_card(fold, gpu, figure)
    seen = actor.namespaces(cluster)
    parts = tuple(_part(each, pools.get(each.node, ""), seen) for each in found.parts)
    return Number(figure, node, gpu, pool, found.value, parts, picture.taken_at)


def _check_card(fold: NodeAllocation, index: int) -> None:
    if index in {each.index for each in fold.gpus}:
        return
    if fold.cards and not fold.gpus:
        # Kubernetes counts exclusive cards and names none of them, so no card of these can be asked for.
        raise Invalid.field(
            "gpu",
            f"Node {fold.node} hands out whole cards, and the API does not say which pod holds which of them.",
            code="card-without-number",
            found=f"GPU{index}",
            allowed="none: ask for the whole node",
        )
    raise Missing(f"Node {fold.node} has no card GPU{index}.", code="no-such-card")


def _chosen(
    cluster: Cluster, folds: dict[str, NodeAllocation], pools: dict[str, str], *, node: str, pool: str
) -> list[NodeAllocation]:
    if node and node not in folds:
        raise Missing(f"There is no GPU node {node} in cluster {cluster.name}.", code="no-such-node")
    if pool and pool not in pools.values() and not cluster.pools.filter(name=pool).exists():
        raise Missing(f"There is no node pool {pool} in cluster {cluster.name}.", code="no-such-pool")
    if node:
        home = pools.get(node, "")
        if pool not in ("", home):
            raise Invalid.field(
                "pool",
                f"Node {node} does not belong to node pool {pool}.",
                code="not-in-pool",
                found=pool,
                allowed=home or "no pool: the node belongs to none",
            )
        return [folds[node]]
    return [fold for name, fold in folds.items() if pool in ("", pools.get(name, ""))]


def _part(part: Part, pool: str, seen: frozenset[str] | None) -> NumberPart:
    return NumberPart(part.node, pool, part.gpu, part.amount, part.lost, _pods(part.pods, seen))


def _pods(holdings: Iterable[Holding], seen: frozenset[str] | None) -> tuple[PodPart, ...]:
    return tuple(
        PodPart("", ANOTHER_NAMESPACE, "", each.releasing, True)
        if seen is not None and each.namespace not in seen
        else PodPart(
            each.namespace,
            each.pod,
            f"{each.owner_kind}/{each.owner_name}" if each.owner_kind else "",
            each.releasing,
            False,
        )
        for each in holdings
    )
