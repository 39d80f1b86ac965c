"""A POST that is repeated with its Idempotency-Key does nothing twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from gpupools.errors import Conflict
from gpupools.models import Grant, IdempotencyKey, Role
from gpupools.services import idempotency
from gpupools.services.access import Actor
from gpupools.services.idempotency import Answer
from tests.api.conftest import Caller, is_problem

PATH = "/api/v1/grants/"


def test_the_first_answer_is_given_again(caller: Caller, people: dict[Role | None, Actor]) -> None:
    body = {"user": "stan", "role": "viewer"}
    client = caller(Role.ADMIN)
    first = client.post(PATH, body, HTTP_IDEMPOTENCY_KEY="one")
    again = client.post(PATH, body, HTTP_IDEMPOTENCY_KEY="one")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again["Idempotency-Replayed"] == "true"
    assert Grant.objects.filter(user=people[None].user).count() == 1


def test_the_key_with_another_body_is_refused(caller: Caller) -> None:
    client = caller(Role.ADMIN)
    client.post(PATH, {"user": "stan", "role": "viewer"}, HTTP_IDEMPOTENCY_KEY="one")
    response = client.post(PATH, {"user": "stan", "role": "admin"}, HTTP_IDEMPOTENCY_KEY="one")
    assert is_problem(response, 422, "idempotency-key-reused")


def test_two_people_may_use_one_key(caller: Caller, people: dict[Role | None, Actor]) -> None:
    body = {"user": "stan", "role": "viewer"}
    assert caller(Role.ADMIN).post(PATH, body, HTTP_IDEMPOTENCY_KEY="one").status_code == 201
    assert is_problem(caller(Role.OPERATOR).post(PATH, body, HTTP_IDEMPOTENCY_KEY="one"), 403, "role-too-low")


def test_a_refused_request_gives_its_key_back(caller: Caller) -> None:
    client = caller(Role.ADMIN)
    wrong = client.post(PATH, {"user": "stan", "role": "emperor"}, HTTP_IDEMPOTENCY_KEY="one")
    assert wrong.status_code == 400
    assert not IdempotencyKey.objects.exists()
    assert client.post(PATH, {"user": "stan", "role": "viewer"}, HTTP_IDEMPOTENCY_KEY="one").status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 129, "a\tb"])
def test_a_key_that_cannot_be_kept_is_refused(caller: Caller, key: str) -> None:
    response = caller(Role.ADMIN).post(PATH, {"user": "stan", "role": "viewer"}, HTTP_IDEMPOTENCY_KEY=key)
    assert is_problem(response, 400, "invalid")
    assert response.json()["errors"][0]["field"] == "Idempotency-Key"


def test_while_the_first_request_runs_a_second_one_waits(people: dict[Role | None, Actor]) -> None:
    actor = people[Role.ADMIN]
    assert idempotency.begin(actor, "one", "digest") is None
    with pytest.raises(Conflict) as caught:
        idempotency.begin(actor, "one", "digest")
    assert caught.value.code == "still-running"


def test_a_request_that_was_cut_off_may_be_tried_again_by_one(people: dict[Role | None, Actor]) -> None:
    actor = people[Role.ADMIN]
    idempotency.begin(actor, "one", "digest")
    IdempotencyKey.objects.update(created_at=timezone.now() - idempotency.CUT_OFF - timedelta(seconds=1))
    assert idempotency.begin(actor, "one", "digest") is None
    with pytest.raises(Conflict):
        idempotency.begin(actor, "one", "digest")


def test_old_keys_are_forgotten(people: dict[Role | None, Actor]) -> None:
    actor = people[Role.ADMIN]
    idempotency.begin(actor, "old", "digest")
    idempotency.finish(actor, "old", Answer(201, {}))
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(days=31))
    idempotency.begin(actor, "new", "digest")
    assert list(IdempotencyKey.objects.values_list("key", flat=True)) == ["new"]
