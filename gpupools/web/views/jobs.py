"""Jobs: what was submitted and what became of it; Create from YAML with check and preview before anything is sent."""

from __future__ import annotations

import hashlib
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.errors import ConsoleError, Missing
from gpupools.models import Cluster, JobTemplate, Role, Submission
from gpupools.services import allocation, jobs, nodes
from gpupools.services.jobpreviews import Checked
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.forms import ConsoleForm, attempt, status_of
from gpupools.web.landings import landings
from gpupools.web.lines import Fresh, node_lines
from gpupools.web.paging import page_of
from gpupools.web.shell import show
from gpupools.web.views.confirming import Question, confirm

ROWS_PER_PAGE = 50
BLANK = """apiVersion: batch/v1
kind: Job
metadata:
  name: my-job
spec:
  template:
    spec:
      containers:
      - name: main
        image: registry.example.com/image:tag
        resources:
          limits:
            nvidia.com/gpu: 1
      restartPolicy: Never
"""


class YamlForm(ConsoleForm):
    """A manifest, from a template with parameters or written by hand.

    ``made`` is the digest of the text that the template last gave: while the text is still that one, the
    parameters count; once a person has edited it, the text does.
    """

    yaml = forms.CharField(
        label=gettext_lazy("Manifest"),
        strip=False,
        required=False,
        widget=forms.Textarea(
            attrs={"rows": 26, "spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}
        ),
    )
    made = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, source: JobTemplate | None, models: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.source = source
        self.parameter_names = [each["name"] for each in source.parameters] if source else []
        for each in source.parameters if source else ():
            initial = defaults_of(source, models)[each["name"]]
            self.fields[f"parameters_{each['name']}"] = _parameter_field(each, initial, models)

    @property
    def parameters(self) -> list[Any]:
        """The bound fields of the parameters, in the template's order."""
        return [self[f"parameters_{name}"] for name in self.parameter_names]

    @property
    def values(self) -> dict[str, str]:
        """What was typed for the parameters."""
        return {name: str(self[f"parameters_{name}"].value() or "") for name in self.parameter_names}


def defaults_of(source: JobTemplate, models: tuple[str, ...]) -> dict[str, str]:
    """Return a template's defaults for this cluster: a card model that is wanted is one that is there."""
    # A model to avoid may well be one that the cluster does not have.
    avoids = "operator: NotIn" in source.yaml
    found = {}
    for each in source.parameters:
        default = str(each.get("default", ""))
        if each.get("kind") == "card_model" and models and default not in models and not avoids:
            default = models[0]
        found[each["name"]] = default
    return found


def _parameter_field(parameter: dict[str, Any], initial: str, models: tuple[str, ...]) -> forms.Field:
    kind = parameter.get("kind")
    help_text = parameter.get("help", "")
    if kind == "card_model" and models:
        help_text = f"{help_text} " + _("Here now: %(models)s.") % {"models": ", ".join(models)}
    common = {
        "label": parameter.get("title") or parameter["name"],
        "required": False,
        "help_text": help_text,
        "initial": initial,
    }
    if kind == "choice":
        field: forms.Field = forms.ChoiceField(
            choices=[(each, each) for each in parameter.get("choices", ())], **common
        )
        field.widget.attrs["class"] = "form-select mid"
        return field
    attrs = {"class": "form-control mid"}
    if kind == "card_model" and models:
        attrs["list"] = "card-models"
    if kind == "integer":
        attrs |= {"inputmode": "numeric", "class": "form-control narrow"}
    return forms.CharField(widget=forms.TextInput(attrs=attrs), **common)


@require_safe
@page
def index(request: HttpRequest, cluster: str) -> HttpResponse:
    """List submissions with what became of each."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    query = request.GET.get("q", "").strip()
    every = Submission.objects.visible_to(actor).filter(cluster=here).select_related("submitted_by", "template")
    chosen = every.filter(name__icontains=query) if query else every
    page_obj = page_of(request, chosen, ROWS_PER_PAGE)
    picture = allocation.current(here)
    found = [(each, jobs.outcome(each, picture)) for each in page_obj]
    lines = [(each, outcome, any(row.pod.node for row in outcome.pods)) for each, outcome in found]
    context = {
        "nav": "jobs",
        "lines": lines,
        "page_obj": page_obj,
        "query": query,
        "any": bool(lines) or every.exists(),
        "fresh": Fresh(picture.taken_at if picture else None),
        "templates": jobs.templates(),
    }
    return show(request, "jobs.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def create(request: HttpRequest, cluster: str) -> HttpResponse:
    """Write a manifest, check it, see where it would land, submit it."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    slug = (request.POST or request.GET).get("template", "")
    source = jobs.template(slug) if slug else None
    lines = node_lines(actor, here, nodes.listing(actor, here))
    models = tuple(sorted({line.facts.node.card_model for line in lines if line.facts.node.card_model}))
    earlier = request.GET.get("from", "")
    again = _submission_of(request, cluster, int(earlier))[1] if earlier.isascii() and earlier.isdigit() else None
    form = _form(request, source, models, again)
    action, checked, rehearsed = request.POST.get("action", ""), None, None
    if form.is_bound and not form.errors:
        yaml = (form["yaml"].value() or "").replace("\r\n", "\n")
        if action == "submit":
            made = attempt(form, lambda: jobs.submit(actor, here, yaml=yaml, template=source))
            if made:
                said = _("%(what)s is handed over. What becomes of it stands below.")
                messages.info(request, said % {"what": str(made)})
                return redirect("web:job", here.name, made.pk)
        if action in ("check", "submit"):
            checked = _check(form, lambda: jobs.check(actor, here, yaml))
        if action == "check" and checked is not None and not checked.errors:
            rehearsed = jobs.rehearse(actor, here, checked.manifest)
    context = {
        "nav": "jobs",
        "form": form,
        "source": source,
        "templates": jobs.templates(),
        "checked": checked,
        "rehearsed": rehearsed,
        "findings": [*(rehearsed.findings if rehearsed else ()), *(checked.findings if checked else ())],
        "has_errors": bool(checked and checked.errors) or bool(rehearsed and rehearsed.findings),
        "models": models,
        "landings": landings(checked.preview, checked.manifest.ask, lines) if checked and checked.preview else [],
        # The first pod's verdicts stand above already.
        "unfit_landings": (
            landings(checked.unfit, checked.manifest.ask, lines)
            if checked and checked.unfit and checked.first_unfit
            else []
        ),
        "spots": _spots(checked),
        "may_submit": actor.can(Role.OPERATOR, here),
        "edited": bool(source) and form["made"].value() != _digest(form["yaml"].value() or ""),
    }
    return show(request, "job_create.html", context, status=status_of(form))


def _form(
    request: HttpRequest, source: JobTemplate | None, models: tuple[str, ...], again: Submission | None
) -> YamlForm:
    """Return the form with the text to show: a person's own, an earlier one's, or what the template gives."""
    if request.method != "POST":
        form = YamlForm(None, source=source, models=models)
        text = jobs.render(source, defaults_of(source, models)) if source else again.yaml if again else BLANK
        form.initial |= {"yaml": text, "made": _digest(text) if source else ""}
        return form
    typed = request.POST.copy()
    form = YamlForm(typed, source=source, models=models)
    form.is_valid()
    untouched = typed.get("made") == _digest(typed.get("yaml", ""))
    if source and (untouched or request.POST.get("action") == "render"):
        try:
            typed["yaml"] = jobs.render(source, form.values)
            typed["made"] = _digest(typed["yaml"])
        except ConsoleError as error:
            form.take(error)
    return form


def _digest(text: str) -> str:
    # Browsers send line ends as CR LF.
    return hashlib.sha256(text.replace("\r\n", "\n").encode()).hexdigest()


def _check(form: YamlForm, call: Any) -> Checked | None:
    try:
        found: Checked = call()
    except ConsoleError as error:
        if not form.errors:
            form.take(error)
        return None
    return found


def _spots(checked: Checked | None) -> list[tuple[str, int]]:
    """Count, for several pods, how many would land on each node; an empty name: nowhere."""
    counts: dict[str, int] = {}
    for preview in checked.previews if checked else ():
        counts[preview.chosen or ""] = counts.get(preview.chosen or "", 0) + 1
    return sorted(counts.items(), key=lambda entry: (not entry[0], entry[0]))


def _submission_of(request: HttpRequest, cluster: str, pk: int) -> tuple[Cluster, Submission]:
    here = cluster_of(request, cluster)
    every = Submission.objects.visible_to(actor_of(request)).select_related("cluster", "submitted_by", "template")
    found = every.filter(cluster=here, pk=pk).first()
    if found is None:
        raise Missing(_("There is no such submission, or you may not see it."))
    return here, found


@require_safe
@page
def detail(request: HttpRequest, cluster: str, pk: int) -> HttpResponse:
    """Show one submission: its pods, where they went, its manifest."""
    here, submission = _submission_of(request, cluster, pk)
    picture = allocation.current(here)
    outcome = jobs.outcome(submission, picture)
    context = {
        "nav": "jobs",
        "submission": submission,
        "outcome": outcome,
        "fresh": Fresh(outcome.taken_at),
        "may_edit": actor_of(request).can(Role.OPERATOR, here, submission.namespace),
        "may_delete": actor_of(request).can(Role.OPERATOR, here, submission.namespace)
        and submission.state == Submission.State.SUBMITTED,
    }
    return show(request, "job.html", context)


def _ends_with(submission: Submission, outcome: jobs.Outcome) -> list[str]:
    """Say what deleting a submission's object ends, and that nothing brings it back."""
    alive = sum(not row.pod.finished for row in outcome.pods)
    if submission.kind == "Job":
        first = ngettext(
            "The Job goes with its pods; %(count)s of them has not ended yet and is told to end now.",
            "The Job goes with its pods; %(count)s of them have not ended yet and are told to end now.",
            alive,
        ) % {"count": alive}
    else:
        first = _("The pod is told to end now.") if alive else _("The pod has ended already; its record goes.")
    last = _("Nothing starts it again, and its log can no longer be read. The manifest stays here.")
    return [first, last]


@require_http_methods(["GET", "HEAD", "POST"])
@page
def delete(request: HttpRequest, cluster: str, pk: int) -> HttpResponse:
    """Delete the object that a submission made, after a page that says which pods end with it."""
    actor, (here, submission) = actor_of(request), _submission_of(request, cluster, pk)
    actor.require(Role.OPERATOR, here, submission.namespace)
    outcome = jobs.outcome(submission, allocation.current(here))
    home = reverse("web:job", args=(here.name, submission.pk))
    names = {"what": f"{submission.kind} {submission.namespace}/{submission.name}"}
    question = Question(
        nav="jobs",
        title=_("Delete %(what)s") % names,
        consequences=_ends_with(submission, outcome),
        button=_("Delete %(what)s") % names,
        back=home,
        keep=_("Keep it"),
        pods=outcome.pods if submission.kind == "Job" else (),
    )
    if answer := confirm(request, question, lambda: jobs.delete(actor, submission)):
        return answer
    messages.success(request, _("%(what)s is being deleted.") % {"what": str(submission)})
    return redirect("web:job", cluster, pk)
