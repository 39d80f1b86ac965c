"""The page of a pool's nodes: drift with who wrote it, both answers, and nodes in and out."""

from __future__ import annotations

import pytest
from django.test import override_settings

from gpupools.models import ModeChange, Push, Role
from gpupools.services import allocation
from tests.domain.builders import a_node
from tests.services.showing import show
from tests.web.conftest import POOL, Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
NODES = "/c/lab/node-pools/cgpu/nodes/"


@pytest.fixture
def drifted(lab: Lab) -> Lab:
    picture = allocation.current(lab.cluster)
    assert picture is not None
    stray = a_node("stray", "topology", labels={POOL: "cgpu"}, owners={
        "ack.node.gpu.schedule": ("kubectl-label", "2026-11-30T10:00:00Z")})  # fmt: skip
    show(lab.cluster, [*picture.nodes, stray, a_node("loose", "exclusive")], picture.pods)
    return lab


def test_drift_says_who_wrote_it_and_is_answered_by_a_request(visitor: Visitor, drifted: Lab) -> None:
    browser = visitor(Role.OPERATOR)
    text = Page(browser.get(NODES).content.decode()).text
    assert "stray ack.node.gpu.schedule cgpu topology kubectl-label" in text
    answer = browser.post(NODES, {"action": "restore", "reason": "somebody relabelled it"})
    change = ModeChange.objects.get()
    assert answer["Location"] == f"/changes/{change.pk}/"
    assert "stray" in [each["node"] for each in change.diff["nodes"]]


def test_an_answer_without_a_reason_is_refused(visitor: Visitor, drifted: Lab) -> None:
    answer = visitor(Role.OPERATOR).post(NODES, {"action": "adopt", "node_name": "stray", "reason": ""})
    assert answer.status_code == 400
    assert "Say why the pool takes this over." in Page(answer.content.decode()).text
    assert not ModeChange.objects.exists()


def test_a_free_node_comes_in_by_a_request(visitor: Visitor, drifted: Lab) -> None:
    browser = visitor(Role.OPERATOR)
    assert "loose" in Page(browser.get(NODES).content.decode()).text
    browser.post(NODES, {"action": "take-in", "node_names": ["loose"], "reason": "more cards"})
    change = ModeChange.objects.get()
    assert (change.way, change.node_names, change.state) == ("join", ["loose"], "pending")


def test_nodes_are_taken_out(visitor: Visitor, drifted: Lab) -> None:
    browser = visitor(Role.OPERATOR)
    browser.post(NODES, {"action": "take-out", "node_names": ["stray"], "reason": "repairs"})
    assert Push.objects.get().payload["nodes"] == ["stray"]


def test_a_viewer_sees_no_such_page(visitor: Visitor, lab: Lab) -> None:
    assert visitor(Role.VIEWER).get(NODES).status_code == 403


def test_notices_are_chosen_by_each_person(visitor: Visitor, lab: Lab) -> None:
    browser = visitor(Role.ADMIN)
    assert browser.post("/notices/", {"mail_failed": "on"}).status_code == 302
    page = Page(browser.get("/notices/").content.decode())
    boxes = {values["name"]: "checked" in values for tag, values in page.elements if values.get("type") == "checkbox"}
    assert boxes == {"mail_waiting": False, "mail_failed": True}


def test_every_page_says_that_people_may_approve_their_own_changes(visitor: Visitor, lab: Lab) -> None:
    browser = visitor(Role.VIEWER)
    said = "People may approve their own mode changes and requests on this console"
    assert said not in Page(browser.get("/clusters/").content.decode()).text
    with override_settings(GPUPOOLS_ALLOW_SELF_APPROVAL=True):
        for address in ("/clusters/", "/approvals/", "/c/lab/dashboard/"):
            assert said in Page(browser.get(address).content.decode()).text
