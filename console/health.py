"""Two probes for supervisors and orchestrators: is the process alive, and can it serve."""

from __future__ import annotations

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis import Redis
from redis.exceptions import RedisError

logger = structlog.get_logger(__name__)

NO_WORD_SECONDS = 2


@never_cache
@require_safe
def alive(request: HttpRequest) -> JsonResponse:
    """Answer 200 while the process answers at all."""
    return JsonResponse({"status": "ok", "version": settings.GPUPOOLS_VERSION})


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
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
