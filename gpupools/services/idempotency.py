"""Remembering what a POST with an Idempotency-Key answered, so that a repeated one does nothing twice.

The key is taken before the work and its answer kept after it. It knows no HTTP beyond status and body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from gpupools.errors import Conflict, Invalid, NotAllowed
from gpupools.models import IdempotencyKey
from gpupools.services.access import Actor

LONGEST_KEY = 128
# A request that began this long ago and left no answer was cut off: its process died.
CUT_OFF = timedelta(seconds=30)


class Reused(Invalid):
    """The key was used for another request. HTTP 422."""

    default_code = "idempotency-key-reused"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the first request with this key was answered."""

    status: int
    body: Mapping[str, Any]
    location: str = ""


def digest(method: str, path: str, body: bytes) -> str:
    """Return what two requests must share to be the same one."""
    return hashlib.sha256(b"\0".join((method.encode(), path.encode(), body))).hexdigest()


def begin(actor: Actor, key: str, request_digest: str) -> Answer | None:
    """Take the key for a request; return the answer of an earlier, equal one.

    Raises Reused for another request with this key, Conflict while the first one still runs.
    """
    if actor.user is None:
        raise NotAllowed("Only an account can use an Idempotency-Key.")
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise Invalid.field(
            "Idempotency-Key",
            "This key cannot be used.",
            found=key[:40],
            allowed=f"1 to {LONGEST_KEY} printable ASCII characters",
        )
    now = timezone.now()
    _forget_old(now)
    mine = IdempotencyKey.objects.filter(user=actor.user, key=key)
    try:
        with transaction.atomic():
            IdempotencyKey.objects.create(user=actor.user, key=key, digest=request_digest, created_at=now)
            return None
    except IntegrityError:
        row = mine.get()
    if row.digest != request_digest:
        raise Reused("This Idempotency-Key was used for another request.", code="idempotency-key-reused", key=key)
    if row.status is not None:
        return Answer(row.status, row.body, row.location)
    taken = mine.filter(status=None, created_at=row.created_at, created_at__lte=now - CUT_OFF)
    if not taken.update(created_at=now):
        raise Conflict(
            "The first request with this Idempotency-Key is still running.",
            code="still-running",
            retry_after_seconds=2,
        )
    return None


def finish(actor: Actor, key: str, answer: Answer) -> None:
    """Keep the answer of a request that took the key."""
    IdempotencyKey.objects.filter(user=actor.user, key=key).update(
        status=answer.status, body=answer.body, location=answer.location
    )


def release(actor: Actor, key: str) -> None:
    """Give the key back: the request failed on our side, and may be tried again."""
    IdempotencyKey.objects.filter(user=actor.user, key=key, status=None).delete()


def _forget_old(now: datetime) -> None:
    kept = timedelta(hours=settings.GPUPOOLS_IDEMPOTENCY_HOURS)
    IdempotencyKey.objects.filter(created_at__lt=now - kept).delete()
