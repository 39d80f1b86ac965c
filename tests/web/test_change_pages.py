"""A mode change as pages: the flight plan, the request, and a decision by a second person."""

from __future__ import annotations

import time

import msgspec
import pytest
from django.test import Client

from gpupools.domain.modes import ACK_POOL_LABEL
from gpupools.models import Cluster, ModeChange, Role
from gpupools.services.access import Actor
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_cluster, a_component, a_pool, an_actor
from tests.services.showing import show
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
    assert "Cannot approve: the change is withdrawn (by the-operator, just now)." in Page(answer.content.decode()).text


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


def test_a_plan_that_changes_nothing_is_not_offered_and_holders_are_told(visitor: Visitor, lab: Lab) -> None:
    nodes = [
        msgspec.structs.replace(node, labels={**node.labels, "ack.node.gpu.placement": "binpack"})
        if node.name == "n-cgpu"
        else node
        for node in lab.picture.nodes
    ]
    show(lab.cluster, nodes, lab.picture.pods)
    same = {"target_mode": "cgpu", "target_policy": "binpack", "holders": "wait"}
    page = Page(visitor(Role.OPERATOR).get(ASK, same).content.decode())
    assert "This changes nothing" in page.text
    assert "Request binpack" not in page.text
    assert "4 pods hold cards of these nodes and keep them" in page.text
    policy = Page(visitor(Role.OPERATOR).get(ASK, {**same, "target_policy": "spread"}).content.decode())
    assert "This changes nothing" not in policy.text
    assert "Request spread on 1 node" in policy.text
    assert "4 pods hold cards of these nodes and keep them" in policy.text


def test_while_the_cluster_is_silent_a_decision_is_refused_at_once_and_the_plan_is_not_denied(
    visitor: Visitor, lab: Lab
) -> None:
    change = ask(visitor)
    show(lab.cluster, lab.picture.nodes, lab.picture.pods, taken_at=time.time() - 600)
    silent = {"state": Cluster.State.UNREACHABLE, "last_error": "It was silent for 10 s."}
    Cluster.objects.filter(pk=lab.cluster.pk).update(**silent)
    began = time.monotonic()
    answer = visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    assert time.monotonic() - began < 3, "nobody waits before a page for a cluster that is known to be silent"
    page = Page(answer.content.decode())
    assert "Cluster lab does not answer, so nobody can tell how its nodes are now" in page.text
    assert "It was never carried out" not in page.text
    assert "The steps depend on how the nodes are now" in page.text
    assert "mode changes are planned and decided on when it does" in page.text
    change.refresh_from_db()
    assert change.state == "pending"


def test_a_change_that_was_given_up_has_no_step_that_runs(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    change.steps.filter(position=change.steps.earliest("position").position).update(state="done")
    change.steps.filter(pk=change.steps.exclude(state="done").earliest("position").pk).update(state="running")
    ModeChange.objects.filter(pk=change.pk).update(state="paused")
    address = f"/changes/{change.pk}/decide/"
    page = Page(visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode())
    assert "While it is paused" in page.text
    assert "Reason (optional)" not in page.text, "pausing and giving up need one"
    assert visitor(Role.OPERATOR).post(address, {"action": "abandon", "reason": "Enough."}).status_code == 302
    assert set(change.steps.values_list("state", flat=True)) == {"done", "skipped"}
    page = Page(visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode())
    assert not page.all("li", class_="is-running")


def test_a_lapsed_change_can_be_asked_for_again(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    nodes = [node for node in lab.picture.nodes if node.name != "n-cgpu"]
    show(lab.cluster, nodes, lab.picture.pods)
    answer = visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    page = Page(answer.content.decode())
    assert "has lapsed" in page.text
    assert "What you typed is kept" not in page.text, "there is no form left that could keep it"
    (again,) = [each["href"] for each in page.all("a", class_="btn btn-plain") if ASK in each.get("href", "")]
    plan = visitor(Role.OPERATOR).get(again)
    assert "Flight plan" in Page(plan.content.decode()).text
    assert plan.context["form"]["target_policy"].value() == "spread"


def test_what_an_applied_change_has_changed_is_before_and_after(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    page = Page(visitor(Role.VIEWER).get(f"/changes/{change.pk}/").content.decode())
    assert "Now Then" in page.text
    ModeChange.objects.filter(pk=change.pk).update(state="applied")
    page = Page(visitor(Role.VIEWER).get(f"/changes/{change.pk}/").content.decode())
    assert "Before After" in page.text
    assert "Now Then" not in page.text


def test_a_change_that_failed_says_first_where_and_what_can_be_done(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    change.steps.filter(kind="cordon").update(
        state="failed", learned={"code": "forbidden", "done": ["n1"], "left": ["n2"]}
    )
    ModeChange.objects.update(state="failed", note="The cluster refused: no. Done on n1; not on n2.")
    page = Page(visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode())
    [box] = page.all("div", id="guidance")
    assert "Stopped at step 2 of" in page.text
    assert page.all("li", id="advice-give-right")
    assert page.all("li", id="advice-retry")
    assert page.text.count("The cluster refused: no.") == 1


def test_a_given_up_change_that_still_holds_nodes_has_a_button_to_let_go(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    ModeChange.objects.update(state="abandoned", remembered={"ours": ["n1"]}, note="Enough.")
    page = Page(visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode())
    assert "Cordoned by this change: n1." in page.text
    assert page.all("button", value="release")
    assert not Page(visitor(Role.VIEWER).get(f"/changes/{change.pk}/").content.decode()).all("button", value="release")
    visitor(Role.OPERATOR).post(f"/changes/{change.pk}/decide/", {"action": "release"})
    page = Page(visitor(Role.OPERATOR).get(f"/changes/{change.pk}/").content.decode())
    assert not page.all("button", value="release"), "it is being given back"
    assert "It is being given back now." in page.text


def test_whoever_decides_sees_what_moved_and_cannot_approve_what_would_lapse(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    others = [node for node in lab.picture.nodes if node.name != "n-cgpu"]
    show(lab.cluster, others, lab.picture.pods)
    page = Page(visitor(Role.ADMIN).get(f"/changes/{change.pk}/").content.decode())
    assert "Something moved since the request: it cannot be approved any more" in page.text
    assert "Node n-cgpu left the pool." in page.text
    assert not page.all("button", value="approve")
    assert page.all("button", value="reject")
    said = visitor(Role.ADMIN).get(f"/api/v1/mode-changes/{change.pk}/").json()["guidance"]
    assert (said["blocks"], said["moved"]) == (True, ["Node n-cgpu left the pool."])


def test_whoever_decides_reads_which_pods_came_since_the_request(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    show(lab.cluster, lab.picture.nodes, [*lab.picture.pods, a_pod("came", mem=2, at={3: 2}, on="n-cgpu")])
    page = Page(visitor(Role.ADMIN).get(f"/changes/{change.pk}/").content.decode())
    assert "1 pod holds cards that nobody had seen at the request: default/came" in page.text
    assert page.all("button", value="approve")


def test_on_ack_a_change_by_machine_is_called_that_and_says_first_that_disks_are_wiped(
    visitor: Visitor, empty_redis: object
) -> None:
    cluster = a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")
    a_component(cluster, "ack-ai-installer")
    a_pool(cluster, "vision", pool_id="np1")
    show(cluster, [a_node("n1", "cgpu", labels={ACK_POOL_LABEL: "np1"})])
    address, wish = "/c/cloud/node-pools/vision/change-mode/", {"holders": "wait", "way": "whole", "reason": "why"}
    page = Page(visitor(Role.OPERATOR).get(address, {**wish, "target_mode": "share"}).content.decode())
    assert "Machine by machine Each machine leaves the pool and joins it anew" in page.text
    assert "The whole pool at once" not in page.text
    assert page.text.index("ACK wipes their disks.") < page.text.index("What changes")
    assert (
        "one call writes"
        in Page(visitor(Role.OPERATOR).get(address, wish | {"target_mode": "mps"}).content.decode()).text
    )
    assert visitor(Role.OPERATOR).post(address, {**wish, "target_mode": "share"}).status_code == 302
    change = ModeChange.objects.get()
    assert change.warnings[0]["code"] == "set-up-anew"
    page = Page(visitor(Role.ADMIN).get(f"/changes/{change.pk}/").content.decode())
    assert "Machine by machine, disks wiped" in page.text
    assert "The whole pool at once" not in page.text


def test_a_restore_is_titled_so_where_it_is_decided_on(visitor: Visitor, lab: Lab) -> None:
    drifted = [
        a_node("n-cgpu", "share", labels=node.labels | {"ack.node.gpu.schedule": "share"})
        if node.name == "n-cgpu"
        else node
        for node in lab.picture.nodes
    ]
    show(lab.cluster, drifted, lab.picture.pods)
    pool_page = Page(visitor(Role.OPERATOR).get("/c/lab/node-pools/cgpu/").content.decode()).text
    assert "differs from its pool" in pool_page
    typed = {"action": "restore", "reason": "as it was", "holders": "evict"}
    assert visitor(Role.OPERATOR).post("/c/lab/node-pools/cgpu/nodes/", typed).status_code == 302
    change = ModeChange.objects.get()
    assert change.holders == "evict"
    for address in (f"/changes/{change.pk}/", "/approvals/"):
        text = Page(visitor(Role.ADMIN).get(address).content.decode()).text
        assert "Restore" in text
        assert "found: share" in text


def test_half_way_a_pool_says_that_its_nodes_are_being_changed_and_shows_no_drift(visitor: Visitor, lab: Lab) -> None:
    change = ask(visitor)
    ModeChange.objects.update(state="applying")
    half = [
        a_node("n-cgpu", "core_mem", policy="spread", labels={"gpupools.internal/pool": "cgpu"})
        if node.name == "n-cgpu"
        else node
        for node in lab.picture.nodes
    ]
    show(lab.cluster, half, lab.picture.pods)
    for address, said in (
        ("/c/lab/node-pools/cgpu/", f"1 node is being changed by #{change.pk}"),
        ("/c/lab/node-pools/", f"1 node is being changed by #{change.pk}"),
        ("/c/lab/nodes/n-cgpu/", f"This node is being changed by #{change.pk}"),
        ("/c/lab/nodes/", f"being changed by #{change.pk}"),
    ):
        text = Page(visitor(Role.VIEWER).get(address).content.decode()).text
        assert said in text, address
        assert "differ from" not in text, address
        assert "drift on" not in text, address
    found = visitor(Role.VIEWER).get("/api/v1/clusters/lab/nodes/n-cgpu/").json()
    assert found["drift"] == []
    assert {each["change"] for each in found["changing"]} == {change.pk}
