"""Editing a pool's free labels and taints: type, look at what would happen to each node, then save."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from gpupools.domain.labels import EFFECTS
from gpupools.domain.modes import CARD_COUNT_LABEL, CARD_MEMORY_LABEL, CARD_NAME_LABEL
from gpupools.domain.requests import Kind
from gpupools.errors import Conflict
from gpupools.models import Cluster, NodePool, OperationRequest, Role
from gpupools.services import poolpreviews, pools, requestrules
from gpupools.services.access import Actor
from gpupools.services.poolpreviews import EditPreview
from gpupools.web.door import actor_of, page
from gpupools.web.forms import ConsoleForm, LabelsField, TaintsField, attempt, status_of
from gpupools.web.lines import NodeLine
from gpupools.web.shell import show
from gpupools.web.views.poolcuts import asked
from gpupools.web.views.pools import line_of, pool_of, waiting_for

CARD_LABELS = (CARD_NAME_LABEL, CARD_MEMORY_LABEL, CARD_COUNT_LABEL)
REACH = {
    "yes": (
        gettext_lazy("Yes, write them to the nodes that exist"),
        gettext_lazy("Every node of the pool gets them now; what differs on a node is brought back."),
    ),
    "no": (
        gettext_lazy("No, only to nodes that join later"),
        gettext_lazy(
            "Nodes that exist stay as they are and then differ from the pool; the console shows that as drift."
        ),
    ),
}


class EditForm(ConsoleForm):
    """Free labels and taints of a pool; its mode has a way of its own."""

    labels = LabelsField(
        label=gettext_lazy("Node labels"),
        required=False,
        help_text=gettext_lazy("Free labels. ACK refuses keys and values that begin with aliyun, acs: or http."),
    )
    taints = TaintsField(label=gettext_lazy("Taints"), required=False)
    update_nodes = forms.ChoiceField(
        label=gettext_lazy("Update Labels and Taints of Existing Nodes"),
        choices=[(value, text) for value, (text, _then) in REACH.items()],
        widget=forms.RadioSelect,
        error_messages={"required": gettext_lazy("Choose whether nodes that exist shall get them too.")},
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("Kept in the audit log with your name; whoever decides reads it."),
    )
    version = forms.IntegerField(widget=forms.HiddenInput)
    seen = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, pool: NodePool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Off ACK there are no other nodes: whatever is in a pool exists, and the console writes to it by itself.
        self.fields["update_nodes"].required = pool.cluster.provider == Cluster.Provider.ACK

    def wishes(self) -> dict[str, Any]:
        """Return what the services ask for, without the version."""
        typed = self.cleaned_data
        return {"labels": typed["labels"], "taints": typed["taints"], "update_nodes": typed["update_nodes"] == "yes"}

    @property
    def approved(self) -> dict[str, Any]:
        """Why pods may end by it, and those that the page named."""
        shown = self.data.getlist("approved_pods") if isinstance(self.data, QueryDict) else []
        return {"reason": self.cleaned_data["reason"], "approved_pods": shown}


@require_http_methods(["GET", "HEAD", "POST"])
@page
def edit(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Show the form; then what it would do to each node; then save what was looked at."""
    actor, pool = actor_of(request), pool_of(request, cluster, name)
    actor.require(Role.OPERATOR, pool.cluster)
    line, fresh = line_of(actor, pool)
    form = EditForm(request.POST or None, pool=pool, initial=_as_it_is(pool))
    preview = None
    if request.method == "POST":
        preview = attempt(form, lambda: _preview(actor, pool, form))
        if preview and "save" in request.POST and (made := attempt(form, lambda: _save(actor, pool, form, preview))):
            if isinstance(made, OperationRequest):
                return asked(request, made)
            messages.success(request, _said(preview))
            return redirect("web:pool", cluster, name)
    context = {
        "nav": "pools",
        "pool": pool,
        "line": line,
        "fresh": fresh,
        "form": form,
        "preview": preview,
        "seen": _digest(preview) if preview else "",
        "effects": EFFECTS,
        "reach": REACH,
        "card_labels": _card_labels(line.lines),
        "requests": waiting_for(actor, pool).filter(kind=Kind.EVICTING_TAINT.value),
        "second_person": requestrules.needed_for(Kind.EVICTING_TAINT),
    }
    return show(request, "pool_edit.html", context, status=status_of(form))


def _preview(actor: Actor, pool: NodePool, form: EditForm) -> EditPreview:
    if form.cleaned_data["version"] != pool.version:
        raise Conflict(
            _("%(name)s was edited meanwhile; look at it again.") % {"name": pool.name}, code="stale", pool=pool.name
        )
    return poolpreviews.edit(actor, pool, **form.wishes())


def _save(actor: Actor, pool: NodePool, form: EditForm, preview: EditPreview) -> NodePool | OperationRequest:
    if form.cleaned_data["seen"] != _digest(preview):
        message = _("What would happen to the nodes is not what you looked at any more: look at it again below.")
        raise Conflict(message, code="moved", pool=pool.name)
    return pools.edit(actor, pool, version=form.cleaned_data["version"], **form.wishes(), **form.approved)


def _digest(preview: EditPreview) -> str:
    # Nodes and writes alone: pods come and go while somebody reads.
    said = repr([(group.nodes, [(each.key, each.old, each.new) for each in group.writes]) for group in preview.groups])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _as_it_is(pool: NodePool) -> dict[str, Any]:
    taints = [(each["key"], each.get("value", ""), each.get("effect", "")) for each in pool.taints]
    return {"labels": list(pool.labels.items()), "taints": taints, "version": pool.version}


def _said(preview: EditPreview) -> str:
    name, count = preview.pool.name, len(preview.touched)
    if not preview.update_nodes:
        return _("The labels and taints of %(name)s are being written, for nodes that join later.") % {"name": name}
    return _("The labels and taints of %(name)s are being written, and %(count)s of its nodes follow.") % {
        "name": name,
        "count": count,
    }


def _card_labels(lines: Iterable[NodeLine]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Return what ACK wrote on the nodes about their cards: each label, its values, and on how many nodes each is."""
    found = [line.facts.node for line in lines if line.facts.node.is_gpu]
    counted = {key: Counter(node.labels.get(key, "") for node in found) for key in CARD_LABELS if found}
    return [(key, sorted(values.items())) for key, values in counted.items()]
