"""Job templates, and manifests that are checked, previewed and sent to a cluster.

A submission is named before it is pushed, so sending it twice makes one object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from gpupools.domain import lint, manifests, parameters, yamltext
from gpupools.domain.findings import API_SERVER, ERROR, Finding, refusal
from gpupools.domain.gpus import Picture, Pod, Workload
from gpupools.domain.manifests import Manifest
from gpupools.domain.modes import Mode
from gpupools.errors import Conflict, ConsoleError, FieldError, Invalid, Missing, NotAllowed, Unreachable
from gpupools.models import Cluster, JobTemplate, Role, Submission
from gpupools.services import allocation, audit, drift, gateways, pushes
from gpupools.services.access import Actor
from gpupools.services.jobpreviews import Checked, previewed
from gpupools.services.pods import PodRow, is_crashing, row_of

CATALOGUE: Final = Path(__file__).resolve().parent.parent / "catalogue" / "templates"
CREATE, DELETE = "submission.create", "submission.delete"
# The API server's words for a field that it does not know; refusals hold them as they came.
_UNKNOWN_FIELD: Final = re.compile(r'unknown field "([^"]{1,200})"')


# -- Templates


def templates() -> list[JobTemplate]:
    """Return the newest version of every template: built-in ones first, then by name."""
    newest: dict[str, JobTemplate] = {}
    for each in JobTemplate.objects.order_by("slug", "-version"):
        newest.setdefault(each.slug, each)
    return sorted(newest.values(), key=lambda each: (not each.is_builtin, each.slug))


def template(slug: str) -> JobTemplate:
    """Return the newest version of one template; raises Missing."""
    found = JobTemplate.objects.filter(slug=slug).order_by("-version").first()
    if found is None:
        raise Missing(f"There is no job template {slug}.", code="no-such-template")
    return found


def render(source: JobTemplate, values: Mapping[str, Any]) -> str:
    """Put parameters into a template; missing ones take their default. Raises Invalid on ``parameters.<name>``."""
    return parameters.render(source.yaml, source.parameters, values)


class _CatalogueEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A file of the built-in catalogue: what is said of a template, and the manifest as text."""

    title: str
    description: str
    manifest: str
    parameters: list[dict[str, Any]] = []


@transaction.atomic
def load_catalogue() -> int:
    """Bring the built-in templates up to date: a file that changed becomes a new version. Returns how many did."""
    written = 0
    for path in sorted(CATALOGUE.glob("*.yaml")):
        entry = msgspec.convert(yamltext.load(path.read_text(), max_bytes=64 * 1024), _CatalogueEntry)
        fields = {
            "title": entry.title,
            "description": entry.description,
            "yaml": entry.manifest,
            "parameters": entry.parameters,
        }
        newest = JobTemplate.objects.filter(slug=path.stem).order_by("-version").first()
        if newest is not None and (not newest.is_builtin or all(getattr(newest, k) == v for k, v in fields.items())):
            continue
        JobTemplate.objects.create(
            slug=path.stem,
            version=newest.version + 1 if newest else 1,
            is_builtin=True,
            created_at=timezone.now(),
            **fields,
        )
        written += 1
    return written


# -- Checking


def check(actor: Actor, cluster: Cluster, yaml: str) -> Checked:
    """Read a manifest, see that it stays in its bounds, lint it, and say where it would land now.

    Raises Invalid with field paths ``yaml:...`` for what cannot be sent at all, NotAllowed and Missing for a cluster
    out of reach. What lint calls an error is in ``errors``: a page shows it, ``submit`` refuses it.
    """
    actor.require(Role.VIEWER, cluster)
    manifest = manifests.parse(yaml, max_bytes=settings.GPUPOOLS_MAX_MANIFEST_BYTES)
    beyond = manifests.check_confined(manifest, namespaces=actor.namespaces(cluster))
    if beyond:
        raise Invalid("The manifest reaches beyond what may be submitted here.", code="confined", errors=beyond)
    try:
        picture = allocation.current(cluster)
        unknown = "" if picture else "No numbers of this cluster are known yet, so there is no preview."
    except Unreachable as error:
        picture, unknown = None, error.message
    findings = tuple(lint.lint(manifest, modes_present=_modes(picture)))
    if picture is None:
        return Checked(manifest, findings, None, (), None, unknown)
    return previewed(manifest, findings, picture, actor.namespaces(cluster), drift.pool_names(cluster))


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a cluster says to a manifest without keeping it. ``untested`` says why it was not asked, if so."""

    findings: tuple[Finding, ...] = ()
    untested: str = ""


def rehearse(actor: Actor, cluster: Cluster, manifest: Manifest) -> Rehearsal:
    """Have the API server judge a manifest by a dry run: only it knows namespaces, quotas and admission.

    Nobody is let in further by it: whoever may not submit there is told nothing.
    """
    if not actor.can(Role.OPERATOR, cluster, manifest.namespace):
        return Rehearsal()
    if cluster.state == Cluster.State.UNREACHABLE:
        return Rehearsal(untested=cluster.last_error)
    try:
        with gateways.kubernetes_of(cluster) as kubernetes:
            kubernetes.create(_object(manifest), op_id="check", dry_run=True)
    except Unreachable as error:
        return Rehearsal(untested=error.message)
    except ConsoleError as error:
        return Rehearsal((_refusal(error, manifest),))
    return Rehearsal()


def _refusal(error: ConsoleError, manifest: Manifest) -> Finding:
    if f'namespaces "{manifest.namespace}" not found' in error.message:
        message = f"The cluster has no namespace {manifest.namespace}."
        fix = "Name one that is there, or have it made."
        return Finding("no-such-namespace", ERROR, "metadata.namespace", message, fix, API_SERVER)
    unknown = _UNKNOWN_FIELD.search(error.message)
    path = unknown[1] if unknown else "metadata"
    return Finding("refused", ERROR, path, error.message, refused_by=API_SERVER)


def _object(manifest: Manifest) -> dict[str, Any]:
    raw = dict(manifest.raw)
    raw["metadata"] = {**raw["metadata"], "namespace": manifest.namespace}
    return raw


def _modes(picture: Picture | None) -> frozenset[Mode] | None:
    if picture is None:
        return None
    return frozenset(mode for node in picture.nodes if node.is_gpu and (mode := node.declared) is not None)


# -- Sending


def submit(actor: Actor, cluster: Cluster, *, yaml: str, template: JobTemplate | None = None) -> Submission:
    """Send a manifest: the row and its push in one transaction; a worker creates the object.

    Raises what ``check`` raises, and Invalid for what lint calls an error or the API server refuses in a dry run,
    Conflict while a submission of that name is still on its way.
    """
    checked = check(actor, cluster, yaml)
    manifest = checked.manifest
    actor.require(Role.OPERATOR, cluster, manifest.namespace)
    if actor.user is None:
        raise NotAllowed("Only a person or a token submits manifests.", code="needs-user")
    if checked.errors:
        raise Invalid(
            checked.refused,
            code="lint",
            errors=[
                FieldError(f"yaml:{each.path}", f"{each.message} {each.fix}".strip(), code=each.code)
                for each in checked.errors
            ],
        )
    # A cluster that cannot be asked now is asked by the worker; one that says no now need not be asked again.
    if refused := rehearse(actor, cluster, manifest).findings:
        errors = [FieldError(f"yaml:{each.path}", each.message, code=each.code) for each in refused]
        raise Invalid(refusal(refused), code="refused", errors=errors)
    with transaction.atomic():
        submission = Submission.objects.create(
            cluster=cluster,
            template=template,
            kind=manifest.kind,
            namespace=manifest.namespace,
            name=manifest.name,
            yaml=yaml,
            manifest=_object(manifest),
            findings=[msgspec.to_builtins(each) for each in checked.findings],
            submitted_by=actor.user,
            submitted_at=timezone.now(),
        )
        audit.record(
            actor,
            "submission.create",
            submission,
            kind=manifest.kind,
            namespace=manifest.namespace,
            template=str(template) if template else "",
        )
        pushes.enqueue(
            actor, kind=CREATE, cluster=cluster, target=target_of(submission), payload={"submission": submission.pk}
        )
    return submission


def delete(actor: Actor, submission: Submission) -> Submission:
    """Delete the object that a submission made, with its pods. Raises Conflict when there is nothing to delete."""
    actor.require(Role.OPERATOR, submission.cluster, submission.namespace)
    with transaction.atomic():
        moved = Submission.objects.filter(pk=submission.pk, state=Submission.State.SUBMITTED).update(
            state=Submission.State.DELETING, error=""
        )
        submission.refresh_from_db()
        if not moved:
            raise Conflict(
                f"Cannot delete: the submission is {submission.get_state_display().lower()}.",
                code="illegal-move",
                state=submission.state,
            )
        audit.record(actor, "submission.delete", submission)
        pushes.enqueue(
            actor,
            kind=DELETE,
            cluster=submission.cluster,
            target=target_of(submission),
            payload={"submission": submission.pk},
        )
    return submission


def target_of(submission: Submission) -> str:
    """Return what the pushes of a submission write to: one object, whichever submission names it."""
    return f"{submission.kind}:{submission.namespace}/{submission.name}"[-100:]


# -- What became of it


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a submission by the picture of ``taken_at``; None: no picture, nothing is known.

    ``state`` in a word: queued, not accepted, waiting, running, succeeded, failed, suspended, deleting, deleted,
    crashing, or unknown. ``reason`` is the sentence of whoever knows best: the scheduler for a pod that waits.
    """

    state: str
    reason: str
    pods: tuple[PodRow, ...]
    taken_at: float | None

    @property
    def phases(self) -> dict[str, int]:
        """How many pods are in each phase."""
        counts: dict[str, int] = {}
        for row in self.pods:
            counts[row.phase] = counts.get(row.phase, 0) + 1
        return counts


def outcome(submission: Submission, picture: Picture | None) -> Outcome:
    """Say where a submission's pods went and what they hold; reads the picture alone."""
    taken_at = picture.taken_at if picture else None
    if submission.state == Submission.State.FAILED:
        return Outcome("not accepted", submission.error, (), taken_at)
    if submission.state in (Submission.State.QUEUED, Submission.State.DELETED):
        return Outcome(submission.state, submission.error, (), taken_at)
    if picture is None:
        return Outcome("unknown", "No numbers of this cluster are known yet.", (), None)
    chosen = [pod for pod in picture.pods if _belongs(pod, submission)]
    folds = allocation.folds_of(picture, {pod.node for pod in chosen if pod.node})
    nodes = {node.name: node for node in picture.nodes}
    rows = tuple(
        row_of(pod, nodes.get(pod.node), folds.get(pod.node))
        for pod in sorted(chosen, key=lambda pod: (pod.created_at, pod.name))
    )
    if submission.state == Submission.State.DELETING:
        return Outcome("deleting", submission.error, rows, taken_at)
    state, reason = _verdict(submission, picture, chosen)
    return Outcome(state, reason, rows, taken_at)


def _belongs(pod: Pod, submission: Submission) -> bool:
    if pod.namespace != submission.namespace:
        return False
    if submission.kind == "Pod":
        return pod.name == submission.name and pod.uid == submission.object_uid
    return (pod.owner_kind, pod.owner_name) == (submission.kind, submission.name)


def _verdict(submission: Submission, picture: Picture, pods: list[Pod]) -> tuple[str, str]:
    job = _workload(submission, picture)
    if job is not None and job.state in ("complete", "failed", "suspended"):
        word = {"complete": "succeeded"}.get(job.state, job.state)
        return word, job.message or job.reason
    if submission.kind == "Job" and job is None or not pods and submission.kind == "Pod":
        return "unknown", "The object is not in the current numbers: it is too new, or somebody deleted it."
    waiting = next((pod for pod in pods if pod.phase == "Pending"), None)
    running = [pod for pod in pods if pod.phase == "Running"]
    if running and all(is_crashing(pod) for pod in running):
        return "crashing", running[0].message or running[0].reason
    if running:
        return "running", (waiting.message or waiting.reason) if waiting else ""
    if waiting is not None:
        return "waiting", waiting.message or waiting.reason
    if submission.kind == "Pod":
        return pods[0].phase.lower(), pods[0].message or pods[0].reason
    return "waiting", "Its pods are not there yet."


def _workload(submission: Submission, picture: Picture) -> Workload | None:
    return next(
        (
            each
            for each in picture.workloads
            if (each.kind, each.namespace, each.name) == (submission.kind, submission.namespace, submission.name)
            and submission.object_uid in ("", each.uid)
        ),
        None,
    )
