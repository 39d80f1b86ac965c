"""Editing labels and taints: the choice, the look at every node, and saving what was looked at."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.domain.gpus import Taint
from gpupools.models import Cluster, NodePool, OperationRequest, Push, Role
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_cluster, a_pool
from tests.services.showing import show
from tests.web.conftest import Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
EDIT = "/c/cloud/node-pools/vision/edit/"
CARD = {
    "aliyun.accelerator/nvidia_name": "NVIDIA-A10",
    "aliyun.accelerator/nvidia_mem": "23028MiB",
    "aliyun.accelerator/nvidia_count": "4",
}


@pytest.fixture
def vision(empty_redis: object, db: None) -> NodePool:
    """A pool of two nodes on ACK, of which one has somebody else's value of a label."""
    cluster = a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")
    pool = a_pool(cluster, "vision", labels={"team": "ml"})
    placed = {"alibabacloud.com/nodepool-id": "vision", "ack.node.gpu.placement": "binpack", **CARD}
    alike, other = {**placed, "team": "ml"}, {**placed, "team": "ops"}
    owners = {"team": ("kubectl-label", "2026-11-30T10:00:00Z")}
    show(cluster, [a_node("a", "cgpu", labels=alike), a_node("b", "cgpu", labels=other, owners=owners)])
    return pool


def typed(**fields: Any) -> dict[str, Any]:
    return {
        "labels_key": ["team", "tier"],
        "labels_value": ["ml", "gold"],
        "taints_key": "a",
        "taints_value": "b",
        "taints_effect": "NoSchedule",
        "update_nodes": "yes",
        "version": "1",
        **fields,
    }


def answered(visitor: Visitor, **fields: Any) -> tuple[int, Page]:
    answer = visitor(Role.OPERATOR).post(EDIT, typed(**fields))
    return answer.status_code, Page(answer.content.decode())


def test_the_form_starts_as_the_pool_is_and_shows_what_ack_writes_read_only(visitor: Visitor, vision: NodePool) -> None:
    page = Page(visitor(Role.OPERATOR).get(EDIT).content.decode())
    assert page.value_of("labels_key") == "team"
    assert "aliyun.accelerator/nvidia_name NVIDIA-A10 on 2 nodes" in page.text
    assert not [each for each in page.all("input") if "aliyun" in each.get("value", "")]
    assert [each["value"] for each in page.all("input", name="update_nodes")] == ["yes", "no"]
    assert not [each for each in page.all("input", name="update_nodes") if "checked" in each], "it is nobody's default"


def test_without_the_choice_nothing_is_looked_at_or_written(visitor: Visitor, vision: NodePool) -> None:
    status, page = answered(visitor, update_nodes="")
    assert status == 400
    assert "Choose whether nodes that exist shall get them too." in page.text
    assert page.value_of("labels_key") == "team"


def test_a_look_lists_what_happens_to_each_node_and_writes_nothing(visitor: Visitor, vision: NodePool) -> None:
    status, page = answered(visitor)
    assert status == 200
    assert "2 of 2 nodes" in page.text
    assert "team − ops + ml" in page.text
    assert "tier not there + gold" in page.text
    assert "taint a:NoSchedule not there + b" in page.text
    assert "b team ml ops kubectl-label" in page.text, "who made it differ today is said"
    assert "Write to vision and 2 nodes" in page.text
    assert not Push.objects.exists()
    vision.refresh_from_db()
    assert vision.version == 1


def test_saving_writes_what_was_looked_at(visitor: Visitor, vision: NodePool) -> None:
    _, page = answered(visitor)
    looked_at = {each["name"]: each["value"] for each in page.all("input", type="hidden") if "name" in each}
    assert looked_at["update_nodes"] == "yes"
    assert looked_at["taints_effect"] == "NoSchedule"
    answer = visitor(Role.OPERATOR).post(EDIT, typed(save="yes", seen=looked_at["seen"]))
    assert answer["Location"] == "/c/cloud/node-pools/vision/"
    push = Push.objects.get()
    assert push.payload["update_nodes"] is True
    assert push.payload["spec"]["labels"] == {"team": "ml", "tier": "gold"}
    assert push.payload["spec"]["taints"] == [{"key": "a", "value": "b", "effect": "NoSchedule"}]


def test_with_no_the_nodes_that_will_differ_are_listed_and_left_alone(visitor: Visitor, vision: NodePool) -> None:
    _, page = answered(visitor, update_nodes="no")
    assert "Existing nodes that then differ" in page.text
    assert "2 of 2 nodes keep what they carry and then differ from the pool: a, b." in page.text
    assert "Write to the pool only" in page.text
    visitor(Role.OPERATOR).post(EDIT, typed(update_nodes="no", save="yes", seen=page.value_of("seen")))
    assert Push.objects.get().payload["update_nodes"] is False


def test_what_moved_since_the_look_is_shown_again_and_not_written(visitor: Visitor, vision: NodePool) -> None:
    _, page = answered(visitor)
    seen = page.value_of("seen")
    show(vision.cluster, [a_node("new", "cgpu", labels={"alibabacloud.com/nodepool-id": "vision"})])
    status, page = answered(visitor, save="yes", seen=seen)
    assert status == 400
    assert "is not what you looked at any more" in page.text
    assert "Write to vision and 1 node" in page.text
    assert not Push.objects.exists()
    answer = visitor(Role.OPERATOR).post(EDIT, typed(save="yes", seen=page.value_of("seen")))
    assert answer.status_code == 302


def test_saving_without_having_looked_shows_what_would_happen_first(visitor: Visitor, vision: NodePool) -> None:
    status, page = answered(visitor, save="yes")
    assert status == 400
    assert "Write to vision and 2 nodes" in page.text
    assert not Push.objects.exists()


def test_a_node_of_another_mode_stops_the_edit_and_leads_to_a_mode_change(visitor: Visitor, vision: NodePool) -> None:
    show(vision.cluster, [a_node("a", "share", labels={"alibabacloud.com/nodepool-id": "vision"})])
    status, page = answered(visitor)
    assert status == 200
    assert "Saving would also change the mode of 1 node, so it is refused a" in page.text
    hrefs = [each.get("href", "") for each in page.all("a")]
    assert any(each.startswith("/c/cloud/node-pools/vision/change-mode/?target_mode=cgpu") for each in hrefs)
    assert not page.all("button", name="save")


def test_a_taint_that_ends_pods_names_them(visitor: Visitor, vision: NodePool) -> None:
    show(
        vision.cluster,
        [a_node("a", "cgpu", labels={"alibabacloud.com/nodepool-id": "vision"})],
        [a_pod("bert", on="a")],
    )
    _, page = answered(visitor, taints_effect="NoExecute")
    assert "ends 1 running pods that do not tolerate it" in page.text
    assert "default/bert" in page.text
    assert "Ask a second person to approve that 1 pod ends" in page.text
    assert [each["value"] for each in page.all("input", name="approved_pods")] == ["default/bert"]
    fields = {"taints_effect": "NoExecute", "save": "yes", "seen": page.value_of("seen")}
    assert answered(visitor, **fields)[0] == 400, "a reason is wanted"
    answer = visitor(Role.OPERATOR).post(EDIT, typed(**fields, reason="The project has ended."))
    request = OperationRequest.objects.get()
    assert (answer["Location"], request.kind) == (f"/requests/{request.pk}/", "evicting-taint")
    assert not Push.objects.exists()


def test_bad_labels_are_refused_at_their_rows_with_the_reason_and_kept(visitor: Visitor, vision: NodePool) -> None:
    keys = ["team", "aliyun.accelerator/nvidia_name", "kubernetes.io/hostname"]
    status, page = answered(visitor, labels_key=keys, labels_value=["ml", "V100", "x"])
    assert status == 400
    assert "it is shown here, and not set" in page.text
    assert "The node writes this label about itself" in page.text
    assert len(page.all("div", class_="row-edit is-wrong")) == 2
    assert [each.get("value", "") for each in page.all("input", name="labels_key")][:3] == keys
    assert not page.all("button", name="save")


def test_more_rows_come_without_script_and_nothing_is_judged(visitor: Visitor, vision: NodePool) -> None:
    status, page = answered(visitor, labels_key=["bad key!"], labels_value=["x"], update_nodes="", more_rows="labels")
    assert status == 200
    keys = [each.get("value", "") for each in page.all("input", name="labels_key")]
    assert keys[0] == "bad key!"
    assert keys.count("") >= 6
    assert "bad-key" not in page.text
    assert not page.all("p", class_="error")


def test_an_edit_of_a_version_that_is_old_keeps_what_was_typed(visitor: Visitor, vision: NodePool) -> None:
    NodePool.objects.update(version=5)
    for fields in ({}, {"save": "yes"}):
        status, page = answered(visitor, version="4", **fields)
        assert status == 400
        assert "was edited meanwhile" in page.text
        assert page.value_of("labels_key") == "team"
    assert not Push.objects.exists()


def test_a_cluster_that_cannot_be_read_says_so_and_keeps_what_was_typed(visitor: Visitor, empty_redis: object) -> None:
    cluster = a_cluster("cloud", provider=Cluster.Provider.ACK, state=Cluster.State.UNREACHABLE)
    a_pool(cluster, "vision")
    status, page = answered(visitor)
    assert status == 400
    assert "does not answer" in page.text
    assert page.value_of("labels_key") == "team"


def test_on_plain_kubernetes_there_is_no_choice_and_the_nodes_are_listed(visitor: Visitor, empty_redis: object) -> None:
    cluster = a_cluster("lab")
    a_pool(cluster, "vision")
    show(cluster, [a_node("a", "cgpu", labels={"gpupools.internal/pool": "vision"}, taints=(Taint("x"),))])
    answer = visitor(Role.OPERATOR).post("/c/lab/node-pools/vision/edit/", typed(update_nodes=""))
    page = Page(answer.content.decode())
    assert "an edit reaches every node of the pool" in page.text
    assert not page.all("input", type="radio", name="update_nodes")
    assert "Write to vision and 1 node" in page.text


def test_a_viewer_may_not_open_it(visitor: Visitor, vision: NodePool) -> None:
    assert visitor(Role.VIEWER).get(EDIT).status_code == 403
