"""What the page of a mode change shows while it stands: a step by hand, a pause, who is hit, and how far it is."""

from __future__ import annotations

import pytest
from django.utils import timezone

from gpupools.models import ModeChange, Role
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page
from tests.web.test_change_pages import ask

pytestmark = pytest.mark.django_db


def read(visitor: Visitor, role: Role, change: ModeChange) -> Page:
    return Page(visitor(role).get(f"/changes/{change.pk}/").content.decode())


def running(visitor: Visitor, kind: str, **columns: object) -> ModeChange:
    """A change under way that stands at its first step, which is of a kind."""
    change = ask(visitor)
    visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    first = change.steps.order_by("position").first()
    assert first is not None
    change.steps.filter(pk=first.pk).update(kind=kind, state="running", started_at=timezone.now(), **columns)
    ModeChange.objects.update(state="applying")
    return change


def test_a_step_by_hand_lists_every_node_and_the_state_says_that_a_person_is_waited_for(
    visitor: Visitor, lab: Lab
) -> None:
    names = [f"gpu-{number:02}" for number in range(1, 13)]
    change = running(visitor, "restart", node_names=names)
    page = read(visitor, Role.OPERATOR, change)
    assert "Where it stands Waits for a person" in page.text
    assert "All 12 nodes that are not done gpu-01" in page.text
    assert "gpu-12" in page.text
    assert "What was done" in page.text
    assert len(page.all("textarea", id="confirm_reason")) == len(page.all("textarea", id="id_reason")) == 1
    for path in ("/approvals/", "/c/lab/node-pools/", "/c/lab/node-pools/cgpu/"):
        assert "Waits for a person" in Page(visitor(Role.OPERATOR).get(path).content.decode()).text, path
    said = visitor(Role.OPERATOR).get(f"/api/v1/mode-changes/{change.pk}/").json()["guidance"]
    assert said["left"] == names
    assert [each["code"] for each in said["advice"]] == ["do-by-hand", "confirm"]


def test_a_confirmation_that_the_nodes_speak_against_is_told_at_the_button(visitor: Visitor, lab: Lab) -> None:
    detail = "Waits for a person: ada confirmed it, but 1 of 1 has not restarted since this step began: n-cgpu."
    change = running(visitor, "restart", learned={"unseen": ["n-cgpu"]}, detail=detail)
    html = visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode()
    assert html.index('id="decision-confirm"') < html.index(detail, html.index('id="decision-confirm"'))
    assert html.rindex('value="confirm"') > html.index(detail, html.index('id="decision-confirm"'))


def test_going_on_over_newcomers_is_offered_only_to_who_may_decide(visitor: Visitor, lab: Lab) -> None:
    change = running(visitor, "drain", learned={"newcomers": [{"uid": "u", "pod": "default/late", "node": "n"}]})
    ModeChange.objects.update(state="paused")
    operator, admin = read(visitor, Role.OPERATOR, change), read(visitor, Role.ADMIN, change)
    assert not operator.all("button", value="retry")
    assert "Going on is an administrator's decision here" in operator.text
    assert operator.all("button", value="roll_back")
    assert admin.all("button", value="retry")


def test_who_is_hit_is_read_before_the_decision_and_once(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    html = visitor(Role.ADMIN).get(f"/changes/{change.pk}/").content.decode()
    assert html.count('id="who-is-hit"') == 1
    assert html.index('id="who-is-hit"') < html.index('value="approve"')


def test_the_card_on_top_says_how_far_it_is_and_what_it_does(visitor: Visitor, lab: Lab) -> None:
    change = running(visitor, "cordon", title="Cordon 1 node")
    text = read(visitor, Role.VIEWER, change).text
    assert f"Progress 0 of {change.steps.count()} steps done · Cordon 1 node" in text


def test_a_sentence_on_what_was_done_is_bound_to_the_state_that_the_page_follows(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    html = visitor(Role.ADMIN).get(f"/changes/{change.pk}/").content.decode()
    assert "data-flash" in html
    assert 'data-state="approved"' in html
