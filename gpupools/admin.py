"""Django's admin as a raw look at rows, for support. It reads and never writes: changes go through services."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import Model
from django.http import HttpRequest

from gpupools import models

# Secrets and their digests are not even looked at here.
HIDDEN = {
    models.Cluster: ("credentials",),
    models.ApiToken: ("digest",),
    models.User: ("password", "user_permissions", "groups"),
    models.IdempotencyKey: ("body",),
}
ROWS = (
    models.AllocationPoint,
    models.ApiToken,
    models.AuditEntry,
    models.ChangeStep,
    models.Cluster,
    models.ComponentState,
    models.Grant,
    models.IdempotencyKey,
    models.JobTemplate,
    models.ModeChange,
    models.NodePool,
    models.OperationRequest,
    models.Push,
    models.Submission,
    models.User,
    models.WatchLease,
)


class ReadOnly(admin.ModelAdmin):
    """Lists and shows rows; adds, changes and deletes none, for superusers neither."""

    actions = None

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whoever may open the site sees all of it."""
        return admin.site.has_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """As above."""
        return admin.site.has_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False

    def get_exclude(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Leave secrets out."""
        return HIDDEN.get(self.model, ())


for _model in ROWS:
    admin.site.register(_model, ReadOnly)
# People have grants; Django's groups would only mislead.
admin.site.unregister(Group)
