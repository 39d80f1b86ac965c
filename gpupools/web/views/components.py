"""The Cloud-native AI Suite: components, what depends on them, installing and uninstalling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.domain.cgpupolicy import POLICIES
from gpupools.domain.changes import State
from gpupools.domain.modes import Component
from gpupools.domain.requests import Kind
from gpupools.errors import Missing, Unreachable
from gpupools.models import Cluster, OperationRequest, Role
from gpupools.services import componentguards, components, pooladvice, radii, requestrules
from gpupools.services.access import Actor
from gpupools.services.components import ComponentRow
from gpupools.services.radii import Radius
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.forms import ConsoleForm, ReasonForm, attempt, status_of
from gpupools.web.shell import show
from gpupools.web.views.poolcuts import asked


class InstallForm(ConsoleForm):
    """Where the images are, on clusters to which ACK does not bring them."""

    image_prefix = forms.CharField(
        label=gettext_lazy("Image registry"),
        required=False,
        max_length=200,
        help_text=gettext_lazy("For instance registry.example.com/gpu. On ACK leave it empty: the add-on has its own."),
    )


class UninstallForm(ReasonForm):
    """Why a component goes, and the pods that this may end."""

    approved_pods = forms.MultipleChoiceField(
        label=gettext_lazy("Pods that may end"), required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, clients: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["approved_pods"].choices = [(name, name) for name in clients]


def clients_of(cluster: Cluster, name: str) -> tuple[str, ...]:
    """Return the pods that end with the component's own; none where nobody knows, which the service then says."""
    try:
        return componentguards.clients(cluster, Component(name))
    except Unreachable:
        return ()


def waiting_for(actor: Actor, cluster: Cluster, name: str) -> QuerySet[OperationRequest]:
    """Return the operations on a component that are asked for and wait for a second person."""
    rows = OperationRequest.objects.visible_to(actor).select_related("requested_by")
    return rows.filter(cluster=cluster, component=name, state=State.PENDING.value)


def radius_of(cluster: Cluster, row: ComponentRow) -> Radius | None:
    """Return who is hit when a component goes or restarts; None where nobody knows, which the service then says."""
    try:
        return radii.of_component(cluster, row.name, pools=row.pools)
    except Unreachable:
        return None


@require_safe
@page
def index(request: HttpRequest, cluster: str) -> HttpResponse:
    """Show the components of a cluster."""
    here = cluster_of(request, cluster)
    rows = components.overview(here)
    context = {
        "nav": "components",
        "rows": rows,
        "foreign": components.foreign(),
        "cgpu_policy": pooladvice.cgpu_policy(here),
        "compute_policies": POLICIES,
    }
    return show(request, "components.html", context)


def row_of(cluster: Cluster, name: str) -> ComponentRow:
    """Return one component of a cluster. Raises Missing for a name that the catalogue does not have."""
    found = next((row for row in components.overview(cluster) if row.name == name), None)
    if found is None:
        raise Missing(_("The catalogue has no component %(name)s.") % {"name": name})
    return found


@require_http_methods(["GET", "HEAD", "POST"])
@page
def install(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Install a component; on ACK one click, elsewhere with the registry of its images."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    actor.require(Role.OPERATOR, here)
    row, form = row_of(here, name), InstallForm(request.POST or None)
    if request.method == "POST":
        form = InstallForm(request.POST)
        if attempt(form, lambda: components.install(actor, here, name, **form.cleaned_data)):
            messages.success(request, _("%(name)s is being installed.") % {"name": name})
            return redirect("web:components", here.name)
    return show(
        request, "component_install.html", {"nav": "components", "row": row, "form": form}, status=status_of(form)
    )


@require_http_methods(["GET", "HEAD", "POST"])
@page
def uninstall(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Uninstall a component, after a page that says what stops working."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    actor.require(Role.OPERATOR, here)
    row = row_of(here, name)
    clients = clients_of(here, name)
    form = UninstallForm(request.POST or None, clients=clients)
    if request.method == "POST":
        made = attempt(form, lambda: components.uninstall(actor, here, name, **form.cleaned_data))
        if isinstance(made, OperationRequest):
            return asked(request, made)
        if made:
            messages.success(request, _("%(name)s is being uninstalled.") % {"name": name})
            return redirect("web:components", here.name)
    return show(
        request,
        "component_uninstall.html",
        {
            "nav": "components",
            "row": row,
            "form": form,
            "clients": clients,
            "radius": radius_of(here, row),
            "requests": waiting_for(actor, here, name),
            "second_person": requestrules.needed_for(Kind.COMPONENT_UNINSTALL),
        },
        status=status_of(form),
    )
