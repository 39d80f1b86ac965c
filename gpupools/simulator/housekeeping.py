"""What a cluster throws away by itself: events after an hour, and finished pods beyond a bound."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from gpupools.simulator.errors import ApiError
from gpupools.simulator.kinds import Object
from gpupools.simulator.logs import LogBook
from gpupools.simulator.store import Store
from gpupools.simulator.values import parse_time

EVENT_LIFETIME = timedelta(hours=1)
# Beyond this many events the oldest go early: a busy cluster makes more in an hour than anybody reads.
EVENTS_KEPT = 20_000
FINISHED_PODS_KEPT = 2_000
SWEEP_SECONDS = 30.0


def last_seen(event: Object) -> str:
    """Return when an event happened last, as text that sorts by time."""
    series = event.get("series") or {}
    found = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(found or event["metadata"]["creationTimestamp"])


def sweep(store: Store, logbook: LogBook) -> int:
    """Delete what is too old or too much, oldest first; return how many objects went."""
    limit = store.now() - EVENT_LIFETIME
    events = sorted(store.list("Event"), key=last_seen)
    too_many = max(0, len(events) - EVENTS_KEPT)
    doomed = [("Event", event) for event in events[:too_many]]
    doomed += [("Event", event) for event in events[too_many:] if parse_time(last_seen(event)) < limit]
    finished = [
        pod
        for pod in store.list("Pod")
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        and not pod["metadata"].get("deletionTimestamp")
    ]
    finished.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
    doomed += [("Pod", pod) for pod in finished[: max(0, len(finished) - FINISHED_PODS_KEPT)]]
    for kind, obj in doomed:
        meta = obj["metadata"]
        try:
            _, gone = store.delete(kind, meta["namespace"], meta["name"], uid=meta["uid"])
        except ApiError:
            # Somebody else deleted or replaced it first; that is as good.
            continue
        if kind == "Pod" and gone:
            logbook.forget(meta["uid"])
    return len(doomed)


async def keep_clean(store: Store, logbook: LogBook) -> None:
    """Sweep now and then until cancelled."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        sweep(store, logbook)
