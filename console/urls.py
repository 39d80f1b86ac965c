"""Every address of the console: pages, REST, Django's read-only admin. The probes are in health.py."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from django.views.i18n import set_language

urlpatterns = [
    # Browsers ask for it wherever a page names no icon, such as in Django's admin.
    path("favicon.ico", RedirectView.as_view(url=f"{settings.STATIC_URL}icons/favicon.svg"), name="favicon"),
    path("language/", set_language, name="set_language"),
    path("api/v1/", include("gpupools.api.urls")),
    path("admin/", admin.site.urls),
    path("", include("gpupools.web.urls")),
]

handler400 = "console.failures.not_readable"
handler403 = "console.failures.not_allowed"
handler404 = "console.failures.not_found"
handler500 = "console.failures.crashed"
