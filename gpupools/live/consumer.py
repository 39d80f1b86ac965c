"""The sockets of live pages: who may look, a snapshot first, then what the publisher sends, in order and whole.

It reads rows and the picture through services, and never a cluster. Origins are checked before it is reached.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import msgspec
from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from gpupools.errors import Missing, NotAllowed, Unreachable
from gpupools.live.protocol import CloseCode, Delta, Frame, Listening, Touched, read_request
from gpupools.models import Cluster, Role, User
from gpupools.services import allocation, tokens
from gpupools.services.access import Actor
from gpupools.services.bell import cluster_group
from gpupools.services.rows import masked_all

logger = logging.getLogger(__name__)

# How often a socket's right to look is asked again: grants, sessions and tokens end while pages stay open.
RECHECK_SECONDS: Final = 30.0
# A reader that takes longer for one message, or falls this far behind, is closed; it comes back for a snapshot.
SEND_SECONDS: Final = 10.0
LAG_SECONDS: Final = 15.0
# Making a snapshot costs more than asking for one.
SNAPSHOT_SECONDS: Final = 1.0


class AllocationConsumer(AsyncWebsocketConsumer):
    """What every card of one cluster holds, for one page."""

    cluster: Cluster
    namespaces: frozenset[str] | None
    epoch = -1
    sequence = -1
    is_open = False

    async def connect(self) -> None:
        """Let in whoever may look, and start with a snapshot."""
        # Accepted first: a browser cannot read why a socket was refused, only why it was closed.
        await self.accept()
        self.is_open = True
        self._rechecking: asyncio.Task[None] | None = None
        self._snapshot_at = float("-inf")
        self._least_delay = float("inf")
        self._group = ""
        if not await self._may_look():
            return
        try:
            # Before the snapshot is read, so that nothing falls between the two.
            group = cluster_group(self.cluster.pk)
            await self.channel_layer.group_add(group, self.channel_name)
            self._group = group
        except (RedisError, OSError):
            await self._end(CloseCode.TRY_LATER)
            return
        if await self._send_snapshot():
            self._rechecking = asyncio.create_task(self._recheck())

    async def disconnect(self, code: int) -> None:
        """Leave the group."""
        self.is_open = False
        if self._rechecking is not None:
            self._rechecking.cancel()
            with suppress(asyncio.CancelledError):
                await self._rechecking
        if self._group:
            # A broker that is away has forgotten the group's members anyway.
            with suppress(RedisError, OSError):
                await self.channel_layer.group_discard(self._group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Answer a page that has seen a gap."""
        if not self.is_open:
            return
        if read_request(text_data or "") is None:
            await self._end(CloseCode.NOT_UNDERSTOOD)
            return
        await self._send_snapshot()

    # -- From the publisher

    async def allocation_frame(self, frame: Frame) -> None:
        """Pass a delta or pulse on; where one was lost on the way, send a snapshot instead."""
        if not self.is_open:
            return
        if self._is_late(frame):
            await self._end(CloseCode.TOO_SLOW)
            return
        if frame["epoch"] < self.epoch:
            return
        expected = self.sequence + 1 if frame["kind"] == "delta" else self.sequence
        if frame["epoch"] != self.epoch or frame["sequence"] > expected:
            await self._send_snapshot()
            return
        if frame["sequence"] < expected:
            return  # the snapshot had it
        self.sequence = frame["sequence"]
        await self._send(self._for_this_page(frame))

    async def cluster_touched(self, message: dict[str, Any]) -> None:
        """Tell the page that something else about its cluster changed."""
        if self.is_open:
            touched: Touched = {"type": "touched"}
            await self._send(_encoded(touched))

    def _is_late(self, frame: Frame) -> bool:
        """Tell whether this socket has fallen behind; clocks of two machines may differ, so by the best seen."""
        delay = time.time() - frame["sent_at"]
        self._least_delay = min(self._least_delay, delay)
        return delay - self._least_delay > LAG_SECONDS

    def _for_this_page(self, frame: Frame) -> str:
        if self.namespaces is None or frame["kind"] != "delta":
            return frame["text"]
        delta: Delta = msgspec.json.decode(frame["text"])
        return _encoded({**delta, "nodes": masked_all(delta["nodes"], self.namespaces)})

    # -- Inside

    async def _send_snapshot(self) -> bool:
        rest = self._snapshot_at + SNAPSHOT_SECONDS - time.monotonic()
        if rest > 0:
            await asyncio.sleep(rest)
        self._snapshot_at = time.monotonic()
        try:
            epoch, sequence, text = await database_sync_to_async(self._snapshot)()
        except (Unreachable, DatabaseError) as error:
            logger.warning("No snapshot of cluster %s: %s", self.cluster.name, error)
            await self._end(CloseCode.TRY_LATER)
            return False
        self.epoch, self.sequence = epoch, sequence
        await self._send(text)
        return self.is_open

    def _snapshot(self) -> tuple[int, int, str]:
        view = allocation.view(self.cluster, self.namespaces)
        return view["epoch"], view["sequence"], _encoded(view)

    async def _send(self, text: str) -> None:
        try:
            await asyncio.wait_for(self.send(text_data=text), SEND_SECONDS)
        except TimeoutError:
            await self._end(CloseCode.TOO_SLOW)

    async def _end(self, code: CloseCode) -> None:
        if self.is_open:
            self.is_open = False
            await self.close(code=int(code), reason=code.name.lower().replace("_", "-"))

    async def _recheck(self) -> None:
        while self.is_open:
            await asyncio.sleep(RECHECK_SECONDS)
            try:
                await self._may_look()
            except DatabaseError as error:
                logger.warning("The right to look at %s was not asked again: %s", self.cluster.name, error)

    async def _may_look(self) -> bool:
        """Find out who looks at what; close the socket of whoever may not."""
        actor = await self._actor()
        if actor is None:
            await self._end(CloseCode.SIGN_IN)
            return False
        try:
            self.cluster, self.namespaces = await database_sync_to_async(self._cluster)(actor)
        except Missing:
            await self._end(CloseCode.NO_SUCH_CLUSTER)
        except NotAllowed:
            await self._end(CloseCode.NOT_ALLOWED)
        return self.is_open

    def _cluster(self, actor: Actor) -> tuple[Cluster, frozenset[str] | None]:
        name = self.scope["url_route"]["kwargs"]["name"]
        cluster = Cluster.objects.visible_to(actor).filter(name=name).first()
        if cluster is None:
            raise Missing(f"There is no cluster {name}.", code="no-such-cluster")
        actor.require(Role.VIEWER, cluster)
        return cluster, actor.namespaces(cluster)

    async def _actor(self) -> Actor | None:
        """Read who is there by now: by a bearer token, else by the session as it is in the database."""
        headers = dict(self.scope["headers"])
        scheme, _, plaintext = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() == "bearer":
            return await database_sync_to_async(tokens.authenticate)(plaintext.strip())
        key = getattr(self.scope.get("session"), "session_key", None)
        if not key:
            return None
        session = import_module(settings.SESSION_ENGINE).SessionStore(key)
        user = await get_user({"session": session})
        return Actor(user) if isinstance(user, User) and user.is_active else None


class NewsConsumer(AllocationConsumer):
    """That something about a cluster changed, without what: for pages that the server draws."""

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Such a page has nothing to ask."""
        await self._end(CloseCode.NOT_UNDERSTOOD)

    async def allocation_frame(self, frame: Frame) -> None:
        """Tell the page to look again when a number or a node's labels changed."""
        if frame["kind"] == "delta":
            await self.cluster_touched({})

    async def _send_snapshot(self) -> bool:
        listening: Listening = {"type": "listening"}
        await self._send(_encoded(listening))
        return self.is_open


def _encoded(message: object) -> str:
    return msgspec.json.encode(message).decode()
