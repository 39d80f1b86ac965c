"""Job templates and submissions."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from gpupools.api.base import IDEMPOTENCY_KEY, Door, get_visible
from gpupools.api.serializers.work import (
    CheckOut,
    JobTemplateOut,
    ManifestIn,
    RenderIn,
    RenderOut,
    SubmissionIn,
    SubmissionOut,
)
from gpupools.domain.placement import Preview
from gpupools.models import JobTemplate, Submission
from gpupools.services import jobs
from gpupools.services.jobpreviews import Checked


class JobTemplateView(Door):
    """Job templates, each in its newest version."""

    queryset = JobTemplate.objects.none()
    serializer_class = JobTemplateOut
    pagination_class = None
    lookup_field = "slug"

    @extend_schema(responses=JobTemplateOut(many=True))
    def list(self, request: Request) -> Response:
        """List templates."""
        return Response(JobTemplateOut(jobs.templates(), many=True).data)

    @extend_schema(responses=JobTemplateOut)
    def retrieve(self, request: Request, slug: str) -> Response:
        """Read one template."""
        return Response(JobTemplateOut(jobs.template(slug)).data)

    @extend_schema(request=RenderIn, responses=RenderOut)
    @action(detail=True, methods=["post"])
    def render(self, request: Request, slug: str) -> Response:
        """Put values into a template; nothing is submitted."""
        values = self.read(RenderIn)["parameters"]
        return Response({"yaml": jobs.render(jobs.template(slug), values)})


def shown_preview(preview: Preview | None) -> dict[str, Any] | None:
    """Lay a preview out for the wire."""
    if preview is None:
        return None
    return {
        "chosen": preview.chosen,
        "cards": list(preview.cards),
        "tie_nodes": list(preview.tie_nodes),
        "tie_cards": list(preview.tie_cards),
        "message": preview.message,
        "prefilter": preview.prefilter,
        "verdicts": [
            {
                "node": verdict.node,
                "fits": verdict.fits,
                "reasons": [rejection.reason for rejection in verdict.rejections],
                "codes": [rejection.code for rejection in verdict.rejections],
                "cards": list(verdict.cards),
                "score": verdict.score,
                "tie_set": list(verdict.tie_set),
                "waits_for": verdict.waits_for,
                "rejections": verdict.rejections,
            }
            for verdict in preview.verdicts
        ],
    }


def shown_sequence(checked: Checked) -> dict[str, Any] | None:
    """Lay out where a Job's pods land, neighbours on one node together."""
    if not checked.previews:
        return None
    spots = [{"node": node, "pods": len(list(run))} for node, run in groupby(each.chosen for each in checked.previews)]
    unfit = shown_preview(checked.unfit)
    return {"pods": len(checked.previews), "first_unfit": checked.first_unfit, "spots": spots, "unfit": unfit}


class SubmissionView(Door):
    """Manifests that were sent to clusters."""

    queryset = Submission.objects.none()
    serializer_class = SubmissionOut
    lookup_value_regex = r"[0-9]+"
    filterset_fields = {
        "cluster__name": ["exact"],
        "namespace": ["exact"],
        "name": ["exact"],
        "kind": ["exact"],
        "state": ["exact"],
    }

    def get_queryset(self) -> Any:
        """Submissions to namespaces that the caller may see."""
        rows = Submission.objects.visible_to(self.actor)
        return rows.select_related("cluster", "template", "submitted_by").order_by("-pk")

    def list(self, request: Request) -> Response:
        """List submissions, newest first."""
        return self.paged(self.filter_queryset(self.get_queryset()), SubmissionOut)

    def retrieve(self, request: Request, pk: str) -> Response:
        """Read one submission."""
        return Response(SubmissionOut(get_visible(self.get_queryset(), pk=pk)).data)

    @extend_schema(request=SubmissionIn, responses={201: SubmissionOut}, parameters=[IDEMPOTENCY_KEY])
    def create(self, request: Request) -> Response:
        """Submit a Job or Pod; a worker creates it in the cluster."""
        values = self.read(SubmissionIn)
        cluster = self.cluster(values["cluster"])
        template = jobs.template(values["template"]) if values["template"] else None

        def work() -> Response:
            made = jobs.submit(self.actor, cluster, yaml=values["yaml"], template=template)
            return Response(SubmissionOut(made).data, status=201)

        return self.once(work)

    @extend_schema(request=ManifestIn, responses=CheckOut)
    @action(detail=False, methods=["post"])
    def check(self, request: Request) -> Response:
        """Lint a manifest and say where it would land now; nothing is submitted.

        What lint finds no error in is tried on the API server by a dry run too, for callers who may submit it.
        """
        values = self.read(ManifestIn)
        cluster = self.cluster(values["cluster"])
        checked = jobs.check(self.actor, cluster, values["yaml"])
        rehearsed = jobs.Rehearsal() if checked.errors else jobs.rehearse(self.actor, cluster, checked.manifest)
        taken_at = datetime.fromtimestamp(checked.taken_at, tz=UTC) if checked.taken_at is not None else None
        body = {
            "kind": checked.manifest.kind,
            "namespace": checked.manifest.namespace,
            "name": checked.manifest.name,
            "parallelism": checked.manifest.parallelism,
            "findings": [*rehearsed.findings, *checked.findings],
            "taken_at": taken_at,
            "preview": shown_preview(checked.preview),
            "unknown": checked.unknown,
            "note": checked.note,
            "sequence": shown_sequence(checked),
            "help": checked.help,
            "alternatives": checked.alternatives,
        }
        return Response(CheckOut(body).data)

    @extend_schema(request=None, responses={202: SubmissionOut}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"], url_path="delete")
    def remove(self, request: Request, pk: str) -> Response:
        """Delete what was submitted from the cluster, with its pods."""
        submission = get_visible(self.get_queryset(), pk=pk)

        def work() -> Response:
            jobs.delete(self.actor, submission)
            return Response(SubmissionOut(get_visible(self.get_queryset(), pk=pk)).data, status=202)

        return self.once(work)
