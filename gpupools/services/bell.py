"""After commit: wake the worker by the name of a task, tell open pages by the name of a group.

It knows neither tasks nor sockets. A bell that nobody hears costs one beat period, so a broker that is down
is logged and never an error.
"""

from __future__ import annotations

import logging

from asgiref.sync import async_to_sync
from celery import current_app
from channels.layers import get_channel_layer
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

PUSH_TASK = "gpupools.push_due"
PROBE_TASK = "gpupools.probe_cluster"
# A wake-up that no worker took soon is useless: the beat has rung since.
PUSH_EXPIRES_SECONDS = 5
TOUCHED = "cluster.touched"

# Otherwise a broker that is down would hold whoever rings for seconds, a person's request among them.
_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
_DEAF = (OperationalError, RedisError, OSError)


def cluster_group(cluster_id: int) -> str:
    """Return the name of the channel group of a cluster's open pages."""
    return f"cluster.{cluster_id}"


def ring_push() -> None:
    """After commit, wake a worker for the rows that are due."""
    transaction.on_commit(lambda: _wake(PUSH_TASK))


def ring_probe(cluster_id: int) -> None:
    """After commit, have a worker probe a cluster without waiting for the beat."""
    transaction.on_commit(lambda: _wake(PROBE_TASK, cluster_id))


def ring_cluster(cluster_id: int) -> None:
    """After commit, tell the open pages of a cluster that its rows changed; they read what themselves."""
    transaction.on_commit(lambda: _tell(cluster_id))


def _wake(task: str, *arguments: int) -> None:
    try:
        with current_app.connection_for_write(transport_options=_ONCE) as broker:
            current_app.send_task(
                task, arguments, expires=PUSH_EXPIRES_SECONDS, retry=False, ignore_result=True, connection=broker
            )
    except _DEAF as error:
        logger.warning("No worker was woken: %s", error)


def _tell(cluster_id: int) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async_to_sync(layer.group_send)(cluster_group(cluster_id), {"type": TOUCHED, "cluster_id": cluster_id})
    except _DEAF as error:
        logger.warning("Open pages of cluster %s were not told: %s", cluster_id, error)
