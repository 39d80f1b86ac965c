"""`manage.py up` on real processes: first run, restart after kill -9, refusals, clean stop, and no orphan ever."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.infra.console import Up
from tests.infra.waiting import runs, until

PARTS = ("broker", "cluster", "worker", "beat", "watcher", "web")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console") / "var"


@pytest.fixture(scope="module")
def up(data_dir: Path) -> Iterator[Up]:
    """A console's first run."""
    one = Up(data_dir, "--port", "0", "--fleet", "small")
    try:
        yield one.wait_open()
    finally:
        if one.process.poll() is None:
            one.interrupt()


def test_every_part_is_up_and_the_page_answers(up: Up):
    assert set(up.pids()) == set(PARTS)
    assert all(runs(pid) for pid in up.pids().values())
    with urlopen(f"{up.url}/readyz") as answer:
        assert json.load(answer)["status"] == "ok"


def test_the_first_run_makes_two_accounts_with_passwords_of_their_own(up: Up):
    accounts = up.accounts
    assert set(accounts) == {"admin", "operator"}
    assert accounts["admin"] != accounts["operator"]
    assert all(len(password) >= 12 for password in accounts.values())


def test_a_password_is_in_no_file_of_the_data_folder(up: Up, data_dir: Path):
    passwords = up.accounts.values()
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    assert files
    for path in files:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue  # the database takes its side files away when nobody has it open for a moment
        assert not any(password.encode() in content for password in passwords), path


def test_secrets_and_cluster_keys_are_for_their_owner_alone(up: Up, data_dir: Path):
    for name in ("secret-key", "credentials-key", "cluster/kubeconfig"):
        assert stat.S_IMODE((data_dir / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["worker", "watcher", "web", "beat", "broker", "cluster"])
def test_a_part_that_is_killed_comes_back(up: Up, name: str):
    before = up.pids()[name]
    os.kill(before, signal.SIGKILL)
    assert until(lambda: up.pids()[name] != before, 90), up.text
    assert runs(up.pids()[name])


def test_a_second_console_on_the_folder_is_refused(up: Up, data_dir: Path):
    second = Up(data_dir, "--port", "0")
    assert second.process.wait(timeout=60) != 0
    assert f"A console already runs on {data_dir}" in second.text


def test_a_taken_port_is_said_plainly(up: Up, tmp_path: Path):
    port = up.url.rpartition(":")[2]
    second = Up(tmp_path / "var", "--port", port)
    assert second.process.wait(timeout=60) != 0
    assert f"Port {port} on 127.0.0.1 is taken" in second.text
    assert "Traceback" not in second.text


# Last: they end the console that the tests above share.


def test_ctrl_c_stops_every_part_and_exits_with_zero(up: Up):
    pids = up.pids().values()
    assert up.interrupt() == 0
    assert not [pid for pid in pids if runs(pid)]
    assert up.text.rstrip().endswith("Stopped.")
    assert "Traceback" not in up.text


def test_a_second_run_keeps_the_data_and_a_killed_supervisor_leaves_no_orphan(up: Up, data_dir: Path):
    assert up.process.poll() is not None
    second = Up(data_dir, "--port", "0", "--fleet", "small").wait_open()
    assert "First run" not in second.text
    pids = second.pids().values()
    second.process.kill()
    second.process.wait()
    assert until(lambda: not [pid for pid in pids if runs(pid)])
