"""The task door: what is there, that doubled messages are harmless, that a cluster that is away breaks nothing."""

from __future__ import annotations

import json

import pytest
from django.conf import settings

from gpupools import tasks
from gpupools.models import Cluster, Push
from gpupools.services import pushes
from gpupools.services.access import SYSTEM
from tests.services.builders import a_cluster

pytestmark = pytest.mark.django_db


def messages(empty_redis) -> list[tuple[str, list]]:
    found = [json.loads(raw) for raw in empty_redis.lrange(settings.CELERY_TASK_DEFAULT_QUEUE, 0, -1)]
    return sorted((each["headers"]["task"], each["headers"]["argsrepr"]) for each in found)


def test_a_push_that_is_rung_for_twice_is_tried_once(lab):
    pushes.enqueue(SYSTEM, kind="pool.delete", cluster=lab, target="pool:1", payload={"pool": 0})
    tasks.push_due()
    tasks.push_due()
    assert Push.objects.get().fence == 1


def test_polling_and_probing_are_a_task_per_cluster(lab, empty_redis):
    other = a_cluster("other")
    tasks.poll_allocation()
    tasks.probe_clusters()
    assert messages(empty_redis) == sorted(
        (f"gpupools.{task}_cluster", f"({key},)") for key in (lab.pk, other.pk) for task in ("poll", "probe")
    )


def test_a_cluster_that_is_away_is_noted_and_breaks_no_task(lab, empty_redis):
    tasks.poll_cluster(lab.pk)
    tasks.sync_pools()
    tasks.check_components()
    tasks.probe_cluster(lab.pk)
    lab.refresh_from_db()
    assert lab.state == Cluster.State.UNREACHABLE
    tasks.sync_pools()
    tasks.check_components()
    tasks.expire_changes()


def test_a_cluster_that_was_disconnected_meanwhile_is_no_error():
    tasks.poll_cluster(0)
    tasks.probe_cluster(0)
