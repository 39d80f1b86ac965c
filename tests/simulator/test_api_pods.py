"""Pods over the wire: they run, print, are evicted, and go when their grace is over."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException


def pod(name: str, *command: str, **spec: Any) -> dict:
    container = {"name": "main", "image": "registry.example.com/tools:1", "command": list(command)}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def until(core: client.CoreV1Api, namespace: str, condition: Any, *, name: str = "p", since: Any = None) -> Any:
    """Watch a pod (after the version of ``since``) until the condition holds for (event type, pod)."""
    query = {"resource_version": since.metadata.resource_version} if since else {}
    stream = watch.Watch().stream(
        core.list_namespaced_pod, namespace, field_selector=f"metadata.name={name}", timeout_seconds=30, **query
    )
    with contextlib.closing(stream):
        for event in stream:
            if condition(event["type"], event["object"]):
                return event["object"]
    raise AssertionError(f"pod {name} never got there")


def is_phase(phase: str) -> Any:
    return lambda _, found: found.status.phase == phase


def is_gone(type_: str, _: Any) -> bool:
    return type_ == "DELETED"


def test_a_pod_runs_and_its_log_can_be_read(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", "echo", "hello"))
    until(core, namespace, is_phase("Succeeded"))
    assert core.read_namespaced_pod_log("p", namespace) == "hello\n"
    stamped = core.read_namespaced_pod_log("p", namespace, timestamps=True)
    assert stamped.endswith("Z hello\n")
    assert core.read_namespaced_pod_log("p", namespace, tail_lines=0) == ""
    followed = core.read_namespaced_pod_log("p", namespace, follow=True, _preload_content=False)
    assert followed.read() == b"hello\n"


def test_a_container_that_is_not_there_has_no_log(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", "echo", "hello"))
    with pytest.raises(ApiException) as refused:
        core.read_namespaced_pod_log("p", namespace, container="other")
    assert refused.value.status == 400
    assert json.loads(refused.value.body)["message"] == "container other is not valid for pod p"


def test_there_is_no_previous_log_before_a_restart(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", "echo", "hello"))
    until(core, namespace, is_phase("Succeeded"))
    with pytest.raises(ApiException) as refused:
        core.read_namespaced_pod_log("p", namespace, previous=True)
    assert json.loads(refused.value.body)["message"] == 'previous terminated container "main" in pod "p" not found'


def test_a_deleted_pod_stays_until_its_kubelet_lets_go(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", "sleep", "3600"))
    running = until(core, namespace, is_phase("Running"))
    assert running.spec.node_name
    deleted = core.delete_namespaced_pod("p", namespace)
    assert deleted.metadata.deletion_timestamp
    assert deleted.metadata.deletion_grace_period_seconds == 30
    gone = until(core, namespace, is_gone, since=running)
    assert gone.metadata.uid == running.metadata.uid


def test_a_pod_without_a_node_goes_at_once(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", "true", nodeSelector={"no": "node"}))
    core.delete_namespaced_pod("p", namespace)
    with pytest.raises(ApiException) as missing:
        core.read_namespaced_pod("p", namespace)
    assert missing.value.status == 404


def test_no_grace_kills_at_once(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", "sleep", "3600"))
    until(core, namespace, is_phase("Running"))
    core.delete_namespaced_pod("p", namespace, grace_period_seconds=0)
    with pytest.raises(ApiException):
        core.read_namespaced_pod("p", namespace)


def test_an_evicted_pod_says_why_it_goes(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", "sleep", "3600"))
    running = until(core, namespace, is_phase("Running"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": namespace}}
    answer = core.create_namespaced_pod_eviction("p", namespace, eviction, _preload_content=False)
    assert answer.status == 201
    last = until(core, namespace, is_gone, since=running)
    reasons = {entry.type: entry.reason for entry in last.status.conditions}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"


def test_a_pod_of_another_scheduler_is_bound_by_hand_and_only_once(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", "sleep", "3600", schedulerName="by-hand"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "cpu-01"}}
    core.create_namespaced_pod_binding("p", namespace, binding, _preload_content=False)
    bound = until(core, namespace, is_phase("Running"))
    assert bound.spec.node_name == "cpu-01"
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_binding("p", namespace, binding, _preload_content=False)
    assert refused.value.status == 409


def test_the_pods_of_a_deleted_job_are_collected(
    batch: client.BatchV1Api, core: client.CoreV1Api, namespace: str
) -> None:
    template = {"spec": pod("x", "sleep", "3600")["spec"]}
    batch.create_namespaced_job(namespace, {"metadata": {"name": "j"}, "spec": {"template": template}})
    stream = watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=30)
    with contextlib.closing(stream):
        running = next(event["object"] for event in stream if event["object"].status.phase == "Running")
    batch.delete_namespaced_job("j", namespace, propagation_policy="Background")
    until(core, namespace, is_gone, name=running.metadata.name, since=running)
    assert not core.list_namespaced_pod(namespace, label_selector="job-name=j").items


def test_a_gated_pod_says_so_until_its_gates_are_gone(core: client.CoreV1Api, namespace: str) -> None:
    gated = pod("p", "sleep", "3600", schedulingGates=[{"name": "quota.example/wait"}])
    made = core.create_namespaced_pod(namespace, gated)
    (condition,) = made.status.conditions
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "SchedulingGated")
    assert condition.message == "Scheduling is blocked due to non-empty scheduling gates"
    core.patch_namespaced_pod("p", namespace, {"spec": {"schedulingGates": None}})
    started = until(core, namespace, is_phase("Running"))
    (condition,) = [each for each in started.status.conditions if each.type == "PodScheduled"]
    assert (condition.status, condition.reason) == ("True", None)


def test_a_pod_that_fits_nowhere_once_its_gates_are_gone_says_that_instead(
    core: client.CoreV1Api, namespace: str
) -> None:
    spec = {"schedulingGates": [{"name": "quota.example/wait"}], "nodeSelector": {"no-such": "node"}}
    core.create_namespaced_pod(namespace, pod("p", "sleep", "3600", **spec))
    core.patch_namespaced_pod("p", namespace, {"spec": {"schedulingGates": None}})
    waiting = until(
        core, namespace, lambda _, found: any(c.reason == "Unschedulable" for c in found.status.conditions or ())
    )
    (condition,) = [each for each in waiting.status.conditions if each.type == "PodScheduled"]
    assert condition.last_transition_time is not None


def test_gates_can_be_taken_away_one_by_one_and_never_added(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(
        namespace, pod("p", "true", schedulingGates=[{"name": "a.example/x"}, {"name": "b.example/x"}])
    )
    core.patch_namespaced_pod(
        "p", namespace, {"spec": {"schedulingGates": [{"name": "b.example/x", "$patch": "delete"}]}}
    )
    assert [gate.name for gate in core.read_namespaced_pod("p", namespace).spec.scheduling_gates] == ["a.example/x"]
    with pytest.raises(ApiException) as refused:
        core.patch_namespaced_pod("p", namespace, {"spec": {"schedulingGates": [{"name": "c.example/x"}]}})
    assert refused.value.status == 422
    said = "only deletion is allowed, but found new scheduling gate 'c.example/x'"
    assert said in json.loads(refused.value.body)["message"]
