"""Watching every connected cluster: a reflector and a lease each, and what changes is published at once.

One thread per cluster, so that a slow or broken one holds up no other. The database and the broker may go away and
come back: what was not published stays owed, and a lease that cannot be renewed is not used beyond its end.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from django.db import DatabaseError, close_old_connections, connections

from gpupools import clusters
from gpupools.clusters.port import Kubernetes
from gpupools.clusters.reflector import Reflector
from gpupools.errors import ConsoleError, Unreachable
from gpupools.models import Cluster
from gpupools.services import credentials, leases, pictures, reaching, watchreports
from gpupools.services.publishing import Copy, LeaseLost, Publisher

logger = logging.getLogger(__name__)

# How often the list of clusters is read, and how often a quiet cluster's age is told.
LOOK_SECONDS: Final = 2.0
PULSE_SECONDS: Final = 2.0
# A watch that says nothing may be a quiet cluster or a dead connection: after this, a small request tells which.
PROOF_SECONDS: Final = 4.0
PROOF_TIMEOUT_SECONDS: Final = 3.0
# Publishing takes at most a quarter of the time, however large the cluster is.
REST_PER_WORK: Final = 3.0
LONGEST_REST_SECONDS: Final = 2.0


def holder_name() -> str:
    """Return a name for this process that no other watcher has."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(4)}"


def watch_all(stopping: threading.Event) -> None:
    """Watch every connected cluster until told to stop; clusters may come and go meanwhile."""
    watches: dict[int, ClusterWatch] = {}
    holder = holder_name()
    logger.info("Watching as %s.", holder)
    try:
        while not stopping.is_set():
            _guarded("The list of clusters cannot be read", lambda: _look(watches, holder))
            stopping.wait(LOOK_SECONDS)
    finally:
        for watch in watches.values():
            watch.ask_to_stop()
        for watch in watches.values():
            watch.join()
        connections.close_all()


def _look(watches: dict[int, ClusterWatch], holder: str) -> None:
    """Start a watch for each new cluster, end those of clusters that are gone or have new credentials."""
    connected = {cluster.pk: cluster for cluster in Cluster.objects.all()}
    for key, watch in list(watches.items()):
        cluster = connected.get(key)
        if cluster is not None and cluster.credentials == watch.cluster.credentials and watch.is_alive():
            continue
        watch.ask_to_stop()
        watch.join()
        del watches[key]
        if cluster is None:
            logger.info("Cluster %s is not connected any more.", watch.cluster.name)
            pictures.forget(key)
    for key, cluster in connected.items():
        if key not in watches:
            watches[key] = ClusterWatch(cluster, holder)
            watches[key].start()


def _guarded(sentence: str, work: Callable[[], None]) -> bool:
    """Do a piece of work that needs database or broker; tell whether both were there."""
    try:
        work()
    except DatabaseError as error:
        logger.warning("%s: %s.", sentence, type(error).__name__)
        # What is broken must not be handed out again.
        connections.close_all()
        return False
    except Unreachable as error:
        logger.warning("%s: %s", sentence, error.message)
        return False
    finally:
        close_old_connections()
    return True


@dataclass(slots=True)
class ClusterWatch:
    """The thread that watches one cluster: takes the lease, publishes what rings, and pulses."""

    cluster: Cluster
    holder: str
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _reflector: Reflector | None = None
    _publisher: Publisher | None = None
    _lease_ends_at: float = float("-inf")
    _renew_at: float = float("-inf")
    _pulse_at: float = float("-inf")
    _owed: set[str] = field(default_factory=set)
    _rung: bool = False
    _rung_at: float | None = None
    _lag_seconds: float | None = None
    _report_at: float = float("-inf")
    _proved_at: float = 0.0
    _silence: str = ""
    _away: bool | None = None

    def start(self) -> None:
        """Start and return at once."""
        self._thread = threading.Thread(target=self._run, name=f"watch-{self.cluster.name}", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Tell whether the thread still runs."""
        return self._thread is not None and self._thread.is_alive()

    def ask_to_stop(self) -> None:
        """Ask the thread to end; it gives its lease back."""
        self._stopping.set()
        if self._reflector is not None:
            self._reflector.stop(timeout_seconds=0.0)

    def join(self, timeout_seconds: float = 5.0) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            connection = credentials.connection_of(self.cluster)
            quick = replace(connection, timeout_seconds=min(connection.timeout_seconds, PROOF_TIMEOUT_SECONDS))
            with Reflector(connection) as self._reflector, clusters.connect(quick) as kubernetes:
                logger.info("Watching cluster %s.", self.cluster.name)
                while not self._stopping.is_set():
                    self._round(self._reflector, kubernetes)
        except ConsoleError as error:
            # Its row says so too; with new credentials, or after a while, it is tried again.
            logger.warning("Cluster %s cannot be watched: %s", self.cluster.name, error.message)
            self._stopping.wait(LOOK_SECONDS * 5)
        finally:
            _guarded("The lease cannot be given back", self._release)
            connections.close_all()

    def _round(self, reflector: Reflector, kubernetes: Kubernetes) -> None:
        """Wait for a ring or for the next duty, then do what is due."""
        duty_at = self._renew_at if self._publisher is None else min(self._pulse_at, self._renew_at)
        duty_at = min(duty_at, self._report_at)
        touched = reflector.next_ring(timeout_seconds=max(0.0, duty_at - time.monotonic()))
        if touched is not None:
            self._owed |= touched
            self._rung_at = time.monotonic() if self._rung_at is None else self._rung_at
            self._rung = True
        if self._stopping.is_set():
            return
        began = time.monotonic()
        if began >= self._report_at:
            _guarded(f"The report on {self.cluster.name} cannot be kept", lambda: self._report(reflector))
            self._report_at = began + PULSE_SECONDS
        if began >= self._renew_at:
            _guarded(f"The lease of {self.cluster.name} cannot be held", self._hold)
            # Whatever came of it, a database that is away is not asked in a tight loop.
            self._renew_at = began + leases.RENEW_SECONDS
        if self._publisher is not None and time.monotonic() >= self._lease_ends_at:
            logger.warning("The lease of cluster %s has run out.", self.cluster.name)
            self._publisher = None
        if self._publisher is not None:
            _guarded(f"Cluster {self.cluster.name} cannot be published", lambda: self._tell(reflector, kubernetes))
        worked = time.monotonic() - began
        self._stopping.wait(min(worked * REST_PER_WORK, LONGEST_REST_SECONDS))

    def _report(self, reflector: Reflector) -> None:
        """Keep the reflector's numbers where pages and metrics read them."""
        report = watchreports.of(
            reflector,
            holder=self.holder,
            at=time.time(),
            publishes=self._publisher is not None,
            lag_seconds=self._lag_seconds,
        )
        watchreports.store(self.cluster.pk, report)

    def _hold(self) -> None:
        """Renew the lease, or try to take it. Its end is reckoned from before the database was asked."""
        asked_at = time.monotonic()
        if self._publisher is not None:
            if leases.renew(self._publisher.lease):
                self._lease_ends_at = asked_at + leases.LEASE_SECONDS
                return
            logger.warning("Somebody else watches cluster %s now.", self.cluster.name)
            self._publisher = None
        lease = leases.take(self.cluster, self.holder)
        if lease is not None:
            logger.info("Publishing cluster %s, epoch %s.", self.cluster.name, lease.epoch)
            self._publisher = Publisher(self.cluster, lease)
            self._lease_ends_at = asked_at + leases.LEASE_SECONDS
            self._rung = True

    def _tell(self, reflector: Reflector, kubernetes: Kubernetes) -> None:
        """Publish what rang, and pulse when it is time."""
        publisher = self._publisher
        if publisher is None:
            return
        if not self._rung and time.monotonic() < self._pulse_at:
            return
        seen = reflector.last_seen
        error = reflector.error
        if not reflector.synced or seen is None:
            self._pulse_at = time.monotonic() + PULSE_SECONDS
            if error:
                # The numbers that are there stay; they are told to be old, and why.
                self._note(error)
                pictures.confirm(self.cluster.pk, epoch=publisher.lease.epoch, taken_at=0.0, error=error)
            return
        self._prove(reflector, kubernetes, seen.timestamp())
        copy = Copy(
            reflector.nodes(),
            reflector.pods(),
            reflector.workloads(),
            max(seen.timestamp(), self._proved_at),
            error or self._silence,
        )
        self._note(copy.error)
        try:
            if self._rung:
                touched, self._owed, self._rung = self._owed, set(), False
                publisher.publish(copy, touched)
                if self._rung_at is not None:
                    self._lag_seconds, self._rung_at = time.monotonic() - self._rung_at, None
            if time.monotonic() >= self._pulse_at:
                publisher.pulse(copy)
                self._pulse_at = time.monotonic() + PULSE_SECONDS
        except LeaseLost:
            logger.warning("Somebody else publishes cluster %s now.", self.cluster.name)
            self._publisher = None
        except (Unreachable, DatabaseError):
            # The publisher keeps what it owes; this makes the next round try again.
            self._rung = True
            self._pulse_at = time.monotonic() + PULSE_SECONDS
            raise

    def _note(self, error: str) -> None:
        """Let the cluster's row and the open pages follow what is seen here, when it turns and not at each pulse."""
        away = bool(error)
        if away == self._away:
            return
        if away:
            reaching.note_silence(self.cluster.pk, error)
        else:
            reaching.ask_to_probe(self.cluster.pk)
        self._away = away

    def _prove(self, reflector: Reflector, kubernetes: Kubernetes, seen_at: float) -> None:
        """Where the watches are open but have been silent for a while, ask whether anybody is at the other end."""
        now = time.time()
        if not reflector.live or now - max(seen_at, self._proved_at) < PROOF_SECONDS:
            if now - seen_at < PROOF_SECONDS:
                self._silence = ""
            return
        try:
            kubernetes.version()
        except ConsoleError as error:
            self._silence = error.message
        else:
            self._proved_at, self._silence = now, ""

    def _release(self) -> None:
        if self._publisher is not None:
            leases.release(self._publisher.lease)
