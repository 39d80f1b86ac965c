"""GET: one object, lists with selectors and pages that stay consistent, and watches.

Pages of one list are cut from the same snapshot: versions are immutable, so keeping one is a list of references.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import msgspec

from gpupools.simulator.errors import ApiError, Cause, bad_request, expired, refuse_options
from gpupools.simulator.journal import ADDED, DELETED, Event, Feed, Stored, watch_line
from gpupools.simulator.kinds import Object
from gpupools.simulator.presenting import Presenter
from gpupools.simulator.selectors import Test, selection
from gpupools.simulator.store import Store
from gpupools.simulator.wire import Request, Response, Stream, Target, encode

SNAPSHOTS_KEPT = 32
BOOKMARK_SECONDS = 30.0
# A watch without timeoutSeconds ends after half an hour to an hour, at random so that clients do not return at once.
WATCH_SECONDS = (1800, 3600)


class _Continue(msgspec.Struct):
    """What a continue token says; ``v`` is there so that foreign tokens are told apart."""

    v: str
    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class _Snapshot:
    version: int
    found: list[Stored]


class Reader:
    """Answers reads from one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[tuple[str, str, int], _Snapshot] = OrderedDict()

    def get(self, request: Request, target: Target) -> Response:
        """Return one object."""
        presenter = Presenter(request, target, self._store.now)
        self.check_not_ahead(_version_of(request, _odd_version) or 0)
        stored = self._store.stored(target.row.kind, target.namespace, target.name)
        return Response(presenter.one(stored))

    def list(self, request: Request, target: Target) -> Response:
        """Return a list, whole or a page of it."""
        presenter = Presenter(request, target, self._store.now)
        test = _selection(request, target)
        limit = max(0, request.number("limit") or 0)
        if request.query.get("resourceVersion") == "0" and not request.query.get("continue"):
            # "Any version will do" is answered from the real server's cache, which cuts no pages.
            limit = 0
        snapshot, start = self._snapshot(request, target, limit)
        found = snapshot.found
        if test is not None:
            found = [stored for stored in found if test(stored.object)]
        if start:
            found = [stored for stored in found if _place(stored) > start]
        meta: Object = {"resourceVersion": str(snapshot.version)}
        if limit and len(found) > limit:
            rest, found = len(found) - limit, found[:limit]
            self._keep(target, snapshot)
            meta["continue"] = _token(snapshot.version, _place(found[-1]))
            if test is None:
                meta["remainingItemCount"] = rest
        return Response(presenter.many(found, meta))

    def _snapshot(self, request: Request, target: Target, limit: int) -> tuple[_Snapshot, str]:
        """Return what a list (or the page that a token asks for) is cut from, and where it starts."""
        token, match = request.query.get("continue", ""), request.query.get("resourceVersionMatch", "")
        _check_list_options(request, match, token)
        if token:
            return self._rest(request, target, token)
        version = _version_of(request, _bad_version)
        if not version:
            return self._now(target), ""
        self.check_not_ahead(version)
        # Without a word about it, a page is exact: pages of one list have to fit together.
        if match == "Exact" or (not match and limit):
            found = self._at(target, version)
            if found is None:
                raise expired("The resourceVersion for the provided list is too old.")
            return found, ""
        return self._now(target), ""

    def _rest(self, request: Request, target: Target, token: str) -> tuple[_Snapshot, str]:
        asked = _parse_token(token)
        if request.query.get("resourceVersion", "") not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        if asked.rv < 0:
            # The token that came with a 410: go on from there with what is there now.
            return self._now(target), asked.start
        kept = self._snapshots.get((target.row.kind, target.namespace, asked.rv)) or self._at(target, asked.rv)
        if kept is not None:
            return kept, asked.start
        error = expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new "
            "list without the continue parameter, or use the continue token in this response to retrieve the "
            "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
            "that were created, modified, or deleted between the time the first chunk was returned and now may show "
            "up in the list."
        )
        error.list_meta = {"continue": _token(-1, asked.start)}
        raise error

    def _now(self, target: Target) -> _Snapshot:
        store = self._store
        return _Snapshot(store.version, store.all_stored(target.row.kind, target.namespace or None))

    def _at(self, target: Target, version: int) -> _Snapshot | None:
        """Return how things stood at an earlier version, None when that is forgotten."""
        if version == self._store.version:
            return self._now(target)
        kind = target.row.kind
        if version < self._store.compacted(kind):
            return None
        found = {_place(stored): stored for stored in self._store.all_stored(kind)}
        for event in reversed(self._store.subscribe(kind, since=version).ready()):
            if event.previous is None:
                found.pop(_place(event.stored), None)
            else:
                found[_place(event.previous)] = event.previous
        inside = f"{target.namespace}\0" if target.namespace else ""
        return _Snapshot(version, [found[place] for place in sorted(found) if place.startswith(inside)])

    def _keep(self, target: Target, snapshot: _Snapshot) -> None:
        self._snapshots[(target.row.kind, target.namespace, snapshot.version)] = snapshot
        while len(self._snapshots) > SNAPSHOTS_KEPT:
            self._snapshots.popitem(last=False)

    def forget_snapshots(self) -> None:
        """Make every continue token expire, as a compaction does."""
        self._snapshots.clear()

    def check_not_ahead(self, version: int) -> None:
        """Raise 504, as the API server does, for a version that has not been."""
        error = self._not_there_yet(version)
        if error is not None:
            raise error

    def _not_there_yet(self, version: int) -> ApiError | None:
        current = self._store.version
        if version <= current:
            return None
        return ApiError(
            504,
            "Timeout",
            f"Timeout: Too large resource version: {version}, current: {current}",
            [Cause("ResourceVersionTooLarge", "", "Too large resource version")],
            details={"retryAfterSeconds": 1},
        )

    def watch(self, request: Request, target: Target) -> Stream:
        """Return a stream of changes: from a version, or after everything that is there."""
        presenter = Presenter(request, target, self._store.now)
        test = _selection(request, target)
        version = _version_of(request, _odd_version)
        initial = request.query.get("sendInitialEvents")
        bookmarks = request.flag("allowWatchBookmarks")
        _check_watch_options(request, initial)
        everything_first = request.flag("sendInitialEvents") if initial is not None else not version
        error = self._not_there_yet(version or 0) if everything_first else None
        seconds = request.number("timeoutSeconds")
        if not seconds:
            seconds = WATCH_SECONDS[0] + secrets.randbelow(WATCH_SECONDS[1] - WATCH_SECONDS[0])
        store = self._store
        state: list[Stored] = []
        if everything_first:
            state = [
                stored
                for stored in store.all_stored(target.row.kind, target.namespace or None)
                if test is None or test(stored.object)
            ]
        since = store.version if everything_first or not version else version
        feed = store.subscribe(target.row.kind, since=since)
        watch = Watch(presenter, test, target.namespace, feed, state)
        watch.error = error
        watch.ends_initial = initial is not None and request.flag("sendInitialEvents") and bookmarks
        return Stream(watch.lines(seconds, bookmarks=bookmarks, newest=lambda: store.version))


class Watch:
    """One watch: what it selects, and how its events look."""

    def __init__(
        self, presenter: Presenter, test: Test | None, namespace: str, feed: Feed, state: list[Stored]
    ) -> None:
        self._presenter = presenter
        self._test = test
        self._namespace = namespace
        self._feed = feed
        self._state = state
        self.ends_initial = False
        # Refused after all: told in the stream, as everything that is found out once a watch was accepted.
        self.error: ApiError | None = None

    def _selects(self, stored: Stored | None) -> bool:
        if stored is None:
            return False
        if self._namespace and stored.object["metadata"].get("namespace") != self._namespace:
            return False
        return self._test is None or self._test(stored.object)

    def line(self, event: Event) -> bytes:
        """Return an event as this watch sees it, empty when it does not.

        An object that begins to match arrives as ADDED, one that ceases to leaves as DELETED.
        """
        if self._test is None:
            if not self._selects(event.stored):
                return b""
            if self._presenter.plain:
                return event.line
            return watch_line(event.type, self._presenter.event_object(event.stored))
        now, before = self._selects(event.stored), self._selects(event.previous)
        if event.type == DELETED:
            type_ = DELETED if before else ""
        elif now:
            type_ = event.type if before else ADDED
        else:
            type_ = DELETED if before else ""
        if not type_:
            return b""
        if self._presenter.plain and type_ == event.type:
            return event.line
        return watch_line(type_, self._presenter.event_object(event.stored))

    async def lines(self, seconds: int, *, bookmarks: bool, newest: Callable[[], int]) -> AsyncIterator[bytes]:
        """Yield the stream, several events to a chunk when they come fast."""
        if self.error is not None:
            yield watch_line("ERROR", encode(self.error.body()))
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        if self._state:
            yield b"".join(watch_line(ADDED, self._presenter.event_object(stored)) for stored in self._state)
            self._state = []
        if self.ends_initial:
            yield watch_line("BOOKMARK", self._presenter.bookmark(self._feed.version, initial_events_end=True))
        while True:
            left = end - loop.time()
            try:
                events = await self._feed.batch(min(left, BOOKMARK_SECONDS)) if left > 0 else []
            except ApiError as error:
                yield watch_line("ERROR", encode(error.body()))
                return
            chunk = b"".join(self.line(event) for event in events)
            if chunk:
                yield chunk
            if events:
                continue
            if bookmarks:
                # Nothing of ours happened up to here, and the feed has seen all of it.
                version = newest()
                # A watch from a version that is yet to come is quiet until then.
                if version >= self._feed.version:
                    self._feed.version = version
                    yield watch_line("BOOKMARK", self._presenter.bookmark(version, initial_events_end=False))
            if loop.time() >= end:
                return


def _selection(request: Request, target: Target) -> Test | None:
    fields = request.query.get("fieldSelector", "")
    if target.name:
        fields = ",".join(part for part in (fields, f"metadata.name={target.name}") if part)
    return selection(target.row, request.query.get("labelSelector", ""), fields)


def _version_of(request: Request, refusal: Callable[[str], ApiError]) -> int | None:
    text = request.query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        said = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise refusal(said)
    return int(text)


def _bad_version(said: str) -> ApiError:
    return bad_request(f"invalid resource version: {said}")


def _odd_version(said: str) -> ApiError:
    """Lists call it a bad request; watches and reads let it through as an error without a reason."""
    return ApiError(500, "", said)


_FORBIDDEN, _UNSUPPORTED = "FieldValueForbidden", "FieldValueNotSupported"
_MATCH = "resourceVersionMatch"


def _check_list_options(request: Request, match: str, token: str) -> None:
    """Refuse (422) options of a list that contradict each other."""
    causes: list[Cause] = []
    version = request.query.get("resourceVersion", "")

    def forbid(field: str, text: str) -> None:
        causes.append(Cause(_FORBIDDEN, field, f"Forbidden: {text}"))

    if match:
        if not version:
            forbid(_MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided")
        if token:
            forbid(_MATCH, "resourceVersionMatch is forbidden when continue is provided")
        if match not in ("Exact", "NotOlderThan"):
            text = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
            causes.append(Cause(_UNSUPPORTED, _MATCH, text))
        if match == "Exact" and version == "0":
            forbid(_MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if "sendInitialEvents" in request.query:
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list")
    refuse_options("ListOptions", causes)


def _check_watch_options(request: Request, initial: str | None) -> None:
    """Refuse (422) options of a watch that contradict each other."""
    causes: list[Cause] = []
    match = request.query.get(_MATCH, "")

    def forbid(text: str) -> None:
        causes.append(Cause(_FORBIDDEN, _MATCH, f"Forbidden: {text}"))

    if initial is not None and match != "NotOlderThan":
        forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match:
        if initial is None:
            forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        if match != "NotOlderThan":
            text = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
            causes.append(Cause(_UNSUPPORTED, _MATCH, text))
        if request.query.get("continue"):
            forbid("resourceVersionMatch is forbidden when continue is provided")
    refuse_options("ListOptions", causes)


def _place(stored: Stored) -> str:
    meta = stored.object["metadata"]
    # NUL sorts before every letter of a name, so this orders like (namespace, name).
    return f"{meta.get('namespace', '')}\0{meta['name']}"


def _token(version: int, start: str) -> str:
    said = msgspec.json.encode(_Continue("meta.k8s.io/v1", version, start))
    return base64.urlsafe_b64encode(said).decode().rstrip("=")


def _parse_token(token: str) -> _Continue:
    try:
        said = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        return msgspec.json.decode(said, type=_Continue)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
