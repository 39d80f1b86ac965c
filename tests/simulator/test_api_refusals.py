"""What the embedded cluster refuses, and what it fills in, in the API server's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import client

from tests.simulator.calls import MERGE, STRATEGIC, call


def pod(resources: dict, **spec: Any) -> dict:
    return {
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}], **spec},
    }


WHERE = "spec.containers[0].resources"


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (
            {"limits": {"nvidia.com/gpu": "0.5"}},
            f'[{WHERE}.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer, '
            f'{WHERE}.requests[nvidia.com/gpu]: Invalid value: "500m": must be an integer]',
        ),
        (
            {"requests": {"nvidia.com/gpu": "1"}},
            f"{WHERE}.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}},
            f'{WHERE}.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
        ),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            f'{WHERE}.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
    ],
)
def test_card_requests_are_checked_in_the_api_server_s_words(
    api: client.ApiClient, namespace: str, resources: dict, said: str
) -> None:
    status, body = call(api, "POST", f"/api/v1/namespaces/{namespace}/pods", pod(resources))
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"] == f'Pod "q" is invalid: {said}'
    assert body["details"]["kind"] == "Pod"
    assert body["details"]["causes"][0]["field"].startswith(WHERE)


def test_shared_memory_with_a_suffix_is_taken_as_it_is(api: client.ApiClient, namespace: str) -> None:
    asked = pod({"limits": {"aliyun.com/gpu-mem": "4Gi"}})
    status, body = call(api, "POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", asked)
    assert status == 201
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"aliyun.com/gpu-mem": "4Gi"}


def test_a_pod_is_filled_with_defaults(api: client.ApiClient, namespace: str) -> None:
    asked = pod({"limits": {"cpu": 1, "memory": "1024Mi", "nvidia.com/gpu": 1}})
    _, body = call(api, "POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", asked)
    spec = body["spec"]
    assert (spec["restartPolicy"], spec["serviceAccountName"], spec["terminationGracePeriodSeconds"]) == (
        "Always",
        "default",
        30,
    )
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert body["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
    assert [entry["key"] for entry in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


def test_a_job_that_always_restarts_is_refused(api: client.ApiClient, namespace: str) -> None:
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}}
    status, body = call(api, "POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    assert status == 422
    assert body["message"] == (
        'Job.batch "j" is invalid: spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    )


@pytest.mark.parametrize(
    ("meta", "field", "said"),
    [
        ({"name": "Bad_Name"}, "metadata.name", "a lowercase RFC 1123 subdomain must consist of"),
        ({"name": "a", "labels": {"k": "a b"}}, "metadata.labels", "a valid label must be an empty string or"),
        ({"name": "a", "labels": {"a b": "v"}}, "metadata.labels", "name part must consist of alphanumeric"),
        ({"name": "a", "labels": {"k": "v" * 64}}, "metadata.labels", "must be no more than 63 bytes"),
        ({}, "metadata.name", "Required value: name or generateName is required"),
    ],
)
def test_metadata_is_checked(api: client.ApiClient, here: str, meta: dict, field: str, said: str) -> None:
    status, body = call(api, "POST", here, {"metadata": meta})
    assert status == 422
    assert said in body["message"]
    assert body["details"]["causes"][0]["field"] == field


def test_an_amount_that_is_none_is_a_bad_request(api: client.ApiClient, namespace: str) -> None:
    status, body = call(api, "POST", f"/api/v1/namespaces/{namespace}/pods", pod({"limits": {"cpu": "lots"}}))
    assert status == 400
    assert body["message"].startswith('Pod in version "v1" cannot be handled as a Pod: quantities must match')


def test_a_running_pod_s_resources_cannot_change(api: client.ApiClient, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    call(api, "POST", pods, pod({}))
    patch = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}}
    status, body = call(api, "PATCH", f"{pods}/q", patch, STRATEGIC)
    assert status == 422
    assert "pod updates may not change fields other than" in body["message"]
    patch = {"spec": {"containers": [{"name": "c", "image": "y"}]}}
    assert call(api, "PATCH", f"{pods}/q", patch, STRATEGIC)[0] == 200


def test_an_unreadable_body_is_a_bad_request(api: client.ApiClient, here: str) -> None:
    assert call(api, "POST", here, ["not an object"])[0] == 400


def test_taints_are_checked(api: client.ApiClient) -> None:
    patch = {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}}
    status, body = call(api, "PATCH", "/api/v1/nodes/gpu-07", patch, MERGE)
    assert status == 422
    assert body["message"] == (
        'Node "gpu-07" is invalid: metadata.taints[0].effect: Unsupported value: "Sometimes": supported values: '
        '"NoSchedule", "PreferNoSchedule", "NoExecute"'
    )


def test_unknown_fields_are_refused_warned_of_or_dropped_as_asked(api: client.ApiClient, here: str) -> None:
    odd = {"metadata": {"name": "odd", "lables": {"a": "b"}}, "date": {}}
    status, body = call(api, "POST", f"{here}?fieldValidation=Strict", odd)
    assert status == 400
    assert body["message"] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'unknown field "metadata.lables", unknown field "date"'
    )
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    sent = api.param_serialize("POST", here, header_params=headers, body=odd, auth_settings=["BearerToken"])
    answer = api.call_api(*sent)
    created = json.loads(answer.read())
    assert "date" not in created
    assert answer.getheader("warning") is not None
    assert call(api, "DELETE", f"{here}/odd")[0] == 200
    assert call(api, "POST", f"{here}?fieldValidation=Ignore", odd)[0] == 201


def test_values_of_the_wrong_type_are_refused_as_go_words_it(api: client.ApiClient, namespace: str) -> None:
    job = {"metadata": {"name": "j"}, "spec": {"parallelism": "two"}}
    status, body = call(api, "POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    assert status == 400
    assert body["message"] == (
        'Job in version "v1" cannot be handled as a Job: json: cannot unmarshal string into Go struct field '
        "JobSpec.spec.parallelism of type int32"
    )
    labelled = {"metadata": {"name": "c", "labels": {"count": 4}}}
    status, body = call(api, "POST", f"/api/v1/namespaces/{namespace}/configmaps", labelled)
    assert body["message"].endswith(
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
    )


def test_everything_that_the_cluster_makes_itself_has_known_fields_only(
    api: client.ApiClient, batch: client.BatchV1Api, namespace: str
) -> None:
    batch.create_namespaced_job(
        namespace,
        {
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}},
        },
    )
    seen = 0
    for path in (
        "/api/v1/nodes", "/api/v1/pods", "/api/v1/events", "/api/v1/configmaps", "/api/v1/serviceaccounts",
        "/api/v1/namespaces", "/apis/batch/v1/jobs", "/apis/apps/v1/daemonsets",
        "/apis/coordination.k8s.io/v1/leases", "/apis/scheduling.k8s.io/v1/priorityclasses",
    ):  # fmt: skip
        for item in call(api, "GET", path)[1]["items"][:20]:
            meta = item["metadata"]
            root, _, plural = path.rpartition("/")
            where = f"{root}/namespaces/{meta['namespace']}/{plural}" if "namespace" in meta else path
            if item.get("kind", plural) != "leases":
                del meta["resourceVersion"]
            status, body = call(api, "PUT", f"{where}/{meta['name']}?fieldValidation=Strict&dryRun=All", item)
            # Pods and events may be gone meanwhile, and leases renewed; everything else is taken as it is.
            assert status in ((200, 409) if plural == "leases" else (200, 404)), body
            seen += status == 200
    assert seen > 30
