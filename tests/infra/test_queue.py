"""The task queue's settings keep what a crash test has shown to be needed, and its schedule rings what exists."""

from celery import current_app
from django.conf import settings


def test_this_process_rings_the_consoles_own_queue_from_any_thread():
    assert current_app.main == "console"


def test_a_killed_workers_messages_come_back_within_seconds():
    options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    assert options["visibility_timeout"] > settings.CELERY_TASK_TIME_LIMIT
    assert options["unacked_restore_interval"] * options["unacked_restore_throttle"] <= 5
    assert settings.CELERY_TASK_ACKS_LATE
    assert settings.CELERY_TASK_REJECT_ON_WORKER_LOST


def test_only_json_is_read_and_no_task_runs_in_its_callers_process():
    assert current_app.conf.accept_content == ["json"]
    assert not current_app.conf.task_always_eager


def test_the_schedule_rings_only_for_tasks_that_exist():
    current_app.loader.import_default_modules()
    rung = {entry["task"] for entry in current_app.conf.beat_schedule.values()}
    assert rung
    assert rung <= set(current_app.tasks)


def test_a_tick_that_nobody_took_is_dropped():
    for entry in current_app.conf.beat_schedule.values():
        assert entry["options"]["expires"] >= entry["schedule"] > 0
