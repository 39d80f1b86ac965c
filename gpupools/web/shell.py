"""The frame around every page: navigation, cluster switcher, counts, theme. It reads rows and writes none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from gpupools.domain.changes import State
from gpupools.models import Cluster, ModeChange, Notice, OperationRequest, Push, Role, User
from gpupools.services.access import Actor
from gpupools.web import words

THEMES = ("auto", "light", "dark")
THEME_COOKIE = "theme"


def show(
    request: HttpRequest, template: str, context: Mapping[str, Any] | None = None, *, status: int = 200
) -> HttpResponse:
    """Render a page of ours with its frame."""
    return render(request, f"gpupools/{template}", {**frame(request), **(context or {})}, status=status)


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return what the frame shows. Without a signed-in person it is only theme and version."""
    chosen = request.COOKIES.get(THEME_COOKIE, "auto")
    bare = {
        "theme": chosen if chosen in THEMES else "auto",
        "version": settings.GPUPOOLS_VERSION,
        "request_id": getattr(request, "request_id", ""),
        "script_words": words.for_script(),
        "now": timezone.now(),
    }
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return bare
    actor = getattr(request, "console_actor", None) or Actor(user)
    request.console_actor = actor
    clusters = list(Cluster.objects.visible_to(actor))
    cluster = _current(request, clusters)
    role = actor.role_on(cluster) if cluster else actor.role_on(None)
    return {
        **bare,
        "actor": actor,
        "role": role,
        "can_operate": bool(role and role.rank >= Role.OPERATOR.rank),
        "is_admin": bool(role and role.rank >= Role.ADMIN.rank),
        "is_global_admin": actor.can(Role.ADMIN),
        "clusters": clusters,
        "cluster": cluster,
        "approvals_waiting": _calling(actor, user),
        "self_approval": settings.GPUPOOLS_ALLOW_SELF_APPROVAL,
    }


_STOPPED = (
    Q(state=State.FAILED.value, notices__kind=Notice.Kind.FAILED)
    | Q(state=State.PAUSED.value, notices__kind=Notice.Kind.PAUSED)
    | Q(state=State.APPLYING.value, notices__kind=Notice.Kind.PERSON)
)


def _calling(actor: Actor, user: User) -> int:
    """Count what waits for a decision, and what somebody was told of that stopped, and has not looked at."""
    told = Q(notices__user=user, notices__seen_at=None)
    changes = ModeChange.objects.visible_to(actor).filter(Q(state=State.PENDING.value) | told & _STOPPED)
    operations = OperationRequest.objects.visible_to(actor).filter(
        Q(state=State.PENDING.value) | told & Q(push__state=Push.State.FAILED)
    )
    return changes.distinct().count() + operations.distinct().count()


def _current(request: HttpRequest, clusters: list[Cluster]) -> Cluster | None:
    named = getattr(request, "console_cluster", None)
    if named is not None:
        return named
    remembered = request.session.get("cluster")
    return next((each for each in clusters if each.name == remembered), clusters[0] if clusters else None)
