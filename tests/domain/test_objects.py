"""Reading raw Kubernetes objects: API defaulting, leniency, reasons of pods, states of workloads."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.gpus import AffinityTerm, PreferredTerm, Requirement, Taint, Toleration
from gpupools.domain.objects import (
    ConfigMapObject,
    NodeObject,
    PodObject,
    convert,
    gpu_node,
    pod,
    topology_node,
)
from gpupools.errors import Invalid


def exited(code, reason, **more):
    return {"state": {"terminated": {"reason": reason, "exitCode": code, **more}}}


def waits(reason, **more):
    return {"state": {"waiting": {"reason": reason, **more}}}


def a_pod(*, spec=None, status=None, **meta):
    return {
        "metadata": {"name": "p", "namespace": "team", "uid": "u1", **meta},
        "spec": spec or {},
        "status": status or {},
    }


def test_a_node_is_read_with_its_resources_in_whole_numbers():
    node = convert(
        "Node",
        {
            "kind": "Node",
            "metadata": {
                "name": "n1",
                "uid": "u",
                "labels": {"ack.node.gpu.schedule": "cgpu", "node.kubernetes.io/instance-type": "ecs.gn6v"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"anything": 1}],
            },
            "spec": {
                "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": None}],
                "unschedulable": True,
            },
            "status": {
                "allocatable": {"cpu": "7910m", "memory": "1Gi", "aliyun.com/gpu-mem": "60"},
                "capacity": {"cpu": "8", "aliyun.com/gpu-mem": "60"},
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True"},
                ],
                "addresses": [
                    {"type": "Hostname", "address": "n1"},
                    {"type": "InternalIP", "address": "10.0.0.1"},
                ],
                "nodeInfo": {"kubeletVersion": "v1.36.0"},
            },
        },
    )
    assert node.allocatable == {"cpu": 7910, "memory": 1024**3, "aliyun.com/gpu-mem": 60}
    assert node.capacity["cpu"] == 8000
    assert (node.ready, node.unschedulable, node.ip, node.instance_type) == (
        True,
        True,
        "10.0.0.1",
        "ecs.gn6v",
    )
    assert node.taints == (Taint("k", "", "NoExecute"),)
    assert (node.kubelet_version, node.created_at) == ("v1.36.0", "2026-01-01T00:00:00Z")


def test_missing_and_null_fields_have_defaults():
    node = convert("Node", {"metadata": {"name": "n", "labels": None}, "spec": None, "status": {"conditions": None}})
    assert (node.name, node.labels, node.ready, node.allocatable) == ("n", {}, False, {})
    bare = convert("Pod", {"metadata": {"name": "p"}})
    assert (bare.namespace, bare.phase, bare.node, bare.ask.containers) == ("default", "Pending", "", ())


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_is_ready_only_when_it_says_true(status):
    node = convert("Node", {"status": {"conditions": [{"type": "Ready", "status": status}]}})
    assert node.ready is False


def test_bytes_are_decoded_with_the_same_structs():
    raw = msgspec.json.decode(b'{"metadata":{"name":"n","uid":"u","x":[1]},"kind":"Node"}', type=NodeObject)
    assert gpu_node(raw).name == "n"


def test_the_topology_report_gives_links_and_unhealthy_cards():
    report = msgspec.convert(
        {
            "metadata": {"name": "n-gputopo-report", "labels": {"nodename": "n"}},
            "data": {
                "bandwidth": "[[100.0, 25], [25, 100]]",
                "devices": '{"0":"Healthy","1":"Unhealthy"}',
                "linkType": '[["X","NV1"],["NV1","X"]]',
            },
        },
        ConfigMapObject,
    )
    assert topology_node(report) == "n"
    node = gpu_node(NodeObject(), topology=report.data)
    assert node.links == ((100.0, 25.0), (25.0, 100.0))
    assert node.unhealthy == (1,)


@pytest.mark.parametrize("bandwidth", ["", "{", "[]", "[[1,2]]", '[["x"]]', "[[1,2],[1]]"])
def test_an_unreadable_bandwidth_matrix_is_no_matrix(bandwidth):
    node = gpu_node(NodeObject(), topology={"bandwidth": bandwidth, "devices": "nonsense"})
    assert (node.links, node.unhealthy) == (None, ())


def test_limits_fill_in_missing_requests_key_by_key():
    read = convert(
        "Pod",
        a_pod(
            spec={
                "containers": [
                    {
                        "name": "main",
                        "image": "img",
                        "resources": {
                            "limits": {"aliyun.com/gpu-mem": "4", "cpu": "2", "memory": "2Gi"},
                            "requests": {"cpu": "500m", "ephemeral-storage": "1Ki"},
                        },
                    }
                ],
                "initContainers": [
                    {"name": "side", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}},
                    {"name": "init", "resources": None},
                ],
                "overhead": {"cpu": "250m"},
            }
        ),
    )
    main = read.ask.containers[0]
    assert main.requests == {
        "aliyun.com/gpu-mem": 4,
        "cpu": 500,
        "memory": 2 * 1024**3,
        "ephemeral-storage": 1024,
    }
    assert main.limits == {"aliyun.com/gpu-mem": 4, "cpu": 2000, "memory": 2 * 1024**3}
    side, init = read.ask.init_containers
    assert (side.requests, side.restartable) == ({"cpu": 1000}, True)
    assert (init.requests, init.restartable) == ({}, False)
    assert read.ask.overhead == {"cpu": 250}
    assert (read.containers, read.image) == (("main",), "img")


def test_affinity_and_tolerations_are_read_whole():
    name_of_node = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    read = convert(
        "Pod",
        a_pod(
            labels={"app": "x"},
            spec={
                "nodeName": "n1",
                "nodeSelector": {"zone": "a"},
                "priority": 7,
                "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [{"key": "m", "operator": "NotIn", "values": ["a", "b"]}],
                                    "matchFields": [name_of_node],
                                },
                                {},
                            ]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 5,
                                "preference": {"matchExpressions": [{"key": "m", "operator": "Exists"}]},
                            }
                        ],
                    }
                },
            },
        ),
    )
    assert read.ask.required_terms == (
        AffinityTerm((Requirement("m", "NotIn", ("a", "b")),), (Requirement("metadata.name", "In", ("n1",)),)),
        AffinityTerm(),
    )
    assert read.ask.preferred_terms == (PreferredTerm(5, AffinityTerm((Requirement("m", "Exists"),))),)
    assert read.ask.tolerations == (Toleration("", "Exists"), Toleration("k", "", "v", "NoSchedule"))
    assert (read.node, read.ask.node_name, read.ask.priority, read.ask.labels) == (
        "n1",
        "n1",
        7,
        {"app": "x"},
    )


def test_no_required_affinity_is_not_an_empty_list_of_terms():
    assert convert("Pod", a_pod()).ask.required_terms is None
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    read = convert("Pod", a_pod(spec={"affinity": {"nodeAffinity": {key: {"nodeSelectorTerms": []}}}}))
    assert read.ask.required_terms == ()


def test_the_controlling_owner_wins_over_the_first():
    owners = [{"kind": "Thing", "name": "t"}, {"kind": "Job", "name": "j", "controller": True}]
    assert convert("Pod", a_pod(ownerReferences=owners)).owner_name == "j"
    assert convert("Pod", a_pod(ownerReferences=owners[:1])).owner_kind == "Thing"


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes ...",
}


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "Evicted", "low on memory"),
        ({"phase": "Pending", "conditions": [UNSCHEDULABLE]}, "Unschedulable", "0/3 nodes ..."),
        ({"conditions": [{**UNSCHEDULABLE, "status": "True"}]}, "", ""),
        (
            {"containerStatuses": [waits("ImagePullBackOff", message="Back-off")]},
            "ImagePullBackOff",
            "Back-off",
        ),
        ({"containerStatuses": [exited(137, "OOMKilled")]}, "OOMKilled", "exit code 137"),
        (
            {
                "containerStatuses": [
                    exited(0, "Completed"),
                    exited(2, "Error", message="boom"),
                ]
            },
            "Error",
            "boom",
        ),
        ({"containerStatuses": [exited(0, "Completed")]}, "Completed", ""),
        (
            {
                "initContainerStatuses": [exited(0, "Completed")],
                "containerStatuses": [{"state": {"running": {"startedAt": "x"}}}],
            },
            "",
            "",
        ),
        (
            {
                "initContainerStatuses": [waits("CrashLoopBackOff")],
                "containerStatuses": [waits("PodInitializing")],
            },
            "CrashLoopBackOff",
            "",
        ),
    ],
)
def test_the_reason_of_a_pod_is_its_own_then_the_schedulers_then_a_containers(status, reason, message):
    read = convert("Pod", a_pod(status=status))
    assert (read.reason, read.message) == (reason, message)


def test_restarts_count_over_all_containers_and_deletion_is_seen():
    status = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"restartCount": 2}, {"restartCount": 1}],
        "initContainerStatuses": [{"restartCount": 4}],
    }
    read = pod(msgspec.convert(a_pod(status=status, deletionTimestamp="2026-01-01T00:01:00Z"), PodObject))
    assert (read.restarts, read.terminating, read.ready, read.started_at) == (
        7,
        True,
        True,
        "2026-01-01T00:00:00Z",
    )


@pytest.mark.parametrize(
    ("spec", "conditions", "state", "wanted"),
    [
        ({}, [], "active", 1),
        ({"parallelism": 3}, [{"type": "SuccessCriteriaMet", "status": "True"}], "active", 3),
        ({"parallelism": 3, "completions": 5}, [{"type": "Complete", "status": "True"}], "complete", 5),
        ({"suspend": True, "completions": 0}, [{"type": "Complete", "status": "False"}], "suspended", 0),
        (
            {"suspend": True},
            [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}],
            "failed",
            1,
        ),
    ],
)
def test_a_job_has_one_of_four_states(spec, conditions, state, wanted):
    job = convert("Job", {"metadata": {"name": "j"}, "spec": spec, "status": {"conditions": conditions, "active": 1}})
    assert (job.state, job.wanted, job.active, job.kind) == (state, wanted, 1, "Job")
    assert job.reason == (conditions[0].get("reason", "") if state == "failed" else "")


def test_a_daemonset_counts_its_scheduled_pods():
    daemon = convert(
        "DaemonSet",
        {
            "metadata": {"name": "d", "namespace": "kube-system", "labels": {"a": "b"}},
            "spec": {"template": {"spec": {"nodeSelector": {"x": "y"}, "containers": [{"image": "i:1"}]}}},
            "status": {"desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberReady": 2},
        },
    )
    assert (daemon.wanted, daemon.active, daemon.ready) == (4, 3, 2)
    assert (daemon.namespace, daemon.image, daemon.node_selector) == ("kube-system", "i:1", {"x": "y"})


def test_a_wrong_type_names_the_field():
    with pytest.raises(Invalid) as refusal:
        convert("Pod", {"metadata": {"name": "p", "labels": {"a": 1}}})
    assert refusal.value.errors[0].field.startswith("metadata.labels")


def test_another_kind_is_refused():
    with pytest.raises(Invalid, match="Deployment"):
        convert("Deployment", {})
