"""What a node, its cards and its holders look like on the wire: one shape for REST, sockets and pages.

All numbers are whole; None means unknown, which is never zero. It reads no rows of the database and no cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec

from gpupools.domain.checks import node_checks
from gpupools.domain.gpus import Gpu, GpuNode, Holding, NodeAllocation
from gpupools.domain.totals import totals
from gpupools.models import NodePool
from gpupools.services.drift import Writings, drifted, split

ANOTHER_NAMESPACE = "another namespace"


class HoldingRow(TypedDict):
    """What one pod holds. ``owner`` is ``Job/name``, empty for a pod of its own."""

    uid: str
    namespace: str
    pod: str
    memory_units: int
    core_percent: int
    cards: int
    releasing: bool
    owner: str


class GpuRow(TypedDict):
    """One card of a node."""

    index: int
    memory_units: int
    memory_units_used: int
    memory_units_releasing: int
    core_percent: int
    core_percent_used: int
    cards_used: int
    healthy: bool
    holdings: list[HoldingRow]


class WarningRow(TypedDict):
    """Something about a node's ledger that a person should know."""

    code: str
    message: str
    pods: list[str]


class DriftRow(TypedDict):
    """One key that is not as the pool wants it."""

    key: str
    wanted: str
    found: str
    by: str
    since: str


class NodeRow(TypedDict):
    """One node with its cards. ``mode`` is None when its label has a value that nobody knows.

    ``cards_missing``: cards that the node had when it joined and does not report now. ``wrong``: the titles of the
    live checks that say no, as the node's page has them.
    """

    node: str
    uid: str
    ip: str
    pool: str
    mode: str | None
    policy: str
    model: str
    card_memory_mib: int | None
    unit_mib: int | None
    ready: bool
    unschedulable: bool
    cards: int
    cards_used: int
    cards_releasing: int
    cards_missing: int
    memory_units: int
    memory_units_used: int
    memory_units_releasing: int
    memory_units_pending: int
    memory_units_orphan: int
    core_percent: int
    core_percent_used: int
    gpus: list[GpuRow]
    holdings: list[HoldingRow]
    unplaced: list[HoldingRow]
    warnings: list[WarningRow]
    drift: list[DriftRow]
    wrong: list[str]


class TotalsRow(TypedDict):
    """Sums per mode and over all."""

    modes: list[dict[str, Any]]
    all: dict[str, Any]


def node_row(
    node: GpuNode, allocation: NodeAllocation, pool: NodePool | None, being_written: Writings | None = None
) -> NodeRow:
    """Put a node on the wire. ``being_written``: what changes under way are writing, which is no drift."""
    real, _ = split(drifted(pool, [node]) if pool else (), being_written or {})
    return {
        "node": node.name,
        "uid": node.uid,
        "ip": node.ip,
        "pool": pool.name if pool else "",
        "mode": allocation.mode.value if allocation.mode else None,
        "policy": allocation.policy.value,
        "model": node.card_model,
        "card_memory_mib": node.card_memory_mib,
        "unit_mib": allocation.unit_mib,
        "ready": node.ready,
        "unschedulable": node.unschedulable,
        "cards": allocation.cards,
        "cards_used": allocation.cards_used,
        "cards_releasing": allocation.cards_releasing,
        "cards_missing": allocation.cards_missing,
        "memory_units": allocation.memory_units,
        "memory_units_used": allocation.memory_units_used,
        "memory_units_releasing": allocation.memory_units_releasing,
        "memory_units_pending": allocation.memory_units_pending,
        "memory_units_orphan": allocation.memory_units_orphan,
        "core_percent": allocation.core_percent,
        "core_percent_used": allocation.core_percent_used,
        "gpus": [_gpu_row(gpu) for gpu in allocation.gpus],
        "holdings": [_holding_row(each) for each in allocation.holdings],
        "unplaced": [_holding_row(each) for each in allocation.unplaced],
        "warnings": [
            {"code": each.code, "message": each.message, "pods": list(each.pods)} for each in allocation.warnings
        ],
        "drift": [
            {"key": each.key, "wanted": each.wanted, "found": each.found, "by": each.by, "since": each.since}
            for each in real
        ],
        "wrong": [check.sentence for check in node_checks(node, allocation) if check.ok is False],
    }


def _gpu_row(gpu: Gpu) -> GpuRow:
    return {
        "index": gpu.index,
        "memory_units": gpu.memory_units,
        "memory_units_used": gpu.memory_units_used,
        "memory_units_releasing": gpu.memory_units_releasing,
        "core_percent": gpu.core_percent,
        "core_percent_used": gpu.core_percent_used,
        "cards_used": gpu.cards_used,
        "healthy": gpu.healthy,
        "holdings": [_holding_row(each) for each in gpu.holdings],
    }


def _holding_row(holding: Holding) -> HoldingRow:
    return {
        "uid": holding.uid,
        "namespace": holding.namespace,
        "pod": holding.pod,
        "memory_units": holding.memory_units,
        "core_percent": holding.core_percent,
        "cards": holding.cards,
        "releasing": holding.releasing,
        "owner": f"{holding.owner_kind}/{holding.owner_name}" if holding.owner_kind else "",
    }


def totals_row(allocations: Iterable[NodeAllocation]) -> TotalsRow:
    """Put the sums of all nodes on the wire."""
    found = totals(allocations)
    return {"modes": [msgspec.to_builtins(each) for each in found.modes], "all": msgspec.to_builtins(found.all)}


def timestamp(taken_at: float) -> str:
    """Return an instant (seconds since 1970) as ISO 8601 in UTC."""
    return datetime.fromtimestamp(taken_at, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def masked(row: NodeRow, namespaces: frozenset[str] | None) -> NodeRow:
    """Return the row for somebody who may see only these namespaces (None: all): amounts stay, names go."""
    if namespaces is None:
        return row
    hidden = {
        f"{each['namespace']}/{each['pod']}"
        for each in (*row["holdings"], *row["unplaced"])
        if each["namespace"] not in namespaces
    }
    if not hidden:
        return row
    return {
        **row,
        "gpus": [{**gpu, "holdings": _masked_holdings(gpu["holdings"], namespaces)} for gpu in row["gpus"]],
        "holdings": _masked_holdings(row["holdings"], namespaces),
        "unplaced": _masked_holdings(row["unplaced"], namespaces),
        "warnings": [_masked_warning(each, hidden) for each in row["warnings"]],
    }


def _masked_holdings(holdings: Iterable[HoldingRow], namespaces: frozenset[str]) -> list[HoldingRow]:
    return [
        each
        if each["namespace"] in namespaces
        else {**each, "uid": "", "namespace": "", "pod": ANOTHER_NAMESPACE, "owner": ""}
        for each in holdings
    ]


def _masked_warning(warning: WarningRow, hidden: set[str]) -> WarningRow:
    # Sentences name pods too, so a warning about a hidden pod keeps its code alone.
    if hidden.isdisjoint(warning["pods"]):
        return warning
    pods = [ANOTHER_NAMESPACE if pod in hidden else pod for pod in warning["pods"]]
    return {**warning, "message": f"{warning['code']}: concerns a pod of another namespace.", "pods": pods}


def masked_all(rows: Iterable[NodeRow], namespaces: frozenset[str] | None) -> list[NodeRow]:
    """Return rows for somebody who may see only these namespaces (None: all)."""
    return [masked(row, namespaces) for row in rows]


def by_name(rows: Iterable[NodeRow]) -> dict[str, NodeRow]:
    """Return rows by the names of their nodes."""
    return {row["node"]: row for row in rows}


def changed(old: Mapping[str, NodeRow], new: Mapping[str, NodeRow]) -> tuple[list[NodeRow], list[str]]:
    """Return the rows that are new or differ, and the names that are gone."""
    return [row for name, row in new.items() if old.get(name) != row], sorted(old.keys() - new.keys())
