"""Shared fixtures. Outside CI a missing browser or server skips with its reason; in CI it is a failure."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from gpupools.management.broker import NoBroker, broker_program

START_SECONDS = 20


def missing(reason: str) -> None:
    """Skip the test for want of something that this machine lacks; in CI fail, since CI installs it."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """Return a port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
            return bool(client.ping())
    except RedisError:
        return False


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server: the one of GPUPOOLS_TEST_REDIS_URL, or one started here.

    It is also the address in the settings, so tasks and live pages of the test go there.
    """
    url = settings.REDIS_URL
    if os.environ.get("GPUPOOLS_TEST_REDIS_URL"):
        if not _answers(url):
            pytest.fail("GPUPOOLS_TEST_REDIS_URL names a server that does not answer.")
        yield url
        return
    try:
        program = broker_program()
    except NoBroker as error:
        missing(str(error))
    folder = tmp_path_factory.mktemp("broker")
    port = str(urlsplit(url).port)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [program, "--bind", "127.0.0.1", "--port", port, "--dir", str(folder), "--save", ""],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(url):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{program} did not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=START_SECONDS)


@pytest.fixture
def empty_redis(redis_url: str) -> Iterator[Redis]:
    """A client of the test's server, emptied before and after."""
    with Redis.from_url(redis_url) as client:
        client.flushdb()
        yield client
        client.flushdb()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium browser."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    missing("No Chromium on PATH (Debian: apt-get install chromium).")
    raise AssertionError("not reached")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the data folder of this run."""
    folder = Path(settings.GPUPOOLS_DATA_DIR)
    if folder.name.startswith("gpupools-test-"):
        shutil.rmtree(folder, ignore_errors=True)
