"""What lists and detail pages show of pools and nodes: rows put beside numbers. It reads, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpupools.domain.cgpupolicy import PolicyFound
from gpupools.domain.changes import OPEN
from gpupools.domain.modes import CHOOSABLE, MODES, Mode, ModeFacts
from gpupools.models import Cluster, ComponentState, ModeChange, NodePool
from gpupools.services import nodes, pooladvice, rows
from gpupools.services.access import Actor
from gpupools.services.drift import writings
from gpupools.services.poolfound import Found, found
from gpupools.web.paging import natural

# The modes in which cGPU shares a card.
CGPU_MODES = (Mode.CGPU, Mode.CORE_MEM)
OPEN_STATES = tuple(sorted(state.value for state in OPEN))
THERE = {ComponentState.State.INSTALLED.value, ComponentState.State.DEGRADED.value}


@dataclass(frozen=True, slots=True)
class Fresh:
    """How old the numbers of a page are; ``taken_at`` in seconds since 1970, None: there are none."""

    taken_at: float | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node as lists show it. ``row`` is its wire row, None for a node without GPUs."""

    facts: nodes.NodeFacts
    row: Mapping[str, Any] | None

    @property
    def state(self) -> str:
        """The word for its readiness."""
        node = self.facts.node
        return "notready" if not node.ready else "cordoned" if node.unschedulable else "ready"

    @property
    def wrong(self) -> int:
        """How many checks say no."""
        return sum(check.ok is False for check in self.facts.checks)

    @property
    def unsure(self) -> int:
        """How many checks cannot be known."""
        return sum(check.ok is None for check in self.facts.checks)


@dataclass(frozen=True, slots=True)
class Need:
    """A component that a mode needs, and how it stands in the cluster."""

    name: str
    state: str

    @property
    def is_there(self) -> bool:
        """Whether nodes may count on it."""
        return self.state in THERE


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool with its nodes, what they hold, what differs, and the change that holds it."""

    pool: NodePool
    lines: tuple[NodeLine, ...]
    change: ModeChange | None
    needs: tuple[Need, ...]
    known: bool
    is_by_label: bool = False

    @property
    def actual(self) -> int | None:
        """How many nodes there are: as the provider says, which knows of machines on their way; by label, as seen."""
        if self.is_by_label and self.known:
            return len(self.lines)
        seen = self.pool.seen.get("total_nodes")
        return int(seen) if seen is not None else len(self.lines) if self.known else None

    @property
    def found(self) -> Found:
        """Its nodes, counted."""
        return found(line.facts for line in self.lines)

    @property
    def ready(self) -> int | None:
        """How many of its nodes are ready: as the picture says, else as the provider says."""
        if self.known:
            return self.found.ready
        seen = self.pool.seen.get("healthy_nodes")
        return int(seen) if seen is not None else None

    @property
    def found_modes(self) -> Mapping[str, int]:
        """How many nodes are in which mode, whatever the pool wants; an unknown value counts as ``unknown``."""
        return self.found.modes

    @property
    def is_in_mode(self) -> bool:
        """Whether every GPU node is in the mode that the pool wants."""
        return set(self.found_modes) <= {self.pool.mode}

    @property
    def drifting(self) -> int:
        """How many of its nodes differ from the pool."""
        return len(self.found.drifting)

    @property
    def wanted(self) -> int:
        """How many nodes there shall be."""
        return self.pool.desired_size or len(self.pool.node_names)

    @property
    def drift(self) -> list[Any]:
        """Everything in which nodes differ from the pool."""
        return [each for line in self.lines for each in line.facts.drift]

    @property
    def changing(self) -> list[Any]:
        """Everything that the change under way is writing on its nodes, which is no drift."""
        return [each for line in self.lines for each in line.facts.changing]

    @property
    def changing_nodes(self) -> int:
        """How many of its nodes a change under way is writing."""
        return sum(bool(line.facts.changing) for line in self.lines)

    @property
    def missing(self) -> list[Need]:
        """What the pool's mode needs and the cluster lacks."""
        return [need for need in self.needs if not need.is_there]

    @property
    def sums(self) -> dict[str, int]:
        """Used and total of all nodes; units of shared cards and whole cards are never added up."""
        keys = ("memory_units", "memory_units_used", "cards", "cards_used")
        found = [line.row for line in self.lines if line.row is not None]
        return {key: sum(row[key] for row in found) for key in keys}


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """A mode as forms offer it."""

    facts: ModeFacts
    needs: tuple[Need, ...]
    refused: str = ""
    pools: tuple[str, ...] = ()
    compute: PolicyFound | None = None

    @property
    def value(self) -> str:
        """What the form sends."""
        return self.facts.mode.value


def node_lines(actor: Actor, cluster: Cluster, listing: nodes.Listing) -> list[NodeLine]:
    """Put the nodes of a listing beside their wire rows; pods of other namespaces have no name there."""
    namespaces, being_written = actor.namespaces(cluster), writings(cluster)
    return [
        NodeLine(
            facts,
            rows.masked(rows.node_row(facts.node, facts.allocation, facts.pool_row, being_written), namespaces)
            if facts.allocation is not None
            else None,
        )
        for facts in sorted(listing.rows, key=lambda facts: natural(facts.name))
    ]


def pool_lines(
    pools: Iterable[NodePool], cluster: Cluster, lines: Iterable[NodeLine], *, known: bool
) -> list[PoolLine]:
    """Put pools beside their nodes."""
    by_pool: dict[int, list[NodeLine]] = {}
    for line in lines:
        if line.facts.pool_row is not None:
            by_pool.setdefault(line.facts.pool_row.pk, []).append(line)
    open_changes = {
        change.pool_id: change for change in ModeChange.objects.filter(pool__cluster=cluster, state__in=OPEN_STATES)
    }
    states = component_states(cluster)
    by_label = cluster.provider == Cluster.Provider.KUBERNETES
    return [
        PoolLine(
            pool,
            tuple(by_pool.get(pool.pk, ())),
            open_changes.get(pool.pk),
            needs_of(pool.mode, states),
            known,
            by_label,
        )
        for pool in pools
    ]


# What each head of the list orders by. Unknown comes first, as the smallest.
_ORDERS: Mapping[str, Callable[[PoolLine], Any]] = {
    "name": lambda line: natural(line.pool.name),
    "mode": lambda line: line.pool.mode,
    "state": lambda line: line.pool.state,
    "nodes": lambda line: -1 if line.actual is None else line.actual,
    "used": lambda line: _share(line),
    "notices": lambda line: (bool(line.change), line.drifting, len(line.missing)),
}


def in_order(lines: Iterable[PoolLine], order: str) -> list[PoolLine]:
    """Order pools as a head of the list asks, with ``-`` before it the other way round; else by name."""
    by_name = sorted(lines, key=_ORDERS["name"])
    key = order.removeprefix("-")
    return sorted(by_name, key=_ORDERS[key], reverse=order.startswith("-")) if key in _ORDERS else by_name


def heads(order: str) -> dict[str, tuple[str, str]]:
    """Return for each head what its link asks for, and how it is sorted now (``ascending``, ``descending`` or none)."""
    first_down = ("nodes", "used", "notices")
    found = {}
    for key in _ORDERS:
        down, up = f"-{key}", key
        first, other = (down, up) if key in first_down else (up, down)
        now = "descending" if order == down else "ascending" if order == up else ""
        found[key] = (other if order == first else first, now)
    return found


def _share(line: PoolLine) -> float:
    sums = line.sums
    unit = "memory_units" if sums["memory_units"] else "cards"
    return sums[f"{unit}_used"] / sums[unit] if sums[unit] else -1.0


def component_states(cluster: Cluster) -> dict[str, str]:
    """Return how each component stood at the last check; a missing name was never checked."""
    return dict(ComponentState.objects.filter(cluster=cluster).values_list("name", "state"))


def needs_of(mode: str, states: Mapping[str, str]) -> tuple[Need, ...]:
    """Return what a mode needs; nothing for an undeclared one."""
    return tuple(Need(name.value, states.get(name.value, "")) for name in MODES[Mode(mode)].components) if mode else ()


def mode_choices(cluster: Cluster) -> list[ModeChoice]:
    """Return the modes that a person can choose here, and what stands against some."""
    states = component_states(cluster)
    pools: dict[str, list[str]] = {}
    there = NodePool.objects.filter(cluster=cluster).exclude(state=NodePool.State.GONE).order_by("name")
    for name, mode in there.values_list("name", "mode"):
        pools.setdefault(mode, []).append(name)
    compute = pooladvice.cgpu_policy(cluster)
    return [
        ModeChoice(
            MODES[mode],
            needs_of(mode, states),
            _refused(cluster, MODES[mode]),
            tuple(pools.get(mode.value, ())),
            compute if mode in CGPU_MODES else None,
        )
        for mode in CHOOSABLE
    ]


def _refused(cluster: Cluster, facts: ModeFacts) -> str:
    if facts.needs_pro and cluster.spec and not cluster.spec.startswith("ack.pro"):
        return cluster.spec
    return ""
