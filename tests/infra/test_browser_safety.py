"""What every answer tells the browser: nothing inline, nothing from elsewhere, no frame, no guessing."""

import re
from html import unescape

import pytest
from django.conf import settings
from django.test import Client

# Addresses of four doors that answer without a session.
PAGES = ["/sign-in/", "/nothing-here/", "/api/v1/me/", "/admin/login/"]


def directives(policy: str) -> dict[str, list[str]]:
    return {name: sources for name, *sources in (part.split() for part in policy.split(";") if part.strip())}


@pytest.mark.django_db
@pytest.mark.parametrize("address", PAGES)
def test_an_answer_forbids_inline_code_other_hosts_and_frames(client: Client, address: str):
    answer = client.get(address)
    found = directives(answer["Content-Security-Policy"])
    assert found["default-src"] == ["'self'"]
    for name in ("script-src", "style-src", "connect-src", "img-src", "font-src", "form-action"):
        assert "'self'" in found[name]
        assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "https:", "http:"} & set(found[name])
    assert found["frame-ancestors"] == found["object-src"] == found["base-uri"] == ["'none'"]
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"
    assert answer["X-Request-ID"]


@pytest.mark.django_db
def test_the_browsable_api_page_has_nothing_inline_and_nothing_from_elsewhere(client: Client):
    answer = client.get("/api/v1/docs/")
    assert answer.status_code == 200
    page = answer.content.decode()
    assert not re.search(r"<style|<script(?![^>]*\bsrc=)|style=|https?://", page)
    scripts = re.findall(r'<script src="([^"]+)"', page)
    assert len(scripts) == 3
    for script in scripts:
        assert client.get(unescape(script)).status_code == 200


@pytest.mark.django_db
def test_a_host_name_that_is_not_allowed_is_refused(client: Client):
    assert client.get("/sign-in/", headers={"host": "evil.example.com"}).status_code == 400


@pytest.mark.django_db
def test_a_static_file_is_served_with_its_type(client: Client):
    answer = client.get("/static/vendor/tabler/tabler.min.css")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/css")


@pytest.mark.django_db
def test_a_name_is_locked_out_after_too_many_wrong_passwords_for_one_address_only(client: Client):
    wrong = {"username": "admin", "password": "wrong"}
    for _ in range(settings.AXES_FAILURE_LIMIT):
        last = client.post("/sign-in/", wrong)
    assert last.status_code == 429
    assert client.post("/sign-in/", wrong, REMOTE_ADDR="127.0.0.9").status_code != 429
