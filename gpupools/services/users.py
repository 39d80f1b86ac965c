"""People and robots, and what they are granted: the work of administrators of the whole console."""

from __future__ import annotations

import secrets
import string

from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from gpupools.domain.labels import value_problem
from gpupools.errors import Conflict, FieldError, Invalid
from gpupools.models import Cluster, Grant, Role, User
from gpupools.services import audit
from gpupools.services.access import SYSTEM, Actor

_ALPHABET = string.ascii_letters + string.digits
LONGEST_NAME = 150


def make_password() -> str:
    """Make a random password: 20 letters and digits, which a person can still copy by hand."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(20))


def create_user(actor: Actor, *, username: str, password: str = "", email: str = "") -> tuple[User, str]:
    """Make an account without any grant; without a password a random one is made. Returns both, once."""
    actor.require(Role.ADMIN)
    errors: list[FieldError] = []
    username = username.strip()
    if User.objects.filter(username__iexact=username).exists():
        errors.append(FieldError("username", "This name is taken.", "taken", username))
    try:
        UnicodeUsernameValidator()(username)
        if len(username) > LONGEST_NAME:
            raise ValidationError(f"At most {LONGEST_NAME} characters.")
    except ValidationError as error:
        errors.append(FieldError("username", " ".join(error.messages), found=username[:80]))
    password = password or make_password()
    user = User(username=username, email=email)
    errors += _password_errors(password, user)
    if errors:
        raise Invalid("The account cannot be made like this.", errors=errors)
    user.set_password(password)
    try:
        with transaction.atomic():
            user.save(force_insert=True)
            audit.record(actor, "user.create", user)
    except IntegrityError as error:
        raise Conflict("An account of this name was made meanwhile.", code="taken") from error
    return user, password


def _password_errors(password: str, user: User) -> list[FieldError]:
    try:
        validate_password(password, user)
    except ValidationError as error:
        return [FieldError("password", message, "weak") for message in error.messages]
    return []


@transaction.atomic
def change_password(actor: Actor, user: User, *, password: str) -> None:
    """Set a password: one's own in a session, or as an administrator anybody's."""
    if actor.user_id != user.pk or actor.token is not None:
        actor.require(Role.ADMIN)
    if errors := _password_errors(password, user):
        raise Invalid("This password is too weak.", errors=errors)
    user.set_password(password)
    user.save(update_fields=["password"])
    audit.record(actor, "user.password", user)


def grant(actor: Actor, user: User, *, role: str, cluster: Cluster | None = None, namespace: str = "") -> Grant:
    """Give a role on one cluster or all, in one namespace or all. Giving it again returns the grant there is."""
    actor.require(Role.ADMIN)
    errors: list[FieldError] = []
    if role not in Role.values:
        errors.append(FieldError("role", "There is no such role.", "unknown", role, ", ".join(Role.values)))
    if namespace and (value_problem(namespace) or namespace != namespace.lower()):
        errors.append(
            FieldError("namespace", "This cannot be a namespace.", found=namespace[:80], allowed="a-z, 0-9 and '-'")
        )
    if errors:
        raise Invalid("The role cannot be granted like this.", errors=errors)
    with transaction.atomic():
        made, is_new = Grant.objects.get_or_create(user=user, role=role, cluster=cluster, namespace=namespace)
        if is_new:
            audit.record(actor, "user.grant", user, cluster=cluster, role=role, namespace=namespace or None)
    return made


@transaction.atomic
def revoke(actor: Actor, held: Grant) -> None:
    """Take a grant away; the last administrator of the whole console stays one."""
    actor.require(Role.ADMIN)
    if _is_console_admin(held):
        _check_another_admin(held.user)
    deleted, _ = Grant.objects.filter(pk=held.pk).delete()
    if deleted:
        audit.record(
            actor, "user.revoke", held.user, cluster=held.cluster, role=held.role, namespace=held.namespace or None
        )


@transaction.atomic
def set_active(actor: Actor, user: User, *, active: bool) -> None:
    """Let an account sign in, or not; its tokens follow. The last active administrator stays active."""
    actor.require(Role.ADMIN)
    if not active:
        _check_another_admin(user)
    if User.objects.filter(pk=user.pk, is_active=not active).update(is_active=active):
        audit.record(actor, "user.activate" if active else "user.deactivate", user)
    user.refresh_from_db()


def _is_console_admin(held: Grant) -> bool:
    return held.role == Role.ADMIN and held.cluster_id is None and not held.namespace


def _check_another_admin(user: User) -> None:
    # Locked while we look, or two administrators who remove each other at once would leave none.
    admins = Grant.objects.select_for_update().filter(role=Role.ADMIN, cluster=None, namespace="", user__is_active=True)
    owners = {held.user_id for held in admins}
    if owners == {user.pk}:
        raise Conflict(
            "This is the last administrator of the console; grant another one the role first.", code="last-admin"
        )


@transaction.atomic
def signed_in(actor: Actor) -> None:
    """Write down that the actor signed in."""
    if actor.user is not None:
        audit.record(actor, "session.sign_in", actor.user)


@transaction.atomic
def not_signed_in(name: str) -> None:
    """Write down that somebody tried to sign in and was not let in.

    A name that is no account's is not kept: people type their password into the wrong field.
    """
    user = User.objects.filter(username__iexact=name.strip()[:LONGEST_NAME]).first()
    audit.record(SYSTEM, "session.refused", user or audit.Named("user", "", "a name that no account has"))


@transaction.atomic
def signed_out(actor: Actor) -> None:
    """Write down that the actor signed out."""
    if actor.user is not None:
        audit.record(actor, "session.sign_out", actor.user)
