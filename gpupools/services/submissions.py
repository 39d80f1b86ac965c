"""Carrying submissions into clusters and out of them: one call per run, which may be repeated."""

from __future__ import annotations

from gpupools.errors import Conflict
from gpupools.models import Push, Submission
from gpupools.services import gateways, jobs
from gpupools.services.pushes import Done, Handler


def push_submission(push: Push) -> Done:
    """Create the object. Its name is fixed and it carries the push's operation id, so a second try finds it.

    Raises Conflict when an object of that name is there already, Refused with the API server's sentence.
    """
    submission = _submission(push)
    if submission is None or submission.state != Submission.State.QUEUED:
        return Done("There is nothing to send any more.")
    with gateways.kubernetes_of(push.cluster) as kubernetes:
        made = kubernetes.create(submission.manifest, op_id=str(push.op_id))

    def write() -> None:
        Submission.objects.filter(pk=submission.pk, state=Submission.State.QUEUED).update(
            state=Submission.State.SUBMITTED, object_uid=made.uid, error=""
        )

    return Done(f"{submission} is {made.outcome}.", write)


def push_submission_delete(push: Push) -> Done:
    """Delete the object with its pods; one that is gone already is deleted. Another one of that name is left alone."""
    submission = _submission(push)
    if submission is None or submission.state != Submission.State.DELETING:
        return Done("There is nothing to delete any more.")
    with gateways.kubernetes_of(push.cluster) as kubernetes:
        uid = _uid_of(kubernetes, submission)
        if uid and submission.object_uid and uid != submission.object_uid:
            raise Conflict(
                f"Another {submission.kind} is named {submission.name} now, which this submission did not make.",
                code="another-object",
            )
        found = kubernetes.delete(submission.kind, submission.namespace, submission.name)

    def write() -> None:
        Submission.objects.filter(pk=submission.pk, state=Submission.State.DELETING).update(
            state=Submission.State.DELETED, error=""
        )

    return Done(f"{submission} is deleted." if found else f"{submission} was gone already.", write)


def _uid_of(kubernetes: gateways.Kubernetes, submission: Submission) -> str:
    if submission.kind == "Pod":
        pods = kubernetes.pods(namespace=submission.namespace)
        return next((pod.uid for pod in pods if pod.name == submission.name), "")
    key = (submission.kind, submission.namespace, submission.name)
    workloads = kubernetes.workloads()
    return next((each.uid for each in workloads if (each.kind, each.namespace, each.name) == key), "")


def _submission(push: Push) -> Submission | None:
    return Submission.objects.filter(pk=push.payload["submission"]).first()


def _not_created(push: Push, sentence: str) -> None:
    Submission.objects.filter(pk=push.payload["submission"], state=Submission.State.QUEUED).update(
        state=Submission.State.FAILED, error=sentence[:1000]
    )


def _not_deleted(push: Push, sentence: str) -> None:
    # The object is still there, so it can be deleted again.
    Submission.objects.filter(pk=push.payload["submission"], state=Submission.State.DELETING).update(
        state=Submission.State.SUBMITTED, error=sentence[:1000]
    )


HANDLERS = {
    jobs.CREATE: Handler(push_submission, _not_created),
    jobs.DELETE: Handler(push_submission_delete, _not_deleted),
}
