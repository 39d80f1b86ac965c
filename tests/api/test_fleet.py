"""Nodes, pods, allocation, checks and templates over REST, read from a picture that a watcher has published."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from gpupools.domain.gpus import Ask, ContainerAsk, GpuNode, Pod
from gpupools.domain.modes import GPU_COUNT, GPU_MEM
from gpupools.models import Cluster, Role
from gpupools.services import jobs, users
from gpupools.services.access import SYSTEM, Actor
from tests.api.conftest import Caller, is_problem
from tests.services.showing import show

SHARED = {"cpu": 32000, "memory": 2**37, "pods": 110, GPU_MEM: 60, GPU_COUNT: 4, "nvidia.com/gpu": 0}
LABELS = {
    "ack.node.gpu.schedule": "cgpu",
    "aliyun.accelerator/nvidia_name": "Tesla-V100-SXM2-16GB",
    "aliyun.accelerator/nvidia_mem": "16130MiB",
    "aliyun.accelerator/nvidia_count": "4",
}
MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  nodeSelector: {ack.node.gpu.schedule: cgpu}
  containers: [{name: c, image: i, resources: {limits: {aliyun.com/gpu-mem: %s}}}]
"""


def a_node(name: str) -> GpuNode:
    return GpuNode(name, uid=f"uid-{name}", labels=LABELS, allocatable=SHARED, capacity=SHARED, ip="10.0.0.1")


def a_pod(name: str, units: int, card: int, *, namespace: str = "default") -> Pod:
    ask = Ask(namespace, name, (ContainerAsk("c", {GPU_MEM: units}, {GPU_MEM: units}),))
    annotations = {"scheduler.framework.gpushare.allocation": f'{{"0":{{"{card}":{units}}}}}'}
    return Pod(f"uid-{name}", namespace, name, ask, node="gpu-1", phase="Running", annotations=annotations)


@pytest.fixture
def fleet(lab: Cluster, empty_redis: Redis) -> Cluster:
    show(lab, [a_node("gpu-1"), a_node("gpu-2")], [a_pod("a", 11, 0), a_pod("b", 9, 1, namespace="team")])
    return lab


def test_a_node_is_read_with_its_checks(caller: Caller, fleet: Cluster) -> None:
    row = caller(Role.VIEWER).get("/api/v1/clusters/lab/nodes/gpu-1/").json()
    assert (row["mode"], row["verified"], row["allocatable"][GPU_MEM]) == ("cgpu", True, 60)
    assert {check["code"] for check in row["checks"]} >= {f"reports:{GPU_MEM}", "others-zero"}
    assert is_problem(caller(Role.VIEWER).get("/api/v1/clusters/lab/nodes/none/"), 404, "not-found")


def test_nodes_are_read_in_windows(caller: Caller, fleet: Cluster) -> None:
    client = caller(Role.VIEWER)
    first = client.get("/api/v1/clusters/lab/nodes/?limit=1").json()
    rest = client.get(f"/api/v1/clusters/lab/nodes/?limit=1&after={first['next_after']}").json()
    assert [first["results"][0]["name"], rest["results"][0]["name"]] == ["gpu-1", "gpu-2"]
    assert rest["next_after"] is None


def test_pods_are_read_with_the_cards_they_hold(caller: Caller, fleet: Cluster) -> None:
    (row,) = caller(Role.VIEWER).get("/api/v1/clusters/lab/pods/?namespace=default").json()["results"]
    assert row["uses"] == [{"index": 0, "memory_units": 11, "core_percent": 0, "cards": 0}]


def test_a_namespace_that_was_not_granted_is_not_shown(
    caller: Caller, fleet: Cluster, people: dict[Role | None, Actor]
) -> None:
    stranger = people[None].user
    assert stranger is not None
    users.grant(SYSTEM, stranger, role="viewer", cluster=fleet, namespace="team")
    client = caller(None)
    assert [row["name"] for row in client.get("/api/v1/clusters/lab/pods/").json()["results"]] == ["b"]
    node = next(row for row in client.get("/api/v1/clusters/lab/allocation/").json()["nodes"] if row["node"] == "gpu-1")
    holders = [holding["pod"] for gpu in node["gpus"] for holding in gpu["holdings"]]
    assert holders == ["another namespace", "b"]
    assert [gpu["memory_units_used"] for gpu in node["gpus"]] == [11, 9, 0, 0]


def test_the_allocation_is_also_a_table(caller: Caller, fleet: Cluster) -> None:
    body = caller(Role.VIEWER).get("/api/v1/clusters/lab/allocation/inspect/?node=gpu-1").json()
    assert "11/15" in body["shared"]
    assert "20/60 (33%)" in body["shared"]
    assert is_problem(caller(Role.VIEWER).get("/api/v1/clusters/lab/allocation/inspect/?node=x"), 404, "no-such-node")


def check(caller: Caller, units: Any) -> dict[str, Any]:
    body = {"cluster": "lab", "yaml": MANIFEST % units}
    response = caller(Role.OPERATOR).post("/api/v1/submissions/check/", body)
    assert response.status_code == 200, response.content
    return dict(response.json())


def test_a_check_says_where_a_pod_would_land(caller: Caller, fleet: Cluster) -> None:
    preview = check(caller, 4)["preview"]
    assert (preview["chosen"], preview["cards"], preview["message"]) == ("gpu-1", [0], "")


def test_a_check_says_why_each_node_refuses(caller: Caller, fleet: Cluster) -> None:
    preview = check(caller, 16)["preview"]
    assert preview["chosen"] is None
    assert preview["message"].startswith(
        "0/2 nodes are available: 2 node(s) didn't have enough device resources to allocate."
    )
    assert {tuple(verdict["codes"]) for verdict in preview["verdicts"]} == {("device",)}


def test_a_check_shows_what_lint_finds_and_submitting_refuses_it(caller: Caller, fleet: Cluster) -> None:
    assert [finding["code"] for finding in check(caller, "4Gi")["findings"]][0] == "whole-number"
    body = {"cluster": "lab", "yaml": MANIFEST % "4Gi"}
    response = caller(Role.OPERATOR).post("/api/v1/submissions/", body)
    assert is_problem(response, 400, "lint")
    assert response.json()["errors"][0]["field"] == "yaml:spec.containers[0].resources.limits[aliyun.com/gpu-mem]"


def test_a_submission_is_queued_once_per_key(caller: Caller, fleet: Cluster) -> None:
    client, body = caller(Role.OPERATOR), {"cluster": "lab", "yaml": MANIFEST % 4}
    made = [client.post("/api/v1/submissions/", body, HTTP_IDEMPOTENCY_KEY="k").json()["id"] for _ in range(2)]
    assert made[0] == made[1]
    assert len(client.get("/api/v1/pushes/?state=queued").json()["results"]) == 1


def test_a_template_is_rendered_with_checked_values(caller: Caller, db: None) -> None:
    jobs.load_catalogue()
    client = caller(Role.VIEWER)
    slugs = {row["slug"] for row in client.get("/api/v1/job-templates/").json()}
    assert {"card-model-required", "card-model-excluded", "gpu-test"} <= slugs
    path = "/api/v1/job-templates/card-model-required/render/"
    assert '"NVIDIA-A10"' in client.post(path, {"parameters": {"card_model": "NVIDIA-A10"}}).json()["yaml"]
    response = client.post(path, {"parameters": {"card_model": "a b"}})
    assert is_problem(response, 400, "parameters")
    assert response.json()["errors"][0]["field"] == "parameters.card_model"
    assert is_problem(client.get("/api/v1/job-templates/none/"), 404, "no-such-template")


def test_a_check_says_what_would_help_and_where_all_pods_go(caller: Caller, fleet: Cluster) -> None:
    body = check(caller, 16)
    assert body["sequence"] == {
        "pods": 1,
        "first_unfit": 0,
        "spots": [{"node": None, "pods": 1}],
        "unfit": body["preview"],
    }
    assert body["help"]["largest"]["resource"] == "aliyun.com/gpu-mem"
    smaller = next(each for each in body["help"]["options"] if each["code"] == "smaller")
    assert smaller["edits"][0]["value"] == str(body["help"]["largest"]["amount"])
    rejection = body["preview"]["verdicts"][0]["rejections"][0]
    assert (rejection["code"], rejection["asked"]) == ("device", 16)
    fits = check(caller, 4)
    assert fits["help"] == {"largest": None, "options": [], "tried": False}
    assert (fits["sequence"]["first_unfit"], fits["alternatives"]) == (None, [])


def test_a_number_is_explained_by_its_pods(caller: Caller, fleet: Cluster) -> None:
    address = "/api/v1/clusters/lab/allocation/explain/"
    whole = caller(Role.VIEWER).get(f"{address}?figure=memory_units_used").json()
    assert whole["value"] == sum(part["amount"] for part in whole["parts"]) > 0
    node = caller(Role.VIEWER).get(f"{address}?figure=memory_units_used&node=gpu-1").json()
    assert (node["value"], node["node"], node["pool"]) == (20, "gpu-1", "")
    card = caller(Role.VIEWER).get(f"{address}?figure=memory_units_used&node=gpu-1&gpu=0").json()
    assert (card["value"], card["gpu"]) == (11, 0)
    assert {part["gpu"] for part in card["parts"]} == {0}
    assert is_problem(caller(Role.VIEWER).get(f"{address}?figure=luck"), 400, "no-such-figure")
    assert is_problem(caller(Role.VIEWER).get(f"{address}?figure=cards_used&node=x"), 404, "no-such-node")
    assert caller(Role.VIEWER).get(f"{address}?figure=cards_used&gpu=-1").status_code == 400


def waiting_pod(name: str, units: int, message: str = "", **fields: Any) -> Pod:
    ask = Ask("default", name, (ContainerAsk("c", {GPU_MEM: units}, {GPU_MEM: units}),))
    return Pod(f"uid-{name}", "default", name, ask, phase="Pending", message=message, **fields)


def test_why_a_pod_waits_is_read_with_the_scheduler_s_reasons_and_an_estimate(caller: Caller, lab: Cluster) -> None:
    message = (
        "0/2 nodes are available: 2 node(s) didn't have enough device resources to allocate. no new claims to "
        "deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )
    show(lab, [a_node("gpu-1"), a_node("gpu-2")], [waiting_pod("w", 16, message), a_pod("a", 11, 0)])
    body = caller(Role.VIEWER).get("/api/v1/clusters/lab/pods/default/w/waiting/").json()
    assert (body["waits"], body["agrees"]) == (True, True)
    (reason,) = body["said"]["reasons"]
    assert (reason["count"], reason["code"]) == (2, "device")
    assert reason["meaning"] == (
        "Each node had enough in sum, but no single card had 16 memory units left: what is free is in pieces."
    )
    assert body["preview"]["message"] == message
    assert [verdict["node"] for verdict in body["preview"]["verdicts"]] == ["gpu-1", "gpu-2"]
    assert [option["code"] for option in body["help"]["options"]] == ["smaller"]


def test_a_pod_that_has_a_node_does_not_wait(caller: Caller, fleet: Cluster) -> None:
    body = caller(Role.VIEWER).get("/api/v1/clusters/lab/pods/default/a/waiting/").json()
    assert body == {
        "waits": False,
        "taken_at": None,
        "said": None,
        "agrees": None,
        "preview": None,
        "help": None,
        "scheduler": None,
    }
    missing = caller(Role.VIEWER).get("/api/v1/clusters/lab/pods/default/none/waiting/")
    assert is_problem(missing, 404, "no-such-pod")


def test_why_a_pod_of_another_namespace_waits_is_not_told(
    caller: Caller, fleet: Cluster, people: dict[Role | None, Actor]
) -> None:
    stranger = people[None].user
    assert stranger is not None
    users.grant(SYSTEM, stranger, role="viewer", cluster=fleet, namespace="team")
    assert caller(None).get("/api/v1/clusters/lab/pods/default/a/waiting/").status_code == 403
