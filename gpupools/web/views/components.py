"""The Cloud-native AI Suite: components, what depends on them, installing and uninstalling."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.errors import Missing
from gpupools.models import Cluster, Role
from gpupools.services import components
from gpupools.services.components import ComponentRow
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.forms import ConsoleForm, ReasonForm, attempt, status_of
from gpupools.web.shell import show


class InstallForm(ConsoleForm):
    """Where the images are, on clusters to which ACK does not bring them."""

    image_prefix = forms.CharField(
        label=gettext_lazy("Image registry"),
        required=False,
        max_length=200,
        help_text=gettext_lazy("For instance registry.example.com/gpu. On ACK leave it empty: the add-on has its own."),
    )


@require_safe
@page
def index(request: HttpRequest, cluster: str) -> HttpResponse:
    """Show the components of a cluster."""
    here = cluster_of(request, cluster)
    rows = components.overview(here)
    return show(request, "components.html", {"nav": "components", "rows": rows, "foreign": components.foreign()})


def _row(cluster: Cluster, name: str) -> ComponentRow:
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
    row, form = _row(here, name), InstallForm(request.POST or None)
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
    row, form = _row(here, name), ReasonForm(request.POST or None)
    if request.method == "POST" and attempt(form, lambda: components.uninstall(actor, here, name, **form.cleaned_data)):
        messages.success(request, _("%(name)s is being uninstalled.") % {"name": name})
        return redirect("web:components", here.name)
    return show(
        request, "component_uninstall.html", {"nav": "components", "row": row, "form": form}, status=status_of(form)
    )
