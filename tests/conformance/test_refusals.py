"""What is invalid, in the words that users see: names, labels, cards, Jobs, DaemonSets, nodes, priorities."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.wire import Answer, Object, Server, config_map, job, pod

INVALID, REQUIRED, FORBIDDEN = "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden"
RESOURCES = "spec.containers[0].resources"
GPU = "nvidia.com/gpu"


def refused(answer: Answer, reason: str, field: str, said: str) -> None:
    """Check a 422 with a cause at a field, and its words."""
    assert (answer.status, answer.reason) == (422, "Invalid"), answer.body
    assert (reason, field) in answer.causes
    assert said in answer.message


@pytest.mark.parametrize(
    ("resources", "reason", "field", "said"),
    [
        ({"limits": {GPU: "0.5"}}, INVALID, f"{RESOURCES}.limits[{GPU}]", "must be an integer"),
        (
            {"requests": {GPU: "1"}},
            REQUIRED,
            f"{RESOURCES}.limits",
            "Limit must be set for non overcommitable resources",
        ),
        (
            {"requests": {GPU: "1"}, "limits": {GPU: "2"}},
            INVALID,
            f"{RESOURCES}.requests",
            f'Invalid value: "1": must be equal to {GPU} limit of 2',
        ),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            INVALID,
            f"{RESOURCES}.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"limits": {"gpus": "1"}},
            INVALID,
            f"{RESOURCES}.limits[gpus]",
            "must be a standard resource type or fully qualified",
        ),
        ({"limits": {GPU: "-1"}}, INVALID, f"{RESOURCES}.limits[{GPU}]", "must be greater than or equal to 0"),
    ],
)
def test_a_container_s_resources(
    server: Server, pods: str, resources: Object, reason: str, field: str, said: str
) -> None:
    refused(server.post(pods, pod(resources=resources)), reason, field, said)


def test_a_limit_of_cards_is_a_request_too(server: Server, pods: str) -> None:
    made = server.post(pods, pod(resources={"limits": {GPU: 1}}), dryRun="All").ok()
    assert made["spec"]["containers"][0]["resources"] == {"limits": {GPU: "1"}, "requests": {GPU: "1"}}


def test_an_amount_that_is_none(server: Server, pods: str) -> None:
    answer = server.post(pods, pod(resources={"limits": {"cpu": "lots"}}))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "quantities must match the regular expression" in answer.message


@pytest.mark.parametrize(
    ("spec", "reason", "field", "said"),
    [
        ({"containers": []}, REQUIRED, "spec.containers", "Required value"),
        ({"restartPolicy": "Sometimes"}, "FieldValueNotSupported", "spec.restartPolicy", 'Unsupported value: "Somet'),
        (
            {"containers": [{"name": "Main", "image": "x"}]},
            INVALID,
            "spec.containers[0].name",
            "a lowercase RFC 1123 label must consist of",
        ),
        ({"containers": [{"name": "a"}]}, REQUIRED, "spec.containers[0].image", "Required value"),
        (
            {"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]},
            "FieldValueDuplicate",
            "spec.containers[1].name",
            'Duplicate value: "a"',
        ),
        (
            {"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            "FieldValueNotFound",
            "spec.containers[0].volumeMounts[0].name",
            'Not found: "v"',
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            INVALID,
            "spec.tolerations[0].operator",
            "value must be empty when `operator` is 'Exists'",
        ),
        (
            {"tolerations": [{"operator": "Equal"}]},
            INVALID,
            "spec.tolerations[0].operator",
            "operator must be Exists when `key` is empty",
        ),
        ({"nodeSelector": {"a": "b c"}}, INVALID, "spec.nodeSelector", "a valid label must be an empty string"),
        ({"activeDeadlineSeconds": 0}, INVALID, "spec.activeDeadlineSeconds", "must be between 1 and 2147483647"),
    ],
)
def test_a_pod_s_spec(server: Server, pods: str, spec: Object, reason: str, field: str, said: str) -> None:
    refused(server.post(pods, pod(**spec)), reason, field, said)


def test_everything_that_is_wrong_is_said_at_once(server: Server, pods: str) -> None:
    answer = server.post(pods, {"metadata": {"name": "P"}, "spec": {"containers": [{"name": "a"}]}})
    assert {("FieldValueInvalid", "metadata.name"), (REQUIRED, "spec.containers[0].image")} <= set(answer.causes)
    assert answer.message.startswith('Pod "P" is invalid: [metadata.name: Invalid value: "P": ')
    assert answer.body["details"]["kind"] == "Pod"


def test_a_running_pod_s_spec_is_nearly_fixed(server: Server, pods: str) -> None:
    server.post(pods, pod(schedulerName="nobody")).ok()
    answer = server.merge(f"{pods}/p", {"spec": {"hostNetwork": True}})
    refused(answer, FORBIDDEN, "spec", "pod updates may not change fields other than `spec.containers[*].image`")
    more = {"tolerations": [*server.get(f"{pods}/p").ok()["spec"].get("tolerations", ()), {"key": "a"}]}
    more["tolerations"][-1]["operator"] = "Exists"
    assert server.merge(f"{pods}/p", {"spec": more}).status == 200


def test_a_pod_cannot_name_a_priority_class_that_is_not_there(server: Server, pods: str) -> None:
    answer = server.post(pods, pod(priorityClassName="no-such-class"))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == 'pods "p" is forbidden: no PriorityClass with name no-such-class was found'


def test_a_pod_cannot_choose_its_priority_s_number(server: Server, pods: str) -> None:
    answer = server.post(pods, pod(priority=5))
    assert answer.status == 403
    assert "the integer value of priority (5) must not be provided in pod spec" in answer.message


@pytest.mark.parametrize(
    ("meta", "field", "said"),
    [
        ({"name": "Bad_Name"}, "metadata.name", "a lowercase RFC 1123 subdomain must consist of"),
        ({"name": "a" * 254}, "metadata.name", "must be no more than 253"),
        ({"name": "a", "labels": {"k": "a b"}}, "metadata.labels", "a valid label must be an empty string or"),
        ({"name": "a", "labels": {"k": "v" * 64}}, "metadata.labels", "must be no more than 63"),
        ({"name": "a", "labels": {"a b": "v"}}, "metadata.labels", "name part must consist of alphanumeric"),
        ({"name": "a", "labels": {"A_/b": "v"}}, "metadata.labels", "prefix part a lowercase RFC 1123 subdomain"),
        ({"name": "a", "labels": {"a/b/c": "v"}}, "metadata.labels", "a qualified name must consist of"),
        ({"name": "a", "annotations": {"a b": "v"}}, "metadata.annotations", "name part must consist of"),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]},
            "metadata.ownerReferences.uid",
            "must not be empty",
        ),
    ],
)
def test_metadata(server: Server, maps: str, meta: Object, field: str, said: str) -> None:
    refused(server.post(maps, {"metadata": meta}), INVALID, field, said)


def test_an_object_has_a_name(server: Server, maps: str) -> None:
    answer = server.post(maps, {"metadata": {}})
    refused(answer, REQUIRED, "metadata.name", "Required value: name or generateName is required")
    assert answer.message.startswith('ConfigMap "" is invalid: ')


def test_annotations_are_not_a_disk(server: Server, maps: str) -> None:
    answer = server.post(maps, config_map("a", annotations={"k": "v" * 270_000}))
    assert (answer.status, answer.causes) == (422, [("FieldValueTooLong", "metadata.annotations")])


def test_a_config_map_s_keys(server: Server, maps: str) -> None:
    refused(server.post(maps, config_map("a", {"a b": "v"})), INVALID, "data[a b]", "a valid config key must consist")


def test_a_config_map_is_not_a_disk(server: Server, maps: str) -> None:
    answer = server.post(maps, config_map("a", {"k": "v" * 1_100_000}))
    assert (answer.status, answer.causes[0][0]) == (422, "FieldValueTooLong")


def test_an_immutable_config_map(server: Server, maps: str) -> None:
    server.post(maps, {**config_map("a", {"k": "v"}), "immutable": True}).ok()
    answer = server.merge(f"{maps}/a", {"data": {"k": "w"}})
    refused(answer, FORBIDDEN, "data", "field is immutable when `immutable` is set")
    answer = server.merge(f"{maps}/a", {"immutable": False})
    refused(answer, FORBIDDEN, "immutable", "field is immutable when `immutable` is set")


def test_a_secret_s_type_stays(server: Server, namespace: str) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    server.post(secrets, {"metadata": {"name": "a"}}).ok()
    refused(server.merge(f"{secrets}/a", {"type": "x"}), INVALID, "type", "field is immutable")


def test_a_pull_secret_has_its_key(server: Server, namespace: str) -> None:
    body = {"metadata": {"name": "a"}, "type": "kubernetes.io/dockerconfigjson"}
    answer = server.post(f"/api/v1/namespaces/{namespace}/secrets", body)
    assert (answer.status, answer.causes) == (422, [(REQUIRED, "data[.dockerconfigjson]")])


def test_a_job_s_pods_end(server: Server, jobs: str) -> None:
    body = job()
    body["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    answer = server.post(jobs, body)
    refused(answer, REQUIRED, "spec.template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"')
    assert answer.message.startswith('Job.batch "j" is invalid: ')


@pytest.mark.parametrize(
    ("spec", "reason", "field", "said"),
    [
        ({"parallelism": -1}, INVALID, "spec.parallelism", "must be greater than or equal to 0"),
        ({"backoffLimit": -1}, INVALID, "spec.backoffLimit", "must be greater than or equal to 0"),
        (
            {"completionMode": "Indexed", "completions": None, "parallelism": 1},
            REQUIRED,
            "spec.completions",
            "when completion mode is Indexed",
        ),
        ({"selector": {"matchLabels": {"a": "b"}}}, INVALID, "spec.selector", "`selector` not auto-generated"),
    ],
)
def test_a_job_s_spec(server: Server, jobs: str, spec: Object, reason: str, field: str, said: str) -> None:
    refused(server.post(jobs, job(**spec)), reason, field, said)


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        (
            {"template": {"spec": {"containers": [{"name": "main", "image": "registry.example.com/y:1"}]}}},
            "spec.template",
        ),
        ({"completions": 7}, "spec.completions"),
        ({"completionMode": "Indexed", "completions": 1}, "spec.completionMode"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector"),
    ],
)
def test_what_of_a_job_stays(server: Server, jobs: str, patch: Object, field: str) -> None:
    server.post(jobs, job(suspend=True)).ok()
    refused(server.strategic(f"{jobs}/j", {"spec": patch}), INVALID, field, "field is immutable")


def test_a_suspended_job_may_still_be_told_where_to_run(server: Server, jobs: str) -> None:
    server.post(jobs, job(suspend=True)).ok()
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    assert server.merge(f"{jobs}/j", patch).ok()["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}


def daemonset(**spec: Any) -> Object:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "x"}]},
    }
    return {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec},
    }


@pytest.fixture
def daemonsets(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/daemonsets"


def test_a_daemonset_selects_its_own_pods(server: Server, daemonsets: str) -> None:
    answer = server.post(daemonsets, daemonset(selector={"matchLabels": {"app": "b"}}))
    refused(answer, INVALID, "spec.template.metadata.labels", "`selector` does not match template `labels`")


def test_a_daemonset_s_selector_stays(server: Server, daemonsets: str) -> None:
    made = server.post(daemonsets, daemonset()).ok()
    made["spec"]["selector"]["matchLabels"]["more"] = "x"
    made["spec"]["template"]["metadata"]["labels"]["more"] = "x"
    # Its controller may have written meanwhile.
    del made["metadata"]["resourceVersion"]
    refused(server.put(f"{daemonsets}/d", made), INVALID, "spec.selector", "field is immutable")


def test_a_daemonset_s_pods_run_for_ever(server: Server, daemonsets: str) -> None:
    body = daemonset()
    body["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    answer = server.post(daemonsets, body)
    refused(answer, "FieldValueNotSupported", "spec.template.spec.restartPolicy", 'supported values: "Always"')


@pytest.mark.parametrize(
    ("strategy", "reason", "field"),
    [
        ({"maxUnavailable": 0}, REQUIRED, "maxUnavailable"),
        ({"maxUnavailable": 1, "maxSurge": 1}, INVALID, "maxSurge"),
        ({"maxUnavailable": "some"}, INVALID, "maxUnavailable"),
    ],
)
def test_a_daemonset_s_strategy(server: Server, daemonsets: str, strategy: Object, reason: str, field: str) -> None:
    answer = server.post(daemonsets, daemonset(updateStrategy={"rollingUpdate": strategy}))
    assert (answer.status, (reason, f"spec.updateStrategy.rollingUpdate.{field}") in answer.causes) == (422, True)


def test_a_taint_s_effect(server: Server, node: str) -> None:
    answer = server.merge(node, {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}})
    assert (answer.status, answer.causes[0][0]) == (422, "FieldValueNotSupported")
    assert 'taints[0].effect: Unsupported value: "Sometimes": supported values: "NoSchedule"' in answer.message


def test_taints_are_unique_by_key_and_effect(server: Server, node: str) -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    answer = server.merge(node, {"spec": {"taints": [{**taint, "value": "b"}, {**taint, "value": "c"}]}})
    assert (answer.status, answer.causes[0][0]) == (422, "FieldValueDuplicate")
    assert answer.message.endswith("taints must be unique by key and effect pair")


def test_a_user_s_priority_has_a_bound(server: Server) -> None:
    body = {"metadata": {"name": "conformance-too-high"}, "value": 1_000_000_001}
    answer = server.post("/apis/scheduling.k8s.io/v1/priorityclasses", body, dryRun="All")
    refused(answer, FORBIDDEN, "value", "maximum allowed value of a user defined priority is 1000000000")


def test_a_priority_s_value_stays(server: Server) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"
    refused(server.merge(path, {"value": 1}, dryRun="All"), FORBIDDEN, "value", "may not be changed in an update")


def test_a_lease_lasts(server: Server, namespace: str) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 0}}
    answer = server.post(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", body)
    refused(answer, INVALID, "spec.leaseDurationSeconds", "must be greater than 0")


def test_an_event_is_about_its_own_namespace(server: Server, namespace: str) -> None:
    body = {"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}}
    answer = server.post(f"/api/v1/namespaces/{namespace}/events", body)
    refused(answer, INVALID, "involvedObject.namespace", "does not match event.namespace")


def test_a_namespace_s_name_is_a_label(server: Server) -> None:
    answer = server.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}})
    refused(answer, INVALID, "metadata.name", "a lowercase RFC 1123 label must consist of")
