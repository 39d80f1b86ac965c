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

from gpupools.simulator.errors import ApiError, Cause, bad_request, expired
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
        stored = self._store.stored(target.row.kind, target.namespace, target.name)
        return Response(presenter.one(stored))

    def list(self, request: Request, target: Target) -> Response:
        """Return a list, whole or a page of it."""
        presenter = Presenter(request, target, self._store.now)
        test = _selection(request, target)
        limit = request.number("limit") or 0
        token = request.query.get("continue", "")
        self._check_version(request)
        snapshot, start = self._snapshot(target, token)
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

    def _snapshot(self, target: Target, token: str) -> tuple[_Snapshot, str]:
        """Return what a list (or the page that a token asks for) is cut from, and where it starts."""
        if not token:
            return self._now(target), ""
        asked = _parse_token(token)
        if asked.rv < 0:
            # The token that came with a 410: go on from there with what is there now.
            return self._now(target), asked.start
        kept = self._snapshots.get((target.row.kind, target.namespace, asked.rv))
        if kept is not None:
            return kept, asked.start
        if asked.rv == self._store.version:
            return self._now(target), asked.start
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

    def _keep(self, target: Target, snapshot: _Snapshot) -> None:
        self._snapshots[(target.row.kind, target.namespace, snapshot.version)] = snapshot
        while len(self._snapshots) > SNAPSHOTS_KEPT:
            self._snapshots.popitem(last=False)

    def forget_snapshots(self) -> None:
        """Make every continue token expire, as a compaction does."""
        self._snapshots.clear()

    def _check_version(self, request: Request) -> None:
        """Refuse versions that are not there yet, or no longer."""
        match = request.query.get("resourceVersionMatch", "")
        version = _version(request)
        if match and version is None:
            raise _invalid_option(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            )
        if match not in ("", "Exact", "NotOlderThan"):
            raise _invalid_option(
                "resourceVersionMatch",
                f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""',
            )
        if version is None:
            return
        self.check_not_ahead(version)
        if match == "Exact":
            if version == 0:
                raise _invalid_option(
                    "resourceVersionMatch",
                    'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
                )
            if version != self._store.version:
                raise expired("The resourceVersion for the provided list is too old.")

    def check_not_ahead(self, version: int) -> None:
        """Raise 504, as the API server does, for a version that has not been."""
        current = self._store.version
        if version <= current:
            return
        raise ApiError(
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
        version = _version(request)
        initial = request.query.get("sendInitialEvents")
        bookmarks = request.flag("allowWatchBookmarks")
        match = request.query.get("resourceVersionMatch", "")
        if initial is not None and match != "NotOlderThan":
            raise _invalid_option(
                "resourceVersionMatch",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        if initial is None and match:
            raise _invalid_option(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        everything_first = request.flag("sendInitialEvents") if initial is not None else not version
        self.check_not_ahead(version or 0)
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
                self._feed.version = version
                yield watch_line("BOOKMARK", self._presenter.bookmark(version, initial_events_end=False))
            if loop.time() >= end:
                return


def _selection(request: Request, target: Target) -> Test | None:
    fields = request.query.get("fieldSelector", "")
    if target.name:
        fields = ",".join(part for part in (fields, f"metadata.name={target.name}") if part)
    return selection(target.row, request.query.get("labelSelector", ""), fields)


def _version(request: Request) -> int | None:
    text = request.query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isdigit():
        raise _invalid_option("resourceVersion", f'Invalid value: "{text}": strconv.ParseUint: invalid syntax')
    return int(text)


def _invalid_option(field: str, message: str) -> ApiError:
    reason = "FieldValueForbidden" if message.startswith("Forbidden") else "FieldValueInvalid"
    return ApiError(
        422,
        "Invalid",
        f'ListOptions.meta.k8s.io "" is invalid: {field}: {message}',
        [Cause(reason, field, message)],
        details={"group": "meta.k8s.io", "kind": "ListOptions"},
    )


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
        raise bad_request(f"continue key is not valid: {error}") from error
