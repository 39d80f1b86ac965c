"""A mode change as pages: the flight plan, the request, and a decision by a second person."""

from __future__ import annotations

import pytest
from django.test import Client

from gpupools.models import ModeChange, Role
from gpupools.services.access import Actor
from tests.services.builders import an_actor
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
AUTHENTICATION = "django.contrib.auth.backends.ModelBackend"
ASK = "/c/lab/node-pools/cgpu/change-mode/"
WISH = {"target_mode": "core_mem", "target_policy": "spread", "holders": "evict", "reason": "Limits for inference."}


def ask(visitor: Visitor) -> ModeChange:
    assert visitor(Role.OPERATOR).post(ASK, WISH).status_code == 302
    return ModeChange.objects.get()


def test_the_plan_is_read_before_anything_is_asked_for(visitor: Visitor, lab: Lab) -> None:
    plain = Page(visitor(Role.OPERATOR).get(ASK).content.decode())
    assert "Flight plan" not in plain.text
    answer = visitor(Role.OPERATOR).get(ASK, {**WISH, "reason": ""})
    page = Page(answer.content.decode())
    assert "ack.node.gpu.schedule − cgpu + core_mem" in page.text
    assert "ack.node.gpu.placement − binpack + spread" in page.text
    assert "default/bert" in page.text
    assert "Job bert starts it again" in page.text
    assert "Cordon" in page.text
    assert "Request switch of 1 node to core_mem" in page.text
    assert not ModeChange.objects.exists()


def test_whoever_works_in_one_namespace_sees_neither_plan_nor_change(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    narrow = Client()
    narrow.force_login(an_actor(Role.ADMIN, lab.cluster, "default").user, AUTHENTICATION)
    assert narrow.get(ASK, WISH).status_code == 403
    assert narrow.get(f"/changes/{change.pk}/").status_code == 404
    assert "payroll/secret" in Page(visitor(Role.ADMIN).get(f"/changes/{change.pk}/").content.decode()).text


def test_a_plan_that_is_not_possible_says_why_at_the_mode(visitor: Visitor, lab: Lab) -> None:
    page = Page(visitor(Role.OPERATOR).get(ASK, {**WISH, "target_mode": "turbo"}).content.decode())
    assert "Flight plan" not in page.text
    assert "turbo" in page.text


def test_a_request_without_a_reason_keeps_the_plan_and_says_so(visitor: Visitor, lab: Lab) -> None:
    answer = visitor(Role.OPERATOR).post(ASK, {**WISH, "reason": " "})
    assert answer.status_code == 400
    assert "Say why" in answer.context["form"].errors["reason"][0]
    assert "Request switch of 1 node to core_mem" in Page(answer.content.decode()).text
    assert not ModeChange.objects.exists()


def test_the_requester_sees_that_a_second_person_must_decide(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    page = Page(visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode())
    assert "A second person must decide" in page.text
    assert not page.all("button", value="approve")
    assert page.all("button", value="withdraw")


def test_an_administrator_cannot_approve_what_they_asked_for(
    visitor: Visitor, lab: Lab, people: dict[Role | None, Actor]
) -> None:
    visitor(Role.ADMIN).post(ASK, WISH)
    change = ModeChange.objects.get()
    page = Page(visitor(Role.ADMIN).get(f"/changes/{change.pk}/").content.decode())
    assert not page.all("button", value="approve")
    answer = visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "mine"})
    assert answer.status_code == 403
    assert "A second person must decide" in Page(answer.content.decode()).text
    change.refresh_from_db()
    assert change.state == "pending"


def test_a_decision_needs_a_reason_and_what_was_typed_stays(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    answer = visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": ""})
    assert answer.status_code == 400
    assert "Say why" in answer.context["form"].errors["reason"][0]


def test_an_approval_writes_the_steps_that_the_page_then_follows(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    answer = visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    assert answer["Location"] == f"/changes/{change.pk}/"
    page = Page(visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode())
    assert page.all("li", id="step-1", class_="is-waiting")
    assert "the-admin" in page.text
    assert "Fine." in page.text


def test_a_rejection_is_shown_with_its_reason(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "reject", "reason": "Not this week."})
    page = Page(visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode())
    assert "Rejected" in page.text
    assert "Not this week." in page.text
    assert not page.all("button", value="withdraw")


def test_a_decision_that_comes_too_late_says_so(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    visitor(Role.OPERATOR).post(f"/changes/{change.pk}/decide/", {"action": "withdraw"})
    answer = visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    assert answer.status_code == 400
    assert "Cannot approve: the change is withdrawn." in Page(answer.content.decode()).text


def test_a_viewer_sees_the_change_and_no_button(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    page = Page(visitor(Role.VIEWER).get(f"/changes/{change.pk}/").content.decode())
    assert "An administrator must decide" in page.text
    assert not page.all("button", name="action")
    assert visitor(None).get(f"/changes/{change.pk}/").status_code == 404


def test_an_action_that_does_not_exist_is_not_there(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    assert visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "explode"}).status_code == 404


def test_approvals_list_what_waits_and_what_is_done(visitor: Visitor, lab: Lab) -> None:
    empty = Page(visitor(Role.VIEWER).get("/approvals/").content.decode())
    assert "Nothing waits" in empty.text
    change = ask(visitor)
    assert "Limits for inference." in Page(visitor(Role.ADMIN).get("/approvals/").content.decode()).text
    visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "reject", "reason": "No."})
    page = Page(visitor(Role.ADMIN).get("/approvals/").content.decode())
    assert "Nothing waits" in page.text
    assert "Finished" in page.text
