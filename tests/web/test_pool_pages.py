"""Node pools as pages: what is listed, what a form keeps, where its errors stand."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.domain.gpus import Taint
from gpupools.models import Cluster, ComponentState, ModeChange, NodePool, OperationRequest, Push, Role
from tests.domain.builders import a_node
from tests.services.builders import a_cluster, a_component, a_pool
from tests.services.showing import show
from tests.web.conftest import POOL, Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db


@pytest.fixture
def on_ack(empty_redis: object) -> Cluster:
    cluster = a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")
    a_component(cluster, "ack-ai-installer")
    return cluster


def wish(**fields: Any) -> dict[str, Any]:
    return {
        "name": "vision",
        "mode": "cgpu",
        "policy": "spread",
        "instance_types": ["ecs.gn6v-c8g1.8xlarge"],
        "desired_size": "2",
        "labels_key": ["team", ""],
        "labels_value": ["ml", ""],
        "taints_key": "nvidia.com/gpu",
        "taints_value": "present",
        "taints_effect": "NoSchedule",
        **fields,
    }


def test_a_pool_is_made_of_what_was_typed(visitor: Visitor, on_ack: Cluster) -> None:
    answer = visitor(Role.OPERATOR).post("/c/cloud/create-node-pool/", wish(other_types="ecs.gn6v-c8g1.16xlarge"))
    assert answer["Location"] == "/c/cloud/node-pools/vision/"
    pool = NodePool.objects.get()
    assert (pool.mode, pool.policy, pool.desired_size) == ("cgpu", "spread", 2)
    assert pool.instance_types == ["ecs.gn6v-c8g1.8xlarge", "ecs.gn6v-c8g1.16xlarge"]
    assert pool.labels == {"team": "ml"}
    assert pool.taints == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert Push.objects.get().kind == "pool.create"


def test_a_mode_without_a_policy_sends_none_though_the_field_had_one(visitor: Visitor, on_ack: Cluster) -> None:
    answer = visitor(Role.OPERATOR).post("/c/cloud/create-node-pool/", wish(mode="exclusive", policy="spread"))
    assert answer.status_code == 302
    assert NodePool.objects.get().policy == ""


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        ({"name": "Bad Name"}, "name", "lower-case letters"),
        ({"name": ""}, "name", "required"),
        ({"mode": "turbo"}, "mode", "turbo"),
        ({"mode": ""}, "mode", "required"),
        ({"instance_types": []}, "instance_types", "at least one instance type"),
        ({"other_types": "ecs.x"}, "instance_types", "not an ECS instance type"),
        ({"desired_size": "-1"}, "desired_size", "greater than or equal to 0"),
        ({"desired_size": "many"}, "desired_size", "whole number"),
        ({"labels_key": "aliyun.com/x", "labels_value": "y"}, "labels", "ACK refuses label keys"),
        ({"labels_key": "team", "labels_value": "http://x"}, "labels", "team"),
        ({"labels_key": "ack.node.gpu.schedule", "labels_value": "mps"}, "labels", "its own field"),
        ({"labels_key": ["a", "a"], "labels_value": ["1", "2"]}, "labels", "twice"),
        ({"taints_key": "no spaces", "taints_value": ""}, "taints", "no spaces"),
    ],
)
def test_an_error_stands_at_its_field_and_everything_typed_is_kept(
    visitor: Visitor, on_ack: Cluster, typed: dict[str, Any], field: str, sentence: str
) -> None:
    answer = visitor(Role.OPERATOR).post("/c/cloud/create-node-pool/", wish(**typed))
    page = Page(answer.content.decode())
    assert answer.status_code == 400
    assert not NodePool.objects.exists()
    assert sentence in " ".join(answer.context["form"].errors[field])
    assert ("a", {"href": f"#field-{field}"}) in page.elements
    assert f"field-{field}" in {attrs.get("id") for _, attrs in page.elements}
    kept = wish(**typed)
    assert page.value_of("name") == kept["name"]
    assert page.value_of("desired_size") == kept["desired_size"]
    checked = [attrs["value"] for attrs in page.all("input", type="checkbox") if "checked" in attrs]
    assert checked == list(kept["instance_types"])
    keys = [attrs.get("value", "") for attrs in page.all("input", name="labels_key")]
    wanted = kept["labels_key"] if isinstance(kept["labels_key"], list) else [kept["labels_key"]]
    assert keys[: len([key for key in wanted if key])] == [key for key in wanted if key]
    assert page.value_of("taints_key") == kept["taints_key"]


def test_a_name_that_is_taken_is_said_at_the_name(visitor: Visitor, on_ack: Cluster) -> None:
    a_pool(on_ack, "vision")
    answer = visitor(Role.OPERATOR).post("/c/cloud/create-node-pool/", wish())
    assert "has a node pool of this name" in answer.context["form"].errors["name"][0]


def test_a_mode_says_what_it_needs_and_whether_it_is_there(visitor: Visitor, on_ack: Cluster) -> None:
    a_component(on_ack, "ack-mps-control", ComponentState.State.ABSENT)
    page = Page(visitor(Role.OPERATOR).get("/c/cloud/create-node-pool/").content.decode())
    assert "Memory is enforced, compute is not." in page.text
    assert "Not installed ack-mps-control" in page.text
    assert "Installed ack-ai-installer" in page.text


def test_a_cluster_that_is_not_pro_offers_no_mode_that_needs_it(visitor: Visitor, on_ack: Cluster) -> None:
    Cluster.objects.update(spec="ack.standard")
    page = Page(visitor(Role.OPERATOR).get("/c/cloud/create-node-pool/").content.decode())
    disabled = {attrs["value"] for attrs in page.all("input", name="mode") if "disabled" in attrs}
    assert disabled == {"cgpu", "core_mem", "share", "mps", "topology"}


def test_on_plain_kubernetes_free_nodes_are_offered_and_no_machines(visitor: Visitor, lab: Lab) -> None:
    nodes = [a_node("free", "exclusive"), a_node("owned", "cgpu", labels={POOL: "cgpu"})]
    show(lab.cluster, nodes, [])
    page = Page(visitor(Role.OPERATOR).get("/c/lab/create-node-pool/").content.decode())
    assert [attrs["value"] for attrs in page.all("input", name="node_names")] == ["free"]
    assert not page.all("input", name="desired_size")


def test_the_list_shows_wanted_and_actual_mode_drift_and_what_is_missing(visitor: Visitor, lab: Lab) -> None:
    ComponentState.objects.filter(name="ack-mps-control").update(state=ComponentState.State.ABSENT)
    drifted = a_node("n-cgpu", "share", labels={POOL: "cgpu"})
    show(lab.cluster, [drifted, a_node("n-mps", "mps", labels={POOL: "mps"})])
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/").content.decode())
    assert "drift on 1 node" in page.text
    assert "found SH share × 1" in page.text
    assert "needs ack-mps-control" in page.text
    assert "0/60 units · 0%" in page.text


def test_unknown_is_a_dash_with_its_reason_and_never_a_zero(visitor: Visitor, empty_redis: object) -> None:
    a_pool(a_cluster("dark"), "shared", desired_size=3)
    page = Page(visitor(Role.VIEWER).get("/c/dark/node-pools/").content.decode())
    reasons = {attrs["title"] for attrs in page.all("span", class_="unknown")}
    assert "No numbers of this cluster are known yet." in reasons
    assert "0/0" not in page.text


def test_a_cluster_that_does_not_answer_says_since_when_and_what_still_works(visitor: Visitor, lab: Lab) -> None:
    lab.cluster.state = Cluster.State.UNREACHABLE
    lab.cluster.last_error = "Connection refused."
    lab.cluster.save()
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/").content.decode())
    assert "Cluster lab does not answer" in page.text
    assert "Connection refused. Numbers are the last known ones." in page.text
    assert page.all("span", id="fresh")[0]["data-state"] == "stale"


def test_an_open_change_holds_the_pools_page(visitor: Visitor, lab: Lab) -> None:
    browser = visitor(Role.OPERATOR)
    assert "Edit labels and taints" in Page(browser.get("/c/lab/node-pools/share/").content.decode()).text
    wanted = {"target_mode": "cgpu", "target_policy": "binpack", "holders": "wait", "reason": "why"}
    browser.post("/c/lab/node-pools/share/change-mode/", wanted)
    page = Page(browser.get("/c/lab/node-pools/share/").content.decode())
    assert "A change to cgpu holds this pool" in page.text
    assert "Edit labels and taints" not in page.text
    assert "Change mode" not in page.text
    assert ModeChange.objects.count() == 1


def test_scaling_sets_an_absolute_size(visitor: Visitor, on_ack: Cluster) -> None:
    a_pool(on_ack, "vision", desired_size=1)
    assert visitor(Role.OPERATOR).post("/c/cloud/node-pools/vision/scale/", {"desired_size": "4"}).status_code == 302
    assert NodePool.objects.get().desired_size == 4


def test_deleting_a_pool_with_nodes_needs_force_and_says_what_goes(visitor: Visitor, on_ack: Cluster) -> None:
    pool = a_pool(on_ack, "vision", seen={"total_nodes": 1})
    node = a_node("n1", labels={"alibabacloud.com/nodepool-id": pool.pool_id}, taints=(Taint("a"),))
    show(on_ack, [node])
    browser = visitor(Role.OPERATOR)
    page = Page(browser.get("/c/cloud/node-pools/vision/delete/").content.decode())
    assert "Ask a second person to approve: delete vision with its machines" in page.text
    assert "Machines that are released n1" in page.text
    assert browser.post("/c/cloud/node-pools/vision/delete/", {"reason": "old"}).status_code == 400
    answer = browser.post("/c/cloud/node-pools/vision/delete/", {"reason": "old", "force": "on"})
    assert answer["Location"] == f"/requests/{OperationRequest.objects.get().pk}/"
    assert NodePool.objects.get().state == NodePool.State.ACTIVE


def test_without_the_policy_one_person_deletes_a_pool_with_its_machines(
    visitor: Visitor, on_ack: Cluster, settings: Any
) -> None:
    settings.GPUPOOLS_APPROVAL_REQUIRED = ()
    pool = a_pool(on_ack, "vision", seen={"total_nodes": 1})
    show(on_ack, [a_node("n1", labels={"alibabacloud.com/nodepool-id": pool.pool_id})])
    browser, address = visitor(Role.OPERATOR), "/c/cloud/node-pools/vision/delete/"
    page = Page(browser.get(address).content.decode())
    assert "Delete vision and its 1 node" in page.text
    assert "second person" not in page.text
    answer = browser.post(address, {"reason": "old", "force": "on"})
    assert answer["Location"] == "/c/cloud/node-pools/"
    assert NodePool.objects.get().state == NodePool.State.DELETING


def test_nodes_of_acks_pools_are_not_offered_on_plain_kubernetes(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, [a_node("free"), a_node("acks", labels={"alibabacloud.com/nodepool-id": "np1"})])
    page = Page(visitor(Role.OPERATOR).get("/c/lab/create-node-pool/").content.decode())
    assert [attrs["value"] for attrs in page.all("input", name="node_names")] == ["free"]
    assert "1 node belongs to a node pool of ACK" in page.text


def test_what_is_wrong_with_a_new_pool_is_said_all_at_once_and_where(visitor: Visitor, on_ack: Cluster) -> None:
    typed = wish(desired_size="", instance_types=[], labels_key=["team", "bad key!"], labels_value=["vision", "x"])
    errors = visitor(Role.OPERATOR).post("/c/cloud/create-node-pool/", typed).context["form"].errors
    assert "Say how many nodes" in errors["desired_size"][0], "an empty field is not 0"
    assert "Choose at least one instance type" in errors["instance_types"][0]
    answer = visitor(Role.OPERATOR).post(
        "/c/cloud/create-node-pool/",
        wish(labels_key=["team", "bad key!"], labels_value=["vision", "x"], vswitch_ids="vsw-1 <script>",
             taints_key="bad key!", taints_value="", taints_effect="NoSchedule"),
    )  # fmt: skip
    errors = answer.context["form"].errors
    assert "not the id of a vSwitch" in errors["vswitch_ids"][0]
    assert errors["taints"][0].startswith("Row 1, key: ")
    page = Page(answer.content.decode())
    assert len(page.all("div", class_="row-edit is-wrong")) == 1, "only the row with the bad key is red"
    assert len(page.all("div", class_="row-edit taint is-wrong")) == 1
    assert not NodePool.objects.exists()


def test_an_open_change_is_told_before_any_form(visitor: Visitor, lab: Lab) -> None:
    asked = {"target_mode": "share", "target_policy": "binpack", "holders": "wait", "reason": "Less isolation."}
    address = "/c/lab/node-pools/cgpu/change-mode/"
    assert visitor(Role.OPERATOR).post(address, asked).status_code == 302
    for page_address in (address, "/c/lab/node-pools/cgpu/delete/"):
        page = Page(visitor(Role.OPERATOR).get(page_address).content.decode())
        assert "A change to share holds this pool" in page.text
        assert not page.all("button", class_="btn btn-danger")
        assert not page.all("input", name="target_mode")
    page = Page(visitor(Role.OPERATOR).get("/c/lab/node-pools/cgpu/").content.decode())
    assert "/c/lab/node-pools/cgpu/delete/" not in [each.get("href") for each in page.all("a")]


def test_pools_that_are_gone_are_listed_on_demand_only(visitor: Visitor, lab: Lab) -> None:
    a_pool(lab.cluster, "formerly", state=NodePool.State.GONE)
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/").content.decode())
    assert "formerly" not in page.text
    assert "1 pool is gone from the cluster." in page.text
    assert "formerly" in Page(visitor(Role.VIEWER).get("/c/lab/node-pools/?gone=yes").content.decode()).text


def names_of(visitor: Visitor, query: str) -> list[str]:
    page = Page(visitor(Role.VIEWER).get(f"/c/lab/node-pools/{query}").content.decode())
    return [each["href"].split("/")[-2] for each in page.all("a", class_="name")]


def test_the_list_is_narrowed_by_text_mode_and_state_and_says_how_many_are_shown(visitor: Visitor, lab: Lab) -> None:
    assert names_of(visitor, "?q=mem") == ["core-mem"]
    assert names_of(visitor, "?mode=share") == ["share"]
    assert names_of(visitor, "?state=updating") == []
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/?q=mem").content.decode())
    assert "1 of 6 pools · 1 node" in page.text
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/?q=nothing-like-it").content.decode())
    assert "No node pool fits this filter." in page.text


def test_a_pool_is_found_by_the_mode_that_its_nodes_are_in_though_it_wants_another(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, [a_node("n-cgpu", "topology", labels={POOL: "cgpu"})])
    assert names_of(visitor, "?mode=topology") == ["cgpu", "topology"]


@pytest.mark.parametrize(
    ("order", "first", "last"),
    [
        ("", "cgpu", "topology"),
        ("-name", "topology", "cgpu"),
        ("-used", "exclusive", "mps"),
        ("nonsense", "cgpu", "topology"),
    ],
)
def test_the_list_is_ordered_as_a_head_asks(visitor: Visitor, lab: Lab, order: str, first: str, last: str) -> None:
    found = names_of(visitor, f"?sort={order}")
    assert len(found) == 6
    assert found[0] == first
    assert order == "-used" or found[-1] == last
    page = Page(visitor(Role.VIEWER).get(f"/c/lab/node-pools/?sort={order}").content.decode())
    sorted_now = [each["aria-sort"] for each in page.all("th") if each.get("aria-sort")]
    assert sorted_now == (["descending"] if order.startswith("-") else [])


def test_ready_and_wanted_auto_scaling_and_the_change_that_holds_stand_side_by_side(visitor: Visitor, lab: Lab) -> None:
    NodePool.objects.filter(name="cgpu").update(auto_scaling={"enable": True, "min_instances": 1, "max_instances": 9})
    placed = {POOL: "cgpu"}
    show(lab.cluster, [a_node("a", "cgpu", labels=placed), a_node("b", "cgpu", labels=placed, ready=False)])
    wanted = {"target_mode": "share", "target_policy": "binpack", "holders": "wait", "reason": "why"}
    visitor(Role.OPERATOR).post("/c/lab/node-pools/cgpu/change-mode/", wanted)
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/?q=cgpu").content.decode())
    assert "1 / 1 auto, 1 to 9" in page.text
    assert f"held by change #{ModeChange.objects.get().pk} to share" in page.text


def test_a_pool_of_two_hundred_nodes_is_paged(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, [a_node(f"n-{number:03}", "cgpu", labels={POOL: "cgpu"}) for number in range(200)])
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/cgpu/").content.decode())
    assert "200 nodes" in page.text
    assert "1–50 of 200" in page.text
    assert len([each for each in page.all("tr") if each.get("id", "").startswith("n-")]) == 50
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/cgpu/?page=4").content.decode())
    assert "n-199" in page.text


def test_what_is_to_know_of_a_pool_stands_on_its_page(visitor: Visitor, lab: Lab) -> None:
    a_pool(lab.cluster, "second", mode="cgpu", policy="binpack")
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/second/").content.decode())
    assert "cgpu wants the same labels on nodes as second" in page.text


def test_the_list_says_in_few_words_what_is_to_know_of_each_pool(visitor: Visitor, lab: Lab) -> None:
    a_pool(lab.cluster, "second", mode="cgpu", policy="binpack")
    page = Page(visitor(Role.VIEWER).get("/c/lab/node-pools/").content.decode())
    assert page.text.count("same labels as another") == 2, "of the twin as well"
    show(lab.cluster, [a_node("a", "share", labels={POOL: "mps"}), a_node("b", "mps", labels={POOL: "mps"})])
    assert "mixed modes" in Page(visitor(Role.VIEWER).get("/c/lab/node-pools/?q=mps").content.decode()).text
