"""What people are told of changes, on the page and by e-mail; each may say what they want to hear."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from gpupools.models.access import User
from gpupools.models.changes import ModeChange
from gpupools.models.requests import OperationRequest


class NoticeWish(models.Model):
    """What one person wants e-mail about. Without a row, the defaults of the columns hold."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="notice_wish")
    mail_waiting = models.BooleanField(default=True)
    mail_failed = models.BooleanField(default=True)

    def __str__(self) -> str:
        return f"notices of {self.user}"


class Notice(models.Model):
    """One thing that one person is told once, of a mode change or of a request for another operation.

    ``mail_due`` is the outbox: set while an e-mail is still to be sent.
    """

    class Kind(models.TextChoices):
        WAITING = "waiting", "A decision is waited for"
        FAILED = "failed", "It failed"
        PAUSED = "paused", "It is paused"
        PERSON = "person", "A step waits for a person"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notices")
    change = models.ForeignKey(ModeChange, on_delete=models.CASCADE, null=True, blank=True, related_name="notices")
    operation = models.ForeignKey(
        OperationRequest, on_delete=models.CASCADE, null=True, blank=True, related_name="notices"
    )
    kind = models.CharField(max_length=8, choices=Kind.choices)
    number = models.PositiveIntegerField(default=0, help_text="Which occurrence: a change may fail again.")
    created_at = models.DateTimeField()
    seen_at = models.DateTimeField(null=True, blank=True)
    mail_due = models.DateTimeField(null=True, blank=True)
    mail_tries = models.PositiveSmallIntegerField(default=0)
    mailed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["user", "change", "kind", "number"], name="a_notice_is_given_once"),
            models.UniqueConstraint(
                fields=["user", "operation", "kind", "number"], name="an_operation_notice_is_given_once"
            ),
            models.CheckConstraint(
                condition=Q(change__isnull=False, operation=None) | Q(change=None, operation__isnull=False),
                name="a_notice_is_of_one_thing",
            ),
        ]

    def __str__(self) -> str:
        of = f"change {self.change_id}" if self.change_id else f"request {self.operation_id}"
        return f"{self.kind} {of} to {self.user}"
