"""The usual people: an administrator, an operator, a viewer, and one who may nothing; and a cluster row."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.models import Cluster, NodePool, Role
from gpupools.services.access import Actor
from tests.domain.builders import a_pod
from tests.services.asking import two_nodes
from tests.services.breakage import ack_cluster, ack_simulator, breaker, make  # noqa: F401  # fixtures of all
from tests.services.builders import a_cluster, a_component, a_pool, an_actor
from tests.services.showing import show


@pytest.fixture
def admin(db: None) -> Actor:
    """An administrator of the whole console."""
    return an_actor(Role.ADMIN, name="ada")


@pytest.fixture
def operator(db: None) -> Actor:
    """An operator of every cluster."""
    return an_actor(Role.OPERATOR, name="olga")


@pytest.fixture
def viewer(db: None) -> Actor:
    """One who may look at every cluster."""
    return an_actor(Role.VIEWER, name="vera")


@pytest.fixture
def stranger(db: None) -> Actor:
    """One with an account and no grant."""
    return an_actor(name="stan")


@pytest.fixture
def at_once(settings: Any) -> None:
    """A console whose policy wants a second person for mode changes alone."""
    settings.GPUPOOLS_APPROVAL_REQUIRED = ()


@pytest.fixture
def lab(db: None) -> Cluster:
    """A plain Kubernetes cluster that does not answer."""
    return a_cluster("lab")


@pytest.fixture
def pool(lab: Cluster, empty_redis: object) -> NodePool:
    """Two exclusive nodes, one of them busy."""
    a_component(lab, "ack-ai-installer")
    pool = a_pool(lab, "shared", mode="exclusive", policy="")
    show(lab, two_nodes(), [a_pod("busy", whole=2, on="n1", owner_kind="Job", owner_name="train")])
    return pool
