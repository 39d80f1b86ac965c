"""What every page view passes: sign-in, the actor, the cluster it names, and errors turned into pages.

Views stay at three beats because this holds what they share. It calls no service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from gpupools.errors import Conflict, ConsoleError, Invalid, Missing, NotAllowed, Refused, Unreachable
from gpupools.models import Cluster
from gpupools.services.access import Actor
from gpupools.web.shell import show

STATUS: Mapping[type[ConsoleError], int] = {
    Invalid: 400,
    Refused: 400,
    NotAllowed: 403,
    Missing: 404,
    Conflict: 409,
    Unreachable: 503,
}
View = Callable[..., HttpResponse]


def status_of(error: ConsoleError) -> int:
    """Return the HTTP status of an error of the house."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 400)


def page(view: View) -> View:
    """Make a view a page: for people who are signed in, never cached, and with errors shown as pages."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except ConsoleError as error:
            return show_error(request, error)

    return never_cache(login_required(guarded))


def taker(home: str, *names: str) -> Callable[[View], View]:
    """Make a view a page that only takes a form, which stands on page ``home`` (``names``: its address's parts).

    Whoever comes by GET (after signing in, by reloading, by hand) is sent home, and whatever such a page links to
    or asks for again is home too: an address that only takes forms is nowhere to go back to.
    """

    def decorate(view: View) -> View:
        guarded = page(view)

        @wraps(view)
        def taking(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            request.console_home = resolve_url(home, **{name: kwargs[name] for name in names})
            if request.method != "POST":
                return redirect(request.console_home)
            if not request.user.is_authenticated:
                return redirect_to_login(request.console_home)
            return guarded(request, *args, **kwargs)

        return require_http_methods(["GET", "HEAD", "POST"])(taking)

    return decorate


def show_error(request: HttpRequest, error: ConsoleError) -> HttpResponse:
    """Show what happened, to what, and what to do, with the request's id."""
    status = status_of(error)
    response = show(request, "error.html", {"error": error, "status": status}, status=status)
    if isinstance(error, Unreachable):
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def actor_of(request: HttpRequest) -> Actor:
    """Return who is asking; its grants are read once per request."""
    if not hasattr(request, "console_actor"):
        request.console_actor = Actor(request.user)
    return request.console_actor


def cluster_of(request: HttpRequest, name: str) -> Cluster:
    """Return the cluster of the address, and remember it for pages that name none. Raises Missing."""
    found = Cluster.objects.visible_to(actor_of(request)).filter(name=name).first()
    if found is None:
        raise Missing("There is no such cluster, or you may not see it.", code="no-such-cluster")
    if request.session.get("cluster") != found.name:
        request.session["cluster"] = found.name
    request.console_cluster = found
    return found
