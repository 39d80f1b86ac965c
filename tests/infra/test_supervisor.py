"""What keeps a console from starting is said plainly, before or while it starts, and nothing is left running."""

import socket
import threading
from pathlib import Path

import pytest

from gpupools.errors import Conflict
from gpupools.management.datadir import DataLock, prepare
from gpupools.management.keeper import StartFailed
from gpupools.management.supervisor import Supervisor


def test_a_taken_port_is_said_before_anything_starts(tmp_path: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        supervisor = Supervisor(tmp_path / "var", port, env={"REDIS_URL": ""})
        with pytest.raises(Conflict, match=f"Port {port} on 127.0.0.1 is taken.*make run PORT="):
            supervisor.start()
    assert supervisor.pid_of("broker") is None
    assert not list((tmp_path / "var" / "logs").iterdir())


def test_a_folder_in_use_is_said_and_left_alone(tmp_path: Path):
    prepare(tmp_path)
    lock = DataLock(tmp_path)
    lock.take()
    try:
        with pytest.raises(Conflict, match="already runs on"):
            Supervisor(tmp_path, 0).start()
        assert not (tmp_path / "secret-key").exists()
    finally:
        lock.release()


def test_a_broker_that_does_not_answer_is_said_and_the_folder_is_free_again(tmp_path: Path):
    supervisor = Supervisor(tmp_path, 0, env={"REDIS_URL": "redis://127.0.0.1:1/0"})
    with pytest.raises(StartFailed, match="REDIS_URL names does not answer"):
        supervisor.start()
    assert supervisor.wait() == 1
    lock = DataLock(tmp_path)
    lock.take()
    lock.release()


def test_a_database_that_cannot_be_migrated_is_said_with_the_logs_end(tmp_path: Path):
    environment = {"REDIS_URL": "", "DATABASE_URL": "sqlite:////nowhere/rows.sqlite3"}
    supervisor = Supervisor(tmp_path, 0, simulator=False, env=environment)
    with pytest.raises(StartFailed, match=r"(?s)`manage.py migrate` failed.*unable to open database file"):
        supervisor.start()
    assert supervisor.pid_of("broker") is None


def test_stopping_what_was_never_started_is_harmless(tmp_path: Path):
    supervisor = Supervisor(tmp_path, 0)
    supervisor.stop()
    assert "supervisor" not in {thread.name for thread in threading.enumerate()}
