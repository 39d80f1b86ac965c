"""Templates, checking and sending manifests, and what became of them, up to the border of the cluster."""

from __future__ import annotations

import time

import pytest
import yaml

from gpupools.domain.gpus import Workload
from gpupools.errors import Conflict, Invalid, Missing, NotAllowed
from gpupools.models import AuditEntry, Cluster, JobTemplate, Push, Role, Submission
from gpupools.services import jobs
from gpupools.services.access import SYSTEM, Actor
from tests.domain.builders import a_node, a_pod
from tests.services.builders import an_actor
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]

SHARED_POD = """
apiVersion: v1
kind: Pod
metadata:
  name: four-units
spec:
  restartPolicy: Never
  nodeSelector:
    ack.node.gpu.schedule: cgpu
  containers:
  - name: main
    image: example.com/train:1
    resources:
      limits:
        aliyun.com/gpu-mem: 4
"""
SHARED_JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: three-pods
spec:
  parallelism: 3
  completions: 3
  template:
    spec:
      restartPolicy: Never
      nodeSelector:
        ack.node.gpu.schedule: cgpu
      containers:
      - name: main
        image: example.com/train:1
        resources:
          limits:
            aliyun.com/gpu-mem: 10
"""


@pytest.fixture
def catalogue(db: None) -> None:
    jobs.load_catalogue()


# -- Templates


def test_the_catalogue_is_loaded_once_and_again_only_when_it_changed(db: None) -> None:
    assert jobs.load_catalogue() == 7
    assert jobs.load_catalogue() == 0
    JobTemplate.objects.filter(slug="gpu-test").update(title="an older title")
    assert jobs.load_catalogue() == 1
    assert jobs.template("gpu-test").version == 2
    assert len(jobs.templates()) == 7, "old versions are kept, but not listed"


def test_a_template_that_a_person_made_is_not_written_over(db: None) -> None:
    jobs.load_catalogue()
    JobTemplate.objects.filter(slug="topology").update(is_builtin=False, title="ours")
    assert jobs.load_catalogue() == 0
    assert jobs.template("topology").title == "ours"


def test_an_unknown_template_is_missing(db: None) -> None:
    with pytest.raises(Missing):
        jobs.template("nothing-like-it")


def test_the_job_for_one_card_model_is_the_documented_one(catalogue: None) -> None:
    made = yaml.safe_load(jobs.render(jobs.template("card-model-required"), {"card_model": "NVIDIA-A10"}))
    assert made["metadata"] == {"name": "tensorflow-mnist"}
    assert made["spec"]["parallelism"] == 1
    assert made["spec"]["template"] == {
        "metadata": {"labels": {"app": "tensorflow-mnist"}},
        "spec": {
            "nodeSelector": {"aliyun.accelerator/nvidia_name": "NVIDIA-A10"},
            "containers": [
                {
                    "name": "tensorflow-mnist",
                    "image": "registry.cn-beijing.aliyuncs.com/acs/tensorflow-mnist-sample:v1.5",
                    "command": [
                        "python",
                        "tensorflow-sample-code/tfjob/docker/mnist/main.py",
                        "--max_steps=1000",
                        "--data_dir=tensorflow-sample-code/data",
                    ],
                    "resources": {"limits": {"nvidia.com/gpu": 1}},
                    "workingDir": "/root",
                }
            ],
            "restartPolicy": "Never",
        },
    }


def test_the_job_without_a_card_model_differs_from_it_in_the_selection_alone(catalogue: None) -> None:
    wanted, other = (
        yaml.safe_load(jobs.render(jobs.template(slug), {"card_model": "Tesla-V100-SXM2-32GB"}))
        for slug in ("card-model-required", "card-model-excluded")
    )
    del wanted["spec"]["template"]["spec"]["nodeSelector"]
    assert other["spec"]["template"]["spec"].pop("affinity") == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {
                                "key": "aliyun.accelerator/nvidia_name",
                                "operator": "NotIn",
                                "values": ["Tesla-V100-SXM2-32GB"],
                            }
                        ]
                    }
                ]
            }
        }
    }
    assert other == wanted


def test_the_test_pod_is_the_documented_one(catalogue: None) -> None:
    assert yaml.safe_load(jobs.render(jobs.template("gpu-test"), {})) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpu-test"},
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [
                {
                    "name": "cuda",
                    "image": "nvidia/cuda:12.0.0-base-ubuntu22.04",
                    "command": ["nvidia-smi"],
                    "resources": {"limits": {"nvidia.com/gpu": 1}},
                }
            ],
        },
    }


def test_every_template_passes_its_own_check_with_its_defaults(catalogue: None, operator: Actor, lab: Cluster) -> None:
    modes = ("exclusive", "cgpu", "core_mem", "share", "mps", "topology")
    show(lab, [a_node(f"node-{mode}", mode, labels={"aliyun.accelerator/nvidia_name": "NVIDIA-A10"}) for mode in modes])
    for each in jobs.templates():
        values = {"card_model": "NVIDIA-A10"} if each.slug == "card-model-required" else {}
        checked = jobs.check(operator, lab, jobs.render(each, values))
        assert not checked.errors, each.slug
        assert checked.preview is not None
        assert checked.preview.chosen, f"{each.slug}: {checked.preview.message}"


def test_a_parameter_cannot_grow_into_structure(catalogue: None) -> None:
    with pytest.raises(Invalid) as caught:
        jobs.render(jobs.template("card-model-required"), {"card_model": "x\n        hostNetwork: true"})
    assert caught.value.errors[0].field == "parameters.card_model"


# -- Checking


def test_a_check_says_where_the_pod_would_land_and_how_old_that_is(operator: Actor, lab: Cluster) -> None:
    shown = show(lab, [a_node("n1", cards=2), a_node("n2", "exclusive")], [a_pod("used", mem=11, at={0: 11}, on="n1")])
    checked = jobs.check(operator, lab, SHARED_POD)
    assert checked.preview is not None
    assert (checked.preview.chosen, checked.preview.cards) == ("n1", (0,))
    assert checked.taken_at == shown.taken_at
    assert checked.unknown == ""


def test_each_pod_of_a_job_is_placed_in_turn(operator: Actor, lab: Cluster) -> None:
    show(lab, [a_node("n1", cards=2)])
    checked = jobs.check(operator, lab, SHARED_JOB)
    assert [(each.chosen, each.cards) for each in checked.previews] == [("n1", (0,)), ("n1", (1,)), (None, ())]


def test_without_numbers_there_is_no_preview_and_a_reason(operator: Actor, lab: Cluster) -> None:
    checked = jobs.check(operator, lab, SHARED_POD)
    assert (checked.preview, checked.previews, checked.taken_at) == (None, (), None)
    assert "No numbers" in checked.unknown


def test_a_broker_that_is_away_costs_the_preview_alone(operator: Actor, lab: Cluster, settings) -> None:  # noqa: ANN001  # pytest-django's fixture
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    checked = jobs.check(operator, lab, SHARED_POD)
    assert checked.preview is None
    assert "broker" in checked.unknown


def test_what_lint_calls_an_error_is_shown_by_a_check_and_refused_by_submit(operator: Actor, lab: Cluster) -> None:
    wrong = SHARED_POD.replace("aliyun.com/gpu-mem: 4", "aliyun.com/gpu-mem: 4\n        aliyun.com/gpu-count: 25")
    assert "gpu-count-limit" in {each.code for each in jobs.check(operator, lab, wrong).errors}
    with pytest.raises(Invalid) as caught:
        jobs.submit(operator, lab, yaml=wrong)
    assert caught.value.code == "lint"
    assert "scheduler would leave its pods pending" in caught.value.message
    assert caught.value.errors[0].field.startswith("yaml:spec.containers[0]")
    with pytest.raises(Invalid, match="The API server would refuse"):
        jobs.submit(operator, lab, yaml=wrong.replace("gpu-mem: 4", "gpu-mem: 0.5"))
    assert not Submission.objects.exists()


@pytest.mark.parametrize(
    "wish",
    ["hostNetwork: true", "hostPID: true", "hostIPC: true", "nodeName: n1", "serviceAccountName: root",
     "schedulerName: mine"],
)  # fmt: skip
def test_a_manifest_that_reaches_beyond_its_pod_is_refused(operator: Actor, lab: Cluster, wish: str) -> None:
    with pytest.raises(Invalid) as caught:
        jobs.check(operator, lab, SHARED_POD.replace("restartPolicy: Never", f"restartPolicy: Never\n  {wish}"))
    assert caught.value.code == "confined"
    assert caught.value.errors[0].field == f"yaml:spec.{wish.partition(':')[0]}"


def test_a_manifest_is_confined_to_granted_namespaces(lab: Cluster) -> None:
    actor = an_actor(Role.OPERATOR, lab, "vision")
    with pytest.raises(Invalid) as caught:
        jobs.submit(actor, lab, yaml=SHARED_POD)
    assert caught.value.errors[0].field == "yaml:metadata.namespace"
    allowed = SHARED_POD.replace("name: four-units", "name: four-units\n  namespace: vision")
    assert jobs.submit(actor, lab, yaml=allowed).namespace == "vision"


def test_whoever_may_only_look_may_check_and_not_submit(viewer: Actor, lab: Cluster) -> None:
    assert jobs.check(viewer, lab, SHARED_POD).manifest.name == "four-units"
    with pytest.raises(NotAllowed):
        jobs.submit(viewer, lab, yaml=SHARED_POD)


def test_to_a_stranger_there_is_no_such_cluster(stranger: Actor, lab: Cluster) -> None:
    with pytest.raises(Missing):
        jobs.check(stranger, lab, SHARED_POD)


# -- Sending


def test_a_submission_is_written_with_its_push_and_its_audit_entry(operator: Actor, lab: Cluster) -> None:
    submission = jobs.submit(operator, lab, yaml=SHARED_JOB)
    assert (submission.kind, submission.namespace, submission.name) == ("Job", "default", "three-pods")
    assert submission.state == Submission.State.QUEUED
    assert submission.manifest["metadata"] == {"name": "three-pods", "namespace": "default"}
    push = Push.objects.get()
    assert (push.kind, push.payload) == (jobs.CREATE, {"submission": submission.pk})
    entry = AuditEntry.objects.get(action="submission.create")
    assert (entry.actor_name, entry.object_id) == ("olga", str(submission.pk))


def test_a_second_submission_of_the_same_name_waits_for_the_first(operator: Actor, lab: Cluster) -> None:
    jobs.submit(operator, lab, yaml=SHARED_POD)
    with pytest.raises(Conflict) as caught:
        jobs.submit(operator, lab, yaml=SHARED_POD)
    assert caught.value.code == "busy"
    assert Submission.objects.count() == 1, "nothing of the second one stays"


def test_the_console_itself_submits_nothing(lab: Cluster) -> None:
    with pytest.raises(NotAllowed):
        jobs.submit(SYSTEM, lab, yaml=SHARED_POD)


def test_only_what_was_submitted_can_be_deleted_and_only_once(operator: Actor, lab: Cluster) -> None:
    submission = jobs.submit(operator, lab, yaml=SHARED_POD)
    with pytest.raises(Conflict):
        jobs.delete(operator, submission)
    Push.objects.all().delete()
    Submission.objects.update(state=Submission.State.SUBMITTED)
    stale = Submission.objects.get()
    assert jobs.delete(operator, submission).state == Submission.State.DELETING
    with pytest.raises(Conflict):
        jobs.delete(operator, stale)


# -- What became of it


def submitted(actor: Actor, cluster: Cluster, manifest: str, uid: str) -> Submission:
    submission = jobs.submit(actor, cluster, yaml=manifest)
    Submission.objects.filter(pk=submission.pk).update(state=Submission.State.SUBMITTED, object_uid=uid)
    submission.refresh_from_db()
    return submission


def test_an_outcome_tells_node_and_card_of_a_running_pod(operator: Actor, lab: Cluster) -> None:
    submission = submitted(operator, lab, SHARED_POD, "uid-default-four-units")
    picture = show(lab, [a_node("n1")], [a_pod("four-units", mem=4, at={2: 4})])
    found = jobs.outcome(submission, picture)
    assert found.state == "running"
    [row] = found.pods
    assert (row.pod.node, row.mode, [use.index for use in row.uses]) == ("n1", "cgpu", [2])


def test_an_outcome_gives_the_schedulers_reason_for_a_pod_that_waits(operator: Actor, lab: Cluster) -> None:
    submission = submitted(operator, lab, SHARED_POD, "uid-default-four-units")
    waiting = a_pod(
        "four-units", mem=4, on="", phase="Pending", reason="Unschedulable", message="0/1 nodes are available: ..."
    )
    found = jobs.outcome(submission, show(lab, [a_node("n1")], [waiting]))
    assert (found.state, found.reason) == ("waiting", "0/1 nodes are available: ...")


def test_another_pod_of_the_same_name_is_not_the_submitted_one(operator: Actor, lab: Cluster) -> None:
    submission = submitted(operator, lab, SHARED_POD, "uid-of-the-first")
    found = jobs.outcome(submission, show(lab, [a_node("n1")], [a_pod("four-units", mem=4, at={2: 4})]))
    assert (found.state, found.pods) == ("unknown", ())


def test_without_a_picture_the_outcome_is_unknown(operator: Actor, lab: Cluster) -> None:
    submission = submitted(operator, lab, SHARED_POD, "uid")
    assert jobs.outcome(submission, None).state == "unknown"


def test_a_jobs_pods_are_found_by_their_owner(operator: Actor, lab: Cluster) -> None:
    submission = submitted(operator, lab, SHARED_JOB, "uid-job")
    pods = [
        a_pod(f"three-pods-{n}", mem=10, at={n: 10}, owner_kind="Job", owner_name="three-pods", phase=phase)
        for n, phase in enumerate(("Succeeded", "Running", "Running"))
    ]
    stray = a_pod("three-pods-x", mem=1, at={0: 1}, owner_kind="Job", owner_name="another")
    job = Workload("Job", "default", "three-pods", uid="uid-job", wanted=3, active=2, succeeded=1, state="active")
    picture = show(lab, [a_node("n1")], [*pods, stray], [job])
    found = jobs.outcome(submission, picture)
    assert (found.state, found.phases) == ("running", {"Succeeded": 1, "Running": 2})
    assert found.taken_at is not None
    assert found.taken_at <= time.time()


def test_a_pod_that_crashes_again_and_again_is_no_running_job(operator: Actor, lab: Cluster) -> None:
    pod = a_pod("four-units", mem=4, at={0: 4}, reason="CrashLoopBackOff", message="back-off 5m0s restarting")
    made = submitted(operator, lab, SHARED_POD, pod.uid)
    picture = show(lab, [a_node()], [pod])
    outcome = jobs.outcome(made, picture)
    assert (outcome.state, outcome.reason) == ("crashing", "back-off 5m0s restarting")
    assert outcome.phases == {"CrashLoopBackOff": 1}
