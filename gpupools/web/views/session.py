"""Signing in and out, the start, and the theme."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.services import users
from gpupools.services.access import Actor
from gpupools.web.door import actor_of, page, taker
from gpupools.web.forms import ConsoleForm, attempt, status_of
from gpupools.web.shell import THEME_COOKIE, THEMES, frame, show

ONE_YEAR_SECONDS = 365 * 24 * 3600


class SignInForm(AuthenticationForm):
    """Django's own check, in our words."""

    error_messages = {
        "invalid_login": _("This name and password do not belong together."),
        "inactive": _("This account is switched off."),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        self.fields["username"].label = _("Name")
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"


class PasswordForm(ConsoleForm):
    """One's own new password; the old one shows that nobody else sits there."""

    old = forms.CharField(label=_("Present password"), strip=False, widget=forms.PasswordInput)
    password = forms.CharField(label=_("New password"), strip=False, widget=forms.PasswordInput)
    again = forms.CharField(label=_("New password, again"), strip=False, widget=forms.PasswordInput)

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user

    def clean_old(self) -> str:
        """Check the present password."""
        old: str = self.cleaned_data["old"]
        if not self.user.check_password(old):
            raise forms.ValidationError(_("This is not your present password."))
        return old

    def clean_again(self) -> str:
        """Check that both are the same."""
        again: str = self.cleaned_data["again"]
        if again != self.cleaned_data.get("password"):
            raise forms.ValidationError(_("This is not the same as above."))
        return again


@sensitive_post_parameters("password")
@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """Ask who it is; repeated failures are locked out by django-axes, which watches authentication."""
    following = safe_address(request, request.POST.get("next") or request.GET.get("next", ""))
    if request.user.is_authenticated:
        return redirect(following)
    form = SignInForm(request, request.POST or None)
    if request.method == "POST" and form.is_valid():
        login(request, form.get_user())
        users.signed_in(Actor(form.get_user()))
        return redirect(following)
    if form.is_bound:
        users.not_signed_in(request.POST.get("username", ""))
    context = {"form": form, "next": following, "signed_out": "signed-out" in request.GET}
    return show(request, "sign_in.html", context, status=400 if form.is_bound else 200)


def safe_address(request: HttpRequest, address: str) -> str:
    """Return an address of this console to go on to; anything else becomes the start."""
    ok = url_has_allowed_host_and_scheme(address, {request.get_host()}, require_https=request.is_secure())
    return address if ok else resolve_url("web:home")


@taker("web:home")
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    users.signed_out(Actor(request.user))
    logout(request)
    return HttpResponseRedirect(f"{resolve_url('web:sign-in')}?signed-out")


def locked_out(
    request: HttpRequest, credentials: dict[str, Any] | None = None, *args: Any, **kwargs: Any
) -> HttpResponse:
    """Say that too many passwords were wrong, and for how long; called by django-axes."""
    context = {
        "title": _("Too many wrong passwords"),
        "sentence": _("This name is locked for this address, to keep guessers out."),
        "advice": _("Wait a quarter of an hour, then try again. An administrator can set a new password meanwhile."),
    }
    return show(request, "lone_error.html", {**context}, status=429)


@sensitive_post_parameters("old", "password", "again")
@require_http_methods(["GET", "HEAD", "POST"])
@page
def password(request: HttpRequest) -> HttpResponse:
    """Change one's own password; this session goes on, all others end."""
    form = PasswordForm(request.POST or None, user=request.user)
    if request.method == "POST":
        actor, user = actor_of(request), request.user
        attempt(form, lambda: users.change_password(actor, user, password=form.cleaned_data["password"]))
        if not form.errors:
            update_session_auth_hash(request, request.user)
            messages.success(request, _("Your password is changed. Your other sessions have ended."))
            return redirect("web:home")
    return show(request, "password.html", {"nav": "", "form": form}, status=status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
def theme(request: HttpRequest) -> HttpResponse:
    """Remember light, dark or the system's choice in a cookie."""
    if request.method != "POST":
        return redirect("web:home")
    response = redirect(safe_address(request, request.POST.get("next", "")))
    chosen = request.POST.get("theme", "")
    if chosen in THEMES:
        response.set_cookie(THEME_COOKIE, chosen, max_age=ONE_YEAR_SECONDS, samesite="Lax", secure=request.is_secure())
    return response


@require_safe
@page
def home(request: HttpRequest) -> HttpResponse:
    """Go where the work is: the dashboard of the current cluster, or the list of clusters."""
    cluster = frame(request)["cluster"]
    return redirect("web:dashboard", cluster.name) if cluster else redirect("web:clusters")


@require_safe
@page
def api(request: HttpRequest) -> HttpResponse:
    """Show where the REST API, its description and its keys are."""
    return show(request, "api.html", {"nav": "api", "address": request.build_absolute_uri("/api/v1/")})
