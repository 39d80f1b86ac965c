"""Jobs, DaemonSets and pods as their owners see them: they start, print, end, start again, and go."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client

from tests.simulator.clients import MODE, WHOLE, Cluster

MNIST = ["python", "tensorflow-sample-code/tfjob/docker/mnist/main.py", "--max_steps=1000"]


@pytest.fixture
def cluster(api: client.ApiClient, namespace: str) -> Cluster:
    return Cluster(api, namespace)


def a_job(name: str, *command: str, limits: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.local/test:1",
        "command": list(command),
        "resources": {"limits": limits or {}},
    }
    pod = {"containers": [container], "restartPolicy": spec.pop("restartPolicy", "Never")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**spec, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}},
    }


def pods_of(cluster: Cluster, job: str) -> list[Any]:
    selector = f"batch.kubernetes.io/job-name={job}"
    return list(cluster.core.list_namespaced_pod(cluster.namespace, label_selector=selector).items)


def container_state(pod: Any) -> Any:
    return pod.status.container_statuses[0].state


def test_a_training_job_takes_a_card_logs_its_steps_and_completes(cluster: Cluster) -> None:
    cluster.batch.create_namespaced_job(cluster.namespace, a_job("mnist", *MNIST, limits={WHOLE: "1"}))
    job = cluster.job_ended("mnist", "Complete")
    assert (job.status.succeeded, job.status.active, job.status.failed) == (1, 0, None)
    assert job.status.completion_time is not None
    (pod,) = pods_of(cluster, "mnist")
    assert pod.status.phase == "Succeeded"
    assert pod.metadata.owner_references[0].kind == "Job"
    log = cluster.log(pod.metadata.name)
    assert "Tesla V100-SXM2-16GB" in log
    assert "Accuracy at step 1000" in log


def test_a_job_runs_as_many_at_once_as_it_may_until_all_are_done(cluster: Cluster) -> None:
    job = a_job("several", "sleep", "4", parallelism=2, completions=5)
    cluster.batch.create_namespaced_job(cluster.namespace, job)
    most = 0

    def done(seen: Any) -> bool:
        nonlocal most
        most = max(most, seen.status.active or 0)
        return any(c.type == "Complete" for c in seen.status.conditions or ())

    ended = cluster.job_with("several", done, "all five are done")
    assert ended.status.succeeded == 5
    assert most == 2
    assert len(pods_of(cluster, "several")) == 5


def test_a_job_gives_up_after_its_backoff_limit(cluster: Cluster) -> None:
    job = a_job("failing", "sh", "-c", "echo no; exit 3", backoffLimit=1)
    cluster.batch.create_namespaced_job(cluster.namespace, job)
    ended = cluster.job_ended("failing", "Failed")
    assert ended.status.conditions[-1].reason == "BackoffLimitExceeded"
    assert ended.status.failed == 2
    pods = pods_of(cluster, "failing")
    assert [container_state(pod).terminated.exit_code for pod in pods] == [3, 3]
    assert cluster.log(pods[0].metadata.name) == "no\n"


def test_a_suspended_job_has_no_pods_until_it_is_resumed(cluster: Cluster) -> None:
    cluster.batch.create_namespaced_job(cluster.namespace, a_job("paused", "true", suspend=True))
    cluster.job_with("paused", lambda job: bool(job.status.conditions), "the job says that it is suspended")
    assert pods_of(cluster, "paused") == []
    cluster.batch.patch_namespaced_job("paused", cluster.namespace, {"spec": {"suspend": False}})
    assert cluster.job_ended("paused", "Complete").status.succeeded == 1


def test_a_job_past_its_deadline_fails_and_its_pods_go(cluster: Cluster) -> None:
    job = a_job("slow", "sleep", "infinity", activeDeadlineSeconds=10)
    cluster.batch.create_namespaced_job(cluster.namespace, job)
    ended = cluster.job_ended("slow", "Failed")
    assert ended.status.conditions[-1].reason == "DeadlineExceeded"
    cluster.wait_gone(
        cluster.core.list_namespaced_pod, "the pod", namespace=cluster.namespace, label_selector="app=slow"
    )


def test_a_finished_job_goes_after_its_time_to_live(cluster: Cluster) -> None:
    cluster.batch.create_namespaced_job(cluster.namespace, a_job("fleeting", "true", ttlSecondsAfterFinished=10))
    cluster.job_ended("fleeting", "Complete")
    lister = cluster.batch.list_namespaced_job
    cluster.wait_gone(lister, "the job", namespace=cluster.namespace, field_selector="metadata.name=fleeting")
    assert pods_of(cluster, "fleeting") == []


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deleting_a_job_takes_its_pods_along(cluster: Cluster, policy: str) -> None:
    cluster.batch.create_namespaced_job(cluster.namespace, a_job("owner", "sleep", "infinity"))
    cluster.job_with("owner", lambda job: job.status.ready == 1, "its pod runs")
    cluster.batch.delete_namespaced_job("owner", cluster.namespace, propagation_policy=policy)
    cluster.wait_gone(
        cluster.core.list_namespaced_pod, "the pod", namespace=cluster.namespace, label_selector="app=owner"
    )
    jobs = cluster.batch.list_namespaced_job(cluster.namespace).items
    assert [job.metadata.name for job in jobs if job.metadata.name == "owner"] == []


def test_deleting_a_job_as_orphan_leaves_its_pods(cluster: Cluster) -> None:
    cluster.batch.create_namespaced_job(cluster.namespace, a_job("parent", "sleep", "infinity"))
    cluster.job_with("parent", lambda job: job.status.ready == 1, "its pod runs")
    cluster.batch.delete_namespaced_job("parent", cluster.namespace, propagation_policy="Orphan")
    lister = cluster.batch.list_namespaced_job
    cluster.wait_gone(lister, "the job", namespace=cluster.namespace, field_selector="metadata.name=parent")
    (pod,) = cluster.core.list_namespaced_pod(cluster.namespace, label_selector="app=parent").items
    assert not pod.metadata.owner_references
    assert pod.metadata.deletion_timestamp is None
    cluster.pod_with(pod.metadata.name, lambda pod: not pod.metadata.finalizers, "nobody waits to count it")


def test_an_indexed_job_completes_every_index(cluster: Cluster) -> None:
    job = a_job("indexed", "sh", "-c", "echo $JOB_COMPLETION_INDEX", completions=3, parallelism=3)
    job["spec"]["completionMode"] = "Indexed"
    cluster.batch.create_namespaced_job(cluster.namespace, job)
    ended = cluster.job_ended("indexed", "Complete")
    assert ended.status.completed_indexes == "0-2"
    logs = sorted(cluster.log(pod.metadata.name) for pod in pods_of(cluster, "indexed"))
    assert logs == ["0\n", "1\n", "2\n"]


def test_a_pod_goes_through_its_phases_and_gets_an_address(cluster: Cluster) -> None:
    image = f"registry.local/{cluster.namespace}:1"  # new to every node, so it has to be pulled
    cluster.create_pod("service", "sleep", "infinity", restartPolicy="Always", image=image)
    creating = cluster.pod_with(
        "service", lambda pod: bool(pod.status.container_statuses), "the kubelet took the pod in"
    )
    assert creating.status.phase == "Pending"
    assert container_state(creating).waiting.reason == "ContainerCreating"
    running = cluster.pod_with("service", ready, "the pod is ready")
    assert running.status.pod_ip.startswith("10.")
    assert running.status.host_ip == cluster.core.read_node(running.spec.node_name).status.addresses[0].address
    assert running.status.start_time <= datetime.now(UTC)
    reasons = {e.reason for e in cluster.core.list_namespaced_event(cluster.namespace).items}
    assert {"Scheduled", "Pulling", "Pulled", "Created", "Started"} <= reasons


def ready(pod: Any) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())


def test_a_deleted_pod_ends_within_its_grace(cluster: Cluster) -> None:
    cluster.create_pod("stopping", "sleep", "infinity", terminationGracePeriodSeconds=20)
    cluster.pod_in_phase("stopping", "Running")
    cluster.core.delete_namespaced_pod("stopping", cluster.namespace)
    cluster.wait_gone(
        cluster.core.list_namespaced_pod, "the pod", namespace=cluster.namespace,
        field_selector="metadata.name=stopping",
    )  # fmt: skip


def test_an_image_from_nowhere_is_backed_off_from(cluster: Cluster) -> None:
    cluster.create_pod("nowhere", image="registry.invalid/app:1")
    pod = cluster.pod_with(
        "nowhere",
        lambda pod: any(
            s.state.waiting and s.state.waiting.reason == "ImagePullBackOff"
            for s in pod.status.container_statuses or ()
        ),
        "the pull is backed off",
    )
    assert pod.status.phase == "Pending"
    messages = [e.message for e in cluster.core.list_namespaced_event(cluster.namespace).items if e.reason == "Failed"]
    assert any("no such host" in message for message in messages)


def test_a_crashing_service_starts_again_with_back_off(cluster: Cluster) -> None:
    cluster.create_pod("crashing", "sh", "-c", "echo try; exit 1", restartPolicy="Always")
    pod = cluster.pod_with(
        "crashing",
        lambda pod: any(
            s.restart_count >= 2 and s.state.waiting and s.state.waiting.reason == "CrashLoopBackOff"
            for s in pod.status.container_statuses or ()
        ),
        "the pod is in CrashLoopBackOff",
    )
    assert pod.status.phase == "Running"
    assert pod.status.container_statuses[0].last_state.terminated.exit_code == 1
    previous = cluster.core.read_namespaced_pod_log("crashing", cluster.namespace, previous=True)
    assert previous == "try\n"


def test_init_containers_run_one_after_the_other_before_the_rest(cluster: Cluster) -> None:
    init = [
        {"name": name, "image": "registry.local/test:1", "command": ["sh", "-c", f"echo {name}"]}
        for name in ("first", "second")
    ]
    cluster.create_pod("prepared", "echo", "main", initContainers=init)
    pod = cluster.pod_in_phase("prepared", "Succeeded")
    ends = [status.state.terminated for status in pod.status.init_container_statuses]
    assert ends[0].finished_at <= ends[1].started_at
    log = cluster.core.read_namespaced_pod_log("prepared", cluster.namespace, container="second")
    assert log == "second\n"


def test_a_daemonset_follows_the_labels_of_nodes(cluster: Cluster) -> None:
    first, second = (n.metadata.name for n in cluster.core.list_node(label_selector=MODE).items[:2])
    key = f"daemon.{cluster.namespace}"
    container = {"name": "main", "image": "registry.local/daemon:1", "command": ["sleep", "infinity"]}
    daemonset = {
        "metadata": {"name": "daemon"},
        "spec": {
            "selector": {"matchLabels": {"app": "daemon"}},
            "template": {
                "metadata": {"labels": {"app": "daemon"}},
                "spec": {"nodeSelector": {key: "yes"}, "containers": [container]},
            },
        },
    }
    cluster.label_node(first, {key: "yes"})
    cluster.apps.create_namespaced_daemon_set(cluster.namespace, daemonset)

    def numbers(desired: int) -> Any:
        return cluster.wait(
            cluster.apps.list_namespaced_daemon_set,
            lambda ds: (ds.status.desired_number_scheduled, ds.status.number_ready) == (desired, desired),
            f"{desired} daemons are ready",
            namespace=cluster.namespace,
        )

    numbers(1)
    cluster.label_node(second, {key: "yes"})
    numbers(2)
    cluster.label_node(first, {key: None})
    numbers(1)
    cluster.wait_gone(
        cluster.core.list_namespaced_pod, "the daemon on the first node", namespace=cluster.namespace,
        field_selector=f"spec.nodeName={first}",
    )  # fmt: skip
    cluster.label_node(second, {key: None})
    numbers(0)


def test_a_cordoned_node_shows_its_taint_and_loses_it_again(cluster: Cluster) -> None:
    node = cluster.core.list_node(label_selector=MODE).items[-1].metadata.name
    cluster.core.patch_node(node, {"spec": {"unschedulable": True}})
    cluster.node_with(node, lambda n: any(_cordon(t) for t in n.spec.taints or ()), "the cordon is a taint")
    cluster.core.patch_node(node, {"spec": {"unschedulable": None}})
    cluster.node_with(node, lambda n: not any(_cordon(t) for t in n.spec.taints or ()), "the taint is gone")


def _cordon(taint: Any) -> bool:
    return bool(taint.key == "node.kubernetes.io/unschedulable" and taint.effect == "NoSchedule")


def test_a_namespace_is_born_with_a_service_account_and_takes_everything_along(
    cluster: Cluster, core: client.CoreV1Api
) -> None:
    name = f"{cluster.namespace}-more"
    core.create_namespace({"metadata": {"name": name}})
    cluster.wait(
        core.list_namespaced_service_account, lambda sa: sa.metadata.name == "default", "it exists", namespace=name
    )
    more = Cluster(core.api_client, name)
    more.create_pod("inside", "sleep", "infinity")
    more.pod_in_phase("inside", "Running")
    core.delete_namespace(name)
    cluster.wait_gone(core.list_namespace, "the namespace", field_selector=f"metadata.name={name}")
