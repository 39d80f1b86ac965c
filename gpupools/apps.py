"""The one Django application."""

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _

from gpupools.checks import CHECKS


class GpuPoolsConfig(AppConfig):
    """Registers the system checks; nothing else happens at start."""

    name = "gpupools"
    verbose_name = _("GPU Pools Console")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks of settings."""
        for check in CHECKS:
            checks.register(check, checks.Tags.security)
