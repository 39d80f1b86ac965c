"""Addresses that take forms: who only looks at one is sent to the page with the form, and nothing leads back to it."""

from __future__ import annotations

import pytest
from django.test import Client

from gpupools.models import Grant, Role, Submission
from gpupools.services.access import Actor
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page
from tests.web.test_change_pages import ask

pytestmark = pytest.mark.django_db
POOL = "/c/lab/node-pools/cgpu/"


@pytest.mark.parametrize(
    ("address", "home"),
    [
        (f"{POOL}scale/", POOL),
        ("/changes/7/decide/", "/changes/7/"),
        ("/requests/7/decide/", "/requests/7/"),
        ("/tokens/7/revoke/", "/tokens/"),
        ("/sign-out/", "/"),
        ("/theme/", "/"),
    ],
)
def test_looking_at_an_address_that_takes_a_form_leads_to_the_page_with_the_form(
    visitor: Visitor, address: str, home: str
) -> None:
    answer = visitor(Role.OPERATOR).get(address)
    assert (answer.status_code, answer["Location"]) == (302, home)
    assert visitor(Role.OPERATOR).put(address).status_code == 405


def test_a_form_that_is_sent_after_the_session_ended_leads_to_its_page_and_not_to_its_address(db: None) -> None:
    answer = Client().post(f"{POOL}scale/", {"desired_size": "3"})
    assert answer["Location"] == f"/sign-in/?next={POOL}"


def test_a_page_that_refused_a_form_knows_the_address_that_it_can_be_read_at(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    answer = visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": " "})
    assert answer.status_code == 400
    page = Page(answer.content.decode())
    assert page.all("body")[0]["data-page"] == f"/changes/{change.pk}/"
    nexts = {each["value"] for each in page.all("input", name="next")}
    assert nexts == {f"/changes/{change.pk}/"}


def test_an_error_page_of_such_an_address_does_not_lead_back_to_it(visitor: Visitor) -> None:
    page = Page(visitor(Role.OPERATOR).post("/tokens/777/revoke/").content.decode())
    assert "/tokens/777/revoke/" not in [each.get("href") for each in page.all("a")]
    assert "/tokens/" in [each.get("href") for each in page.all("a", class_="btn btn-primary")]


def test_taking_a_role_away_is_asked_about_and_its_consequence_is_said(
    visitor: Visitor, people: dict[Role | None, Actor]
) -> None:
    held = Grant.objects.get(user=people[Role.OPERATOR].user)
    browser, address = visitor(Role.ADMIN), f"/users/grants/{held.pk}/revoke/"
    assert address in [each.get("href") for each in Page(browser.get("/users/").content.decode()).all("a")]
    page = Page(browser.get(address).content.decode())
    assert "Take Operator on every cluster from the-operator" in page.text
    assert "Tokens of the-operator lose the same rights" in page.text
    assert Grant.objects.filter(pk=held.pk).exists(), "looking takes nothing away"
    assert browser.post(address).status_code == 302
    assert not Grant.objects.filter(pk=held.pk).exists()


def test_switching_an_account_off_is_asked_about_and_on_again_is_one_click(
    visitor: Visitor, people: dict[Role | None, Actor]
) -> None:
    user = people[Role.OPERATOR].user
    assert user is not None
    browser, address = visitor(Role.ADMIN), f"/users/{user.pk}/active/"
    assert "cannot sign in any more" in Page(browser.get(address).content.decode()).text
    user.refresh_from_db()
    assert user.is_active
    assert browser.post(address).status_code == 302
    user.refresh_from_db()
    assert not user.is_active
    assert browser.post(address, {"active": "yes"}).status_code == 302
    user.refresh_from_db()
    assert user.is_active


def test_the_last_administrator_reads_what_to_do_and_nothing_about_being_late(
    visitor: Visitor, people: dict[Role | None, Actor]
) -> None:
    user = people[Role.ADMIN].user
    assert user is not None
    answer = visitor(Role.ADMIN).post(f"/users/{user.pk}/active/")
    assert answer.status_code == 409
    text = Page(answer.content.decode()).text
    assert "grant another one the role first" in text
    assert "faster" not in text


def test_deleting_a_running_job_names_the_pods_that_end(
    visitor: Visitor, lab: Lab, people: dict[Role | None, Actor]
) -> None:
    user = people[Role.OPERATOR].user
    assert user is not None
    made = Submission.objects.create(
        cluster=lab.cluster, kind="Job", namespace="default", name="bert", yaml="", manifest={},
        state=Submission.State.SUBMITTED, submitted_by=user, submitted_at=lab.cluster.created_at,
    )  # fmt: skip
    browser, address = visitor(Role.OPERATOR), f"/c/lab/jobs/{made.pk}/delete/"
    page = Page(browser.get(address).content.decode())
    assert "1 of them has not ended yet and is told to end now" in page.text
    assert "/c/lab/pods/default/bert/" in [each.get("href") for each in page.all("a")]
    made.refresh_from_db()
    assert made.state == Submission.State.SUBMITTED, "looking deletes nothing"
    assert visitor(Role.VIEWER).get(address).status_code == 403
    assert browser.post(address).status_code == 302
    made.refresh_from_db()
    assert made.state == Submission.State.DELETING
