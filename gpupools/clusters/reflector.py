"""A local copy of a cluster that is never half-empty, fed by one thread per kind.

The copy of a kind is replaced whole and never cleared first; while a cluster is away its last values stay, with
their age. Nobody outside depends on single events: they only ring.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from gpupools.clusters import translate
from gpupools.clusters.channel import Channel
from gpupools.clusters.feed import Counts, Feed, Pace
from gpupools.clusters.listing import Listing
from gpupools.clusters.localcopy import Difference, LocalCopy
from gpupools.clusters.port import Connection
from gpupools.domain.gpus import GpuNode, Pod, Workload
from gpupools.domain.reports import CardReport, by_node, with_reports

REQUIRED = ("Node", "Pod")  # without the right to read the other kinds the copy is poorer, not wrong
MOST_FINISHED = 5000  # finished pods hold nothing; they are kept for pages that list them


class Reflector:
    """Current nodes, pods and workloads of one cluster; implements ``port.Watcher``. One consumer of rings."""

    def __init__(
        self, connection: Connection, kinds: Sequence[str] = tuple(translate.KINDS), *, pace: Pace | None = None
    ) -> None:
        self._pace = pace or Pace()
        self._channel = Channel(connection)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._copies = {kind: LocalCopy(most_finished=MOST_FINISHED) for kind in kinds}
        self._feeds = {
            kind: Feed(
                translate.KINDS[kind],
                self._channel,
                self,
                pace=self._pace,
                required=kind in REQUIRED,
                stopping=self._stopping,
            )
            for kind in kinds
        }
        self._touched: set[str] = set()
        self._rung = False
        self._last_ring = float("-inf")

    def __enter__(self) -> Reflector:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start one thread per kind and return at once."""
        for feed in self._feeds.values():
            feed.start()

    def stop(self, *, timeout_seconds: float = 2.0) -> None:
        """Close the watches and end; a request that is on its way may end a little later on its own."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for feed in self._feeds.values():
            feed.interrupt()
        deadline = time.monotonic() + timeout_seconds
        for feed in self._feeds.values():
            feed.join(max(0.0, deadline - time.monotonic()))
        self._channel.close()

    # -- The copy

    def nodes(self) -> list[GpuNode]:
        """Return the current nodes, with the reports on their cards."""
        values = self._values("Node")
        found = self._values(translate.REPORTS)
        reports = by_node(report for report in found if isinstance(report, CardReport))
        nodes = (value for value in values if isinstance(value, GpuNode))
        return [with_reports(node, reports.get(node.name, ())) for node in nodes]

    def pods(self) -> list[Pod]:
        """Return the current pods, finished ones too (the last 5000)."""
        return [value for value in self._values("Pod") if isinstance(value, Pod)]

    def workloads(self) -> list[Workload]:
        """Return the current Jobs and DaemonSets."""
        found = [*self._values("Job"), *self._values("DaemonSet")]
        return [value for value in found if isinstance(value, Workload)]

    @property
    def synced(self) -> bool:
        """Whether every kind was listed at least once (or may not be read, where it is not required)."""
        return all(feed.settled for feed in self._feeds.values())

    @property
    def live(self) -> bool:
        """Whether the copy is current: synced, and the watches of nodes and pods are open."""
        return self.synced and all(feed.open for feed in self._feeds.values() if feed.required)

    @property
    def last_seen(self) -> datetime | None:
        """When nodes and pods were last heard of, the older of the two; None before both were."""
        times = [feed.last_seen for feed in self._feeds.values() if feed.required]
        heard = [moment for moment in times if moment is not None]
        return min(heard) if heard and len(heard) == len(times) else None

    @property
    def error(self) -> str:
        """Why the copy is not current, as a sentence, or nothing. Before it is synced any kind may be the reason."""
        feeds = self._feeds.values()
        return next((feed.error for feed in feeds if feed.error and (feed.required or not feed.settled)), "")

    @property
    def gaps(self) -> tuple[str, ...]:
        """What the copy lacks though it is current: why kinds that are not required cannot be followed."""
        return tuple(feed.error for feed in self._feeds.values() if feed.error and not feed.required)

    @property
    def counts(self) -> dict[str, Counts]:
        """Return what happened since the start, by kind."""
        return {kind: feed.counts for kind, feed in self._feeds.items()}

    # -- Rings

    def rings(self) -> Iterator[frozenset[str]]:
        """Yield the names of nodes that changed since the last ring; ends with ``stop``.

        The first ring comes when the copy is synced. A ring without names tells of something that is on no node:
        a pending pod, a workload, or a change of ``synced`` or ``error``.
        """
        while not self._stopping.is_set():
            touched = self.next_ring(timeout_seconds=3600.0)
            if touched is not None:
                yield touched

    def next_ring(self, *, timeout_seconds: float) -> frozenset[str] | None:
        """Wait for one ring; None when the time is over or ``stop`` was called."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while not self._stopping.is_set():
                now = time.monotonic()
                due = self._rung and self.synced
                earliest = self._last_ring + self._pace.ring
                if due and now >= earliest:
                    self._last_ring = now
                    return self._take()
                if now >= deadline:
                    return None
                self._changed.wait(min(deadline, earliest if due else deadline) - now)
        return None

    def touched(self) -> frozenset[str]:
        """Take the names of nodes that changed since the last ring, without waiting."""
        with self._changed:
            return self._take()

    def _take(self) -> frozenset[str]:
        touched = frozenset(self._touched)
        self._touched.clear()
        self._rung = False
        return touched

    # -- The sink of the feeds

    def listed(self, kind: translate.Kind, listing: Listing) -> None:
        """Take a whole list in the stead of the copy of its kind."""
        with self._changed:
            self._note(self._copies[kind.name].replace(listing))

    def told(self, kind: translate.Kind, events: Sequence[translate.Event]) -> None:
        """Take some events, all of them in one hold of the copy."""
        with self._changed:
            copy = self._copies[kind.name]
            self._note([difference for event in events for difference in copy.apply(event)])

    def stirred(self) -> None:
        """Ring without names."""
        with self._changed:
            self._rung = True
            self._changed.notify_all()

    def _values(self, kind: str) -> list[translate.Value]:
        with self._changed:
            copy = self._copies.get(kind)
            return copy.values() if copy else []

    def _note(self, differences: Sequence[Difference]) -> None:
        """Remember whom the differences touch; the condition is held."""
        if not differences:
            return
        self._touched.update(_node_of(value) for pair in differences for value in pair)
        self._touched.discard("")
        self._rung = True
        self._changed.notify_all()


def _node_of(value: translate.Value | None) -> str:
    match value:
        case GpuNode():
            return value.name
        case Pod() | CardReport():
            return value.node
        case _:
            return ""
