"""Signing in and out: where one comes back to, what is written down, what is refused."""

from __future__ import annotations

import pytest
from django.test import Client

from gpupools.models import AuditEntry, Role
from gpupools.services.access import Actor
from tests.web.conftest import Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough password"


def test_signing_in_goes_on_to_where_one_wanted_to_go(client: Client, people: dict[Role | None, Actor]) -> None:
    wish = {"username": "the-viewer", "password": PASSWORD, "next": "/audit/?q=pool"}
    assert client.post("/sign-in/", wish)["Location"] == "/audit/?q=pool"
    assert AuditEntry.objects.filter(action="session.sign_in", actor_name="the-viewer").count() == 1


@pytest.mark.parametrize("address", ["https://evil.example.com/", "//evil.example.com/", "javascript:alert(1)"])
def test_another_site_is_never_gone_on_to(client: Client, people: dict[Role | None, Actor], address: str) -> None:
    wish = {"username": "the-viewer", "password": PASSWORD, "next": address}
    assert client.post("/sign-in/", wish)["Location"] == "/"


def test_a_wrong_password_is_said_and_the_name_is_kept(client: Client, people: dict[Role | None, Actor]) -> None:
    answer = client.post("/sign-in/", {"username": "the-viewer", "password": "wrong", "next": "/audit/"})
    page = Page(answer.content.decode())
    assert answer.status_code == 400
    assert "do not belong together" in page.text
    assert page.value_of("username") == "the-viewer"
    assert page.value_of("next") == "/audit/"
    assert page.value_of("password") == ""


def test_signing_out_is_a_form_and_is_written_down(visitor: Visitor) -> None:
    browser = visitor(Role.VIEWER)
    assert browser.get("/sign-out/")["Location"] == "/"
    assert browser.get("/password/").status_code == 200, "looking at it ends nothing"
    answer = browser.post("/sign-out/")
    assert "You are signed out." in Page(browser.get(answer["Location"]).content.decode()).text
    assert browser.get("/audit/").status_code == 302
    assert AuditEntry.objects.filter(action="session.sign_out").count() == 1


def test_a_page_of_a_session_is_never_kept_by_the_browser(visitor: Visitor) -> None:
    assert "no-store" in visitor(Role.VIEWER).get("/tokens/")["Cache-Control"]


def test_a_form_without_its_protection_is_refused_with_a_page(people: dict[Role | None, Actor]) -> None:
    browser = Client(enforce_csrf_checks=True)
    answer = browser.post("/sign-in/", {"username": "the-viewer", "password": PASSWORD})
    assert answer.status_code == 403
    assert "This form is too old" in Page(answer.content.decode()).text


def test_an_unknown_address_says_so_with_the_requests_id(visitor: Visitor) -> None:
    answer = visitor(Role.VIEWER).get("/nothing/", headers={"X-Request-ID": "my-request-1"})
    assert answer.status_code == 404
    assert "my-request-1" in Page(answer.content.decode()).text


def test_somebody_without_any_grant_is_told_what_to_do(visitor: Visitor) -> None:
    page = Page(visitor(None).get("/", follow=True).content.decode())
    assert "You have no grant on any cluster" in page.text


def test_a_password_is_changed_by_whoever_knows_the_old_one(visitor: Visitor, people: dict[Role | None, Actor]) -> None:
    browser, user = visitor(Role.VIEWER), people[Role.VIEWER].user
    assert user is not None
    new = "a quite different passphrase"
    for wrong, field in (
        ({"old": "wrong", "password": new, "again": new}, "old"),
        ({"old": PASSWORD, "password": new, "again": "something else"}, "again"),
        ({"old": PASSWORD, "password": "12345", "again": "12345"}, "password"),
    ):
        answer = browser.post("/password/", wrong)
        assert answer.status_code == 400
        assert answer.context["form"].errors[field]
    user.refresh_from_db()
    assert user.check_password(PASSWORD)
    assert browser.post("/password/", {"old": PASSWORD, "password": new, "again": new}).status_code == 302
    user.refresh_from_db()
    assert user.check_password(new)
    assert browser.get("/audit/").status_code == 200, "this session goes on"


def test_another_session_ends_with_the_password(visitor: Visitor, people: dict[Role | None, Actor]) -> None:
    browser, other, user = visitor(Role.VIEWER), Client(), people[Role.VIEWER].user
    assert user is not None
    other.force_login(user, "django.contrib.auth.backends.ModelBackend")
    new = "a quite different passphrase"
    browser.post("/password/", {"old": PASSWORD, "password": new, "again": new})
    assert other.get("/audit/").status_code == 302


def test_a_sign_in_that_is_refused_is_in_the_audit_and_a_mistyped_name_is_not(
    people: dict[Role | None, Actor],
) -> None:
    for name in ("the-viewer", "my-password-by-mistake"):
        assert Client().post("/sign-in/", {"username": name, "password": "wrong"}).status_code == 400
    labels = list(AuditEntry.objects.filter(action="session.refused").values_list("object_label", flat=True))
    assert sorted(labels) == ["a name that no account has", "the-viewer"]


def test_an_action_that_nobody_knows_is_shown_as_the_filter_that_it_is(visitor: Visitor) -> None:
    page = Page(visitor(Role.ADMIN).get("/audit/?action=no.such").content.decode())
    assert "no.such" in page.text
    assert "Nothing matches" in page.text
