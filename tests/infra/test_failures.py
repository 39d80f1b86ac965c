"""What no view answers: a problem document for programs, a page for people."""

import json

import pytest
from django.http import Http404, HttpRequest
from django.test import Client, RequestFactory

from console import failures


def a_request(path: str) -> HttpRequest:
    return RequestFactory().get(path)


@pytest.mark.django_db
def test_an_unknown_address_of_the_api_is_a_problem_document(client: Client):
    answer = client.get("/api/v1/nothing-here/")
    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "code", "errors"} <= set(answer.json())


@pytest.mark.django_db
def test_an_unknown_page_is_a_page(client: Client):
    answer = client.get("/nothing-here/")
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")


def test_a_crash_under_the_api_is_a_problem_document_that_tells_nothing_of_its_cause():
    answer = failures.crashed(a_request("/api/v1/clusters/"))
    assert (answer.status_code, json.loads(answer.content)["code"]) == (500, "error")


def test_a_crash_of_a_page_is_a_page():
    answer = failures.crashed(a_request("/clusters/"))
    assert answer.status_code == 500
    assert b"<html" in answer.content


def test_what_django_refuses_under_the_api_is_a_problem_document():
    answer = failures.not_allowed(a_request("/api/v1/clusters/"), Http404())
    assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")
