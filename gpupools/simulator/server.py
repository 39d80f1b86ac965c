"""The Kubernetes HTTP API of the embedded cluster: an ASGI application over a store.

Checks who asks and from where, routes, and turns errors into Status objects. What verbs do is in reading.py,
writing.py and podverbs.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Mapping
from typing import Any

from gpupools.simulator import discovery, openapi, reviews
from gpupools.simulator.auth import Identity, Tokens
from gpupools.simulator.errors import ApiError
from gpupools.simulator.logs import LogBook
from gpupools.simulator.podverbs import PodVerbs
from gpupools.simulator.reading import Reader
from gpupools.simulator.store import Store
from gpupools.simulator.wire import (
    Body,
    Receive,
    Request,
    Response,
    Send,
    Stream,
    Target,
    encode,
    parse_request,
    parse_target,
)
from gpupools.simulator.writing import Writer

log = logging.getLogger(__name__)

_HEALTH = ("/healthz", "/livez", "/readyz")
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class KubernetesApi:
    """The ASGI application. ``version`` is the cluster's (``1.34.3-aliyun.1``); ``stop`` ends open streams."""

    def __init__(self, store: Store, logbook: LogBook, tokens: Tokens, *, version: str) -> None:
        self.store = store
        self._tokens = tokens
        self._version = version
        self._reader = Reader(store)
        self._writer = Writer(store)
        self._pods = PodVerbs(store, logbook)
        self._stopping = asyncio.Event()

    def forget_pages(self) -> None:
        """Make every continue token expire, as a compaction does."""
        self._reader.forget_snapshots()

    def stop(self) -> None:
        """End every open stream; new requests are still answered."""
        self._stopping.set()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        try:
            answer = await self._answer(scope, receive)
        except ApiError as error:
            retry = error.details.get("retryAfterSeconds")
            headers = (("retry-after", str(retry)),) if retry else ()
            answer = Response(encode(error.body()), error.status, headers=headers)
        except Exception as error:  # noqa: BLE001  # the one guard: a fault of ours is a Status too, and is logged
            log.exception("%s %s failed", scope["method"], scope["path"])
            text = f"Internal error occurred: {type(error).__name__}"
            answer = Response(encode(ApiError(500, "InternalError", text).body()), 500)
        if isinstance(answer, Stream):
            await self._stream(answer, receive, send)
            return
        await _send_whole(answer, send, with_body=scope["method"] != "HEAD")

    async def _answer(self, scope: Mapping[str, Any], receive: Receive) -> Response | Stream:
        request = parse_request(scope, b"")
        check_host(request.headers.get("host", ""))
        identity = self._tokens.identify(request.headers.get("authorization", ""))
        # Read after the token was checked: strangers get no memory of ours.
        request.body = await Body().read(receive)
        target = parse_target(request.path)
        if target is not None:
            return self._resource(request, target, identity)
        return self._other(request, identity, str(scope.get("server", ("127.0.0.1", 0))[0]))

    def _other(self, request: Request, identity: Identity, address: str) -> Response:
        """Answer what is not a resource: health, versions, discovery, OpenAPI, reviews."""
        path = request.path.rstrip("/") or "/"
        if request.method == "POST":
            answered = reviews.answer(path, request, identity)
            if answered is not None:
                return answered
        identity.check_path(request.method.lower(), path)
        if request.method not in ("GET", "HEAD"):
            raise _no_such_path()
        if path.startswith(_HEALTH):
            return Response(b"ok", content_type="text/plain; charset=utf-8")
        form = request.form() if path in ("/api", "/apis") else None
        if form is not None and form.shape == "APIGroupDiscoveryList":
            said = f"application/json;g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
            return Response(encode(discovery.aggregated(path, form.version)), content_type=said)
        found = self._document(path, address)
        if found is None:
            raise _no_such_path()
        return Response(encode(found))

    def _document(self, path: str, address: str) -> dict[str, Any] | None:
        fixed = {
            "/": lambda: {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"]},
            "/version": lambda: discovery.version(self._version),
            "/api": lambda: discovery.api_versions(address),
            "/apis": discovery.api_group_list,
            "/api/v1": lambda: discovery.resource_list(""),
            "/openapi/v3": openapi.index,
            "/openapi/v3/api/v1": lambda: openapi.document(""),
        }
        if path in fixed:
            return fixed[path]()
        parts = path.strip("/").split("/")
        if parts[:3] == ["openapi", "v3", "apis"] and len(parts) == 5 and parts[4] == "v1":
            return openapi.document(parts[3])
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in discovery.groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **discovery.api_group(parts[1])}
        if parts[0] == "apis" and len(parts) == 3 and parts[2] == "v1":
            return discovery.resource_list(parts[1])
        return None

    def _resource(self, request: Request, target: Target, identity: Identity) -> Response | Stream:
        verb = _VERBS.get(request.method)
        if verb is None:
            raise _not_allowed()
        if verb == "get" and "/watch/" in request.path:
            # The old way to ask for a watch; still answered, as by the real server.
            verb = "watch"
        elif verb == "get" and not target.name:
            verb = "watch" if request.flag("watch") else "list"
        elif verb == "get" and request.flag("watch") and not target.subresource:
            verb = "watch"
        elif verb == "delete" and not target.name:
            verb = "deletecollection"
        identity.check(verb, target.group, target.resource, target.namespace, target.name)
        if target.subresource in ("attach", "binding", "eviction", "exec", "log"):
            return self._pods.answer(verb, request, target)
        if target.subresource:
            if verb not in ("get", "update", "patch") or (target.subresource == "finalize" and verb != "update"):
                raise _not_allowed()
        elif verb not in target.row.verbs:
            raise _not_allowed()
        return self._do(verb, request, target)

    def _do(self, verb: str, request: Request, target: Target) -> Response | Stream:
        if verb == "get":
            return self._reader.get(request, target)
        if verb == "list":
            return self._reader.list(request, target)
        if verb == "watch":
            return self._reader.watch(request, target)
        if verb == "create":
            if target.name:
                raise _not_allowed()
            return self._writer.create(request, target)
        if verb in ("update", "patch") and not target.name:
            raise _not_allowed()
        if verb == "update":
            return self._writer.update(request, target)
        if verb == "patch":
            return self._writer.patch(request, target)
        if verb == "delete":
            return self._writer.delete(request, target)
        return self._writer.delete_collection(request, target)

    async def _stream(self, stream: Stream, receive: Receive, send: Send) -> None:
        """Send chunks until they end, the client leaves, or the server stops."""
        headers = [(b"content-type", stream.content_type.encode()), (b"cache-control", b"no-cache, private")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # An empty chunk makes the headers leave at once: clients wait for them before they wait for events.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        tasks = (
            asyncio.ensure_future(_pump(stream, send)),
            asyncio.ensure_future(_gone(receive)),
            asyncio.ensure_future(self._stopping.wait()),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await send({"type": "http.response.body", "body": b""})


async def _pump(stream: Stream, send: Send) -> None:
    async for chunk in stream.chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_whole(answer: Response, send: Send, *, with_body: bool) -> None:
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        (b"cache-control", b"no-cache, private"),
        *((key.encode(), value.encode()) for key, value in answer.headers),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if with_body else b""})


def check_host(host: str) -> None:
    """Refuse (421) a Host header that is not loopback: a web page must not reach us by a name that it rebinds."""
    name = host.strip().rsplit(":", 1)[0] if not host.strip().endswith("]") else host.strip()
    name = name.strip("[]").lower()
    if name == "localhost":
        return
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(name).is_loopback:
            return
    raise ApiError(421, "MisdirectedRequest", f'this server answers on loopback only, not as "{host[:100]}"')


def _no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def _not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})
