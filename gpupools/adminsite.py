"""Who may open Django's admin: administrators of the whole console, signed in on the console's own page."""

from __future__ import annotations

from django.conf import settings
from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse

from gpupools.models import Role, User
from gpupools.services.access import Actor


class Site(AdminSite):
    """Lets console-wide administrators in, and sends everybody else to the sign-in page."""

    site_header = site_title = "GPU Pools Console: rows"

    def has_permission(self, request: HttpRequest) -> bool:
        """Tell by the console's grants; Django's staff flag means nothing here."""
        return isinstance(request.user, User) and Actor(request.user).can(Role.ADMIN)

    def login(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:
        """Send to the console's sign-in page, where attempts are counted."""
        return redirect_to_login(request.GET.get("next", request.get_full_path()), settings.LOGIN_URL)
