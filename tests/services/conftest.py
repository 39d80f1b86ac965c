"""The usual people: an administrator, an operator, a viewer, and one who may nothing; and a cluster row."""

from __future__ import annotations

import pytest

from gpupools.models import Cluster, Role
from gpupools.services.access import Actor
from tests.services.builders import a_cluster, an_actor


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
def lab(db: None) -> Cluster:
    """A plain Kubernetes cluster that does not answer."""
    return a_cluster("lab")
