"""The task queue: one app, one static schedule. Tasks are named here, never imported."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import setup_logging
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("console")
# The web server answers in threads of its own; without this they would ring a queue nobody listens to.
app.set_default()
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def _keep_our_logging(**_: object) -> None:
    """Stop Celery from replacing the logging that Django has set up."""


def _every(task: str, seconds: int) -> dict[str, object]:
    # A tick that no worker took by the next one is dropped: a queue of stale ticks helps nobody.
    return {"task": f"gpupools.{task}", "schedule": seconds, "options": {"expires": max(seconds, 5)}}


@app.on_configure.connect
def _schedule(sender: Celery, **_: object) -> None:
    sender.conf.beat_schedule = {
        name: _every(name, seconds)
        for name, seconds in (
            ("push_due", 2),
            ("poll_allocation", settings.GPUPOOLS_POLL_SECONDS),
            ("sync_pools", 10),
            ("check_components", 10),
            ("probe_clusters", 30),
            ("expire_changes", 60),
            ("send_notices", 15),
        )
    }
