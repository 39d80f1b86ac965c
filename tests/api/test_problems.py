"""Every way to fail is one shape of problem document."""

from __future__ import annotations

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from gpupools.api.errors import handle
from gpupools.errors import Conflict, FieldError, Invalid, Missing, NotAllowed, Refused, Unreachable
from gpupools.models import Cluster, NodePool, Role
from gpupools.services.idempotency import Reused
from tests.api.conftest import Caller, is_problem


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("x"), 400),
        (Refused("x"), 400),
        (NotAllowed("x"), 403),
        (Missing("x"), 404),
        (Conflict("x"), 409),
        (Reused("x"), 422),
        (Unreachable("x", retry_after_seconds=7), 503),
    ],
)
def test_each_kind_of_error_has_its_status(error: Exception, status: int) -> None:
    response = handle(error, {})
    assert response is not None
    assert response.status_code == status
    assert response.data["status"] == status


def test_an_unreachable_cluster_says_when_to_try_again() -> None:
    response = handle(Unreachable("x", retry_after_seconds=7), {})
    assert response is not None
    assert response.headers["Retry-After"] == "7"


def test_field_errors_say_field_found_and_allowed() -> None:
    error = Invalid("x", errors=[FieldError("mode", "There is none.", "unknown", "foo", "cgpu, mps")])
    response = handle(error, {})
    assert response is not None
    assert response.data["errors"] == [
        {"field": "mode", "code": "unknown", "message": "There is none.", "found": "foo", "allowed": "cgpu, mps"}
    ]


def test_an_error_that_nobody_foresaw_is_left_to_the_log() -> None:
    assert handle(RuntimeError("x"), {}) is None


@pytest.mark.django_db
@pytest.mark.parametrize("header", ["", "Bearer gpc_wrong", "Bearer", "Bearer a b", "Bearer \xff"])
def test_without_a_good_token_nobody_gets_in(header: str) -> None:
    client = APIClient()
    if header:
        client.credentials(HTTP_AUTHORIZATION=header)
    response = client.get("/api/v1/clusters/")
    assert is_problem(response, 401, "bad-token" if header else "not-authenticated")
    assert response["WWW-Authenticate"].startswith("Bearer")


def test_wrong_json_is_a_problem_document(caller: Caller) -> None:
    response = caller(Role.ADMIN).generic("POST", "/api/v1/tokens/", b"{", content_type="application/json")
    assert is_problem(response, 400, "parse-error")


def test_another_content_type_is_a_problem_document(caller: Caller) -> None:
    response = caller(Role.ADMIN).generic("POST", "/api/v1/tokens/", b"a=b", content_type="text/plain")
    assert is_problem(response, 415, "unsupported-media-type")


def test_a_method_that_is_not_there_is_a_problem_document(caller: Caller) -> None:
    assert is_problem(caller(Role.ADMIN).delete("/api/v1/clusters/"), 405, "method-not-allowed")


def test_missing_fields_are_named(caller: Caller) -> None:
    response = caller(Role.ADMIN).post("/api/v1/tokens/", {})
    assert is_problem(response, 400, "invalid")
    assert [error["field"] for error in response.json()["errors"]] == ["name", "role"]


def test_a_field_inside_a_list_is_named_by_its_path(caller: Caller, lab: Cluster) -> None:
    body = {"cluster": "lab", "name": "p", "mode": "cgpu", "taints": [{"key": "a"}, {"value": "b"}]}
    response = caller(Role.OPERATOR).post("/api/v1/node-pools/", body)
    assert is_problem(response, 400, "invalid")
    assert [error["field"] for error in response.json()["errors"]] == ["taints.1.key"]


def test_a_cluster_that_may_not_be_seen_is_not_found(caller: Caller, lab: Cluster) -> None:
    assert is_problem(caller(None).get("/api/v1/clusters/lab/"), 404, "not-found")
    assert is_problem(caller(None).get("/api/v1/clusters/lab/nodes/"), 404, "not-found")
    assert caller(Role.VIEWER).get("/api/v1/clusters/lab/").status_code == 200


def test_an_edit_names_the_version_that_it_is_made_on(caller: Caller, lab: Cluster) -> None:
    pool = NodePool.objects.create(cluster=lab, name="p", created_at=timezone.now(), version=3, state="active")
    path, client = f"/api/v1/node-pools/{pool.pk}/", caller(Role.OPERATOR)
    assert client.get(path)["ETag"] == '"3"'
    assert is_problem(client.patch(path, {"labels": {}}), 428, "version-required")
    assert is_problem(client.patch(path, {"labels": {}}, HTTP_IF_MATCH='"2"'), 412, "stale-version")


def test_a_window_that_cannot_be_cut_is_a_field_error(caller: Caller, lab: Cluster, redis_url: str) -> None:
    for query, field in (("limit=0", "limit"), ("limit=x", "limit"), ("after=%F0", "after")):
        response = caller(Role.VIEWER).get(f"/api/v1/clusters/lab/nodes/?{query}")
        assert is_problem(response, 400, "invalid")
        assert response.json()["errors"][0]["field"] == field


def test_http_delete_deletes_nothing(caller: Caller, lab: Cluster) -> None:
    pool = NodePool.objects.create(cluster=lab, name="p", created_at=timezone.now(), state="active")
    client = caller(Role.ADMIN)
    for path in (
        "node-pools/",
        f"node-pools/{pool.pk}/",
        f"node-pools/{pool.pk}/scale/",
        f"node-pools/{pool.pk}/delete/",
        "submissions/",
        "submissions/check/",
        "submissions/1/",
        "clusters/lab/",
    ):
        assert is_problem(client.delete(f"/api/v1/{path}"), 405, "method-not-allowed")
    pool.refresh_from_db()
    assert pool.state == "active"


def test_a_field_that_nobody_reads_is_refused_with_where_it_is_changed(caller: Caller, lab: Cluster) -> None:
    pool = NodePool.objects.create(cluster=lab, name="p", created_at=timezone.now(), state="active", mode="share")
    response = caller(Role.OPERATOR).patch(f"/api/v1/node-pools/{pool.pk}/", {"mode": "cgpu"}, HTTP_IF_MATCH='"1"')
    assert is_problem(response, 400, "unknown-field")
    (error,) = response.json()["errors"]
    assert error["field"] == "mode"
    assert "mode-changes" in error["message"]
    pool.refresh_from_db()
    assert (pool.mode, pool.version) == ("share", 1)


@pytest.mark.parametrize("status", [405, 415])
def test_titles_are_words_and_no_templates(caller: Caller, status: int) -> None:
    client = caller(Role.ADMIN)
    response = (
        client.put("/api/v1/tokens/", {})
        if status == 405
        else client.generic("POST", "/api/v1/tokens/", b"x", content_type="text/x")
    )
    assert response.status_code == status
    assert "{" not in response.json()["title"]
