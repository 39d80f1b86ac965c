"""What every request of the Kubernetes port passes first: the control endpoint, exec over WebSocket, and faults.

An ASGI application around the API, which knows nothing of faults: they delay, refuse or break what it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpupools.simulator import faults
from gpupools.simulator.control import PREFIX, Control
from gpupools.simulator.errors import ApiError, expired
from gpupools.simulator.faults import Fault, Faults
from gpupools.simulator.server import KubernetesApi, check_host
from gpupools.simulator.wire import Receive, Response, Send, encode, parse_request, parse_target

Application = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_REASONS = {
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "an error on the server has prevented the request from succeeding"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted"),
}


class FrontDoor:
    """The ASGI application of the Kubernetes port."""

    def __init__(self, api: KubernetesApi, control: Control, registry: Faults, *, sockets: Application) -> None:
        self._api = api
        # Watches from before this version are told so by their status; 0: by an event in the stream.
        self._gone_before = 0
        self._control = control
        self._faults = registry
        self._sockets = sockets
        self._changed = asyncio.Event()
        self._watches: dict[asyncio.Event, tuple[str, str]] = {}
        registry.listen(self._note)

    def _note(self, fault: Fault, begins: bool) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if isinstance(fault, faults.Compaction):
            self._api.forget_pages()
            self._gone_before = self._api.store.version if fault.status else 0
        if isinstance(fault, faults.WatchDrop):
            for broken, (verb, resource) in self._watches.items():
                if fault.hits(verb, resource):
                    broken.set()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request or WebSocket."""
        if scope["type"] == "websocket":
            await self._sockets(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await self._answer_control(scope, receive, send)
            return
        if scope["type"] != "http" or not self._faults.all():
            watch = scope["type"] == "http" and b"watch=" in scope.get("query_string", b"")
            if not watch:
                await self._api(scope, receive, send)
                return
        verb, resource = _meant(scope)
        if refused := await self._delayed_or_refused(verb, resource):
            await _send(refused, send)
            return
        if verb != "watch":
            await self._api(scope, receive, send)
            return
        since = parse_request(scope, b"").query.get("resourceVersion", "")
        if since.isdigit() and 0 < int(since) < self._gone_before:
            error = expired(f"too old resource version: {since} ({self._gone_before})")
            await _send(Response(encode(error.body()), error.status), send)
            return
        await self._watch(scope, receive, send, resource)

    async def _answer_control(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        try:
            check_host(parse_request(scope, b"").headers.get("host", ""))
            answer = await self._control.answer(scope, receive)
        except ApiError as error:
            answer = Response(encode(error.body()), error.status)
        await _send(answer, send)

    async def _delayed_or_refused(self, verb: str, resource: str) -> Response | None:
        late = self._faults.hit(faults.Latency, lambda fault: fault.hits(verb, resource))
        if late is not None:
            await self._wait_out(late.seconds, lambda: late in self._faults.of(faults.Latency) or bool(late.times))
        fault = self._faults.hit(faults.Error, lambda fault: fault.hits(verb, resource))
        if fault is None:
            return None
        reason, words = _REASONS.get(fault.status, ("InternalError", "an error was asked for"))
        details = {"retryAfterSeconds": fault.retry_after_seconds} if fault.retry_after_seconds else {}
        error = ApiError(fault.status, reason, fault.message or words, details=details)
        headers = (("retry-after", str(fault.retry_after_seconds)),) if fault.retry_after_seconds else ()
        return Response(encode(error.body()), fault.status, headers=headers)

    async def _wait_out(self, seconds: float, holds: Callable[[], bool]) -> None:
        """Wait, but no longer than the fault is on."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while holds() and (left := end - loop.time()) > 0:
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((changed,), timeout=left)
            finally:
                changed.cancel()

    async def _watch(self, scope: Mapping[str, Any], receive: Receive, send: Send, resource: str) -> None:
        """Serve a watch that faults may freeze, delay, double, or break off."""

        def on(kind: Any) -> bool:
            return any(fault.hits("watch", resource) for fault in self._faults.of(kind))

        async def sent(message: dict[str, Any]) -> None:
            if message.get("body") and self._faults.all():
                while on(faults.WatchFreeze):
                    await self._changed.wait()
                late = self._faults.hit(faults.WatchLate, lambda fault: fault.hits("watch", resource))
                if late is not None:
                    await self._wait_out(late.seconds, lambda: on(faults.WatchLate))
                if self._faults.hit(faults.WatchDuplicate, lambda fault: fault.hits("watch", resource)):
                    await send(message)
            await send(message)

        broken = asyncio.Event()
        self._watches[broken] = ("watch", resource)
        serving = asyncio.ensure_future(self._api(scope, receive, sent))
        breaking = asyncio.ensure_future(broken.wait())
        try:
            # When it breaks, returning without an end makes the server close the connection in mid-answer.
            await asyncio.wait((serving, breaking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._watches[broken]
            for task in (serving, breaking):
                task.cancel()
            ended = await asyncio.gather(serving, breaking, return_exceptions=True)
        if isinstance(ended[0], Exception):
            raise ended[0]


def _meant(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Return verb and resource (plural, or the path) of a request."""
    request = parse_request(scope, b"")
    target = parse_target(request.path)
    verb = _VERBS.get(request.method, "")
    if target is None:
        return verb, request.path
    if verb == "get" and request.flag("watch"):
        verb = "watch"
    elif verb == "get" and not target.name:
        verb = "list"
    return verb, target.row.plural


async def _send(answer: Response, send: Send) -> None:
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        *((key.encode(), value.encode()) for key, value in answer.headers),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
