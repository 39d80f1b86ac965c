"""Access and its traces: API tokens, users and grants, the audit log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.errors import Missing
from gpupools.models import ApiToken, AuditEntry, Cluster, Grant, Role, User
from gpupools.services import audit, tokens, users
from gpupools.web.door import actor_of, page, taker
from gpupools.web.forms import ConsoleForm, attempt, status_of
from gpupools.web.paging import page_of
from gpupools.web.shell import show
from gpupools.web.views.confirming import Question, confirm

ROWS_PER_PAGE = 50
LIFETIMES = (
    ("30", gettext_lazy("30 days")),
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("1 year")),
    ("", gettext_lazy("Never")),
)


class TokenForm(ConsoleForm):
    """A key for automation."""

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=100, help_text=gettext_lazy("What uses it, for instance ci-pipeline.")
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=Role.choices,
        initial=Role.VIEWER,
        help_text=gettext_lazy("A cap: a token is never allowed more than you are."),
    )
    lifetime = forms.ChoiceField(label=gettext_lazy("Expires after"), choices=LIFETIMES, initial="90", required=False)

    def expires_at(self) -> datetime | None:
        """Return when the token ends, None for never."""
        days = self.cleaned_data["lifetime"]
        return timezone.now() + timedelta(days=int(days)) if days else None


class UserForm(ConsoleForm):
    """A new account; its password is made up and shown once."""

    username = forms.CharField(label=gettext_lazy("Name"), max_length=150)


class GrantForm(ConsoleForm):
    """A role for somebody somewhere."""

    user = forms.ModelChoiceField(label=gettext_lazy("User"), queryset=User.objects.none())
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices)
    cluster = forms.ModelChoiceField(
        label=gettext_lazy("Cluster"),
        queryset=Cluster.objects.none(),
        required=False,
        empty_label=gettext_lazy("Every cluster"),
    )
    namespace = forms.CharField(
        label=gettext_lazy("Namespace"),
        required=False,
        max_length=63,
        help_text=gettext_lazy("Empty: every namespace."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["user"].queryset = User.objects.filter(is_active=True).order_by("username")
        self.fields["cluster"].queryset = Cluster.objects.all()


@require_http_methods(["GET", "HEAD", "POST"])
@page
def api_tokens(request: HttpRequest) -> HttpResponse:
    """List one's tokens and make one, which is shown this once."""
    actor, plaintext = actor_of(request), ""
    form = TokenForm(request.POST or None)
    if request.method == "POST":
        made = attempt(
            form,
            lambda: tokens.issue(
                actor, name=form.cleaned_data["name"], role=form.cleaned_data["role"], expires_at=form.expires_at()
            ),
        )
        if made:
            plaintext, form = made[1], TokenForm()
    mine = ApiToken.objects.filter(user=request.user)
    context = {"nav": "tokens", "form": form, "tokens": mine, "plaintext": plaintext, "right_now": timezone.now()}
    return show(request, "tokens.html", context, status=status_of(form))


@taker("web:tokens")
def revoke_token(request: HttpRequest, pk: int) -> HttpResponse:
    """End one of one's tokens."""
    found = ApiToken.objects.filter(user=request.user, pk=pk).first()
    if found is None:
        raise Missing(_("You have no such token."))
    tokens.revoke(actor_of(request), found)
    messages.success(request, _("Token %(name)s is revoked.") % {"name": found.name})
    return redirect("web:tokens")


@require_http_methods(["GET", "HEAD", "POST"])
@page
def people(request: HttpRequest) -> HttpResponse:
    """List accounts and their grants; make an account, or grant a role."""
    actor = actor_of(request)
    actor.require(Role.ADMIN)
    action, made = request.POST.get("action", ""), None
    user_form = UserForm(request.POST if action == "create" else None)
    grant_form = GrantForm(request.POST if action == "grant" else None)
    if action == "create":
        made = attempt(user_form, lambda: users.create_user(actor, **user_form.cleaned_data))
        user_form = UserForm() if made else user_form
    if action == "grant" and attempt(grant_form, lambda: users.grant(actor, **grant_form.cleaned_data)):
        messages.success(request, _("The role is granted."))
        return redirect("web:users")
    every = User.objects.prefetch_related("grants__cluster").order_by("username")
    context = {
        "nav": "users",
        "people": every,
        "user_form": user_form,
        "grant_form": grant_form,
        "made": made[0] if made else None,
        "password": made[1] if made else "",
    }
    return show(request, "users.html", context, status=max(status_of(user_form), status_of(grant_form)))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def revoke_grant(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a grant away, after a page that says what it ends."""
    actor_of(request).require(Role.ADMIN)
    found = Grant.objects.select_related("user", "cluster").filter(pk=pk).first()
    if found is None:
        raise Missing(_("There is no such grant."))
    names = {
        "user": found.user.username,
        "role": found.get_role_display(),
        "where": found.cluster.name if found.cluster else _("every cluster"),
    }
    question = Question(
        nav="users",
        title=_("Take %(role)s on %(where)s from %(user)s") % names,
        consequences=[
            _("%(user)s may do nothing there any more that only this role allowed, from the next click on.") % names,
            _("Tokens of %(user)s lose the same rights.") % names,
            _("What %(user)s has started runs on.") % names,
        ],
        button=_("Take the role away"),
        back=reverse("web:users"),
        keep=_("Keep the role"),
        icon="ban",
    )
    if answer := confirm(request, question, lambda: users.revoke(actor_of(request), found)):
        return answer
    messages.success(request, _("The role is taken away."))
    return redirect("web:users")


@require_http_methods(["GET", "HEAD", "POST"])
@page
def switch_user(request: HttpRequest, pk: int) -> HttpResponse:
    """Let an account sign in; or not, after a page that says what it ends."""
    actor_of(request).require(Role.ADMIN)
    found = User.objects.filter(pk=pk).first()
    if found is None:
        raise Missing(_("There is no such account."))
    names = {"user": found.username}
    if request.method == "POST" and request.POST.get("active") == "yes":
        users.set_active(actor_of(request), found, active=True)
        messages.success(request, _("%(user)s may sign in again.") % names)
        return redirect("web:users")
    question = Question(
        nav="users",
        title=_("Switch off the account %(user)s") % names,
        consequences=[
            _("%(user)s is signed out everywhere with the next click, and cannot sign in any more.") % names,
            _("Tokens of %(user)s stop working.") % names,
            _("Grants are kept: switched on again, the account may what it may now."),
        ],
        button=_("Switch %(user)s off") % names,
        back=reverse("web:users"),
        keep=_("Keep it on"),
        icon="ban",
    )
    if answer := confirm(request, question, lambda: users.set_active(actor_of(request), found, active=False)):
        return answer
    messages.success(request, _("%(user)s is switched off.") % names)
    return redirect("web:users")


@require_safe
@page
def audit_log(request: HttpRequest) -> HttpResponse:
    """Show who did what to which object, filtered by person, action, cluster and text."""
    actor = actor_of(request)
    typed = {key: request.GET.get(key, "").strip() for key in ("actor", "action", "cluster", "q")}
    entries = AuditEntry.objects.visible_to(actor)
    if typed["actor"]:
        entries = entries.filter(actor_name=typed["actor"])
    if typed["action"]:
        entries = entries.filter(action__startswith=typed["action"])
    if typed["cluster"]:
        entries = entries.filter(cluster_name=typed["cluster"])
    if typed["q"]:
        entries = entries.filter(Q(object_label__icontains=typed["q"]) | Q(object_id=typed["q"]))
    page_obj = page_of(request, entries, ROWS_PER_PAGE)
    context = {
        "nav": "audit",
        "page_obj": page_obj,
        "lines": [(each, audit.ACTIONS.get(each.action, each.action)) for each in page_obj],
        "typed": typed,
        "actions": sorted(audit.ACTIONS),
        "filtered": any(typed.values()),
    }
    return show(request, "audit.html", context)
