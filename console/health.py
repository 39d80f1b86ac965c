"""Two probes for supervisors and orchestrators: is the process alive, and can it serve.

They answer before any other middleware: an orchestrator asks by address over plain HTTP, by no allowed name.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import sync_and_async_middleware
from redis import Redis
from redis.exceptions import RedisError

logger = structlog.get_logger(__name__)

NO_WORD_SECONDS = 2


def alive() -> JsonResponse:
    """Answer 200 while the process answers at all."""
    return JsonResponse({"status": "ok", "version": settings.GPUPOOLS_VERSION})


def ready() -> JsonResponse:
    """Answer 200 when database and broker answer and no migration is missing, else 503 and what does not."""
    parts = {"database": _database(), "broker": _broker()}
    ok = all(state == "ok" for state in parts.values())
    return JsonResponse({"status": "ok" if ok else "not ready", **parts}, status=200 if ok else 503)


def _database() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        # The cause goes to the log only: it may name hosts and users.
        logger.warning("database does not answer", error=type(error).__name__)
        return "no answer"
    return f"{len(missing)} migrations missing" if missing else "ok"


def _broker() -> str:
    try:
        with Redis.from_url(
            settings.REDIS_URL, socket_timeout=NO_WORD_SECONDS, socket_connect_timeout=NO_WORD_SECONDS
        ) as broker:
            broker.ping()
    except RedisError as error:
        logger.warning("broker does not answer", error=type(error).__name__)
        return "no answer"
    return "ok"


PROBES: dict[str, Callable[[], JsonResponse]] = {"/healthz": alive, "/readyz": ready}

GetResponse = Callable[[HttpRequest], HttpResponse]


@sync_and_async_middleware
def probes(get_response: GetResponse) -> GetResponse:
    """Answer the two probes, and pass everything else on."""
    if iscoroutinefunction(get_response):

        async def in_event_loop(request: HttpRequest) -> HttpResponse:
            if probe := PROBES.get(request.path_info):
                return await sync_to_async(probe)()
            return await get_response(request)

        return in_event_loop

    def in_thread(request: HttpRequest) -> HttpResponse:
        if probe := PROBES.get(request.path_info):
            return probe()
        return get_response(request)

    return in_thread
