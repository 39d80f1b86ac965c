"""Child processes end when their parent does, leave a log, and are killed when they do not stop."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpupools.management.launch import accompany
from gpupools.management.process import MAX_LOG_BYTES, Child, guarded, tail
from tests.infra.waiting import runs, until

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def child(tmp_path: Path, code: str, **more: object) -> Child:
    return Child(
        name="sleeper",
        command=[sys.executable, "-c", code],
        environment=dict(os.environ),
        log=tmp_path / "sleeper.log",
        ready=lambda one: "up" in one.log.read_text(),
        **more,
    )


def test_a_child_stops_when_asked_and_leaves_its_log(tmp_path: Path):
    sleeper = child(tmp_path, SLEEPER)
    sleeper.start()
    assert until(lambda: sleeper.ready(sleeper))
    assert sleeper.pid is not None
    sleeper.ask_to_stop()
    sleeper.wait_stopped()
    assert sleeper.pid is None
    assert sleeper.exit_code == -signal.SIGTERM
    assert sleeper.tail() == "up"


def test_a_child_that_does_not_stop_is_killed(tmp_path: Path):
    sleeper = child(tmp_path, STUBBORN, stop_seconds=0.2)
    sleeper.start()
    assert until(lambda: sleeper.ready(sleeper))
    sleeper.ask_to_stop()
    sleeper.wait_stopped()
    assert sleeper.exit_code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_a_child_ends_when_its_parent_is_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c",
         "import subprocess, sys, time\n"
         "from gpupools.management.process import guarded\n"
         f"command = guarded([sys.executable, '-c', {STUBBORN!r}])\n"
         "print(subprocess.Popen(command, stdout=subprocess.PIPE).pid, flush=True)\n"
         "time.sleep(600)"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    orphan = int(parent.stdout.readline())
    assert runs(orphan)
    parent.kill()
    parent.communicate()
    assert until(lambda: not runs(orphan))


def test_a_command_is_not_started_for_a_parent_that_is_gone():
    # Process 1 is never the parent of the launcher here.
    command = guarded([sys.executable, "-c", "print('ran')"])
    command[command.index(str(os.getpid()))] = "1"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "ran" not in done.stdout


def test_where_the_kernel_gives_no_promise_the_launcher_kills_the_child_itself():
    # As its parent it is told a process that is not: the next look must end the child.
    assert accompany(1, [sys.executable, "-c", SLEEPER]) == -signal.SIGKILL


def test_a_log_that_has_grown_too_large_is_moved_aside(tmp_path: Path):
    sleeper = child(tmp_path, SLEEPER)
    sleeper.log.write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    sleeper.keep_log_small()
    assert sleeper.log.stat().st_size == 0
    assert (tmp_path / "sleeper.log.1").stat().st_size == MAX_LOG_BYTES + 1


def test_the_tail_of_a_long_log_is_its_last_lines(tmp_path: Path):
    log = tmp_path / "long.log"
    log.write_text("\n".join(f"line {number}" for number in range(100_000)))
    assert tail(log).splitlines()[-1] == "line 99999"
    assert len(tail(log).splitlines()) == 15
