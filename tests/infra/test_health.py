"""Probes answer by what they find, and before anything that would refuse an orchestrator."""

import json

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from console.health import alive, probes, ready


def test_a_living_process_says_so_with_its_version():
    answer = json.loads(alive().content)
    assert answer == {"status": "ok", "version": settings.GPUPOOLS_VERSION}


@pytest.mark.django_db
def test_a_console_with_database_and_broker_is_ready(redis_url: str):
    answer = ready()
    assert json.loads(answer.content) == {"status": "ok", "database": "ok", "broker": "ok"}
    assert answer.status_code == 200


@pytest.mark.django_db
def test_a_console_whose_broker_is_away_is_not_ready_and_says_why():
    with override_settings(REDIS_URL="redis://127.0.0.1:1/0"):
        answer = ready()
    assert answer.status_code == 503
    assert json.loads(answer.content)["broker"] == "no answer"


def test_probes_are_answered_for_any_host_name_and_the_rest_is_passed_on():
    passed_on = []

    def the_rest(request: HttpRequest) -> HttpResponse:
        passed_on.append(request.path_info)
        return HttpResponse("page")

    middleware = probes(the_rest)
    request = HttpRequest()
    request.META["HTTP_HOST"] = "10.1.2.3:8000"
    request.path_info = "/healthz"
    assert middleware(request).status_code == 200
    request.path_info = "/healthzz"
    assert middleware(request).content == b"page"
    assert passed_on == ["/healthzz"]
