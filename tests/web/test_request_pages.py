"""Dangerous operations as pages: who is hit is read first, a second person decides, and both kinds are in one list."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from django.test import Client

from gpupools.domain.modes import Component
from gpupools.models import Cluster, ComponentState, ModeChange, NodePool, Notice, OperationRequest, Push, Role
from gpupools.services import componentcare, componentpushes, pictures, requests
from gpupools.services.access import Actor
from tests.domain.builders import a_pod
from tests.services.builders import a_cluster, a_component, an_actor
from tests.services.dangers import HELD, LONE, MPS, WHY, a_cloud, a_vision_pool, an_mps_node, client, machines
from tests.services.showing import show
from tests.web.conftest import Visitor
from tests.web.reading import Page

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
SCALE = "/c/cloud/node-pools/vision/scale/"
BOTH = ["default/train", "research/notebook"]


@pytest.fixture
def cloud(db: None) -> Cluster:
    return a_cloud()


@pytest.fixture
def vision(cloud: Cluster) -> NodePool:
    a_component(cloud, "ack-ai-installer")
    return a_vision_pool(cloud)


def read(answer: Any) -> Page:
    return Page(answer.content.decode())


def ask(visitor: Visitor, role: Role = Role.OPERATOR) -> OperationRequest:
    answer = visitor(role).post(SCALE, {"desired_size": "0", "reason": WHY})
    request = OperationRequest.objects.get()
    assert answer["Location"] == f"/requests/{request.pk}/"
    return request


def decide(browser: Client, request: OperationRequest, action: str, **fields: Any) -> Any:
    return browser.post(f"/requests/{request.pk}/decide/", {"action": action, **fields})


# -- Before anything is asked for


def test_the_size_0_leads_to_a_page_with_who_is_hit_and_does_nothing(visitor: Visitor, vision: NodePool) -> None:
    answer = visitor(Role.OPERATOR).post(SCALE, {"desired_size": "0", "enable": "on", "max_instances": "4"})
    page = read(answer)
    assert answer.status_code == 200
    assert "Scale node pool vision to 0" in page.text
    assert "Machines that are released m1, m2" in page.text
    assert "default/train" in page.text
    assert "It ends; Job train starts it again where it fits." in page.text
    assert "A second person must approve this" in page.text
    assert "Ask a second person to approve: scale vision to 0" in page.text
    hidden = {attrs["name"]: attrs["value"] for attrs in page.all("input", type="hidden") if attrs.get("value")}
    assert (hidden["desired_size"], hidden["max_instances"]) == ("0", "4"), "what was typed goes along"
    assert "enable" in {attrs["name"] for attrs in page.all("input", type="hidden")}
    assert not OperationRequest.objects.exists()
    assert not Push.objects.exists()


def test_a_reason_is_asked_for_at_its_field(visitor: Visitor, vision: NodePool) -> None:
    answer = visitor(Role.OPERATOR).post(SCALE, {"desired_size": "0", "reason": ""})
    assert answer.status_code == 400
    assert "reason" in answer.context["form"].errors
    assert not OperationRequest.objects.exists()


def test_without_the_policy_the_page_names_the_pods_and_one_person_does_it(
    visitor: Visitor, vision: NodePool, settings: Any
) -> None:
    settings.GPUPOOLS_APPROVAL_REQUIRED = ()
    browser = visitor(Role.OPERATOR)
    page = read(browser.post(SCALE, {"desired_size": "0"}))
    assert "Scale vision to 0 and end 2 pods" in page.text
    assert "second person" not in page.text
    assert [attrs["value"] for attrs in page.all("input", name="approved_pods")] == BOTH
    show(vision.cluster, machines(), [HELD, LONE, a_pod("late", on="m1")])
    refused = browser.post(SCALE, {"desired_size": "0", "reason": WHY, "approved_pods": BOTH})
    assert refused.status_code == 400
    assert "1 pod: default/late" in read(refused).text
    assert not Push.objects.exists()
    done = browser.post(SCALE, {"desired_size": "0", "reason": WHY, "approved_pods": [*BOTH, "default/late"]})
    assert done["Location"] == "/c/cloud/node-pools/vision/"
    assert Push.objects.get().payload["spec"]["desired_size"] == 0


def test_a_smaller_size_leads_to_the_same_page_which_says_that_ack_chooses(visitor: Visitor, vision: NodePool) -> None:
    browser = visitor(Role.OPERATOR)
    page = read(browser.post(SCALE, {"desired_size": "1"}))
    assert "Scale node pool vision to 1" in page.text
    assert "The node pool has 2 machines and keeps 1. ACK chooses by itself which ones it releases" in page.text
    assert "Machines of which ACK releases some m1, m2" in page.text
    assert "Ask a second person to approve: scale vision to 1" in page.text
    assert not Push.objects.exists()
    answer = browser.post(SCALE, {"desired_size": "1", "reason": WHY})
    request = OperationRequest.objects.get()
    assert (answer["Location"], request.kind) == (f"/requests/{request.pk}/", "scale-down")
    assert "Machines of which ACK releases some" in read(browser.get(answer["Location"])).text


def test_another_size_is_set_at_once(visitor: Visitor, vision: NodePool) -> None:
    assert visitor(Role.OPERATOR).post(SCALE, {"desired_size": "3"})["Location"] == "/c/cloud/node-pools/vision/"
    assert not OperationRequest.objects.exists()


def test_a_viewer_gets_no_such_page(visitor: Visitor, vision: NodePool) -> None:
    assert visitor(Role.VIEWER).post(SCALE, {"desired_size": "0"}).status_code == 403
    assert visitor(None).post(SCALE, {"desired_size": "0"}).status_code == 404


def test_uninstalling_asks_and_says_so_on_the_button(visitor: Visitor, vision: NodePool) -> None:
    address, browser = "/c/cloud/ai-suite/ack-ai-installer/uninstall/", visitor(Role.OPERATOR)
    page = read(browser.get(address))
    assert "Ask a second person to approve: uninstall ack-ai-installer" in page.text
    assert browser.post(address, {"reason": WHY})["Location"].startswith("/requests/")
    assert OperationRequest.objects.get().kind == "component-uninstall"


def test_upgrading_the_mps_daemon_asks_with_its_clients_listed(visitor: Visitor, cloud: Cluster) -> None:
    an_mps_node(cloud)
    browser = visitor(Role.OPERATOR)
    page = read(browser.get(f"/c/cloud/ai-suite/{MPS}/"))
    assert f"Ask a second person to approve: upgrade {MPS}" in page.text
    assert not page.all("input", name="approved_pods")
    answer = browser.post(f"/c/cloud/ai-suite/{MPS}/upgrade/", {"version": "1.1", "reason": WHY})
    page = read(browser.get(answer["Location"]))
    assert "Version − 1.0 + 1.1" in page.text
    assert "default/one" in page.text


# -- The request


def test_the_requester_reads_that_another_decides_and_may_withdraw(visitor: Visitor, vision: NodePool) -> None:
    request, browser = ask(visitor), visitor(Role.OPERATOR)
    page = read(browser.get(f"/requests/{request.pk}/"))
    assert "Wanted nodes − 2 + 0" in page.text
    assert "Machines that are released m1, m2" in page.text
    assert "A second person must decide" in page.text
    assert not page.all("button", value="approve")
    assert decide(browser, request, "approve", reason="Mine.").status_code == 403
    assert decide(browser, request, "withdraw").status_code == 302
    request.refresh_from_db()
    assert request.state == "withdrawn"


def test_an_administrator_who_asked_cannot_approve_either(visitor: Visitor, vision: NodePool) -> None:
    request = ask(visitor, Role.ADMIN)
    assert not read(visitor(Role.ADMIN).get(f"/requests/{request.pk}/")).all("button", value="approve")
    assert decide(visitor(Role.ADMIN), request, "approve", reason="Mine.").status_code == 403


def test_with_the_setting_an_administrator_approves_their_own(
    visitor: Visitor, vision: NodePool, settings: Any
) -> None:
    settings.GPUPOOLS_ALLOW_SELF_APPROVAL = True
    request, browser = ask(visitor, Role.ADMIN), visitor(Role.ADMIN)
    page = read(browser.get(f"/requests/{request.pk}/"))
    assert page.all("button", value="approve")
    assert "GPUPOOLS_ALLOW_SELF_APPROVAL" in page.text
    assert decide(browser, request, "approve", reason="Alone here.").status_code == 302
    assert Push.objects.exists()


def test_an_administrator_reads_decides_and_sees_how_it_goes(visitor: Visitor, vision: NodePool) -> None:
    request, browser = ask(visitor), visitor(Role.ADMIN)
    page = read(browser.get(f"/requests/{request.pk}/"))
    assert "Approve: Scale vision to 0" in page.text
    assert WHY in page.text
    refused = decide(browser, request, "approve", reason="")
    assert refused.status_code == 400
    assert "kept with its reason" in read(refused).text
    assert decide(browser, request, "approve", reason="Agreed.").status_code == 302
    page = read(browser.get(f"/requests/{request.pk}/"))
    assert "Agreed." in page.text
    assert "On its way" in page.text
    assert not page.all("button", value="approve")
    Push.objects.update(state=Push.State.FAILED, error="ACK says no.")
    assert "ACK says no." in read(browser.get(f"/requests/{request.pk}/")).text
    again = decide(browser, request, "reject", reason="Too late.")
    assert again.status_code == 400
    assert "the request is approved" in read(again).text


def test_an_administrator_rejects_with_a_reason(visitor: Visitor, vision: NodePool) -> None:
    request = ask(visitor)
    assert decide(visitor(Role.ADMIN), request, "reject", reason="Still needed.").status_code == 302
    assert "Still needed." in read(visitor(Role.OPERATOR).get(f"/requests/{request.pk}/")).text
    assert not Push.objects.exists()


def test_pods_that_came_since_are_ticked_by_whoever_approves(visitor: Visitor, vision: NodePool) -> None:
    request, browser = ask(visitor), visitor(Role.ADMIN)
    show(vision.cluster, machines(), [HELD, LONE, a_pod("late", on="m1")])
    page = read(browser.get(f"/requests/{request.pk}/"))
    assert [attrs["value"] for attrs in page.all("input", name="approved_pods")] == ["default/late"]
    refused = decide(browser, request, "approve", reason="Agreed.")
    assert refused.status_code == 400
    assert "default/late" in read(refused).text
    assert decide(browser, request, "approve", reason="Agreed.", approved_pods=["default/late"]).status_code == 302


def test_what_moved_is_told_before_anybody_decides(visitor: Visitor, vision: NodePool) -> None:
    request, browser = ask(visitor), visitor(Role.ADMIN)
    show(vision.cluster, machines("m1"), [HELD])
    page = read(browser.get(f"/requests/{request.pk}/"))
    assert "Something moved since the request" in page.text
    assert "Node m2 left the pool." in page.text
    assert page.all("button", value="reject")
    assert not page.all("button", value="approve"), "it could only lapse"
    refused = decide(browser, request, "approve", reason="Agreed.")
    assert refused.status_code == 400
    assert "Lapsed: something moved" in read(refused).text


def test_while_the_cluster_is_silent_the_page_says_that_nobody_can_tell(visitor: Visitor, vision: NodePool) -> None:
    request = ask(visitor)
    pictures.forget(vision.cluster.pk)
    Cluster.objects.update(state="unreachable")
    page = read(visitor(Role.ADMIN).get(f"/requests/{request.pk}/"))
    assert "The cluster does not say how it is now" in page.text
    assert not page.all("button", value="approve")
    assert "default/train" in page.text, "who was hit at the request is still there"


@pytest.mark.parametrize("action", ["", "shrug"])
def test_a_decision_that_is_none_is_not_there(visitor: Visitor, vision: NodePool, action: str) -> None:
    assert decide(visitor(Role.ADMIN), ask(visitor), action, reason="x").status_code == 404


def test_whoever_works_in_one_namespace_sees_no_request(visitor: Visitor, vision: NodePool) -> None:
    request, narrow = ask(visitor), Client()
    who = an_actor(Role.ADMIN, vision.cluster, "research", name="narrow")
    narrow.force_login(who.user, "django.contrib.auth.backends.ModelBackend")
    assert narrow.get(f"/requests/{request.pk}/").status_code == 404
    assert decide(narrow, request, "approve", reason="x").status_code == 404
    assert "Scale vision" not in read(narrow.get("/approvals/")).text


def test_the_pools_page_leads_to_what_waits_for_it(visitor: Visitor, vision: NodePool) -> None:
    request = ask(visitor)
    page = read(visitor(Role.VIEWER).get("/c/cloud/node-pools/vision/"))
    assert "Scale vision to 0" in page.text
    assert f"/requests/{request.pk}/" in {attrs.get("href") for attrs in page.all("a")}
    again = read(visitor(Role.OPERATOR).post(SCALE, {"desired_size": "0"}))
    assert f"/requests/{request.pk}/" in {attrs.get("href") for attrs in again.all("a")}
    narrow = Client()
    who = an_actor(Role.VIEWER, vision.cluster, "research", name="narrow")
    narrow.force_login(who.user, "django.contrib.auth.backends.ModelBackend")
    assert "Scale vision to 0" not in read(narrow.get("/c/cloud/node-pools/vision/")).text


def test_a_components_page_leads_to_what_waits_for_it(visitor: Visitor, cloud: Cluster) -> None:
    an_mps_node(cloud)
    browser, home = visitor(Role.OPERATOR), f"/c/cloud/ai-suite/{MPS}/"
    where = browser.post(f"{home}uninstall/", {"reason": WHY})["Location"]
    for address in (home, f"{home}uninstall/"):
        assert where in {attrs.get("href") for attrs in read(browser.get(address)).all("a")}
    again = browser.post(f"{home}uninstall/", {"reason": WHY})
    assert again.status_code == 400
    assert "This is asked for already by the-operator" in read(again).text


def test_uploaded_manifests_are_read_word_for_word_before_they_are_approved(
    visitor: Visitor, people: dict[Role | None, Actor]
) -> None:
    plain = a_cluster("plain")
    an_mps_node(plain)
    (daemonset,) = componentpushes.manifests(Component.MPS_CONTROL, image_prefix="registry.example.com/gpu")
    text = yaml.safe_dump(daemonset)
    request = componentcare.upgrade(people[Role.ADMIN], plain, MPS, manifests=text, reason=WHY)
    page = read(visitor(Role.VIEWER).get(f"/requests/{request.pk}/"))
    assert "image: registry.example.com/gpu/mps-control-daemon" in page.text
    assert "Object applied" in page.text
    body = visitor(Role.VIEWER).get(f"/api/v1/operation-requests/{request.pk}/").json()
    assert yaml.safe_load(body["manifests"]) == daemonset


# -- All in one list


def test_changes_and_requests_are_in_one_list_and_one_count(
    visitor: Visitor, vision: NodePool, people: dict[Role | None, Actor]
) -> None:
    ask(visitor)
    wish = {"target_mode": "topology", "holders": "wait", "reason": "links"}
    assert visitor(Role.OPERATOR).post("/c/cloud/node-pools/vision/change-mode/", wish).status_code == 302
    page = read(visitor(Role.VIEWER).get("/approvals/"))
    rows = [attrs["id"] for attrs in page.all("tr") if attrs.get("id")]
    assert rows == [f"change-{ModeChange.objects.get().pk}", f"request-{OperationRequest.objects.get().pk}"]
    assert page.text.count("vision") >= 2
    assert visitor(Role.ADMIN).get("/approvals/").context["approvals_waiting"] == 2
    requests.reject(people[Role.ADMIN], OperationRequest.objects.get(), reason="No.")
    page = read(visitor(Role.VIEWER).get("/approvals/"))
    assert page.text.index("Waiting for a decision") < page.text.index("Finished") < page.text.index("Rejected")
    assert visitor(Role.ADMIN).get("/approvals/").context["approvals_waiting"] == 1


def test_what_is_approved_is_under_way_until_it_is_done_and_counts_when_it_fails(
    visitor: Visitor, vision: NodePool, people: dict[Role | None, Actor]
) -> None:
    request = requests.approve(people[Role.ADMIN], ask(visitor), reason="Agreed.")
    browser = visitor(Role.OPERATOR)
    assert "Under way" in read(browser.get("/approvals/")).text
    Push.objects.update(state=Push.State.FAILED)
    Notice.objects.create(
        user=people[Role.OPERATOR].user, operation=request, kind="failed", created_at=request.requested_at
    )
    answer = browser.get("/approvals/")
    assert "Under way" not in read(answer).text
    assert answer.context["approvals_waiting"] == 1
    browser.get(f"/requests/{request.pk}/")
    assert browser.get("/approvals/").context["approvals_waiting"] == 0


def test_the_list_says_what_needs_a_second_person_here(visitor: Visitor, settings: Any) -> None:
    text = read(visitor(Role.VIEWER).get("/approvals/")).text
    assert "scaling a node pool that has nodes to 0" in text
    assert "Done at once" not in text
    settings.GPUPOOLS_APPROVAL_REQUIRED = ("forced-delete",)
    text = read(visitor(Role.VIEWER).get("/approvals/")).text
    assert text.index("deleting a node pool with its machines") < text.index("Done at once")
    assert text.index("Done at once") < text.index("scaling a node pool that has nodes to 0")


def test_notices_lead_to_requests_and_to_changes(visitor: Visitor, vision: NodePool) -> None:
    request = ask(visitor)
    page = read(visitor(Role.ADMIN).get("/notices/"))
    assert f"/requests/{request.pk}/" in {attrs.get("href") for attrs in page.all("a")}
    assert "Scale vision to 0" in page.text


def test_a_request_of_a_component_names_the_pods_as_of_the_request(visitor: Visitor, cloud: Cluster) -> None:
    an_mps_node(cloud)
    where = visitor(Role.OPERATOR).post(f"/c/cloud/ai-suite/{MPS}/uninstall/", {"reason": WHY})["Location"]
    ComponentState.objects.all().delete()
    an_mps_node(cloud, client("two"))
    ComponentState.objects.update(version="1.0")
    page = read(visitor(Role.ADMIN).get(where))
    assert "1 pod as of the request" in page.text
    assert [attrs["value"] for attrs in page.all("input", name="approved_pods")] == ["default/two"]
