"""Pods: the list with filters, one pod with what it holds, its log as a page and as text."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from gpupools.domain.gpus import Pod
from gpupools.errors import ConsoleError, Missing
from gpupools.models import Cluster, Submission
from gpupools.services import nodes, pods, waiting
from gpupools.services.access import Actor
from gpupools.web.door import actor_of, cluster_of, page, status_of
from gpupools.web.landings import landings
from gpupools.web.lines import Fresh, node_lines
from gpupools.web.paging import page_of
from gpupools.web.shell import show

ROWS_PER_PAGE = 200
MOST_VERDICTS = 50
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
TAILS = (100, 500, 2000, 10000)


class FilterForm(forms.Form):
    """Which pods; all empty means all."""

    namespace = forms.CharField(required=False, max_length=63)
    phase = forms.ChoiceField(required=False, choices=[("", ""), *((phase, phase) for phase in PHASES)])
    node = forms.CharField(required=False, max_length=253)
    owner = forms.CharField(required=False, max_length=253)
    gpu_only = forms.BooleanField(required=False)
    q = forms.CharField(required=False, max_length=253)


@require_safe
@page
def index(request: HttpRequest, cluster: str) -> HttpResponse:
    """List pods, GPU pods first of all: everything else is one click away."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    wanted = request.GET.copy()
    if not wanted:
        wanted["gpu_only"] = "on"
    form = FilterForm(wanted)
    form.is_valid()
    typed = form.cleaned_data
    filters = pods.Filters(
        **{key: typed.get(key) or "" for key in ("namespace", "phase", "node", "owner")},
        gpu_only=bool(typed.get("gpu_only")),
    )
    listing = pods.listing(actor, here, filters)
    query = (typed.get("q") or "").lower()
    chosen = [
        row
        for row in listing.rows
        if query in f"{row.pod.namespace}/{row.pod.name} {row.pod.node} {row.pod.owner_name}".lower()
    ]
    context = {
        "nav": "pods",
        "page_obj": page_of(request, chosen, ROWS_PER_PAGE),
        "shown": len(chosen),
        "typed": typed,
        "phases": PHASES,
        "fresh": Fresh(listing.taken_at),
        "known": listing.taken_at is not None,
    }
    return show(request, "pods.html", context)


@require_safe
@page
def detail(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show one pod, and the end of its log."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    listing = pods.listing(actor, here, pods.Filters(namespace=namespace))
    row = next((each for each in listing.rows if each.pod.name == name), None)
    if row is None:
        raise Missing(
            _("Cluster %(cluster)s has no pod %(name)s now.") % {"cluster": here.name, "name": f"{namespace}/{name}"}
        )
    container = request.GET.get("container", "")
    log, trouble = "", ""
    try:
        log = pods.log(actor, here, namespace, name, container=container, tail_lines=_tail(request))
    except ConsoleError as error:
        trouble = error.message
    context = {
        "nav": "pods",
        "row": row,
        "pod": row.pod,
        "log": log,
        "trouble": trouble,
        "submission": _submission_of(actor, here, row.pod),
        **_why(actor, here, row),
        "container": container,
        "tail": _tail(request),
        "tails": TAILS,
        "fresh": Fresh(listing.taken_at),
    }
    return show(request, "pod.html", context)


def _why(actor: Actor, here: Cluster, row: pods.PodRow) -> dict[str, Any]:
    """Return why a pod waits, with the verdict of each node; nothing for one that does not."""
    found = waiting.look(actor, here, row.pod.namespace, row.pod.name) if row.waits else None
    if found is None:
        return {}
    every = landings(found.preview, row.pod.ask, node_lines(actor, here, nodes.listing(actor, here)))
    return {"waiting": found, "landings": every[:MOST_VERDICTS], "more_verdicts": max(0, len(every) - MOST_VERDICTS)}


def _submission_of(actor: Actor, here: Cluster, pod: Pod) -> Submission | None:
    """Return what was submitted here that a pod belongs to: its Job, or itself."""
    kind, name = (pod.owner_kind, pod.owner_name) if pod.owner_kind else ("Pod", pod.name)
    every = Submission.objects.visible_to(actor).filter(cluster=here, kind=kind, namespace=pod.namespace, name=name)
    return every.order_by("-pk").first()


@require_safe
@page
def log(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Answer the end of a container's log as text; a refusal is text too, with its status."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    plain = "text/plain; charset=utf-8"
    try:
        container = request.GET.get("container", "")
        text = pods.log(actor, here, namespace, name, container=container, tail_lines=_tail(request))
    except ConsoleError as error:
        return HttpResponse(error.message, status=status_of(error), content_type=plain)
    return HttpResponse(text, content_type=plain)


def _tail(request: HttpRequest) -> int:
    asked = request.GET.get("tail", "")
    return int(asked) if asked.isascii() and asked.isdigit() and 1 <= int(asked) <= pods.MOST_LOG_LINES else TAILS[1]
