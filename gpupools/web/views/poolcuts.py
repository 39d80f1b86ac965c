"""Scaling and deleting a pool: what releases machines is shown with who is hit, on a page before it is done."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from gpupools.domain.requests import Kind
from gpupools.errors import Unreachable
from gpupools.models import Cluster, NodePool, OperationRequest, Role
from gpupools.services import poolcuts, radii, requestrules
from gpupools.services.radii import Radius
from gpupools.web.door import actor_of, page, taker
from gpupools.web.forms import ConsoleForm, attempt, status_of
from gpupools.web.shell import show
from gpupools.web.views.pools import ScaleForm, line_of, pool_of, show_pool, waiting_for


class EmptyForm(ScaleForm):
    """The last word before a pool loses machines: why, and the pods that were shown."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("Kept in the audit log with your name; whoever decides reads it."),
    )

    def wishes(self) -> dict[str, Any]:
        """Return what the service asks for, with the reason and the pods that the page named."""
        shown = self.data.getlist("approved_pods") if isinstance(self.data, QueryDict) else []
        return {**super().wishes(), "reason": self.cleaned_data["reason"], "approved_pods": shown}


class DeleteForm(ConsoleForm):
    """The last word before a pool goes."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("Kept in the audit log. Needed while the pool has nodes."),
    )
    force = forms.BooleanField(label=gettext_lazy("Release the machines of its nodes"), required=False)


@taker("web:pool", "cluster", "name")
def scale(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Set how many machines the pool shall have; where pods may end by it, after a page that says who is hit."""
    pool, form = pool_of(request, cluster, name), ScaleForm(request.POST)
    actor = actor_of(request)
    actor.require(Role.OPERATOR, pool.cluster)
    if form.is_valid():
        size = form.cleaned_data["desired_size"]
        radius = poolcuts.released(pool, size)
        if radius is not None and poolcuts.is_guarded(radius, size):
            return _release(request, pool, size, radius)
    if attempt(form, lambda: poolcuts.scale(actor, pool, **form.wishes())):
        messages.success(request, _("%(name)s is being scaled.") % {"name": pool.name})
        return redirect("web:pool", cluster, name)
    return show_pool(request, pool, status=400, scale_form=form)


def _has_machines(pool: NodePool) -> bool:
    return pool.cluster.provider == Cluster.Provider.ACK and radii.machines_of(pool) != 0


def _release(request: HttpRequest, pool: NodePool, size: int, radius: Radius) -> HttpResponse:
    """Ask on the first POST, which comes from the form of sizes; act on the second, which has a reason."""
    actor = actor_of(request)
    form = EmptyForm(request.POST) if "reason" in request.POST else EmptyForm(initial=request.POST.dict())
    made = attempt(form, lambda: poolcuts.scale(actor, pool, **form.wishes())) if form.is_bound else None
    if isinstance(made, OperationRequest):
        return asked(request, made)
    if made:
        messages.success(request, _("%(name)s is being scaled.") % {"name": pool.name})
        return redirect("web:pool", pool.cluster.name, pool.name)
    context = {
        "nav": "pools",
        "pool": pool,
        "form": form,
        "sizes": [form[name] for name in ("desired_size", "enable", "min_instances", "max_instances")],
        "size": size,
        "radius": radius,
        "requests": waiting_for(actor, pool).filter(kind=poolcuts.kind_of(size).value),
        "second_person": requestrules.needed_for(poolcuts.kind_of(size)),
    }
    return show(request, "pool_empty.html", context, status=status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def delete(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Delete a pool, after a page that says what goes with it."""
    actor, pool = actor_of(request), pool_of(request, cluster, name)
    actor.require(Role.OPERATOR, pool.cluster)
    form = DeleteForm(request.POST or None)
    if request.method == "POST":
        made = attempt(form, lambda: poolcuts.delete(actor, pool, **form.cleaned_data))
        if made:
            return asked(request, made)
        if not form.errors:
            messages.success(request, _("Node pool %(name)s is being deleted.") % {"name": pool.name})
            return redirect("web:pools", cluster)
    line, fresh = line_of(actor, pool)
    releases = _has_machines(pool)
    context = {
        "nav": "pools",
        "pool": pool,
        "line": line,
        "fresh": fresh,
        "form": form,
        "releases": releases,
        "requests": waiting_for(actor, pool).filter(kind=Kind.FORCED_DELETE.value),
        "radius": _radius(pool) if releases else None,
        "second_person": releases and requestrules.needed_for(Kind.FORCED_DELETE),
    }
    return show(request, "pool_delete.html", context, status=status_of(form))


def _radius(pool: NodePool) -> Radius | None:
    """Return who is hit, None where nobody knows: the service says so when it is asked for."""
    try:
        return radii.of_pool(pool)
    except Unreachable:
        return None


def asked(request: HttpRequest, made: OperationRequest) -> HttpResponse:
    """Lead to a request that was just made."""
    messages.success(request, _("It is asked for. Nothing happens before a second person has approved it."))
    return redirect("web:request", made.pk)
