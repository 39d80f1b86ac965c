"""Requests for dangerous operations that are no mode change, and the list of all that waits for a second person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import QuerySet, Value
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from gpupools.domain.changes import Move, State
from gpupools.domain.requests import Kind, moves_from
from gpupools.errors import Missing, Unreachable
from gpupools.models import ModeChange, OperationRequest, Push, Role
from gpupools.services import endings, notices, requests
from gpupools.services.access import Actor
from gpupools.web.door import actor_of, cluster_of, page, taker
from gpupools.web.forms import ConsoleForm, attempt
from gpupools.web.lines import OPEN_STATES
from gpupools.web.paging import page_of
from gpupools.web.shell import show

ROWS_PER_PAGE = 50
# What the setting's words mean, for people.
KIND_TEXTS = {
    Kind.FORCED_DELETE.value: gettext_lazy("deleting a node pool with its machines"),
    Kind.SIZE_0.value: gettext_lazy("scaling a node pool that has nodes to 0"),
    Kind.SCALE_DOWN.value: gettext_lazy("scaling a node pool below the number of its nodes while pods run there"),
    Kind.EVICTING_TAINT.value: gettext_lazy("a NoExecute taint that ends pods on nodes that exist"),
    Kind.COMPONENT_UNINSTALL.value: gettext_lazy("uninstalling a component"),
    Kind.MPS_UPGRADE.value: gettext_lazy("upgrading or configuring the MPS control daemon"),
}


class RequestDecisionForm(ConsoleForm):
    """A reason for the decision, and the pods that came since the request and may end too."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("The requester reads it; it stays in the audit log."),
    )

    @property
    def named(self) -> list[str]:
        """The pods that were ticked."""
        return self.data.getlist("approved_pods") if isinstance(self.data, QueryDict) else []


@dataclass(frozen=True, slots=True)
class Since:
    """What is different from the request: what moved, and which pods came. ``known``: whether anybody can tell."""

    known: bool = True
    moved: tuple[str, ...] = ()
    came: tuple[str, ...] = ()


def _request_of(request: HttpRequest, pk: int) -> OperationRequest:
    related = ("cluster", "pool__cluster", "requested_by", "decided_by", "push")
    rows = OperationRequest.objects.visible_to(actor_of(request)).select_related(*related)
    found = rows.filter(pk=pk).first()
    if found is None:
        raise Missing(_("There is no such request, or you may not see it."))
    cluster_of(request, found.cluster.name)
    return found


@require_safe
@page
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a request: what will be done, who is hit, and the decision."""
    asked = _request_of(request, pk)
    notices.see(actor_of(request), asked)
    return _detail(request, asked, RequestDecisionForm())


def _detail(
    request: HttpRequest, asked: OperationRequest, form: RequestDecisionForm, *, status: int = 200
) -> HttpResponse:
    actor = actor_of(request)
    waits = Move.APPROVE in moves_from(State(asked.state))
    is_requester = actor.user_id == asked.requested_by_id
    if is_requester:
        form.fields["reason"].help_text = _(
            "It stays in the audit log, which says that you decided on your own request."
        )
    may_decide = (
        waits and actor.can(Role.ADMIN, asked.cluster) and (not is_requester or settings.GPUPOOLS_ALLOW_SELF_APPROVAL)
    )
    is_under_way = asked.push is not None and asked.push.state == Push.State.QUEUED
    context = {
        "nav": "approvals",
        "asked": asked,
        "radius": requests.visible_radius(actor, asked),
        "manifests": requests.manifests(asked),
        "form": form,
        "waits": waits,
        "may_decide": may_decide,
        "waits_for_another": waits and is_requester and not may_decide,
        "may_withdraw": waits and is_requester,
        "since": _since(asked) if waits else Since(),
        "is_live": waits or is_under_way,
    }
    return show(request, "request.html", context, status=status)


def _since(asked: OperationRequest) -> Since:
    try:
        radius = requests.radius_now(asked)
    except Unreachable:
        return Since(known=False)
    came = endings.newcomers(asked.blast_radius["pods"], radius.pods)
    return Since(True, tuple(requests.what_moved(asked, radius)), tuple(came))


@taker("web:request", "pk")
def decide(request: HttpRequest, pk: int) -> HttpResponse:
    """Approve, reject or withdraw, as the button says."""
    actor, asked, form = actor_of(request), _request_of(request, pk), RequestDecisionForm(request.POST)
    reason = request.POST.get("reason", "")
    wanted = request.POST.get("action", "")
    if wanted == "approve":
        done = _("Approved. A worker carries it out now.")
        attempt(form, lambda: requests.approve(actor, asked, reason=reason, approved_pods=form.named))
    elif wanted == "reject":
        done = _("Rejected.")
        attempt(form, lambda: requests.reject(actor, asked, reason=reason))
    elif wanted == "withdraw":
        done = _("Withdrawn.")
        attempt(form, lambda: requests.withdraw(actor, asked))
    else:
        raise Missing(_("There is no such decision."))
    if form.errors:
        asked.refresh_from_db()
        return _detail(request, asked, form, status=400)
    messages.success(request, done)
    return redirect("web:request", asked.pk)


# -- All that waits, is under way, or was decided


@dataclass(frozen=True, slots=True)
class Line:
    """A mode change or a request for another operation, in one list. One of the two is None."""

    change: ModeChange | None
    asked: OperationRequest | None

    @property
    def subject(self) -> ModeChange | OperationRequest:
        """Whichever it is."""
        found = self.change or self.asked
        assert found is not None  # noqa: S101  # lines are made of one of the two
        return found

    @property
    def pods(self) -> int:
        """How many pods it hits."""
        return len(self.change.blast_radius) if self.change else len(self.asked.blast_radius["pods"])

    @property
    def at(self) -> datetime:
        """When it was asked for."""
        return self.subject.requested_at


@require_safe
@page
def approvals(request: HttpRequest) -> HttpResponse:
    """List what waits for a decision, what is under way, and what was decided: changes and other operations alike."""
    changes, others = _visible(actor_of(request))
    running = Push.State.QUEUED.value
    under_way = [each for each in OPEN_STATES if each != State.PENDING.value]
    ended = others.exclude(state=State.PENDING.value).exclude(push__state=running)
    both = _keys(changes.exclude(state__in=OPEN_STATES), "change").union(_keys(ended, "request"), all=True)
    page_obj = page_of(request, both.order_by("-requested_at", "-pk"), ROWS_PER_PAGE)
    page_obj.object_list = _lines_of(page_obj.object_list, changes, others)
    context = {
        "nav": "approvals",
        "waiting": _merged(changes.filter(state=State.PENDING.value), others.filter(state=State.PENDING.value)),
        "running": _merged(changes.filter(state__in=under_way), others.filter(push__state=running)),
        "page_obj": page_obj,
        "needed": [KIND_TEXTS[kind] for kind in settings.GPUPOOLS_APPROVAL_REQUIRED],
        "free": [text for kind, text in KIND_TEXTS.items() if kind not in settings.GPUPOOLS_APPROVAL_REQUIRED],
    }
    return show(request, "approvals.html", context)


def _visible(actor: Actor) -> tuple[QuerySet[ModeChange], QuerySet[OperationRequest]]:
    changes = ModeChange.objects.visible_to(actor).select_related("pool__cluster", "requested_by", "decided_by")
    others = OperationRequest.objects.visible_to(actor).select_related("cluster", "requested_by", "decided_by", "push")
    return changes, others


def _keys(rows: QuerySet[Any], kind: str) -> QuerySet[Any]:
    return rows.order_by().annotate(of=Value(kind)).values_list("requested_at", "pk", "of")


def _merged(changes: Iterable[ModeChange], others: Iterable[OperationRequest]) -> list[Line]:
    lines = [*(Line(each, None) for each in changes), *(Line(None, each) for each in others)]
    return sorted(lines, key=lambda line: line.at, reverse=True)


def _lines_of(
    keys: Iterable[tuple[datetime, int, str]], changes: QuerySet[ModeChange], others: QuerySet[OperationRequest]
) -> list[Line]:
    """Return the rows of one page of keys, in their order; one query of each kind."""
    wanted = list(keys)
    found = {
        "change": changes.in_bulk([key for _at, key, of in wanted if of == "change"]),
        "request": others.in_bulk([key for _at, key, of in wanted if of == "request"]),
    }
    return [
        Line(found[of][key], None) if of == "change" else Line(None, found[of][key])
        for _at, key, of in wanted
        if key in found[of]
    ]
