"""One component: how it does on each node, upgrading and configuring it, uploaded manifests, and what to do by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from gpupools.domain.modes import Component
from gpupools.domain.requests import Kind
from gpupools.errors import Unreachable
from gpupools.models import Cluster, OperationRequest, Role
from gpupools.services import componentcare, componentguards, components, requestrules
from gpupools.services.componentcare import Rehearsal
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.forms import ConsoleForm, attempt, status_of
from gpupools.web.shell import show
from gpupools.web.views.components import radius_of, row_of, waiting_for
from gpupools.web.views.poolcuts import asked


class UpgradeForm(ConsoleForm):
    """What an upgrade leads to, and the pods that it may end."""

    version = forms.CharField(
        label=gettext_lazy("Version"),
        required=False,
        max_length=64,
        help_text=gettext_lazy("Of the add-on. Empty: the newest that this cluster may have."),
    )
    config = forms.CharField(
        label=gettext_lazy("Configuration"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text=gettext_lazy("A JSON object, for add-ons. Empty: as it is."),
    )
    image_prefix = forms.CharField(
        label=gettext_lazy("Image registry"),
        required=False,
        max_length=200,
        help_text=gettext_lazy("For what was installed by manifests: where the new images are."),
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=2000)
    approved_pods = forms.MultipleChoiceField(
        label=gettext_lazy("Pods that may end"), required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, clients: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["approved_pods"].choices = [(name, name) for name in clients]


class ManifestsForm(ConsoleForm):
    """Manifests of a component, pasted by an administrator."""

    manifests = forms.CharField(
        label=gettext_lazy("Manifests"),
        strip=False,
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "false"}),
        help_text=gettext_lazy(
            "YAML documents for kube-system, one of the component's DaemonSets among them. Nothing is written before "
            "you have seen what would change."
        ),
    )


def _clients(cluster: Cluster, name: str) -> tuple[tuple[str, ...], bool]:
    """Return the pods that end with the component's own, and whether that is known."""
    try:
        return componentguards.clients(cluster, Component(name)), True
    except Unreachable:
        return (), False


def _show(
    request: HttpRequest,
    cluster: Cluster,
    name: str,
    *,
    upgrade: UpgradeForm | None = None,
    manifests: ManifestsForm | None = None,
    rehearsal: list[Rehearsal] | None = None,
) -> HttpResponse:
    actor, row = actor_of(request), row_of(cluster, name)
    clients, known = _clients(cluster, name) if actor.can(Role.OPERATOR, cluster) else ((), True)
    context = {
        "nav": "components",
        "row": row,
        "health": componentcare.nodes(actor, cluster, name),
        "clients": clients,
        "clients_known": known,
        "requests": waiting_for(actor, cluster, name),
        "second_person": row.restart_kills and requestrules.needed_for(Kind.MPS_UPGRADE),
        "radius": radius_of(cluster, row) if actor.can(Role.OPERATOR, cluster) else None,
        "manual": componentcare.by_hand(cluster, row.name),
        "upgrade_form": upgrade or UpgradeForm(clients=clients),
        "manifests_form": manifests or ManifestsForm(),
        "rehearsal": rehearsal,
    }
    failed = upgrade or manifests
    return show(request, "component.html", context, status=status_of(failed) if failed else 200)


@require_safe
@page
def detail(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Show one component."""
    return _show(request, cluster_of(request, cluster), name)


@require_POST
@page
def upgrade(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Upgrade or configure it; the pods that end are ticked one by one."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    actor.require(Role.OPERATOR, here)
    row_of(here, name)
    form = UpgradeForm(request.POST, clients=_clients(here, name)[0])
    made = attempt(form, lambda: componentcare.upgrade(actor, here, name, **form.cleaned_data))
    if isinstance(made, OperationRequest):
        return asked(request, made)
    if made:
        messages.success(request, _("%(name)s is being upgraded.") % {"name": name})
        return redirect("web:component", here.name, name)
    return _show(request, here, name, upgrade=form)


@require_POST
@page
def apply(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Show what uploaded manifests would change; apply them once that was seen."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    actor.require(Role.ADMIN, here)
    row_of(here, name)
    form = ManifestsForm(request.POST)
    if "apply" not in request.POST:
        found = attempt(form, lambda: componentcare.rehearse(actor, here, name, **form.cleaned_data))
        return _show(request, here, name, manifests=form, rehearsal=found or None)
    if attempt(form, lambda: components.install(actor, here, name, **form.cleaned_data)):
        messages.success(request, _("%(name)s is being installed.") % {"name": name})
        return redirect("web:component", here.name, name)
    return _show(request, here, name, manifests=form)
