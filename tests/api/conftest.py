"""People who call the REST API, and a cluster row that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from gpupools.models import Cluster, Role
from gpupools.services import tokens
from gpupools.services.access import Actor
from tests.services.builders import a_cluster, an_actor

Caller = Callable[[Role | None], APIClient]


@pytest.fixture
def people(db: None) -> dict[Role | None, Actor]:
    """One account per role on every cluster, and one (None) without any grant."""
    made: dict[Role | None, Actor] = {role: an_actor(role, name=f"the-{role}") for role in Role}
    made[None] = an_actor(name="stan")
    return made


@pytest.fixture
def caller(people: dict[Role | None, Actor]) -> Caller:
    """Make a client of the API that carries a token of one of the people."""

    def client_of(role: Role | None) -> APIClient:
        actor = people[role]
        _, text = tokens.issue(actor, name=f"test-{id(actor)}", role=(role or Role.ADMIN).value)
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
        return client

    made: dict[Role | None, APIClient] = {}
    return lambda role: made.setdefault(role, client_of(role)) if role not in made else made[role]


@pytest.fixture
def lab(db: None) -> Cluster:
    """A plain Kubernetes cluster that does not answer."""
    return a_cluster("lab")


def is_problem(response: Any, status: int, code: str) -> bool:
    """Tell whether an answer is a whole problem document of that status and code."""
    body = response.json()
    assert response["Content-Type"] == "application/problem+json", response.content
    assert set(body) == {"type", "title", "status", "detail", "code", "errors"}
    assert body["title"]
    assert body["detail"]
    assert (response.status_code, body["status"], body["code"]) == (status, status, code), body
    return True
