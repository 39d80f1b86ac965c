"""Mode changes: the flight plan before the request, the same list while it runs, and who decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.domain.changes import Move, State, moves_from
from gpupools.domain.modes import CHOOSABLE, MODES, Mode, PlacementPolicy
from gpupools.errors import ConsoleError, Missing
from gpupools.models import ModeChange, Role
from gpupools.services import changes, flights
from gpupools.services.access import Actor
from gpupools.web.door import actor_of, cluster_of, page, taker
from gpupools.web.forms import ConsoleForm, attempt, status_of
from gpupools.web.lines import OPEN_STATES, component_states, mode_choices, needs_of
from gpupools.web.paging import page_of
from gpupools.web.shell import show
from gpupools.web.views.pools import POLICY_TEXTS, pool_of

ROWS_PER_PAGE = 50
HOLDER_TEXTS = {
    ModeChange.Holders.WAIT.value: gettext_lazy(
        "New pods are kept off; the change goes on when the running ones have ended."
    ),
    ModeChange.Holders.EVICT.value: gettext_lazy(
        "They are told to end now. What has an owner is started again where it fits."
    ),
}


class ChangeForm(ConsoleForm):
    """Which mode, which policy, and what happens to pods that hold cards."""

    target_mode = forms.ChoiceField(
        label=gettext_lazy("New scheduling mode"),
        choices=[(mode.value, mode.value) for mode in CHOOSABLE],
        widget=forms.RadioSelect,
    )
    target_policy = forms.ChoiceField(
        label=gettext_lazy("Placement policy"),
        required=False,
        widget=forms.RadioSelect,
        choices=[(policy.value, policy.value) for policy in PlacementPolicy],
    )
    holders = forms.ChoiceField(
        label=gettext_lazy("Pods that hold cards"),
        choices=ModeChange.Holders.choices,
        widget=forms.RadioSelect,
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("Whoever decides reads it; it stays in the audit log."),
    )

    def wishes(self) -> dict[str, Any]:
        """Return what the services ask for, without the reason."""
        typed = self.cleaned_data
        shared = MODES[Mode(typed["target_mode"])].shared
        return {
            "target_mode": typed["target_mode"],
            "target_policy": typed["target_policy"] or None if shared else None,
            "holders": typed["holders"],
        }


class DecisionForm(ConsoleForm):
    """A reason for whatever is decided; the services say when it may be empty."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("The requester reads it; it stays in the audit log."),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@page
def request_change(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Show the flight plan of a change of mode; asking for it is the last button of the same page."""
    actor, pool = actor_of(request), pool_of(request, cluster, name)
    actor.require(Role.OPERATOR, pool.cluster)
    typed = request.POST or request.GET
    first = {
        "target_mode": pool.mode,
        "target_policy": pool.policy or "binpack",
        "holders": ModeChange.Holders.WAIT.value,
    }
    form = ChangeForm(typed if "target_mode" in typed else None, initial=first)
    made = None
    if form.is_valid() and request.method == "POST":
        made = attempt(form, lambda: changes.request(actor, pool, **form.wishes(), reason=form.cleaned_data["reason"]))
    if made:
        messages.success(request, _("The change is asked for. A second person, an administrator, must decide on it."))
        return redirect("web:change", made.pk)
    flight = _flight(actor, pool, form)
    context = {
        "nav": "pools",
        "pool": pool,
        "form": form,
        "flight": flight,
        "modes": mode_choices(pool.cluster),
        "policies": POLICY_TEXTS,
        "holder_texts": HOLDER_TEXTS,
        "holder_choices": ModeChange.Holders.choices,
        "needs": needs_of(flight.change.target_mode, component_states(pool.cluster)) if flight else (),
        "chosen": {key: form[key].value() for key in first},
    }
    return show(request, "change_request.html", context, status=status_of(form) if request.method == "POST" else 200)


def _flight(actor: Actor, pool: Any, form: ChangeForm) -> flights.Flight | None:
    if not form.is_bound or not form.cleaned_data.get("target_mode") or not form.cleaned_data.get("holders"):
        return None
    try:
        return flights.plan(actor, pool, **form.wishes())
    except ConsoleError as error:
        if not form.errors:
            form.take(error)
        return None


def _change_of(request: HttpRequest, pk: int) -> ModeChange:
    actor = actor_of(request)
    found = (
        ModeChange.objects.visible_to(actor)
        .select_related("pool__cluster", "requested_by", "decided_by")
        .filter(pk=pk)
        .first()
    )
    if found is None:
        raise Missing(_("There is no such mode change, or you may not see it."))
    cluster_of(request, found.pool.cluster.name)
    return found


@require_safe
@page
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a change: the flight plan, as progress once it runs, and the decision."""
    return _detail(request, _change_of(request, pk), DecisionForm())


def _detail(request: HttpRequest, change: ModeChange, form: DecisionForm, *, status: int = 200) -> HttpResponse:
    actor, cluster = actor_of(request), change.pool.cluster
    open_moves = moves_from(State(change.state))
    is_requester = actor.user_id == change.requested_by_id
    is_admin, is_operator = actor.can(Role.ADMIN, cluster), actor.can(Role.OPERATOR, cluster)
    context = {
        "nav": "approvals",
        "change": change,
        "pool": change.pool,
        "steps": list(change.steps.all()),
        "form": form,
        "radius": changes.visible_radius(actor, change),
        "is_requester": is_requester,
        "is_open": change.state in OPEN_STATES,
        "planned": () if change.steps.exists() else _planned(actor, change),
        "needs": needs_of(change.target_mode, component_states(cluster)),
        "may_decide": Move.APPROVE in open_moves and is_admin and not is_requester,
        "waits_for_another": Move.APPROVE in open_moves and is_requester,
        "may_withdraw": Move.WITHDRAW in open_moves and is_requester,
        "may_retry": is_operator and (Move.RETRY in open_moves or Move.RESUME in open_moves),
        "may_pause": is_operator and Move.PAUSE in open_moves,
        "may_abandon": is_operator and Move.ABANDON in open_moves,
    }
    return show(request, "change.html", context, status=status)


def _planned(actor: Actor, change: ModeChange) -> tuple[Any, ...]:
    """Return the steps as they would be now; none once it cannot be carried out any more."""
    if change.state not in OPEN_STATES:
        return ()
    try:
        wanted = {
            "target_mode": change.target_mode,
            "target_policy": change.target_policy or None,
            "holders": change.holders,
        }
        return flights.plan(actor, change.pool, **wanted).steps
    except ConsoleError:
        return ()


ACTIONS: dict[str, tuple[Callable[..., ModeChange], bool, str]] = {
    "approve": (changes.approve, True, gettext_lazy("Approved. A worker carries it out now.")),
    "reject": (changes.reject, True, gettext_lazy("Rejected.")),
    "withdraw": (changes.withdraw, False, gettext_lazy("Withdrawn.")),
    "retry": (changes.retry, True, gettext_lazy("It goes on.")),
    "pause": (changes.pause, True, gettext_lazy("Paused.")),
    "abandon": (changes.abandon, True, gettext_lazy("Given up. What it cordoned is uncordoned.")),
}


@taker("web:change", "pk")
def decide(request: HttpRequest, pk: int) -> HttpResponse:
    """Approve, reject, withdraw, retry, pause or abandon, as the button says."""
    change, form = _change_of(request, pk), DecisionForm(request.POST)
    call, takes_reason, done = ACTIONS.get(request.POST.get("action", ""), (None, False, ""))
    if call is None:
        raise Missing(_("There is no such decision."))
    reason = {"reason": request.POST.get("reason", "")} if takes_reason else {}
    attempt(form, lambda: call(actor_of(request), change, **reason))
    if form.errors:
        change.refresh_from_db()
        return _detail(request, change, form, status=400)
    messages.success(request, done)
    return redirect("web:change", change.pk)


@require_safe
@page
def approvals(request: HttpRequest) -> HttpResponse:
    """List what waits for a decision, what is under way, and what was decided."""
    every = ModeChange.objects.visible_to(actor_of(request)).select_related(
        "pool__cluster", "requested_by", "decided_by"
    )
    context = {
        "nav": "approvals",
        "waiting": every.filter(state=State.PENDING.value),
        "running": every.filter(state__in=[each for each in OPEN_STATES if each != State.PENDING.value]),
        "page_obj": page_of(request, every.exclude(state__in=OPEN_STATES), ROWS_PER_PAGE),
    }
    return show(request, "approvals.html", context)
