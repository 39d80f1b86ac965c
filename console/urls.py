"""Every address of the console: pages, REST, Django's read-only admin. The probes are in health.py."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.i18n import set_language

urlpatterns = [
    path("language/", set_language, name="set_language"),
    path("api/v1/", include("gpupools.api.urls")),
    path("admin/", admin.site.urls),
    path("", include("gpupools.web.urls")),
]

handler403 = "console.failures.not_allowed"
handler404 = "console.failures.not_found"
handler500 = "console.failures.crashed"
