"""How the watching of each cluster goes: what its watcher counts, kept beside the picture for pages and metrics.

Written by the watcher with every pulse and forgotten a minute after the last one, so an old report is no report.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from gpupools.clusters.reflector import Reflector
from gpupools.errors import Unreachable

KEEP_SECONDS: Final = 60
TIMEOUT_SECONDS: Final = 3.0


class KindReport(msgspec.Struct, frozen=True):
    """What happened to one kind since the watcher began: its lists after the first are relists."""

    relists: int
    watches: int
    events: int
    bookmarks: int
    failures: int
    skipped: int


class WatchReport(msgspec.Struct, frozen=True):
    """One watcher's word on one cluster. ``last_seen``: seconds since 1970; ``lag_seconds``: from ring to publication.

    ``publishes``: it holds the lease. ``gaps``: why kinds that are not required cannot be followed.
    """

    holder: str
    at: float
    publishes: bool
    synced: bool
    live: bool
    last_seen: float | None
    lag_seconds: float | None
    error: str
    gaps: tuple[str, ...]
    kinds: dict[str, KindReport]

    @property
    def age_seconds(self) -> float | None:
        """How long the cluster had been silent when this was written."""
        return None if self.last_seen is None else max(0.0, self.at - self.last_seen)


def of(reflector: Reflector, *, holder: str, at: float, publishes: bool, lag_seconds: float | None) -> WatchReport:
    """Make the report of a reflector as it is now."""
    seen = reflector.last_seen
    return WatchReport(
        holder,
        at,
        publishes,
        reflector.synced,
        reflector.live,
        seen.timestamp() if seen else None,
        lag_seconds,
        reflector.error,
        reflector.gaps,
        {
            kind: KindReport(
                max(0, each.lists - 1), each.watches, each.events, each.bookmarks, each.failures, each.skipped
            )
            for kind, each in reflector.counts.items()
        },
    )


@lru_cache(maxsize=4)
def _client(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS)


def _key(cluster_id: int) -> str:
    return f"gpupools:watch:{cluster_id}"


def store(cluster_id: int, report: WatchReport) -> None:
    """Keep a report. Raises Unreachable when the broker is away."""
    try:
        _client(settings.REDIS_URL).set(_key(cluster_id), msgspec.json.encode(report), ex=KEEP_SECONDS)
    except (RedisError, OSError) as error:
        raise _away(error) from error


def load(cluster_id: int) -> WatchReport | None:
    """Read the last report; None when nobody has watched for a minute. Raises Unreachable when the broker is away."""
    try:
        found = _client(settings.REDIS_URL).get(_key(cluster_id))
    except (RedisError, OSError) as error:
        raise _away(error) from error
    if found is None:
        return None
    try:
        return msgspec.json.decode(found, type=WatchReport)
    except msgspec.DecodeError:
        return None  # written by another version of the console


def _away(error: Exception) -> Unreachable:
    return Unreachable("The broker does not answer.", code="broker-away", reason=type(error).__name__)
