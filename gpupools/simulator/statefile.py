"""The state file: all objects, shelves and logs of the cluster in one JSON file that a kill cannot corrupt.

Written beside the old one, flushed to disk, then renamed over it. Put together from JSON that is encoded anyway.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec

from gpupools.simulator.files import write_atomically
from gpupools.simulator.kinds import KINDS, Object
from gpupools.simulator.logs import LogBook
from gpupools.simulator.store import Store
from gpupools.simulator.wire import encode

log = logging.getLogger(__name__)

FORMAT = 1
SAVE_SECONDS = 3.0
# A large cluster takes a while to write; then it is written less often.
SAVE_SHARE = 0.05
# Versions given out after the last save are lost with a kill. The next start begins far above them, so that no
# version ever means two things to a client that saw both.
VERSION_GAP = 1_000_000


class StateError(Exception):
    """A state file that cannot be used; the message says why."""


class _File(msgspec.Struct):
    format: int
    version: int
    objects: dict[str, list[dict[str, Any]]]
    shelves: dict[str, dict[str, Any]] = {}
    logs: list[dict[str, Any]] = []


class StateFile:
    """Loads a store at the start, and saves it whenever it changed."""

    def __init__(self, path: Path, store: Store, logbook: LogBook) -> None:
        self._path = path
        self._store = store
        self._logbook = logbook
        self._saved_changes = -1

    def load(self) -> bool:
        """Fill the store from the file; return False when there is no file. Raises StateError when it is unusable."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return False
        try:
            found = msgspec.json.decode(content, type=_File)
        except msgspec.DecodeError as error:
            raise StateError(f"{self._path} is not a state file of the embedded cluster: {error}") from error
        if found.format != FORMAT:
            raise StateError(f"{self._path} has format {found.format}; this version reads format {FORMAT}.")
        unknown = found.objects.keys() - KINDS.keys()
        if unknown:
            raise StateError(f"{self._path} holds kinds that are not served: {', '.join(sorted(unknown))}.")
        objects = [(kind, _whole(kind, obj)) for kind, listed in found.objects.items() for obj in listed]
        self._store.load(objects, found.shelves, found.version + VERSION_GAP)
        self._logbook.load(found.logs)
        self._saved_changes = self._store.changes
        return True

    def content(self) -> bytes:
        """Return the whole file as it is to be written now."""
        store = self._store
        kinds = []
        for kind in KINDS:
            items = b",".join(stored.item for stored in store.all_stored(kind))
            kinds.append(b'"' + kind.encode() + b'":[' + items + b"]")
        parts = (
            f'{{"format":{FORMAT},"version":{store.version},"objects":{{'.encode(),
            b",".join(kinds),
            b'},"shelves":',
            encode(store.shelves()),
            b',"logs":',
            encode(self._logbook.dump()),
            b"}",
        )
        return b"".join(parts)

    def save(self) -> None:
        """Write the file when something changed since the last time; blocks until it is on the disk."""
        changes = self._store.changes
        if changes != self._saved_changes:
            write_atomically(self._path, self.content())
            self._saved_changes = changes

    async def keep_saving(self) -> None:
        """Save every few seconds, the disk's part of it on a thread, until cancelled."""
        loop = asyncio.get_running_loop()
        pause = SAVE_SECONDS
        while True:
            await asyncio.sleep(pause)
            changes = self._store.changes
            if changes == self._saved_changes:
                continue
            started = loop.time()
            try:
                await asyncio.shield(asyncio.to_thread(write_atomically, self._path, self.content()))
            except OSError as error:
                log.warning("the state could not be saved: %s", error)
                continue
            self._saved_changes = changes
            pause = max(SAVE_SECONDS, (loop.time() - started) / SAVE_SHARE)


def _whole(kind: str, item: Object) -> Object:
    row = KINDS[kind]
    return {"apiVersion": row.api_version, "kind": row.kind, **item}
