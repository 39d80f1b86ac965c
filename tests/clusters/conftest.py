"""Fixtures of the clusters' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.clusters import kubeconfig
from tests.clusters.everymode import cluster_of_every_mode, in_order
from tests.clusters.faults import World
from tests.clusters.scripted import ScriptedServer, scripted
from tests.simulator.harness import SimulatorProcess


@pytest.fixture
def api() -> Iterator[ScriptedServer]:
    """A scripted API server."""
    with scripted() as server:
        yield server


@pytest.fixture(scope="package")
def every_mode() -> Iterator[SimulatorProcess]:
    """A cluster with a node in each mode, all in order."""
    with cluster_of_every_mode() as running:
        yield running


@pytest.fixture
def world(every_mode: SimulatorProcess) -> Iterator[World]:
    made = World(kubeconfig.parse(every_mode.kubeconfig.read_text(), allow_loopback=True))
    in_order(made)
    yield made
    made.close()
