"""What every request passes first: an id for the logs, and the static files. Knows no page and no rule."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from uuid import uuid4

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

PLAIN_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
HEADER = "X-Request-ID"

GetResponse = Callable[[HttpRequest], HttpResponse]


def _name(request: HttpRequest) -> str:
    """Give the request its id, and bind it to every log line that follows."""
    # A proxy's id is taken over so that its log and ours can be laid side by side, if it is plain text.
    given = request.headers.get(HEADER, "")
    name = given if PLAIN_ID.fullmatch(given) else uuid4().hex
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=name)
    request.request_id = name
    return name


@sync_and_async_middleware
def request_id(get_response: GetResponse) -> GetResponse:
    """Name the request in every log line it causes, and in its answer."""
    if iscoroutinefunction(get_response):

        async def in_event_loop(request: HttpRequest) -> HttpResponse:
            name = _name(request)
            response = await get_response(request)
            response.headers[HEADER] = name
            return response

        return in_event_loop

    def in_thread(request: HttpRequest) -> HttpResponse:
        name = _name(request)
        response = get_response(request)
        response.headers[HEADER] = name
        return response

    return in_thread


class PlainStaticFiles(WhiteNoiseMiddleware):
    """WhiteNoise for an ASGI server: whole files, where the original streams by blocking reads."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer a static file, or pass the request on."""
        if iscoroutinefunction(self):
            return self._in_event_loop(request)
        return super().__call__(request)

    async def _in_event_loop(self, request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(self.static_prefix):
            return await self.get_response(request)
        find = self.find_file if self.autorefresh else self.files.get
        static_file = await sync_to_async(find)(request.path_info)
        if static_file is None:
            return await self.get_response(request)
        return await sync_to_async(self.serve)(static_file, request)

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        """Answer one file: the console's largest is a few hundred kilobytes."""
        found = static_file.get_response(request.method, request.META)
        body = b""
        if found.file is not None:
            with found.file as opened:
                body = opened.read()
        response = HttpResponse(body, status=int(found.status))
        del response["content-type"]
        for key, value in found.headers:
            response[key] = value
        return response
