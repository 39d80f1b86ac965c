"""API tokens: shown once, kept as SHA-256, capped by a role, with expiry and last use."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from gpupools.errors import Conflict, FieldError, Invalid, NotAllowed
from gpupools.models import ApiToken, Role
from gpupools.services import audit
from gpupools.services.access import Actor

PREFIX = "gpc_"
LONGEST_NAME = 100
# Every request of a busy robot must not be a write.
LAST_USE_STEP = timedelta(minutes=1)


def digest(plaintext: str) -> str:
    """Return what is kept of a token. It has 256 random bits, so a plain hash without salt is enough."""
    return hashlib.sha256(plaintext.encode()).hexdigest()


def issue(actor: Actor, *, name: str, role: str, expires_at: datetime | None = None) -> tuple[ApiToken, str]:
    """Make a token for the actor; the text is returned once and kept nowhere.

    A token that is made with a token can do no more, and live no longer, than that one.
    """
    user = actor.user
    if user is None:
        raise NotAllowed("Only a person or a robot with an account can have API tokens.")
    now = timezone.now()
    errors: list[FieldError] = []
    name = name.strip()
    if not 1 <= len(name) <= LONGEST_NAME:
        errors.append(
            FieldError("name", "A token needs a name.", found=name[:80], allowed=f"1 to {LONGEST_NAME} characters")
        )
    elif ApiToken.objects.filter(user=user, name=name).exists():
        errors.append(FieldError("name", "You have a token of this name, perhaps a revoked one.", "taken", name))
    if role not in Role.values:
        errors.append(FieldError("role", "There is no such role.", "unknown", role, ", ".join(Role.values)))
    if expires_at is not None and expires_at <= now:
        errors.append(FieldError("expires_at", "This is in the past.", "past", expires_at.isoformat()))
    if errors:
        raise Invalid("The token cannot be issued like this.", errors=errors)
    _check_no_more_than(actor.token, Role(role), expires_at)
    plaintext = PREFIX + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            token = ApiToken.objects.create(
                user=user, name=name, digest=digest(plaintext), role=role, created_at=now, expires_at=expires_at
            )
            audit.record(
                actor,
                "token.issue",
                token,
                role=role,
                expires_at=expires_at.isoformat() if expires_at else None,
            )
    except IntegrityError as error:
        raise Conflict("A token of this name was made meanwhile.", code="taken") from error
    return token, plaintext


def _check_no_more_than(parent: ApiToken | None, role: Role, expires_at: datetime | None) -> None:
    if parent is None:
        return
    if role.rank > Role(parent.role).rank:
        raise NotAllowed(f"A token of role {parent.role} cannot issue one of role {role.value}.")
    if parent.expires_at is not None and (expires_at is None or expires_at > parent.expires_at):
        raise NotAllowed("A token cannot issue one that outlives it.", expires_at=parent.expires_at.isoformat())


@transaction.atomic
def revoke(actor: Actor, token: ApiToken) -> None:
    """End a token: one's own, or as an administrator anybody's. Doing so again changes nothing."""
    if token.user_id != actor.user_id:
        actor.require(Role.ADMIN)
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
        audit.record(actor, "token.revoke", token, owner=token.user.get_username())
    token.refresh_from_db()


def authenticate(plaintext: str) -> Actor | None:
    """Return who a token speaks for; None when it is unknown, revoked, expired or its owner is not active."""
    now = timezone.now()
    if not plaintext.startswith(PREFIX):
        return None
    token = ApiToken.objects.select_related("user").filter(digest=digest(plaintext), revoked_at=None).first()
    if token is None or not token.user.is_active or (token.expires_at and token.expires_at <= now):
        return None
    unseen = Q(last_used_at=None) | Q(last_used_at__lte=now - LAST_USE_STEP)
    ApiToken.objects.filter(unseen, pk=token.pk).update(last_used_at=now)
    return Actor(token.user, token)
