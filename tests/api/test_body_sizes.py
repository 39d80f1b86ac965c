"""Bodies up to the documented limit are read; a larger one is refused with its field, whatever refuses it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpResponse
from django.test import RequestFactory

from console import failures
from gpupools.models import Cluster, Role
from tests.api.conftest import Caller, is_problem

POD = """apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {note: "%s"}}
spec:
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
CHECK = "/api/v1/submissions/check/"
MIB = 1024 * 1024


def of_size(size: int, letter: str = "x") -> str:
    return POD % (letter * ((size - len(POD % "")) // len(letter.encode())))


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_a_manifest_as_large_as_the_setting_says_is_read(caller: Caller, lab: Cluster, letter: str) -> None:
    text = of_size(settings.GPUPOOLS_MAX_MANIFEST_BYTES, letter)
    response = caller(Role.OPERATOR).post(CHECK, {"cluster": "lab", "yaml": text})
    assert response.status_code == 200, response.content[:300]


@pytest.mark.parametrize("size", [settings.GPUPOOLS_MAX_MANIFEST_BYTES + 1000, MIB, 3 * MIB, 5 * MIB])
@pytest.mark.parametrize("address", [CHECK, "/api/v1/submissions/"])
def test_a_larger_one_is_refused_at_its_field(caller: Caller, lab: Cluster, address: str, size: int) -> None:
    response = caller(Role.OPERATOR).post(address, {"cluster": "lab", "yaml": of_size(size)})
    assert is_problem(response, 400, "too-large" if size < 4 * MIB else "invalid")
    (error,) = response.json()["errors"]
    assert error["field"] == "yaml"


@pytest.mark.parametrize(
    ("address", "body"),
    [
        (CHECK, {"cluster": "lab", "yaml": "x"}),
        ("/api/v1/submissions/", {"cluster": "lab", "yaml": "x"}),
        ("/api/v1/job-templates/x/render/", {"parameters": {"a": "x"}}),
        ("/api/v1/clusters/", {"name": "x"}),
        ("/api/v1/mode-changes/", {"reason": "x"}),
    ],
)
def test_a_body_that_nobody_reads_any_more_is_a_problem_document(
    caller: Caller, lab: Cluster, address: str, body: dict[str, Any]
) -> None:
    huge = json.dumps({**body, "filler": "x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE})
    response = caller(Role.ADMIN).post(address, huge, content_type="application/json")
    assert is_problem(response, 413, "too-large")
    (error,) = response.json()["errors"]
    assert (error["field"], error["code"]) == ("body", "too-large")
    assert str(settings.DATA_UPLOAD_MAX_MEMORY_SIZE) in error["allowed"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(RequestDataTooBig(), 413), (TooManyFieldsSent(), 413), (TooManyFilesSent(), 413), (BadRequest(), 400)],
)
@pytest.mark.parametrize("path", ["/api/v1/clusters/", "/clusters/"])
def test_what_is_refused_before_any_view_has_its_own_answer(
    rf: RequestFactory, path: str, error: Exception, status: int
) -> None:
    response = failures.not_readable(rf.post(path), error)
    assert response.status_code == status
    if path.startswith("/api/"):
        assert is_problem_body(response, status)
    else:
        assert b"Bad Request (400)" not in response.content
        assert b"</html>" in response.content


def is_problem_body(response: HttpResponse, status: int) -> bool:
    assert response["Content-Type"] == "application/problem+json"
    return bool(json.loads(response.content)["status"] == status)
