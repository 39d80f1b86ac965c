"""What people are told of changes, on the page and by e-mail; each may say what they want to hear."""

from __future__ import annotations

from django.db import models

from gpupools.models.access import User
from gpupools.models.changes import ModeChange


class NoticeWish(models.Model):
    """What one person wants e-mail about. Without a row, the defaults of the columns hold."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="notice_wish")
    mail_waiting = models.BooleanField(default=True)
    mail_failed = models.BooleanField(default=True)

    def __str__(self) -> str:
        return f"notices of {self.user}"


class Notice(models.Model):
    """One thing that one person is told once. ``mail_due`` is the outbox: set while an e-mail is still to be sent."""

    class Kind(models.TextChoices):
        WAITING = "waiting", "A change waits for a decision"
        FAILED = "failed", "A change failed"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notices")
    change = models.ForeignKey(ModeChange, on_delete=models.CASCADE, related_name="notices")
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
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.change_id} to {self.user}"
