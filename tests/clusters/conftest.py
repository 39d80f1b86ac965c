"""Fixtures of the clusters' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters.scripted import ScriptedServer, scripted


@pytest.fixture
def api() -> Iterator[ScriptedServer]:
    """A scripted API server."""
    with scripted() as server:
        yield server
