"""Publishing one cluster: fold what was touched, store the picture, tell the open pages what changed.

One Publisher lives as long as its lease. It neither watches nor polls, and knows no socket: only a group's name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from gpupools.domain.gpus import GpuNode, NodeAllocation, Picture, Pod, Workload
from gpupools.domain.ledger import Ledger
from gpupools.models import Cluster, NodePool
from gpupools.services import drift, leases, pictures
from gpupools.services.bell import cluster_group
from gpupools.services.rows import NodeRow, changed, node_row, timestamp, totals_row

logger = logging.getLogger(__name__)

FRAME: Final = "allocation.frame"
# A message of more rows than this would hold up the sockets of slow readers; the rest follows in the next one.
ROWS_PER_FRAME: Final = 100
# How often the wishes of pools are read again: drift depends on them, and nothing rings for each edit.
POOLS_SECONDS: Final = 2.0


class LeaseLost(Exception):
    """Another holder publishes this cluster from now on."""


@dataclass(frozen=True, slots=True)
class Copy:
    """What a watcher or a poller has of a cluster; ``taken_at`` in seconds since 1970.

    ``error`` says why it does not follow the cluster any more, if it does not.
    """

    nodes: Sequence[GpuNode]
    pods: Sequence[Pod]
    workloads: Sequence[Workload]
    taken_at: float
    error: str = ""


@dataclass(slots=True)
class Publisher:
    """Publishes a cluster under one lease. Not safe for two threads at once."""

    cluster: Cluster
    lease: leases.Lease
    sequence: int = 0
    _ledger: Ledger = field(default_factory=Ledger)
    _rows: dict[str, NodeRow] = field(default_factory=dict)
    _owed: set[str] = field(default_factory=set)
    _pools: dict[str, NodePool] = field(default_factory=dict)
    _being_written: drift.Writings = field(default_factory=dict)
    _pools_read_at: float = float("-inf")
    _is_new: bool = True

    def go_on_from(self, picture: Picture) -> None:
        """Continue an epoch that was published before, so that pages get the difference and not everything."""
        if picture.epoch != self.lease.epoch:
            return
        copy = Copy(picture.nodes, picture.pods, picture.workloads, picture.taken_at)
        self.sequence = picture.sequence
        self._read_pools()
        self._ledger.follow(copy.nodes, copy.pods)
        self._rows = self._all_rows(copy)
        self._is_new = False

    def publish(self, copy: Copy, touched: Iterable[str] | None = None) -> None:
        """Publish a copy; ``touched`` names the nodes that changed since the last one, None stands for all.

        Raises Unreachable when the broker is away (what was touched is then owed to the next call), LeaseLost
        when somebody else publishes.
        """
        self._owed |= {node.name for node in copy.nodes} | set(self._folds) if touched is None else set(touched)
        stale = self._read_pools()
        self._owed |= self._ledger.follow(copy.nodes, copy.pods)
        rows = self._all_rows(copy) if stale or self._is_new else self._some_rows(copy)
        # A new epoch makes every page ask for the whole anyway.
        news, gone = ([], []) if self._is_new else changed(self._rows, rows)
        frames = [news[start : start + ROWS_PER_FRAME] for start in range(0, len(news), ROWS_PER_FRAME)] or [[]]
        first = self._store(copy, len(frames))
        self._rows, self._is_new = rows, False
        self._owed.clear()
        totals = totals_row(self._folds.values())
        for number, part in enumerate(frames):
            self._tell(
                "delta",
                first + number,
                copy.taken_at,
                nodes=part,
                removed=gone if number == 0 else [],
                totals=totals,
            )

    def pulse(self, copy: Copy) -> None:
        """Say how old the numbers are though nothing changed, and why they no longer follow the cluster, if so.

        Raises Unreachable and LeaseLost as ``publish`` does.
        """
        if not self._is_new and self._pools_are_due() and self._read_pools():
            # A pool was edited: its nodes may differ from it now, or no longer.
            self._owed |= set(self._folds)
            self.publish(copy, ())
        newest = pictures.confirm(self.cluster.pk, epoch=self.lease.epoch, taken_at=copy.taken_at, error=copy.error)
        if newest is None and not self._is_new:
            # The broker has lost what was published, or holds another epoch: publishing tells which.
            self.publish(copy, None)
            newest = copy.taken_at
        if newest is not None:
            self._tell("pulse", self.sequence, newest, error=copy.error)

    def _read_pools(self) -> bool:
        """Read the pools when they are due; tell whether their wishes changed, or what is being written."""
        if not self._pools_are_due():
            return False
        before = {key: _wishes(pool) for key, pool in self._pools.items()}, self._being_written
        self._pools = drift.pools_by_id(self.cluster)
        self._being_written = drift.writings(self.cluster)
        self._pools_read_at = time.monotonic()
        return before != ({key: _wishes(pool) for key, pool in self._pools.items()}, self._being_written)

    def _pools_are_due(self) -> bool:
        return time.monotonic() - self._pools_read_at >= POOLS_SECONDS

    @property
    def _folds(self) -> Mapping[str, NodeAllocation]:
        return self._ledger.allocations

    def _row(self, node: GpuNode) -> NodeRow:
        pool = self._pools.get(node.labels.get(drift.pool_label(self.cluster), ""))
        return node_row(node, self._folds[node.name], pool, self._being_written)

    def _all_rows(self, copy: Copy) -> dict[str, NodeRow]:
        return {node.name: self._row(node) for node in copy.nodes if node.name in self._folds}

    def _some_rows(self, copy: Copy) -> dict[str, NodeRow]:
        return {
            node.name: self._row(node)
            if node.name in self._owed or node.name not in self._rows
            else self._rows[node.name]
            for node in copy.nodes
            if node.name in self._folds
        }

    def _store(self, copy: Copy, frames: int) -> int:
        """Store the picture and return the sequence number of its first frame."""
        for _ in range(3):
            first = self.sequence + 1
            picture = Picture(
                epoch=self.lease.epoch,
                sequence=self.sequence + frames,
                taken_at=copy.taken_at,
                nodes=tuple(copy.nodes),
                pods=tuple(copy.pods),
                workloads=tuple(copy.workloads),
            )
            try:
                pictures.store(self.cluster.pk, picture, error=copy.error)
            except pictures.Outranked as found:
                if found.epoch == self.lease.epoch:
                    # A store that timed out here had landed there.
                    self.sequence = found.sequence
                    continue
                lease = leases.outrank(self.lease, found.epoch)
                if lease is None:
                    raise LeaseLost() from found
                logger.warning("Cluster %s: epoch %s was found in the broker.", self.cluster.name, found.epoch)
                self.lease, self.sequence = lease, 0
                continue
            self.sequence = picture.sequence
            return first
        raise LeaseLost()

    def _tell(self, kind: str, sequence: int, taken_at: float, **data: Any) -> None:
        payload = {
            "type": kind,
            "cluster": self.cluster.name,
            "epoch": self.lease.epoch,
            "sequence": sequence,
            "taken_at": timestamp(taken_at),
            **data,
        }
        message = {
            "type": FRAME,
            "kind": kind,
            "epoch": self.lease.epoch,
            "sequence": sequence,
            "sent_at": time.time(),
            "text": msgspec.json.encode(payload).decode(),
        }
        layer = get_channel_layer()
        if layer is None:
            return
        try:
            async_to_sync(layer.group_send)(cluster_group(self.cluster.pk), message)
        except (RedisError, OSError) as error:
            # Pages see the gap in the sequence and ask for the whole.
            logger.warning("Open pages of cluster %s were not told: %s", self.cluster.name, error)


def _wishes(pool: NodePool) -> tuple[object, ...]:
    return pool.name, pool.mode, pool.policy, pool.labels, pool.taints
