"""What can be done with pods: bind, evict, read logs; and what nodes and kubelets make of them."""

from __future__ import annotations

import re

import pytest

from tests.conformance.wire import Object, Server, pod


def about(pods: str, name: str = "p", seconds: int = 60) -> dict:
    return {"path": pods, "seconds": seconds, "fieldSelector": f"metadata.name={name}"}


def reached(server: Server, pods: str, phase: str, name: str = "p") -> Object:
    """Follow a pod until it is in a phase; return it."""
    with server.watching(**about(pods, name)) as events:
        for event in events:
            if event["object"]["status"]["phase"] == phase:
                return event["object"]
    raise AssertionError(f"pod {name} did not become {phase}")


def binding(node: str) -> Object:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}}


def test_a_pod_is_bound_once(server: Server, pods: str, node: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    name = node.rpartition("/")[2]
    answer = server.post(f"{pods}/p/binding", binding(name))
    assert (answer.status, answer.body["status"]) == (201, "Success")
    bound = server.get(f"{pods}/p").ok()
    assert bound["spec"]["nodeName"] == name
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    again = server.post(f"{pods}/p/binding", binding("elsewhere"))
    assert (again.status, again.reason) == (409, "Conflict")
    assert again.message == (
        f'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "{name}"'
    )
    server.delete(f"{pods}/p", gracePeriodSeconds=0).ok()


def test_a_binding_can_be_tried(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    assert server.post(f"{pods}/p/binding", binding("somewhere"), dryRun="All").status == 201
    assert "nodeName" not in server.get(f"{pods}/p").ok()["spec"]


def test_a_binding_may_carry_annotations(server: Server, pods: str, node: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    body = binding(node.rpartition("/")[2])
    body["metadata"]["annotations"] = {"example.com/cards": "0,1"}
    server.post(f"{pods}/p/binding", body).ok()
    assert server.get(f"{pods}/p").ok()["metadata"]["annotations"]["example.com/cards"] == "0,1"
    server.delete(f"{pods}/p", gracePeriodSeconds=0).ok()


EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}


def test_a_pod_is_evicted(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    answer = server.post(f"{pods}/p/eviction", EVICTION)
    assert (answer.status, answer.body["status"]) == (201, "Success")
    assert server.get(f"{pods}/p").status == 404


def test_an_eviction_can_be_tried(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    assert server.post(f"{pods}/p/eviction", EVICTION, dryRun="All").status == 201
    assert server.get(f"{pods}/p").status == 200


def test_an_eviction_names_its_pod(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    answer = server.post(f"{pods}/p/eviction", {**EVICTION, "metadata": {"name": "q"}})
    assert (answer.status, answer.message) == (400, "name in URL does not match name in Eviction object")


def test_nobody_is_not_evicted(server: Server, pods: str) -> None:
    answer = server.post(f"{pods}/p/eviction", EVICTION)
    assert (answer.status, answer.message) == (404, 'pods "p" not found')


def test_a_log_s_container_is_named_where_there_are_several(server: Server, pods: str) -> None:
    containers = [{"name": name, "image": "x"} for name in ("a", "b")]
    server.post(pods, pod(schedulerName="nobody", containers=containers)).ok()
    answer = server.get(f"{pods}/p/log")
    assert answer.status == 400
    assert answer.message == "a container name must be specified for pod p, choose one of: [a b]"


def test_a_log_s_container_is_there(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    answer = server.get(f"{pods}/p/log", container="other")
    assert (answer.status, answer.message) == (400, "container other is not valid for pod p")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"tailLines": -1}, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ({"limitBytes": 0}, "limitBytes: Invalid value: 0: must be greater than 0"),
        ({"sinceSeconds": 0}, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            {"sinceSeconds": 5, "sinceTime": "2026-01-01T00:00:00Z"},
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
    ],
)
def test_odd_log_options_are_invalid(server: Server, pods: str, query: dict, said: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    answer = server.get(f"{pods}/p/log", **query)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('PodLogOptions "p" is invalid: ')
    assert said in answer.message


def says(*words: str, **spec: object) -> Object:
    container = {"name": "main", "image": "registry.example.com/x:1", "command": ["sh", "-c", "; ".join(words)]}
    return pod(containers=[container], restartPolicy="Never", **spec)


@pytest.mark.needs("scheduler", "kubelet")
def test_a_pod_runs_to_its_end(server: Server, pods: str) -> None:
    server.post(pods, says("echo hello")).ok()
    done = reached(server, pods, "Succeeded")
    (status,) = done["status"]["containerStatuses"]
    assert (status["state"]["terminated"]["exitCode"], status["state"]["terminated"]["reason"]) == (0, "Completed")
    assert done["spec"]["nodeName"]
    assert done["status"]["podIP"]


@pytest.mark.needs("scheduler", "kubelet")
def test_a_pod_that_fails_says_how(server: Server, pods: str) -> None:
    server.post(pods, says("exit 3")).ok()
    failed = reached(server, pods, "Failed")
    (status,) = failed["status"]["containerStatuses"]
    assert (status["state"]["terminated"]["exitCode"], status["state"]["terminated"]["reason"]) == (3, "Error")


@pytest.mark.needs("scheduler", "kubelet")
def test_a_log_is_read_whole_by_its_end_or_with_times(server: Server, pods: str) -> None:
    server.post(pods, says("echo one", "echo two", "echo three")).ok()
    reached(server, pods, "Succeeded")
    answer = server.get(f"{pods}/p/log", accept="*/*")
    assert (answer.body, answer.headers["content-type"].partition(";")[0]) == ("one\ntwo\nthree\n", "text/plain")
    assert server.get(f"{pods}/p/log", accept="*/*", tailLines=1).body == "three\n"
    assert server.get(f"{pods}/p/log", accept="*/*", limitBytes=5).body == "one\nt"
    timed = server.get(f"{pods}/p/log", accept="*/*", timestamps="true", tailLines=1).body
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[-+]\d\d:\d\d) three\n", timed)


@pytest.mark.needs("scheduler", "kubelet")
def test_a_run_before_the_first_has_no_log(server: Server, pods: str) -> None:
    server.post(pods, says("echo one")).ok()
    reached(server, pods, "Succeeded")
    answer = server.get(f"{pods}/p/log", previous="true")
    assert (answer.status, answer.message) == (400, 'previous terminated container "main" in pod "p" not found')


@pytest.mark.needs("scheduler", "kubelet")
def test_a_running_pod_ends_within_its_grace(server: Server, pods: str) -> None:
    server.post(pods, pod()).ok()
    running = reached(server, pods, "Running")
    since = running["metadata"]["resourceVersion"]
    assert server.delete(f"{pods}/p").ok()["metadata"]["deletionGracePeriodSeconds"] == 2
    with server.watching(**about(pods), resourceVersion=since) as events:
        assert any(event["type"] == "DELETED" for event in events)


@pytest.mark.needs("scheduler")
def test_a_pod_that_fits_nowhere_says_why(server: Server, pods: str, namespace: str) -> None:
    server.post(pods, pod(nodeSelector={"no": "node"})).ok()
    with server.watching(**about(pods)) as events:
        for event in events:
            found = [c for c in event["object"]["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
            if found:
                break
    assert (found[0]["status"], found[0]["reason"]) == ("False", "Unschedulable")
    assert re.match(r"0/\d+ nodes are available: ", found[0]["message"])
    asked = "involvedObject.name=p,reason=FailedScheduling"
    with server.watching(f"/api/v1/namespaces/{namespace}/events", 30, fieldSelector=asked) as events:
        assert next(events)["object"]["message"].startswith("0/")


@pytest.mark.needs("scheduler", "kubelet", "gpus")
def test_a_pod_gets_the_cards_that_it_asks_for(server: Server, pods: str) -> None:
    server.post(pods, pod(resources={"limits": {"nvidia.com/gpu": "1"}})).ok()
    running = reached(server, pods, "Running")
    node = server.get(f"/api/v1/nodes/{running['spec']['nodeName']}").ok()
    assert int(node["status"]["allocatable"]["nvidia.com/gpu"]) >= 1
