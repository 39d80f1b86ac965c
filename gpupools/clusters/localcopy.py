"""What a list and the events after it make of one kind of objects: a copy keyed by UID. It knows no network.

A UID never comes back in Kubernetes, so a late delete of an old object cannot harm a new one of the same name, and
an event that is older than what is known changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpupools.clusters.listing import Listing
from gpupools.clusters.translate import Event, Seen, Value
from gpupools.domain.gpus import Pod

# An old value and the new one in its stead; None where there was or is nothing.
Difference = tuple[Value | None, Value | None]

MOST_REMEMBERED = 10_000  # deleted UIDs since the last list, against events that come late


class LocalCopy:
    """The objects of one kind. ``most_finished`` bounds the finished pods that are kept; the oldest go first."""

    def __init__(self, *, most_finished: int) -> None:
        self._most_finished = most_finished
        self._seen: dict[str, Seen] = {}
        self._places: dict[tuple[str, str], str] = {}
        self._finished: dict[str, None] = {}  # UIDs, oldest first
        self._gone: dict[str, int] = {}
        self._floor = -1

    def __len__(self) -> int:
        return len(self._seen)

    def values(self) -> list[Value]:
        """Return the current values, in no particular order."""
        return [seen.value for seen in self._seen.values()]

    def replace(self, listing: Listing) -> list[Difference]:
        """Take a whole list in the stead of everything. An object that could not be read keeps its last value."""
        old = self._seen
        new = {seen.uid: seen for seen in listing.seen}
        for uid in listing.unreadable:
            if uid in old and uid not in new:
                new[uid] = old[uid]
        floor = _number(listing.version)
        self._floor = -1 if floor is None else floor
        self._gone = {}
        self._seen = new
        self._places = {seen.place: uid for uid, seen in new.items()}
        finished = [
            (seen.value.created_at, uid)
            for uid, seen in new.items()
            if isinstance(seen.value, Pod) and seen.value.finished
        ]
        self._finished = {uid: None for _, uid in sorted(finished)}
        self._forget_finished()
        return [*_differences(old, new)]

    def apply(self, event: Event) -> list[Difference]:
        """Take one event. What it names differently from what is known is returned."""
        if event.type == "DELETED":
            return self._delete(event.uid, _number(event.version))
        seen = event.seen
        if seen is None or self._is_old(seen):
            return []
        before = self._seen.get(seen.uid)
        differences: list[Difference] = []
        holder = self._places.get(seen.place)
        if holder is not None and holder != seen.uid:
            # Two objects of one name cannot be: the delete of the older one was missed.
            if _older(seen, self._seen[holder]):
                return []
            differences += self._delete(holder, None)
        self._seen[seen.uid] = seen
        self._places[seen.place] = seen.uid
        if isinstance(seen.value, Pod) and seen.value.finished:
            self._finished.setdefault(seen.uid)
            self._forget_finished()
        if before is None or before.value != seen.value:
            differences.append((before.value if before else None, seen.value))
        return differences

    def _is_old(self, seen: Seen) -> bool:
        """Whether this version is older than the list, than what is known, or than the object's deletion."""
        version = _number(seen.version)
        if version is None:
            return False
        known = self._seen.get(seen.uid)
        newest = (_number(known.version) if known else None) or -1
        return version <= max(self._floor, newest, self._gone.get(seen.uid, -1))

    def _delete(self, uid: str, version: int | None) -> list[Difference]:
        seen = self._seen.pop(uid, None)
        self._finished.pop(uid, None)
        last = [n for n in (version, _number(seen.version) if seen else None) if n is not None]
        if last:
            self._gone[uid] = max(last)
            if len(self._gone) > MOST_REMEMBERED:
                del self._gone[next(iter(self._gone))]
        if seen is None:
            return []
        if self._places.get(seen.place) == uid:
            del self._places[seen.place]
        return [(seen.value, None)]

    def _forget_finished(self) -> None:
        while len(self._finished) > self._most_finished:
            uid = next(iter(self._finished))
            del self._finished[uid]
            seen = self._seen.pop(uid)
            if self._places.get(seen.place) == uid:
                del self._places[seen.place]


def _differences(old: dict[str, Seen], new: dict[str, Seen]) -> Iterator[Difference]:
    for uid, seen in new.items():
        before = old.get(uid)
        if before is None or before.value != seen.value:
            yield before.value if before else None, seen.value
    for uid in old.keys() - new.keys():
        yield old[uid].value, None


def _older(one: Seen, other: Seen) -> bool:
    mine, its = _number(one.version), _number(other.version)
    return mine is not None and its is not None and mine < its


def _number(version: str) -> int | None:
    """Return a resourceVersion as a number; a server whose versions are none gets no check of age."""
    return int(version) if version.isascii() and version.isdigit() else None
