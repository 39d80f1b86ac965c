"""Nodes in, out and into another pool: reachable from the pool and from the node, and nothing typed is lost."""

from __future__ import annotations

import pytest

from gpupools.models import Cluster, Push, Role
from tests.domain.builders import a_node
from tests.services.builders import a_cluster, a_pool
from tests.services.showing import show
from tests.web.conftest import POOL, Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
NODES = "/c/lab/node-pools/cgpu/nodes/"


def page_of(visitor: Visitor, address: str) -> Page:
    return Page(visitor(Role.OPERATOR).get(address).content.decode())


def hrefs(page: Page) -> list[str]:
    return [each.get("href", "") for each in page.all("a")]


def test_a_nodes_page_leads_out_of_its_pool_and_into_another(visitor: Visitor, lab: Lab) -> None:
    page = page_of(visitor, "/c/lab/nodes/n-cgpu/")
    assert f"{NODES}?node_names=n-cgpu#out" in hrefs(page)
    assert {each["action"] for each in page.all("form", method="get")} >= {"/c/lab/node-pools/cgpu/change-mode/"}
    assert page.value_of("node_names") == "n-cgpu"
    offered = {each.get("value") for each in page.all("option")}
    assert {"share", "core-mem"} <= offered
    assert "cgpu" not in offered, "it is in that pool already"


def test_the_move_of_a_node_opens_as_a_flight_plan(visitor: Visitor, lab: Lab) -> None:
    address = "/c/lab/node-pools/cgpu/change-mode/?way=move&holders=wait&node_names=n-cgpu&target_pool=share"
    page = page_of(visitor, address)
    assert "Request move of 1 node into share" in page.text


def test_a_node_in_no_pool_leads_into_the_pools_there_are(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, [a_node("loose", "exclusive")])
    page = page_of(visitor, "/c/lab/nodes/loose/")
    assert f"{NODES}?node_names=loose#in" in hrefs(page)
    page = page_of(visitor, f"{NODES}?node_names=loose")
    assert "checked" in page.all("input", name="node_names")[0]


def test_a_node_of_acks_pools_is_told_how_to_get_there(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, [a_node("acks", "exclusive", labels={"alibabacloud.com/nodepool-id": "np1"})])
    assert "Connect this cluster with provider ACK to move it." in page_of(visitor, "/c/lab/nodes/acks/").text


def test_a_viewer_is_offered_no_way(visitor: Visitor, lab: Lab) -> None:
    page = Page(visitor(Role.VIEWER).get("/c/lab/nodes/n-cgpu/").content.decode())
    assert "In and out of pools" not in page.text


def test_a_pool_with_other_pools_beside_it_can_take_their_nodes(visitor: Visitor, lab: Lab) -> None:
    page = page_of(visitor, NODES)
    assert "/c/lab/node-pools/share/change-mode/?way=move&holders=wait&target_pool=cgpu" in hrefs(page)


@pytest.mark.parametrize("action", ["take-out", "take-in"])
def test_what_was_typed_stays_with_the_errors_at_their_fields(visitor: Visitor, lab: Lab, action: str) -> None:
    show(lab.cluster, [a_node("n-cgpu", "cgpu", labels={POOL: "cgpu"}), a_node("loose", "exclusive")])
    chosen = "n-cgpu" if action == "take-out" else "loose"
    answer = visitor(Role.OPERATOR).post(NODES, {"action": action, "node_names": [chosen], "reason": ""})
    page = Page(answer.content.decode())
    assert answer.status_code == 400
    boxes = page.all("input", name="node_names", type="checkbox")
    assert {each["value"] for each in boxes if "checked" in each} == {chosen}
    assert len(page.all("p", class_="error")) == 1, "only the form that was sent has the error"
    answer = visitor(Role.OPERATOR).post(NODES, {"action": action, "node_names": [], "reason": "because of heat"})
    page = Page(answer.content.decode())
    assert page.text.count("because of heat") == 1
    assert answer.context["form"].errors["node_names"][0] in page.text


def test_machines_that_are_no_instances_are_refused_with_what_was_typed_kept(
    visitor: Visitor, empty_redis: object
) -> None:
    cluster = a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")
    a_pool(cluster, "vision")
    typed = {"action": "attach", "instance_ids": "i-abc banana", "reason": "more cards"}
    answer = visitor(Role.OPERATOR).post("/c/cloud/node-pools/vision/nodes/", typed)
    page = Page(answer.content.decode())
    assert answer.status_code == 400
    assert page.value_of("instance_ids") == "i-abc banana"
    assert "This is not the id of an ECS instance. Found: banana. Allowed: i-…." in page.text
    assert not Push.objects.exists()


def test_a_node_with_other_cards_is_said_to_mix_them(visitor: Visitor, lab: Lab) -> None:
    name = "aliyun.accelerator/nvidia_name"
    own = a_node("own", "cgpu", labels={POOL: "cgpu", name: "NVIDIA-A10"})
    show(
        lab.cluster,
        [
            own,
            a_node("alike", "cgpu", labels={name: "NVIDIA-A10"}),
            a_node("other", "share", labels={name: "Tesla-T4"}),
        ],
    )
    text = page_of(visitor, NODES).text
    assert "other SH share binpack changes its mode: a second person decides mixes cards: it has Tesla-T4" in text
    assert text.count("mixes cards") == 1
