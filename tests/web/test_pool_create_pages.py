"""Creating a pool: instance families, bounds, one pool per mode, and what is said before it is made."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.domain.gpus import Workload
from gpupools.models import Cluster, NodePool, Push, Role
from tests.domain.builders import a_node
from tests.services.builders import a_cluster, a_component, a_pool
from tests.services.showing import show
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
CREATE = "/c/cloud/create-node-pool/"


@pytest.fixture
def on_ack(empty_redis: object, db: None) -> Cluster:
    cluster = a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")
    a_component(cluster, "ack-ai-installer")
    return cluster


def wish(**fields: Any) -> dict[str, Any]:
    types = ["ecs.gn6v-c8g1.8xlarge"]
    return {
        "name": "vision",
        "mode": "cgpu",
        "policy": "spread",
        "instance_types": types,
        "desired_size": "2",
        **fields,
    }


def answered(visitor: Visitor, **fields: Any) -> tuple[int, Page]:
    answer = visitor(Role.OPERATOR).post(CREATE, wish(**fields))
    return answer.status_code, Page(answer.content.decode())


def test_the_families_of_instance_types_come_with_card_count_and_memory(visitor: Visitor, on_ack: Cluster) -> None:
    page = Page(visitor(Role.OPERATOR).get(CREATE).content.decode())
    for said in (
        "ecs.gn7i NVIDIA-A10 23028 MiB a card = 22 units",
        "ecs.gn7 NVIDIA-A100-SXM4-80GB",
        "ecs.gn6v Tesla-V100-SXM2-16GB",
        "ecs.gn6e Tesla-V100-SXM2-32GB",
        "4 cards · 32 vCPU · 128 GiB",
    ):
        assert said in page.text, said


def test_a_pool_is_made_with_bounds_and_the_type_that_follows_its_mode(visitor: Visitor, on_ack: Cluster) -> None:
    assert answered(visitor, enable="on", min_instances="1", max_instances="4")[0] == 302
    scaling = {"enable": True, "min_instances": 1, "max_instances": 4, "type": "gpushare"}
    assert NodePool.objects.get().auto_scaling == scaling
    assert Push.objects.get().payload["spec"]["auto_scaling"] == scaling


def test_without_the_tick_bounds_are_not_sent(visitor: Visitor, on_ack: Cluster) -> None:
    assert answered(visitor, min_instances="9", max_instances="4")[0] == 302
    assert NodePool.objects.get().auto_scaling == {}


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"min_instances": "5", "max_instances": "4"}, "min_instances", "at most the largest"),
        ({"min_instances": "3", "max_instances": "4"}, "desired_size", "between the bounds"),
        ({"max_instances": ""}, "max_instances", "up to how many nodes"),
        ({"max_instances": "9999"}, "min_instances", "at most the largest"),
        ({"min_instances": "-1", "max_instances": "4"}, "min_instances", "greater than or equal to 0"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_at_their_field(
    visitor: Visitor, on_ack: Cluster, fields: dict[str, str], field: str, sentence: str
) -> None:
    answer = visitor(Role.OPERATOR).post(CREATE, wish(enable="on", **fields))
    assert answer.status_code == 400
    assert sentence in " ".join(answer.context["form"].errors[field])
    page = Page(answer.content.decode())
    assert "checked" in page.all("input", name="enable")[0]
    assert page.value_of("max_instances") == fields["max_instances"]
    assert not NodePool.objects.exists()


def test_mixing_is_warned_about_before_anything_is_made_and_allowed_after(visitor: Visitor, on_ack: Cluster) -> None:
    a_pool(on_ack, "day", policy="spread")
    status, page = answered(visitor, other_types="ecs.gn7i-c8g1.2xlarge, ecs.gn9x-c8g1.2xlarge")
    assert status == 200
    assert "Machines with different cards may come into vision: NVIDIA-A10, Tesla-V100-SXM2-16GB" in page.text
    assert "does not know ecs.gn9x-c8g1.2xlarge: which cards it has, how many" in page.text
    assert "day wants the same labels on nodes as vision" in page.text
    assert NodePool.objects.count() == 1
    read = page.value_of("read")
    fields = {"other_types": "ecs.gn7i-c8g1.2xlarge, ecs.gn9x-c8g1.2xlarge", "read": read}
    assert answered(visitor, **fields)[0] == 302
    assert NodePool.objects.count() == 2


def test_what_was_read_does_not_stand_for_something_else_to_know(visitor: Visitor, on_ack: Cluster) -> None:
    _, page = answered(visitor, other_types="ecs.gn9x-c8g1.2xlarge")
    status, page = answered(visitor, other_types="ecs.gn8z-c8g1.2xlarge", read=page.value_of("read"))
    assert status == 200
    assert "does not know ecs.gn8z-c8g1.2xlarge" in page.text
    assert not NodePool.objects.exists()


def test_each_mode_names_the_pools_that_have_it_already(visitor: Visitor, on_ack: Cluster) -> None:
    a_pool(on_ack, "day")
    a_pool(on_ack, "past", state=NodePool.State.GONE)
    page = Page(visitor(Role.OPERATOR).get(CREATE).content.decode())
    assert "In this mode already: day" in page.text
    assert "past" not in page.text
    assert "one pool per mode" in page.text


def test_the_compute_policy_of_cgpu_is_shown_where_the_mode_is_chosen(visitor: Visitor, on_ack: Cluster) -> None:
    page = Page(visitor(Role.OPERATOR).get(CREATE).content.decode())
    assert "unknown, because nothing of this cluster has been read yet" in page.text
    show(on_ack, [], workloads=[Workload("DaemonSet", "kube-system", "cgpu-installer", policy="3")])
    page = Page(visitor(Role.OPERATOR).get(CREATE).content.decode())
    assert "3 fixed" in page.text
    assert "only after a restart" in page.text


def test_on_plain_kubernetes_no_machines_and_no_bounds_are_offered(visitor: Visitor, lab: Lab) -> None:
    page = Page(visitor(Role.OPERATOR).get("/c/lab/create-node-pool/").content.decode())
    assert not page.all("input", name="enable")
    assert not page.all("input", name="instance_types")


def test_more_rows_come_without_script_and_nothing_is_judged(visitor: Visitor, on_ack: Cluster) -> None:
    status, page = answered(visitor, name="Bad Name", labels_key="k", labels_value="v", more_rows="labels")
    assert status == 200
    assert page.value_of("name") == "Bad Name"
    keys = [each.get("value", "") for each in page.all("input", name="labels_key")]
    assert keys[0] == "k"
    assert keys.count("") >= 6
    assert not page.all("p", class_="error")


def test_the_compute_policy_stands_beside_the_modes_of_a_change_and_on_the_suites_page(
    visitor: Visitor, on_ack: Cluster
) -> None:
    a_pool(on_ack, "day", mode="exclusive", policy="")
    show(on_ack, [], workloads=[Workload("DaemonSet", "kube-system", "cgpu-installer", policy="1")])
    page = Page(visitor(Role.OPERATOR).get("/c/cloud/node-pools/day/change-mode/").content.decode())
    assert page.text.count("Compute policy of this cluster: 1, preemptive") == 2, "for cgpu and core_mem alone"
    page = Page(visitor(Role.VIEWER).get("/c/cloud/ai-suite/").content.decode())
    assert "cGPU compute policy 1 preemptive" in page.text
    page = Page(visitor(Role.VIEWER).get("/c/cloud/node-pools/day/").content.decode())
    assert "cGPU compute policy" not in page.text, "an exclusive pool has no part in it"


def test_nodes_without_gpus_are_offered_apart(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, [a_node("gpu", "exclusive"), a_node("plain", "", 0)])
    page = Page(visitor(Role.OPERATOR).get("/c/lab/create-node-pool/").content.decode())
    assert [each["value"] for each in page.all("input", name="node_names")] == ["gpu", "plain"]
    assert "1 node that reports no GPU" in page.text
