"""A worker as a process of its own, made to be killed: it says what it is about to do and waits for the word.

Run as ``python -m tests.services.mortal`` on the database and broker of the environment. It forks one worker after the
other, each at a line of its standard input, since starting Python anew takes seconds. Who kills them is killing.py.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection

import django

django.setup()

from django.db import connections  # noqa: E402
from django.utils import timezone  # noqa: E402

from gpupools.models import Cluster, Push  # noqa: E402
from gpupools.services import gateways, pushes, pushing  # noqa: E402

PAUSE_SECONDS = 0.02
_claim, _settle = pushes.claim, pushes._settle
# Read without a buffer: parent and child share it.
_words = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115


def say(what: str, **facts: object) -> None:
    """Tell what happens, as one line."""
    os.write(1, json.dumps({"what": what, **facts}).encode() + b"\n")


def say_and_wait(what: str, detail: str = "") -> None:
    """Tell what is about to happen, and do nothing before there is word."""
    say(what, detail=detail)
    if not _words.readline():
        os._exit(0)


def claim(**arguments: Collection[int]) -> Push | None:
    """Claim what is due, as the product does."""
    push = _claim(**arguments)
    if push is not None:
        say_and_wait("claimed")
    return push


def settle(push: Push, outcome: pushes.Outcome) -> None:
    """Store an outcome as the product does; right before and right after it is a good time to die."""
    say_and_wait("settling", outcome.detail)
    _settle(push, outcome)
    say_and_wait("settled", outcome.detail)


def work() -> None:
    """Carry out what is due, as a worker does; pauses between two looks at a cluster are cut short."""
    say("born", pid=os.getpid())
    pushes.claim, pushes._settle = claim, settle
    while True:
        queued = Push.objects.filter(state=Push.State.QUEUED)
        queued.filter(lease_until=None).update(due_at=timezone.now())
        if pushing.run_due():
            say_and_wait("ran")
        elif not queued.exists():
            say_and_wait("idle")
        time.sleep(PAUSE_SECONDS)


def warm_up() -> None:
    """Open each cluster once, so that what is imported only then need not be imported by every worker anew."""
    for cluster in Cluster.objects.all():
        with gateways.pools_of(cluster):
            pass
    connections.close_all()


def main() -> None:
    """Fork a worker at each line, and tell of its end."""
    warm_up()
    while _words.readline():
        pid = os.fork()
        if pid == 0:
            work()
        _, status = os.waitpid(pid, 0)
        say("ended", code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
