"""The official ACK SDK against a scripted OpenAPI: what is sent, what is never sent twice, what errors become."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpupools.clusters.ack import AckClient
from gpupools.clusters.port import AckAccess, PoolSpec
from gpupools.domain.gpus import Taint
from gpupools.domain.modes import Mode, PlacementPolicy
from gpupools.errors import Conflict, ConsoleError, Invalid, Refused, Unreachable
from tests.clusters.scripted import Answer, ScriptedServer

POOLS = "/clusters/c1/nodepools"
SECRET = "s3cr3t-key"  # noqa: S105  # made up
SPEC = PoolSpec(
    "train",
    Mode.CGPU,
    PlacementPolicy.SPREAD,
    labels={"team": "vision"},
    taints=[Taint("gpu", "yes", "NoSchedule")],
    instance_types=["ecs.gn7i-c8g1.2xlarge"],
    desired_size=3,
    vswitch_ids=["vsw-1"],
)


def access(address: str) -> AckAccess:
    return AckAccess("c1", "cn-hangzhou", "LTAIexample", SECRET, endpoint=address, protocol="http")


@pytest.fixture
def ack(api: ScriptedServer) -> AckClient:
    return AckClient(access(api.address.removeprefix("http://")), timeout_seconds=5)


def pool(op_id: str = "op-0", *, state: str = "active", **labels: str) -> dict[str, Any]:
    pairs = {"ack.node.gpu.schedule": "cgpu", "gpupools.internal/op": op_id, **labels}
    return {
        "nodepool_info": {"nodepool_id": "np1", "name": "train"},
        "scaling_group": {"instance_types": ["ecs.gn7i-c8g1.2xlarge"], "desired_size": 3},
        "kubernetes_config": {
            "labels": [{"key": key, "value": value} for key, value in pairs.items()],
            "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        },
        "status": {"state": state, "total_nodes": 3, "healthy_nodes": 2, "failed_nodes": 1},
    }


def says(answer: Any, code: int = 200) -> Callable[[dict[str, str], Any], Answer]:
    return lambda query, body: (code, answer)


def no(code: int, name: str, message: str = "because") -> Callable[[dict[str, str], Any], Answer]:
    return says({"code": name, "message": message, "requestId": "R-1"}, code)


def sent(api: ScriptedServer, method: str) -> list[Any]:
    return [body for m, _, _, body in api.requests if m == method]


def test_a_pool_is_read_with_its_labels_and_without_our_own_bookkeeping(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", POOLS] = says({"nodepools": [pool("op-7", team="vision")]})
    (found,) = ack.pools()
    assert (found.pool_id, found.name, found.state, found.op_id) == ("np1", "train", "active", "op-7")
    assert found.labels == {"ack.node.gpu.schedule": "cgpu", "team": "vision"}
    assert found.taints == (Taint("gpu", "yes", "NoSchedule"),)
    assert (found.desired_size, found.total_nodes, found.healthy_nodes, found.failed_nodes) == (3, 3, 2, 1)
    assert found.instance_types == ("ecs.gn7i-c8g1.2xlarge",)


def test_a_pool_that_says_little_is_read_too(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", POOLS] = says({"nodepools": [{"nodepool_info": {"nodepool_id": "np2", "name": "bare"}}]})
    (found,) = ack.pools()
    assert (found.pool_id, found.labels, found.total_nodes) == ("np2", {}, 0)


def test_a_pool_that_is_gone_is_none(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", f"{POOLS}/np9"] = no(404, "ErrorNodePoolNotFound")
    assert ack.pool("np9") is None


def test_a_pool_is_found_by_the_operation_that_made_it(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", POOLS] = says({"nodepools": [pool("op-7")]})
    found = ack.find("op-7")
    assert found is not None
    assert found.pool_id == "np1"
    assert ack.find("op-8") is None


def test_a_create_sends_what_ack_requires_with_lists_of_objects(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["POST", POOLS] = says({"nodepool_id": "np1", "task_id": "T-1", "request_id": "R"})
    started = ack.create(SPEC, op_id="op-1")
    assert (started.pool_id, started.task_id) == ("np1", "T-1")
    (body,) = sent(api, "POST")
    assert body["nodepool_info"] == {"name": "train"}
    assert {key: value for key, value in body["scaling_group"].items() if value != []} == {
        "vswitch_ids": ["vsw-1"],
        "instance_types": ["ecs.gn7i-c8g1.2xlarge"],
        "instance_charge_type": "PostPaid",
        "desired_size": 3,
        "system_disk_category": "cloud_essd",
        "system_disk_size": 120,
    }
    labels = {entry["key"]: entry["value"] for entry in body["kubernetes_config"]["labels"]}
    assert labels == {
        "team": "vision",
        "ack.node.gpu.schedule": "cgpu",
        "ack.node.gpu.placement": "spread",
        "gpupools.internal/op": "op-1",
    }
    assert body["kubernetes_config"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert body["auto_scaling"] == {"enable": False}
    assert "count" not in body


def test_a_create_without_vswitches_takes_the_cluster_s(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", "/clusters/c1"] = says({"cluster_id": "c1", "vswitch_ids": ["vsw-a", "vsw-b"]})
    api.handlers["POST", POOLS] = says({"nodepool_id": "np1", "task_id": "T-1"})
    ack.create(PoolSpec("p", None, instance_types=["t"]), op_id="op")
    (body,) = sent(api, "POST")
    assert body["scaling_group"]["vswitch_ids"] == ["vsw-a", "vsw-b"]
    labels = {entry["key"] for entry in body["kubernetes_config"]["labels"]}
    assert labels == {"gpupools.internal/op"}


def test_a_create_without_instance_types_is_invalid_and_not_sent(api: ScriptedServer, ack: AckClient) -> None:
    with pytest.raises(Invalid):
        ack.create(PoolSpec("p", None), op_id="op")
    assert api.requests == []


def test_a_modify_sends_everything_as_it_shall_be_and_is_told_apart_by_its_operation(
    api: ScriptedServer, ack: AckClient
) -> None:
    api.handlers["GET", f"{POOLS}/np1"] = says(pool("op-0"))
    api.handlers["PUT", f"{POOLS}/np1"] = says({"nodepool_id": "np1", "task_id": "T-2"})
    assert ack.modify("np1", replace(SPEC, desired_size=5), update_nodes=True, op_id="op-1").task_id == "T-2"
    (body,) = sent(api, "PUT")
    assert body["update_nodes"] is True
    assert body["scaling_group"]["desired_size"] == 5
    assert {"key": "gpupools.internal/op", "value": "op-1"} in body["kubernetes_config"]["labels"]


def test_a_modify_of_labels_alone_does_not_mention_the_machines(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", f"{POOLS}/np1"] = says(pool("op-0"))
    api.handlers["PUT", f"{POOLS}/np1"] = says({"nodepool_id": "np1", "task_id": "T-2"})
    ack.modify("np1", SPEC, update_nodes=False, op_id="op-1")
    (body,) = sent(api, "PUT")
    assert "scaling_group" not in body


def test_a_modify_that_has_landed_is_not_sent_again_and_finds_its_lost_task(
    api: ScriptedServer, ack: AckClient
) -> None:
    api.handlers["GET", f"{POOLS}/np1"] = says(pool("op-1", state="updating"))
    tasks = [
        {"task_id": "T-1", "task_type": "nodepool_create", "state": "success", "created": "2026-01-01T00:00:00Z"},
        {"task_id": "T-2", "task_type": "nodepool_update", "state": "running", "created": "2026-01-02T00:00:00Z"},
        {"task_id": "T-3", "task_type": "cluster_upgrade", "state": "running", "created": "2026-01-03T00:00:00Z"},
    ]
    api.handlers["GET", "/clusters/c1/tasks"] = says({"tasks": tasks})
    assert ack.modify("np1", SPEC, update_nodes=True, op_id="op-1").task_id == "T-2"
    api.handlers["GET", f"{POOLS}/np1"] = says(pool("op-1"))
    assert ack.modify("np1", SPEC, update_nodes=True, op_id="op-1").task_id == ""
    assert sent(api, "PUT") == []


def test_a_lost_task_is_never_that_of_another_pool(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", f"{POOLS}/np1"] = says(pool(state="removing"))
    api.handlers["GET", "/clusters/c1/nodes"] = says({"nodes": [{"instance_id": "i-1"}], "page": {"total_count": 1}})
    tasks = [
        {"task_id": f"T-{day}", "task_type": "nodepool_remove_nodes", "state": "running", "created": f"2026-01-0{day}"}
        for day in (1, 2, 3)
    ]
    api.handlers["GET", "/clusters/c1/tasks"] = says({"tasks": tasks})
    for number, target in ((1, "np1"), (2, "np1"), (3, "np2")):
        about = {"id": target, "type": "nodepool"}
        api.handlers["GET", f"/tasks/T-{number}"] = says(
            {"task_id": f"T-{number}", "state": "running", "target": about}
        )
    assert ack.remove("np1", ["i-1"]).task_id == "T-2"
    assert sent(api, "DELETE") == []


def test_the_machines_of_a_pool_are_listed_once_however_many_leave_it(api: ScriptedServer, ack: AckClient) -> None:
    machines = [f"i-{number}" for number in range(5)]
    nodes = [{"instance_id": machine} for machine in machines]
    api.handlers["GET", f"{POOLS}/np1"] = says(pool())
    api.handlers["GET", "/clusters/c1/nodes"] = says({"nodes": nodes, "page": {"total_count": 5}})
    api.handlers["DELETE", f"{POOLS}/np1/nodes"] = says({"task_id": "T-1"})
    assert ack.remove("np1", [*machines, "i-gone"]).task_id == "T-1"
    assert [path for _, path, _, _ in api.requests].count("/clusters/c1/nodes") == 1


def test_a_delete_may_be_repeated(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", f"{POOLS}/np1"] = says(pool())
    api.handlers["DELETE", f"{POOLS}/np1"] = says({"task_id": "T-3"})
    assert ack.delete("np1", force=True, op_id="op").task_id == "T-3"
    assert api.requests[-1][2] == {"force": "True"}  # the SDK's own spelling
    api.handlers["GET", f"{POOLS}/np1"] = no(404, "ErrorNodePoolNotFound")
    assert ack.delete("np1", force=True, op_id="op").task_id == ""
    assert len(sent(api, "DELETE")) == 1


def test_node_names_come_in_pages(api: ScriptedServer, ack: AckClient) -> None:
    def nodes(query: dict[str, str], body: Any) -> Answer:
        number, size = int(query["pageNumber"]), int(query["pageSize"])
        assert query["nodepool_id"] == "np1"
        every = [{"node_name": f"n{i}"} for i in range(150)]
        shown = every[(number - 1) * size : number * size]
        return 200, {"nodes": shown, "page": {"page_number": number, "page_size": size, "total_count": 150}}

    api.handlers["GET", "/clusters/c1/nodes"] = nodes
    assert len(set(ack.node_names("np1"))) == 150


def test_an_instance_that_has_not_joined_has_no_name(api: ScriptedServer, ack: AckClient) -> None:
    answer = {"nodes": [{"instance_id": "i-1"}, {"node_name": "n1"}], "page": {"total_count": 2}}
    api.handlers["GET", "/clusters/c1/nodes"] = says(answer)
    assert ack.node_names("np1") == ["n1"]


def test_a_task_that_ended_well_may_have_failed_for_some_machines(api: ScriptedServer, ack: AckClient) -> None:
    results = [{"data": "i-1", "status": "success"}, {"data": "i-2", "status": "failed"}]
    api.handlers["GET", "/tasks/T-9"] = says({"task_id": "T-9", "state": "success", "task_result": results})
    assert (ack.task("T-9").state, ack.task("T-9").failed) == ("success", ("i-2",))


@pytest.mark.parametrize(
    ("answer", "state", "message"),
    [
        ({"state": "running"}, "running", ""),
        ({"state": "success"}, "success", ""),
        ({"state": "fail", "error": {"code": "NoStock", "message": "sold out"}}, "fail", "sold out"),
        ({"state": "failed", "error": {"code": "NoStock"}}, "fail", "NoStock"),
        ({"state": "canceled"}, "fail", ""),
        ({"state": "paused"}, "running", ""),
    ],
)
def test_a_task_is_running_success_or_fail(
    api: ScriptedServer, ack: AckClient, answer: dict[str, Any], state: str, message: str
) -> None:
    api.handlers["GET", "/tasks/T-1"] = says({"task_id": "T-1", **answer})
    found = ack.task("T-1")
    assert (found.state, found.message) == (state, message)


def test_a_call_without_a_task_is_done() -> None:
    assert AckClient(access("127.0.0.1:1")).task("").state == "success"


ADDONS = "/clusters/c1/addon_instances"


def mps(state: str) -> Any:
    return says({"addons": [{"name": "ack-mps-control", "version": "0.2.0", "state": state}]})


def test_an_add_on_is_listed_and_installed_in_its_version(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", ADDONS] = says({"addons": []})
    api.handlers["GET", "/addons/ack-mps-control"] = says({"name": "ack-mps-control", "version": "0.2.0"})
    api.handlers["POST", "/clusters/c1/components/install"] = says({"task_id": "T-1"})
    assert ack.install("ack-mps-control").task_id == "T-1"
    assert sent(api, "POST") == [[{"name": "ack-mps-control", "version": "0.2.0"}]]
    api.handlers["GET", ADDONS] = mps("active")
    assert [(a.name, a.version, a.state) for a in ack.addons()] == [("ack-mps-control", "0.2.0", "active")]
    assert ack.install("ack-mps-control").task_id == ""
    assert len(sent(api, "POST")) == 1


def test_an_add_on_is_removed_once(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", ADDONS] = mps("active")
    api.handlers["POST", "/clusters/c1/components/uninstall"] = says({"task_id": "T-2"})
    assert ack.uninstall("ack-mps-control").task_id == "T-2"
    assert sent(api, "POST") == [[{"name": "ack-mps-control", "cleanup_cloud_resources": True}]]
    api.handlers["GET", ADDONS] = mps("deleting")
    task = {"task_id": "T-2", "task_type": "addon_uninstall", "state": "running", "created": "2026-01-01T00:00:00Z"}
    api.handlers["GET", "/clusters/c1/tasks"] = says({"tasks": [task]})
    assert ack.uninstall("ack-mps-control").task_id == "T-2"
    api.handlers["GET", ADDONS] = says({"addons": []})
    assert ack.uninstall("ack-mps-control").task_id == ""
    assert len(sent(api, "POST")) == 1


@pytest.mark.parametrize("where", ["/addons/ack-ai-installer", "/clusters/c1/components/install"])
def test_an_add_on_that_the_api_does_not_know_is_refused_under_its_code(
    api: ScriptedServer, ack: AckClient, where: str
) -> None:
    api.handlers["GET", ADDONS] = says({"addons": []})
    api.handlers["GET", "/addons/ack-ai-installer"] = says({"name": "ack-ai-installer", "version": "1"})
    method = "GET" if where.startswith("/addons") else "POST"
    api.handlers[method, where] = no(404 if method == "GET" else 400, "AddonNotFound")
    with pytest.raises(Refused) as caught:
        ack.install("ack-ai-installer")
    assert caught.value.code == "addon-not-found"


def test_the_cluster_tells_its_version_and_specification(api: ScriptedServer, ack: AckClient) -> None:
    detail = {
        "current_version": "1.32.1-aliyun.1",
        "cluster_spec": "ack.pro.small",
        "name": "gpu",
        "region_id": "cn-hangzhou",
    }
    api.handlers["GET", "/clusters/c1"] = says(detail)
    facts = ack.cluster()
    assert (facts.version, facts.spec) == ("1.32.1-aliyun.1", "ack.pro.small")
    assert (facts.name, facts.region) == ("gpu", "cn-hangzhou")


def test_the_kubeconfig_is_asked_for_the_public_endpoint(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", "/k8s/c1/user_config"] = says({"config": "kind: Config\n"})
    assert ack.kubeconfig() == "kind: Config\n"
    assert api.requests[-1][2] == {}


@pytest.mark.parametrize(
    ("code", "name", "kind", "ours"),
    [
        (400, "InvalidParameter", Refused, "refused"),
        (403, "Forbidden.RAM", Refused, "refused"),
        (404, "ErrorClusterNotFound", Refused, "not-found"),
        (409, "NodePoolNameExist", Conflict, "conflict"),
        (400, "Throttling.User", Unreachable, "unreachable"),
        (429, "TooManyRequests", Unreachable, "unreachable"),
        (500, "InternalError", Unreachable, "unreachable"),
        (503, "ServiceUnavailable", Unreachable, "unreachable"),
    ],
)
def test_every_refusal_becomes_one_of_our_errors_after_one_request(
    api: ScriptedServer, ack: AckClient, code: int, name: str, kind: type[ConsoleError], ours: str
) -> None:
    api.handlers["POST", POOLS] = no(code, name, "the reason of ACK")
    with pytest.raises(kind) as caught:
        ack.create(SPEC, op_id="op")
    assert type(caught.value) is kind
    assert caught.value.code == ours
    assert "the reason of ACK" in caught.value.message
    assert SECRET not in f"{caught.value!r} {caught.value.data}"
    assert len(api.requests) == 1


@pytest.mark.parametrize("answer", [b"<html>proxy</html>", b"", b"[1, 2]", b'{"nodepools": 7}'])
def test_an_answer_that_is_not_the_api_s_is_unreachable(api: ScriptedServer, ack: AckClient, answer: bytes) -> None:
    api.handlers["GET", POOLS] = says(answer)
    with pytest.raises(Unreachable):
        ack.pools()
    api.handlers["GET", POOLS] = says(answer, 502)
    with pytest.raises(Unreachable):
        ack.pools()


def test_nobody_listening_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = AckClient(access(f"127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(Unreachable):
            client.pools()


def test_a_server_that_never_answers_runs_into_the_time_out_once() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        client = AckClient(access(f"127.0.0.1:{deaf.getsockname()[1]}"), timeout_seconds=0.3)
        with pytest.raises(Unreachable):
            client.create(SPEC, op_id="op")


def test_requests_are_signed(api: ScriptedServer, ack: AckClient) -> None:
    api.handlers["GET", POOLS] = says({"nodepools": []})
    ack.pools()
    assert api.headers[-1]["authorization"].startswith("ACS3-HMAC-SHA256 Credential=LTAIexample")
