"""Manifests carried into a running embedded cluster and out of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.errors import Invalid, Refused
from gpupools.models import Cluster, Push, Submission
from gpupools.services import allocation, jobs, pods
from gpupools.services.access import Actor
from tests.services.driving import connected, opened, run_one, settle, until
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
NAMESPACE_THAT_IS_NOT_THERE = "nowhere"


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=20.0) as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess) -> Cluster:
    return connected(simulator)


@pytest.fixture(autouse=True)
def catalogue(db: None) -> None:
    jobs.load_catalogue()


def the_pod(name: str) -> str:
    return jobs.render(jobs.template("gpu-test"), {"name": name})


def sent(actor: Actor, cluster: Cluster, yaml: str) -> Submission:
    submission = jobs.submit(actor, cluster, yaml=yaml)
    settle()
    submission.refresh_from_db()
    return submission


def test_the_documented_pod_runs_and_its_log_shows_the_card(operator: Actor, cluster: Cluster) -> None:
    submission = sent(operator, cluster, the_pod("gpu-test"))
    assert submission.state == Submission.State.SUBMITTED
    assert submission.object_uid

    def outcome() -> jobs.Outcome:
        allocation.poll(cluster)
        return jobs.outcome(submission, allocation.current(cluster))

    until(lambda: outcome().state == "succeeded", what="a pod that has ended well")
    [row] = outcome().pods
    assert row.pod.node.startswith("gpu-")
    assert row.asks == {"nvidia.com/gpu": 1}
    assert "Tesla V100" in pods.log(operator, cluster, "default", "gpu-test")


def test_the_documented_job_runs_on_its_card_model(operator: Actor, cluster: Cluster) -> None:
    source = jobs.template("card-model-required")
    submission = jobs.submit(
        operator, cluster, yaml=jobs.render(source, {"card_model": "Tesla-V100-SXM2-16GB"}), template=source
    )
    settle()
    submission.refresh_from_db()
    assert (submission.state, submission.template) == (Submission.State.SUBMITTED, source)

    def state() -> str:
        allocation.poll(cluster)
        return jobs.outcome(submission, allocation.current(cluster)).state

    until(lambda: state() in ("running", "succeeded"), what="a job that runs")


def test_sending_twice_makes_one_object(operator: Actor, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    submission = jobs.submit(operator, cluster, yaml=the_pod("sent-twice"))
    with monkeypatch.context() as dying:
        dying.setattr("gpupools.services.pushes._settle", dies)
        with pytest.raises(Killed):
            run_one()
    Push.objects.update(lease_until=None)  # the dead worker's lease runs out
    settle()
    submission.refresh_from_db()
    assert submission.state == Submission.State.SUBMITTED
    with opened(cluster) as kubernetes:
        [pod] = [each for each in kubernetes.pods(namespace="default") if each.name == "sent-twice"]
    assert pod.uid == submission.object_uid


def sent_unasked(actor: Actor, cluster: Cluster, yaml: str) -> Submission:
    """Submit while the console takes the cluster for unreachable, so that only the worker hears what it says."""
    away = Cluster.objects.get(pk=cluster.pk)
    away.state = Cluster.State.UNREACHABLE
    return sent(actor, away, yaml)


def test_a_name_that_is_there_already_is_refused_or_fails_with_a_plain_sentence(
    operator: Actor, cluster: Cluster
) -> None:
    first = sent(operator, cluster, the_pod("same-name"))
    with pytest.raises(Invalid) as caught:
        jobs.submit(operator, cluster, yaml=the_pod("same-name"))
    assert "There is a Pod named same-name already" in caught.value.errors[0].message
    second = sent_unasked(operator, cluster, the_pod("same-name"))
    assert (first.state, second.state) == (Submission.State.SUBMITTED, Submission.State.FAILED)
    assert "There is a Pod named same-name already" in second.error
    assert jobs.outcome(second, None).reason == second.error


@pytest.mark.parametrize(
    ("wrong", "with_", "field", "said"),
    [
        (
            'name: "lost"', f"name: lost\n  namespace: {NAMESPACE_THAT_IS_NOT_THERE}",
            "yaml:metadata.namespace", NAMESPACE_THAT_IS_NOT_THERE,
        ),
        ("spec:", "spec:\n  nodeSelectr: {a: b}", "yaml:spec.nodeSelectr", "nodeSelectr"),
    ],
)  # fmt: skip
def test_what_the_cluster_refuses_is_not_submitted_and_fails_where_it_could_not_be_asked(
    operator: Actor, cluster: Cluster, wrong: str, with_: str, field: str, said: str
) -> None:
    manifest = the_pod("lost").replace(wrong, with_, 1)
    with pytest.raises(Invalid, match="The API server would refuse") as caught:
        jobs.submit(operator, cluster, yaml=manifest)
    (error,) = caught.value.errors
    assert (error.field, said in error.message) == (field, True)
    assert not Submission.objects.exists()
    submission = sent_unasked(operator, cluster, manifest)
    assert submission.state == Submission.State.FAILED
    assert said in submission.error


def test_deleting_takes_the_object_out_of_the_cluster(operator: Actor, cluster: Cluster) -> None:
    submission = sent(operator, cluster, the_pod("short-lived"))
    jobs.delete(operator, submission)
    settle()
    submission.refresh_from_db()
    assert submission.state == Submission.State.DELETED
    with opened(cluster) as kubernetes:
        until(
            lambda: not [each for each in kubernetes.pods(namespace="default") if each.name == "short-lived"],
            what="a pod that is gone",
        )


def test_deleting_what_is_gone_already_is_done(operator: Actor, cluster: Cluster) -> None:
    submission = sent(operator, cluster, the_pod("gone"))
    with opened(cluster) as kubernetes:
        kubernetes.delete("Pod", "default", "gone")
        until(
            lambda: not [each for each in kubernetes.pods(namespace="default") if each.name == "gone"],
            what="a pod that is gone",
        )
    jobs.delete(operator, submission)
    settle()
    submission.refresh_from_db()
    assert submission.state == Submission.State.DELETED


def test_an_object_that_somebody_else_made_under_that_name_is_left_alone(operator: Actor, cluster: Cluster) -> None:
    submission = sent(operator, cluster, the_pod("taken-over"))
    with opened(cluster) as kubernetes:
        kubernetes.delete("Pod", "default", "taken-over")
        until(
            lambda: not [each for each in kubernetes.pods(namespace="default") if each.name == "taken-over"],
            what="a pod that is gone",
        )
        manifest = {**submission.manifest}
        kubernetes.create(manifest, op_id="somebody else")
        jobs.delete(operator, submission)
        settle()
        assert [each for each in kubernetes.pods(namespace="default") if each.name == "taken-over"]
    submission.refresh_from_db()
    assert submission.state == Submission.State.SUBMITTED
    assert "another" in submission.error.lower()


def test_a_log_of_no_pod_is_refused_with_the_clusters_sentence(operator: Actor, cluster: Cluster) -> None:
    with pytest.raises(Refused) as caught:
        pods.log(operator, cluster, "default", "no-such-pod")
    assert "not found" in caught.value.message


def test_an_amount_that_is_left_empty_is_warned_of_and_taken_as_none(operator: Actor, cluster: Cluster) -> None:
    manifest = the_pod("no-amount").replace("nvidia.com/gpu: 1", "nvidia.com/gpu:")
    assert manifest != the_pod("no-amount")
    assert "no-amount" in {each.code for each in jobs.check(operator, cluster, manifest).findings}
    assert sent(operator, cluster, manifest).state == Submission.State.SUBMITTED
