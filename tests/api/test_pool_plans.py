"""Looking before saving, over REST: edits of pools, new pools, advice, instance types and the compute policy."""

from __future__ import annotations

import pytest

from gpupools.domain.gpus import Workload
from gpupools.domain.instances import INSTANCE_TYPES
from gpupools.domain.modes import POOL_LABEL
from gpupools.models import Cluster, NodePool, Push, Role
from tests.api.conftest import Caller, is_problem
from tests.domain.builders import a_node
from tests.services.builders import a_cluster, a_pool
from tests.services.showing import show

pytestmark = pytest.mark.django_db
API = "/api/v1/"


@pytest.fixture
def pool(lab: Cluster, empty_redis: object) -> NodePool:
    placed = {POOL_LABEL: "vision", "ack.node.gpu.placement": "binpack"}
    show(lab, [a_node("a", "cgpu", labels={**placed, "team": "ops"}), a_node("b", "share", labels=placed)])
    return a_pool(lab, "vision", labels={"team": "ml"})


def test_a_preview_of_an_edit_lists_every_node_and_writes_nothing(caller: Caller, pool: NodePool) -> None:
    body = {"labels": {"team": "ops"}, "update_nodes": True}
    answer = caller(Role.VIEWER).post(f"{API}node-pools/{pool.pk}/preview-edit/", body, format="json")
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert found["version"] == pool.version
    assert found["pool"] == [{"key": "team", "kind": "changed", "old": "ml", "new": "ops"}]
    assert [(node["node"], node["writes"], node["changes_mode"]) for node in found["nodes"]] == [
        ("a", [], False),
        (
            "b",
            [
                {"key": "ack.node.gpu.schedule", "kind": "changed", "old": "share", "new": "cgpu"},
                {"key": "team", "kind": "added", "old": None, "new": "ops"},
            ],
            True,
        ),
    ]
    assert found["nodes"][0]["drift"][0]["key"] == "team"
    assert (found["touched"], found["untouched"], found["would_change_mode"]) == (1, 1, ["b"])
    assert not Push.objects.exists()


def test_a_preview_refuses_what_saving_refuses(caller: Caller, pool: NodePool) -> None:
    path = f"{API}node-pools/{pool.pk}/preview-edit/"
    answer = caller(Role.VIEWER).post(path, {"labels": {"aliyun.accelerator/nvidia_name": "x"}}, format="json")
    assert is_problem(answer, 400, "invalid")
    assert answer.json()["errors"][0]["code"] == "read-only"
    answer = caller(Role.VIEWER).post(path, {"mode": "share"}, format="json")
    assert is_problem(answer, 400, "unknown-field")


def test_a_preview_of_a_new_pool_says_what_it_would_be(caller: Caller, empty_redis: object) -> None:
    a_pool(a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small"), "day")
    body = {
        "cluster": "cloud",
        "name": "night",
        "mode": "cgpu",
        "instance_types": ["ecs.gn7i-c8g1.2xlarge"],
        "desired_size": 1,
        "auto_scaling": {"enable": True, "min_instances": 1, "max_instances": 3},
    }
    client = caller(Role.OPERATOR)
    found = client.post(f"{API}node-pools/preview/", body, format="json").json()
    assert found["labels"] == {"ack.node.gpu.schedule": "cgpu", "ack.node.gpu.placement": "binpack"}
    assert found["auto_scaling"] == {"enable": True, "min_instances": 1, "max_instances": 3, "type": "gpushare"}
    assert [each["code"] for each in found["advice"]] == ["same-labels"]
    assert not NodePool.objects.filter(name="night").exists()
    body["auto_scaling"] = {"enable": True, "min_instances": 5, "max_instances": 3}
    answer = client.post(f"{API}node-pools/", body, format="json")
    assert is_problem(answer, 400, "invalid")
    assert answer.json()["errors"] == [
        {
            "field": "auto_scaling.min_instances",
            "code": "bad-bounds",
            "message": "The smallest size is at most the largest one.",
            "found": "5 to 3",
            "allowed": "0 to the largest size, and that 1 to 5000",
        }
    ]


def test_a_pool_made_with_bounds_keeps_them(caller: Caller, empty_redis: object) -> None:
    a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")
    body = {
        "cluster": "cloud",
        "name": "night",
        "mode": "exclusive",
        "instance_types": ["ecs.gn7i-c8g1.2xlarge"],
        "auto_scaling": {"enable": True, "min_instances": 0, "max_instances": 3},
    }
    made = caller(Role.OPERATOR).post(f"{API}node-pools/", body, format="json").json()
    assert made["auto_scaling"] == {"enable": True, "min_instances": 0, "max_instances": 3, "type": "gpu"}
    assert Push.objects.get().payload["spec"]["auto_scaling"] == made["auto_scaling"]


def test_advice_on_a_pool_comes_with_codes(caller: Caller, pool: NodePool) -> None:
    found = caller(Role.VIEWER).get(f"{API}node-pools/{pool.pk}/advice/").json()
    assert [each["code"] for each in found["results"]] == ["mixed-modes"]


def test_the_known_instance_types_come_with_their_cards(caller: Caller) -> None:
    found = caller(Role.VIEWER).get(f"{API}node-pools/instance-types/").json()["results"]
    assert len(found) == len(INSTANCE_TYPES)
    a10 = found[0]
    assert (a10["family"], a10["card"], a10["card_memory_mib"], a10["card_memory_units"]) == (
        "ecs.gn7i",
        "NVIDIA-A10",
        23028,
        22,
    )


def test_the_compute_policy_is_told_or_said_to_be_unknown(caller: Caller, lab: Cluster, empty_redis: object) -> None:
    client = caller(Role.VIEWER)
    assert client.get(f"{API}clusters/lab/cgpu-policy/").json()["policy"] is None
    show(lab, [], workloads=[Workload("DaemonSet", "kube-system", "cgpu-installer", policy="1")])
    found = client.get(f"{API}clusters/lab/cgpu-policy/").json()
    assert (found["policy"]["value"], found["policy"]["name"], found["reason"]) == (1, "preemptive", "")
    assert [each["value"] for each in found["policies"]] == [0, 1, 2, 3, 4, 5]


def test_what_is_found_of_a_pool_stands_beside_what_it_wants(caller: Caller, pool: NodePool) -> None:
    found = caller(Role.VIEWER).get(f"{API}node-pools/{pool.pk}/found/").json()
    assert found.pop("taken_at")
    assert found == {
        "mode_wanted": "cgpu",
        "nodes_wanted": 0,
        "nodes": 2,
        "nodes_ready": 2,
        "modes": {"cgpu": 1, "share": 1},
        "card_models": {"unknown": 2},
        "drifting": ["a", "b"],
        "changing": [],
    }


def test_before_anything_was_read_what_is_found_is_null_and_never_zero(caller: Caller, empty_redis: object) -> None:
    dark = a_pool(a_cluster("dark"), "vision", desired_size=3)
    found = caller(Role.VIEWER).get(f"{API}node-pools/{dark.pk}/found/").json()
    assert found["nodes_wanted"] == 3
    assert {found[key] for key in ("taken_at", "nodes", "nodes_ready", "modes", "card_models", "drifting")} == {None}
