"""Clusters: the list, connecting one, giving it new credentials, letting it go."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.models import Cluster, Role
from gpupools.services import clusters
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.forms import ConsoleForm, ReasonForm, attempt, status_of
from gpupools.web.shell import show

LONGEST_KUBECONFIG_BYTES = 256 * 1024
ACK_KEYS = ("cluster_id", "region", "access_key_id", "access_key_secret", "ram_role", "endpoint")


class CredentialsForm(ConsoleForm):
    """How to reach a cluster. The two secrets are never shown again, so they are not kept in the page either."""

    kubeconfig = forms.CharField(
        label=gettext_lazy("Kubeconfig"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false", "autocomplete": "off"}),
        help_text=gettext_lazy("Paste it here, or choose the file below. Certificates and token must be inside."),
    )
    kubeconfig_file = forms.FileField(label=gettext_lazy("Kubeconfig file"), required=False)
    context = forms.CharField(
        label=gettext_lazy("Context"),
        required=False,
        max_length=253,
        help_text=gettext_lazy("Empty: the current context of the kubeconfig."),
    )
    ack_cluster_id = forms.CharField(
        label=gettext_lazy("ACK cluster id"),
        required=False,
        max_length=64,
        help_text=gettext_lazy("As on the cluster's page of the ACK console, for instance c8155823d0574…"),
    )
    ack_region = forms.CharField(
        label=gettext_lazy("Region"), required=False, max_length=64, help_text=gettext_lazy("For instance cn-shanghai.")
    )
    ack_access_key_id = forms.CharField(label=gettext_lazy("AccessKey id"), required=False, max_length=128)
    ack_access_key_secret = forms.CharField(
        label=gettext_lazy("AccessKey secret"),
        required=False,
        max_length=128,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=gettext_lazy("Encrypted at rest, and never shown again."),
    )
    ack_ram_role = forms.CharField(
        label=gettext_lazy("RAM role"),
        required=False,
        max_length=64,
        help_text=gettext_lazy("Instead of an AccessKey: the role of the ECS instance that this console runs on."),
    )
    ack_endpoint = forms.CharField(
        label=gettext_lazy("Endpoint"),
        required=False,
        max_length=253,
        help_text=gettext_lazy("Empty: cs.<region>.aliyuncs.com. Set it for VPC or private endpoints."),
    )

    in_cluster = forms.BooleanField(
        label=gettext_lazy("The cluster that this console runs in, by its own service account"),
        required=False,
        help_text=gettext_lazy("Neither kubeconfig nor ACK access is needed. The rights to give it are in docs/rbac."),
    )

    def clean_kubeconfig_file(self) -> str:
        """Read the file as text; a pasted kubeconfig wins over it."""
        given: UploadedFile | None = self.cleaned_data.get("kubeconfig_file")
        if given is None:
            return ""
        if given.size is None or given.size > LONGEST_KUBECONFIG_BYTES:
            raise forms.ValidationError(_("This file is too big for a kubeconfig: at most 256 KiB."))
        try:
            return given.read().decode("utf-8")
        except UnicodeDecodeError:
            raise forms.ValidationError(_("This file is not text.")) from None

    def credentials(self) -> dict[str, object]:
        """Return what the services ask for."""
        typed = self.cleaned_data
        on_ack = typed.get("provider", Cluster.Provider.ACK) == Cluster.Provider.ACK
        access = {key: typed[f"ack_{key}"] for key in ACK_KEYS} if on_ack else {}
        return {
            "kubeconfig": typed["kubeconfig"].strip() or typed["kubeconfig_file"],
            "context": typed["context"],
            "ack": access if any(access.values()) else None,
            "in_cluster": typed["in_cluster"],
        }


class ConnectForm(CredentialsForm):
    """A cluster that the console does not know yet."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=63,
        help_text=gettext_lazy("Used in addresses and in the API: lower-case letters, digits and '-'."),
    )
    provider = forms.ChoiceField(
        label=gettext_lazy("Provider"),
        choices=Cluster.Provider.choices,
        initial=Cluster.Provider.ACK,
        widget=forms.RadioSelect,
    )
    field_order = ["name", "provider", "kubeconfig"]


@require_safe
@page
def index(request: HttpRequest) -> HttpResponse:
    """List the clusters that the person may see."""
    return show(request, "clusters.html", {"nav": "clusters", "hide_cluster_note": True})


@sensitive_post_parameters("kubeconfig", "ack_access_key_secret")
@require_http_methods(["GET", "HEAD", "POST"])
@page
def connect(request: HttpRequest) -> HttpResponse:
    """Connect a cluster by kubeconfig, by ACK access, or both."""
    actor = actor_of(request)
    actor.require(Role.ADMIN)
    form = ConnectForm(request.POST or None, request.FILES or None)
    if request.method == "POST":
        made = attempt(
            form,
            lambda: clusters.connect(
                actor, name=form.cleaned_data["name"], provider=form.cleaned_data["provider"], **form.credentials()
            ),
        )
        if made:
            messages.success(request, _("Cluster %(name)s is connected.") % {"name": made.name})
            return redirect("web:pools", made.name)
    return show(
        request,
        "cluster_connect.html",
        {"nav": "clusters", "form": form, "hide_cluster_note": True},
        status=status_of(form),
    )


@sensitive_post_parameters("kubeconfig", "ack_access_key_secret")
@require_http_methods(["GET", "HEAD", "POST"])
@page
def refresh(request: HttpRequest, cluster: str) -> HttpResponse:
    """Put new credentials in the place of old ones."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    actor.require(Role.ADMIN, here)
    form = CredentialsForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and attempt(form, lambda: clusters.refresh(actor, here, **form.credentials())):
        messages.success(request, _("Cluster %(name)s answers with the new credentials.") % {"name": here.name})
        return redirect("web:clusters")
    return show(request, "cluster_refresh.html", {"nav": "clusters", "form": form}, status=status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def disconnect(request: HttpRequest, cluster: str) -> HttpResponse:
    """Forget a cluster; nothing is changed in the cluster itself."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    actor.require(Role.ADMIN, here)
    form = ReasonForm(request.POST or None)
    if request.method == "POST":
        attempt(form, lambda: clusters.disconnect(actor, here, reason=form.cleaned_data["reason"]))
        if not form.errors:
            messages.success(request, _("Cluster %(name)s is disconnected.") % {"name": here.name})
            return redirect("web:clusters")
    counts = {"pools": here.pools.count(), "submissions": here.submissions.count()}
    return show(request, "cluster_disconnect.html", {"nav": "clusters", "form": form, **counts}, status=status_of(form))
