"""Disruption budgets over the wire: they are counted, and no eviction gets past one."""

from __future__ import annotations

import json

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.simulator.test_api_pods import is_phase, pod, until


@pytest.fixture
def policy(api: client.ApiClient) -> client.PolicyV1Api:
    return client.PolicyV1Api(api)


def budget(name: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


def web(name: str) -> dict[str, object]:
    made = pod(name, "sleep", "3600")
    made["metadata"]["labels"] = {"app": "web"}
    return made


def evict(core: client.CoreV1Api, namespace: str, name: str) -> ApiException | None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    try:
        core.create_namespaced_pod_eviction(name, namespace, body, _preload_content=False)
    except ApiException as error:
        return error
    return None


def test_a_budget_lets_go_only_what_it_can_spare(
    core: client.CoreV1Api, policy: client.PolicyV1Api, namespace: str
) -> None:
    policy.create_namespaced_pod_disruption_budget(namespace, budget("web", minAvailable=1))
    for name in ("a", "b"):
        core.create_namespaced_pod(namespace, web(name))
        until(core, namespace, is_phase("Running"), name=name)
    assert evict(core, namespace, "a") is None
    refused = evict(core, namespace, "b")
    assert refused is not None
    said = json.loads(refused.body)
    assert (refused.status, said["reason"]) == (429, "TooManyRequests")
    assert said["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert said["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget web needs 1 healthy pods and has 1 currently",
        }
    ]


def test_a_pod_that_no_budget_covers_goes(core: client.CoreV1Api, policy: client.PolicyV1Api, namespace: str) -> None:
    policy.create_namespaced_pod_disruption_budget(namespace, budget("web", minAvailable=5))
    core.create_namespaced_pod(namespace, pod("p", "sleep", "3600"))
    until(core, namespace, is_phase("Running"))
    assert evict(core, namespace, "p") is None


def test_a_budget_that_cannot_be_counted_allows_nothing_and_two_over_one_pod_are_an_error(
    core: client.CoreV1Api, policy: client.PolicyV1Api, namespace: str
) -> None:
    policy.create_namespaced_pod_disruption_budget(namespace, budget("one", maxUnavailable=1))
    core.create_namespaced_pod(namespace, web("p"))
    until(core, namespace, is_phase("Running"))
    refused = evict(core, namespace, "p")
    assert refused is not None
    assert refused.status == 429
    policy.create_namespaced_pod_disruption_budget(namespace, budget("two", minAvailable=0))
    refused = evict(core, namespace, "p")
    assert refused is not None
    assert refused.status == 500
    assert "more than one PodDisruptionBudget" in json.loads(refused.body)["message"]
    policy.delete_namespaced_pod_disruption_budget("one", namespace)
    policy.delete_namespaced_pod_disruption_budget("two", namespace)
    assert evict(core, namespace, "p") is None


def test_what_no_budget_may_be_is_refused(policy: client.PolicyV1Api, namespace: str) -> None:
    with pytest.raises(ApiException) as both:
        policy.create_namespaced_pod_disruption_budget(namespace, budget("x", minAvailable=1, maxUnavailable=1))
    assert "minAvailable and maxUnavailable cannot be both set" in json.loads(both.value.body)["message"]
    with pytest.raises(ApiException) as odd:
        policy.create_namespaced_pod_disruption_budget(
            namespace, budget("x", minAvailable=1, unhealthyPodEvictionPolicy="Never")
        )
    assert odd.value.status == 422
