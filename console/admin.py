"""Django's admin, wired to the console's own site; read before models may be, so it imports none."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig


class RowsConfig(AdminConfig):
    """Django's admin, opened by the console's own grants."""

    default_site = "gpupools.adminsite.Site"
