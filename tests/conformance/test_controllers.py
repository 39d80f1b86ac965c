"""What controllers make of Jobs, owners and namespaces, as far as clients see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.wire import Object, Server, config_map, job, names

running = pytest.mark.needs("controllers", "scheduler", "kubelet")


def ended(server: Server, jobs: str, name: str = "j", seconds: int = 60) -> Object:
    """Follow a Job to its end; return it."""
    with server.watching(jobs, seconds, fieldSelector=f"metadata.name={name}") as events:
        for event in events:
            found = conditions(event["object"])
            if "Complete" in found or "Failed" in found:
                return event["object"]
    raise AssertionError(f"job {name} did not end")


def conditions(obj: Object) -> dict[str, Object]:
    return {c["type"]: c for c in obj.get("status", {}).get("conditions", ()) if c["status"] == "True"}


def gone(server: Server, path: str, name: str, seconds: int = 30) -> bool:
    """Follow a collection until an object is not there any more."""
    listed = server.get(path, fieldSelector=f"metadata.name={name}").ok()
    if not listed["items"]:
        return True
    since = {"resourceVersion": listed["metadata"]["resourceVersion"], "fieldSelector": f"metadata.name={name}"}
    with server.watching(path, seconds, **since) as events:
        return any(event["type"] == "DELETED" for event in events)


def failing(code: int, **spec: Any) -> Object:
    return job(command=("sh", "-c", f"exit {code}"), **spec)


@running
def test_a_job_completes(server: Server, jobs: str) -> None:
    server.post(jobs, job(completions=2, parallelism=2)).ok()
    done = ended(server, jobs)
    assert (done["status"]["succeeded"], done["status"].get("active", 0)) == (2, 0)
    assert conditions(done)["Complete"]["reason"] == "CompletionsReached"
    assert "SuccessCriteriaMet" in conditions(done)
    assert done["status"]["completionTime"] >= done["status"]["startTime"]


@running
def test_a_job_s_pods_are_named_labelled_and_owned(server: Server, jobs: str, pods: str) -> None:
    uid = server.post(jobs, job()).ok()["metadata"]["uid"]
    ended(server, jobs)
    (made,) = server.get(pods, labelSelector="batch.kubernetes.io/job-name=j").ok()["items"]
    assert made["metadata"]["generateName"] == "j-"
    assert made["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == uid
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "j", uid, True)


@running
def test_an_indexed_job_counts_its_indexes(server: Server, jobs: str, pods: str) -> None:
    server.post(jobs, job(completions=3, parallelism=3, completionMode="Indexed")).ok()
    assert ended(server, jobs)["status"]["completedIndexes"] == "0-2"
    made = server.get(pods).ok()["items"]
    key = "batch.kubernetes.io/job-completion-index"
    assert sorted(pod["metadata"]["annotations"][key] for pod in made) == ["0", "1", "2"]
    assert all(pod["spec"]["hostname"] == f"j-{pod['metadata']['labels'][key]}" for pod in made)


@running
def test_a_job_gives_up(server: Server, jobs: str) -> None:
    server.post(jobs, failing(1, backoffLimit=0)).ok()
    done = ended(server, jobs)
    assert conditions(done)["Failed"]["reason"] == "BackoffLimitExceeded"
    assert conditions(done)["FailureTarget"]["reason"] == "BackoffLimitExceeded"
    assert done["status"]["failed"] == 1


def rule(action: str, code: int) -> Object:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [code]}}]}


@running
def test_a_policy_fails_a_job_at_once(server: Server, jobs: str) -> None:
    server.post(jobs, failing(42, backoffLimit=6, podFailurePolicy=rule("FailJob", 42))).ok()
    done = ended(server, jobs)
    assert (conditions(done)["Failed"]["reason"], done["status"]["failed"]) == ("PodFailurePolicy", 1)
    assert "failed with exit code 42 matching FailJob rule at index 0" in conditions(done)["Failed"]["message"]


@running
def test_indexes_fail_each_for_themselves(server: Server, jobs: str) -> None:
    more = {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
    server.post(jobs, job(command=("sh", "-c", "exit $JOB_COMPLETION_INDEX"), **more)).ok()
    done = ended(server, jobs)
    assert (done["status"]["completedIndexes"], done["status"]["failedIndexes"]) == ("0", "1-2")
    assert conditions(done)["Failed"]["reason"] == "FailedIndexes"


@running
def test_some_indexes_may_be_enough(server: Server, jobs: str) -> None:
    script = "sleep ${JOB_COMPLETION_INDEX}000"
    policy = {"rules": [{"succeededIndexes": "0"}]}
    more = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "successPolicy": policy}
    server.post(jobs, job(command=("sh", "-c", script), **more)).ok()
    done = ended(server, jobs)
    assert conditions(done)["Complete"]["reason"] == "SuccessPolicy"
    assert done["status"]["completedIndexes"] == "0"


@running
def test_a_job_has_a_deadline(server: Server, jobs: str) -> None:
    server.post(jobs, job(command=("sleep", "infinity"), activeDeadlineSeconds=3)).ok()
    assert conditions(ended(server, jobs))["Failed"]["reason"] == "DeadlineExceeded"


@running
def test_a_job_can_wait(server: Server, jobs: str, pods: str) -> None:
    server.post(jobs, job(suspend=True)).ok()
    with server.watching(jobs, 30) as events:
        assert any("Suspended" in conditions(event["object"]) for event in events)
    assert server.get(pods).ok()["items"] == []
    server.merge(f"{jobs}/j", {"spec": {"suspend": False}}).ok()
    assert "Complete" in conditions(ended(server, jobs))


@running
def test_a_job_clears_itself_away(server: Server, jobs: str) -> None:
    server.post(jobs, job(ttlSecondsAfterFinished=1)).ok()
    assert gone(server, jobs, "j", 60)


@running
def test_a_deleted_job_takes_its_pods(server: Server, jobs: str, pods: str) -> None:
    server.post(jobs, job()).ok()
    ended(server, jobs)
    (name,) = names(server.get(pods).ok())
    server.delete(f"{jobs}/j", propagationPolicy="Background").ok()
    assert gone(server, pods, name)


@running
def test_an_orphaned_pod_stays(server: Server, jobs: str, pods: str) -> None:
    server.post(jobs, job()).ok()
    ended(server, jobs)
    server.delete(f"{jobs}/j", propagationPolicy="Orphan").ok()
    assert gone(server, jobs, "j")
    (left,) = server.get(pods).ok()["items"]
    assert "ownerReferences" not in left["metadata"]


@running
def test_a_job_s_pods_stay_unless_one_says_otherwise(server: Server, jobs: str, pods: str) -> None:
    server.post(jobs, job()).ok()
    ended(server, jobs)
    answer = server.delete(f"{jobs}/j")
    assert "child pods are preserved by default when jobs are deleted" in answer.headers["warning"]
    assert gone(server, jobs, "j")
    assert len(server.get(pods).ok()["items"]) == 1


def daemonset(**strategy: Any) -> Object:
    container = {"name": "main", "image": "registry.example.com/d:1", "command": ["sleep", "infinity"]}
    template = {
        "metadata": {"labels": {"app": "d"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
    return {"metadata": {"name": "d"}, "spec": {**spec, "updateStrategy": {"rollingUpdate": strategy}}}


def rolled_out(obj: Object) -> bool:
    """Return whether every node has an available pod of the newest template."""
    status = obj.get("status", {})
    wanted = status.get("desiredNumberScheduled", 0)
    return (
        status.get("observedGeneration") == obj["metadata"]["generation"]
        and wanted > 0
        and wanted == status.get("updatedNumberScheduled") == status.get("numberAvailable")
    )


@running
@pytest.mark.parametrize("strategy", [{"maxUnavailable": "100%"}, {"maxUnavailable": 0, "maxSurge": "100%"}])
def test_a_daemonset_rolls_out(server: Server, namespace: str, strategy: Object) -> None:
    daemonsets = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    server.post(daemonsets, daemonset(**strategy)).ok()
    with server.watching(daemonsets, 60) as events:
        assert any(rolled_out(event["object"]) for event in events)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.example.com/d:2"}]}}}}
    since = server.strategic(f"{daemonsets}/d", image).ok()["metadata"]["resourceVersion"]
    most_missing = 0
    with server.watching(daemonsets, 60, resourceVersion=since) as events:
        for event in events:
            most_missing = max(most_missing, event["object"]["status"].get("numberUnavailable", 0))
            if rolled_out(event["object"]):
                break
        else:
            raise AssertionError("it did not roll out")
    # With a pod beside the old one nobody ever misses one.
    assert (most_missing > 0) is ("maxSurge" not in strategy)


def owned(uid: str, *, blocking: bool, **meta: Any) -> Object:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": blocking}
    return config_map("owned", ownerReferences=[reference], **meta)


@pytest.mark.needs("controllers")
def test_a_foreground_delete_waits_for_those_that_block(server: Server, maps: str) -> None:
    uid = server.post(maps, config_map("owner")).ok()["metadata"]["uid"]
    server.post(maps, owned(uid, blocking=True, finalizers=["example.com/wait"])).ok()
    waiting = server.delete(f"{maps}/owner", propagationPolicy="Foreground").ok()
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    with server.watching(maps, 30, fieldSelector="metadata.name=owned") as events:
        assert any(event["object"]["metadata"].get("deletionTimestamp") for event in events)
    assert server.get(f"{maps}/owner").status == 200
    server.merge(f"{maps}/owned", {"metadata": {"finalizers": None}}).ok()
    assert gone(server, maps, "owner")


@pytest.mark.needs("controllers")
def test_what_names_an_owner_that_never_was_goes(server: Server, maps: str) -> None:
    server.post(maps, owned("00000000-0000-0000-0000-000000000000", blocking=False)).ok()
    assert gone(server, maps, "owned", 60)


@pytest.mark.needs("controllers")
def test_a_namespace_is_emptied_and_goes(server: Server, maps: str, namespace: str) -> None:
    server.post(maps, config_map("a")).ok()
    server.delete(f"/api/v1/namespaces/{namespace}").ok()
    assert gone(server, "/api/v1/namespaces", namespace, 60)
    assert server.get(f"{maps}/a").status == 404


@pytest.mark.needs("controllers")
def test_a_namespace_gets_its_service_account(server: Server) -> None:
    name = server.post("/api/v1/namespaces", {"metadata": {"generateName": "conformance-"}}).ok()["metadata"]["name"]
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    with server.watching(accounts, 30) as events:
        assert next(events)["object"]["metadata"]["name"] == "default"
    server.delete(f"/api/v1/namespaces/{name}").ok()
