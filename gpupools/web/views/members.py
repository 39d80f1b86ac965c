"""A pool's nodes: take some in or out, and answer drift by restoring or adopting."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from gpupools.domain.modes import ACK_POOL_LABEL
from gpupools.errors import Missing
from gpupools.models import Cluster, ModeChange, NodePool, OperationRequest, Role
from gpupools.services import changes, members, nodes
from gpupools.services.access import Actor
from gpupools.web.door import actor_of, page
from gpupools.web.forms import ConsoleForm, WordsField, attempt, status_of
from gpupools.web.lines import OPEN_STATES
from gpupools.web.shell import show
from gpupools.web.views.poolcuts import asked
from gpupools.web.views.pools import pool_of


class MembersForm(ConsoleForm):
    """Which nodes or machines, and why."""

    node_names = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple)
    node_name = forms.CharField(required=False, max_length=253)
    instance_ids = WordsField(
        label=gettext_lazy("Instance ids"),
        required=False,
        help_text=gettext_lazy("ECS instances outside the cluster, separated by blanks or commas."),
    )
    holders = forms.ChoiceField(
        label=gettext_lazy("Pods that hold cards"), required=False, choices=ModeChange.Holders.choices
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("Kept in the audit log with your name."),
    )

    def __init__(self, *args: Any, known: list[str], **kwargs: Any) -> None:
        super().__init__(*args, auto_id=False, **kwargs)
        self.fields["node_names"].choices = [(name, name) for name in known]


@require_http_methods(["GET", "HEAD", "POST"])
@page
def manage(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Show a pool's nodes with what can be done to them; do what a button says."""
    actor, pool = actor_of(request), pool_of(request, cluster, name)
    actor.require(Role.OPERATOR, pool.cluster)
    rows = nodes.listing(actor, pool.cluster).rows
    own = [row for row in rows if row.pool_row is not None and row.pool_row.pk == pool.pk]
    free = [row for row in rows if row.node.is_gpu and not row.pool and ACK_POOL_LABEL not in row.node.labels]
    form = MembersForm(request.POST or None, known=[row.name for row in (*own, *free)])
    if request.method == "POST":
        answer = _do(request, actor, pool, form)
        if answer is not None:
            return answer
    typed = request.POST or request.GET
    others = NodePool.objects.filter(cluster=pool.cluster, state=NodePool.State.ACTIVE).exclude(pk=pool.pk)
    populated = {row.pool for row in rows if row.pool and row.node.is_gpu}
    context = {
        "nav": "pools",
        "pool": pool,
        "form": form,
        "typed": {key: typed.get(key, "") for key in ("action", "reason", "instance_ids", "node_name", "holders")},
        "models": {row.node.card_model for row in own if row.node.card_model},
        "chosen": frozenset(typed.getlist("node_names")),
        "sources": [each for each in others.order_by("name") if each.name in populated],
        "targets": others.exclude(mode="").order_by("name"),
        "held": pool.changes.filter(state__in=OPEN_STATES).first(),
        "own": own,
        "free": free if pool.cluster.provider == Cluster.Provider.KUBERNETES else [],
        "drift": [each for row in own for each in row.drift],
        "drifted": [row for row in own if row.drift],
    }
    return show(request, "pool_members.html", context, status=status_of(form))


def _do(request: HttpRequest, actor: Actor, pool: NodePool, form: MembersForm) -> HttpResponse | None:
    """Do what the button says; None when the form or a service refuses."""
    wanted = request.POST.get("action", "")
    if wanted not in ("take-in", "take-out", "attach", "restore", "adopt"):
        raise Missing(_("There is no such action."))

    def act() -> tuple[ModeChange | OperationRequest | None]:
        typed = form.cleaned_data
        reason = typed["reason"]
        if wanted == "take-in":
            chosen = {"node_names": typed["node_names"], "holders": typed["holders"] or ModeChange.Holders.WAIT}
            return (changes.request(actor, pool, way=ModeChange.Way.JOIN, reason=reason, **chosen),)
        if wanted == "restore":
            holders = typed["holders"] or ModeChange.Holders.WAIT
            return (members.restore(actor, pool, reason=reason, holders=holders),)
        if wanted == "adopt":
            return (members.adopt(actor, pool, node_name=typed["node_name"], reason=reason),)
        if wanted == "attach":
            members.attach(actor, pool, instance_ids=typed["instance_ids"], reason=reason)
        else:
            members.take_out(actor, pool, node_names=typed["node_names"], reason=reason)
        return (None,)

    done = attempt(form, act)
    if done is None:
        return None
    (change,) = done
    if change is None:
        messages.success(request, _("It is being carried out."))
        return redirect("web:pool", pool.cluster.name, pool.name)
    if isinstance(change, OperationRequest):
        return asked(request, change)
    messages.success(request, change.rule or _("The change is asked for. A second person must decide on it."))
    return redirect("web:change", change.pk)
