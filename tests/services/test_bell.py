"""The bell: after commit only, by the task's name, to the cluster's group; a broker that is down is no error."""

from __future__ import annotations

import asyncio
import json
import logging
import time

import pytest
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import connection, transaction

from gpupools.services import bell

QUEUE = settings.CELERY_TASK_DEFAULT_QUEUE


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_down_costs_a_log_line_and_no_time(settings, caplog, monkeypatch):
    # Nothing listens on port 1.
    monkeypatch.setenv("CELERY_BROKER_WRITE_URL", "redis://127.0.0.1:1/0")
    layer = settings.CHANNEL_LAYERS["default"]
    settings.CHANNEL_LAYERS = {"default": {**layer, "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]}}}
    started = time.monotonic()
    with caplog.at_level(logging.WARNING), transaction.atomic():
        bell.ring_push()
        bell.ring_cluster(7)
    assert time.monotonic() - started < 3
    assert "No worker was woken" in caplog.text
    assert "cluster 7 were not told" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_it_wakes_a_worker_once_the_transaction_is_committed(empty_redis):
    with transaction.atomic():
        bell.ring_push()
        assert empty_redis.llen(QUEUE) == 0
    assert empty_redis.llen(QUEUE) == 1
    message = json.loads(empty_redis.lindex(QUEUE, 0))
    assert message["headers"]["task"] == "gpupools.push_due"
    assert message["headers"]["expires"] is not None


@pytest.mark.django_db(transaction=True)
def test_it_is_silent_when_the_transaction_is_rolled_back(empty_redis):
    with pytest.raises(RuntimeError), transaction.atomic():
        bell.ring_push()
        raise RuntimeError
    assert empty_redis.llen(QUEUE) == 0


@pytest.mark.django_db(transaction=True)
def test_it_tells_the_open_pages_of_that_cluster(empty_redis):
    layer = get_channel_layer()

    async def listen() -> dict:
        channel = await layer.new_channel()
        await layer.group_add(bell.cluster_group(7), channel)
        await layer.group_send(bell.cluster_group(8), {"type": bell.TOUCHED, "cluster_id": 8})
        await asyncio.to_thread(ring)
        return await asyncio.wait_for(layer.receive(channel), 10)

    def ring() -> None:
        with transaction.atomic():
            bell.ring_cluster(7)
        connection.close()

    assert async_to_sync(listen)() == {"type": "cluster.touched", "cluster_id": 7}
