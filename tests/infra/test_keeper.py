"""The keeper waits for readiness, starts again what dies, gives up on what never gets up, and stops in order."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpupools.management.keeper import Keeper, StartFailed, Stopped
from gpupools.management.process import Child
from tests.infra.waiting import until

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
# Writes its name when asked to end, so that the order can be read.
ENDING = """
import signal, sys, time
def end(*_):
    open(sys.argv[2], "a").write(sys.argv[1] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""


class Household:
    """A keeper in a thread of its own, and what it has said."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.lines: list[str] = []
        self.keeper = Keeper(stop=self.stop, say=self.lines.append)
        self.ended_with: BaseException | None = None
        self._thread: threading.Thread | None = None

    def keep(self, *children: Child) -> None:
        """Start the children and look after them until `end`."""
        self._thread = threading.Thread(target=self._run, args=(children,))
        self._thread.start()

    def _run(self, children: tuple[Child, ...]) -> None:
        try:
            for child in children:
                self.keeper.spawn(child)
                self.keeper.wait_ready(child)
            self.keeper.keep()
        except (StartFailed, Stopped) as error:
            self.ended_with = error
        finally:
            self.keeper.stop_all()

    def wait(self) -> None:
        """Wait until it ends by itself."""
        assert self._thread is not None
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()

    def end(self) -> None:
        """Stop everything."""
        self.stop.set()
        if self._thread is not None:
            self._thread.join()


@pytest.fixture
def household() -> Iterator[Household]:
    one = Household()
    yield one
    one.end()


def a_child(folder: Path, name: str, code: str = SLEEPER, *arguments: str, **more: object) -> Child:
    return Child(
        name=name,
        command=[sys.executable, "-c", code, *arguments],
        environment=dict(os.environ),
        log=folder / f"{name}.log",
        ready=lambda child: "up" in child.log.read_text(),
        **more,
    )


def test_a_child_that_is_killed_is_started_again(household: Household, tmp_path: Path):
    child = a_child(tmp_path, "worker")
    household.keep(child)
    assert until(lambda: child.is_ready)
    first = child.pid
    os.kill(first, signal.SIGKILL)
    assert until(lambda: child.is_ready and child.pid not in {None, first})
    assert any("worker" in line and "exit code -9; starts again" in line for line in household.lines)


def test_a_child_that_dies_three_times_before_it_is_ready_ends_all_with_its_logs_tail(
    household: Household, tmp_path: Path
):
    steady = a_child(tmp_path, "broker")
    household.keep(steady, a_child(tmp_path, "worker", "import sys; sys.exit('no such queue')"))
    household.wait()
    assert isinstance(household.ended_with, StartFailed)
    assert "The worker ended 3 times before it was ready" in household.ended_with.message
    assert "no such queue" in household.ended_with.message
    assert steady.pid is None


def test_a_child_that_never_gets_ready_is_said_with_its_logs_tail(household: Household, tmp_path: Path):
    thinking = "import time; print('still thinking', flush=True); time.sleep(600)"
    household.keep(a_child(tmp_path, "web", thinking, start_seconds=1.5))
    household.wait()
    assert isinstance(household.ended_with, StartFailed)
    assert "The web is not ready after" in household.ended_with.message
    assert "still thinking" in household.ended_with.message


def test_asking_to_stop_while_a_child_starts_ends_it(household: Household, tmp_path: Path):
    child = a_child(tmp_path, "web", "import time; time.sleep(600)")
    household.keep(child)
    assert until(lambda: child.pid)
    household.end()
    assert isinstance(household.ended_with, Stopped)
    assert child.pid is None


def test_servers_are_stopped_after_what_uses_them_and_in_reverse_order(household: Household, tmp_path: Path):
    order = tmp_path / "order"
    children = [
        a_child(tmp_path, name, ENDING, name, str(order), is_server=is_server)
        for name, is_server in (("broker", True), ("cluster", True), ("web", False))
    ]
    household.keep(*children)
    assert until(lambda: all(child.is_ready for child in children))
    household.end()
    assert order.read_text().split() == ["web", "cluster", "broker"]
