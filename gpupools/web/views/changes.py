"""Mode changes: the flight plan before the request, the same list while it runs, and who decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.domain.changes import Move, State, moves_from
from gpupools.domain.modes import CHOOSABLE, MODES, Mode, PlacementPolicy
from gpupools.domain.routes import MOST_IN_BATCH, Way
from gpupools.errors import ConsoleError, Missing
from gpupools.models import ChangeStep, Cluster, ModeChange, NodePool, Role
from gpupools.services import changes, courses, flights, guidance, holdings, nodes, notices, pendingguides
from gpupools.services.access import Actor
from gpupools.web.door import actor_of, cluster_of, page, taker
from gpupools.web.forms import ConsoleForm, attempt, status_of
from gpupools.web.lines import OPEN_STATES, component_states, mode_choices, needs_of
from gpupools.web.shell import show
from gpupools.web.views.changeways import way_text, ways
from gpupools.web.views.pools import POLICY_TEXTS, pool_of

MOST_UNFOLDED = 24
# Nothing was changed in the cluster, so the same request makes sense again.
ENDED_UNDONE = tuple(each.value for each in (State.LAPSED, State.EXPIRED, State.WITHDRAWN, State.REJECTED))
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
        required=False,
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
    way = forms.ChoiceField(
        label=gettext_lazy("How it reaches the nodes"),
        required=False,
        choices=[(way.value, way.value) for way in (Way.WHOLE, Way.BATCHES, Way.MOVE)],
        widget=forms.RadioSelect,
    )
    batch_size = forms.IntegerField(
        label=gettext_lazy("Nodes per batch"), required=False, min_value=1, max_value=MOST_IN_BATCH
    )
    target_pool = forms.ModelChoiceField(
        label=gettext_lazy("Into the pool"),
        required=False,
        queryset=NodePool.objects.none(),
        to_field_name="name",
        empty_label=gettext_lazy("No other pool"),
    )
    node_names = forms.MultipleChoiceField(
        label=gettext_lazy("Nodes to move"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None chosen: all of the pool."),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("Whoever decides reads it; it stays in the audit log."),
    )

    def __init__(self, *args: Any, pool: NodePool, members: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        others = NodePool.objects.filter(cluster=pool.cluster, state=NodePool.State.ACTIVE).exclude(mode="")
        self.fields["target_pool"].queryset = others.exclude(pk=pool.pk).order_by("name")
        self.fields["node_names"].choices = [(name, name) for name in members]

    def wishes(self) -> dict[str, Any]:
        """Return what the services ask for, without the reason."""
        typed = self.cleaned_data
        way = typed["way"] or Way.WHOLE.value
        batch = typed["batch_size"] or 0
        if way == Way.MOVE:
            # Where the nodes go decides what they become.
            return {
                "way": way,
                "target_pool": typed["target_pool"],
                "node_names": typed.get("node_names") or (),
                "batch_size": batch,
                "holders": typed["holders"],
            }
        shared = bool(typed["target_mode"]) and MODES[Mode(typed["target_mode"])].shared
        return {
            "target_mode": typed["target_mode"],
            "target_policy": typed["target_policy"] or None if shared else None,
            "holders": typed["holders"],
            "way": way,
            "batch_size": batch if way == Way.BATCHES else 0,
        }


class DecisionForm(ConsoleForm):
    """A reason for whatever is decided; the services say when it may be empty."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("It stays with the change and in the audit log."),
    )


class ConfirmForm(DecisionForm):
    """What somebody did by hand. Its box stands beside that of the other decisions, so its ids are its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, auto_id="confirm_%s", **kwargs)
        self.fields["reason"].label = gettext_lazy("What was done")


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
        "way": Way.WHOLE.value,
        "batch_size": "",
        "target_pool": "",
    }
    members = _members(actor, pool)
    bound = typed if {"target_mode", "target_pool"} & set(typed) else None
    form = ChangeForm(bound, initial=first, pool=pool, members=members)
    made = None
    if form.is_valid() and request.method == "POST":
        made = attempt(form, lambda: changes.request(actor, pool, **form.wishes(), reason=form.cleaned_data["reason"]))
    if made:
        messages.success(request, made.rule or _("The change is asked for. A second person must decide on it."))
        return redirect("web:change", made.pk)
    holding = pool.changes.filter(state__in=OPEN_STATES).first()
    flight = None if holding else _flight(actor, pool, form)
    chosen = {key: form[key].value() or first[key] for key in first}
    context = {
        "holding": holding,
        "nav": "pools",
        "pool": pool,
        "form": form,
        "flight": flight,
        "modes": mode_choices(pool.cluster),
        "policies": POLICY_TEXTS,
        "holder_texts": HOLDER_TEXTS,
        "holder_choices": ModeChange.Holders.choices,
        "needs": needs_of(flight.change.target_mode, component_states(pool.cluster)) if flight else (),
        "chosen": chosen,
        "ways": ways(pool, target=chosen["target_mode"], planned=flight.steps if flight else ()),
        "members": members,
        "chosen_nodes": form["node_names"].value() or (),
    }
    return show(request, "change_request.html", context, status=status_of(form) if request.method == "POST" else 200)


def _members(actor: Actor, pool: NodePool) -> list[str]:
    rows = nodes.listing(actor, pool.cluster).rows
    return [row.name for row in rows if row.pool_row is not None and row.pool_row.pk == pool.pk]


def _flight(actor: Actor, pool: Any, form: ChangeForm) -> flights.Flight | None:
    if not form.is_bound or {"target_mode", "holders", "way", "batch_size", "target_pool"} - set(form.cleaned_data):
        return None
    if not (form.cleaned_data["target_mode"] or form.cleaned_data["target_pool"]):
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
        .select_related("pool__cluster", "target_pool__cluster", "undoes", "requested_by", "decided_by")
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
    change = _change_of(request, pk)
    notices.see(actor_of(request), change)
    return _detail(request, change, DecisionForm())


def _detail(request: HttpRequest, change: ModeChange, form: DecisionForm, *, status: int = 200) -> HttpResponse:
    actor, cluster = actor_of(request), change.pool.cluster
    open_moves = moves_from(State(change.state))
    is_requester = actor.user_id == change.requested_by_id
    decides = not is_requester or settings.GPUPOOLS_ALLOW_SELF_APPROVAL
    is_admin, is_operator = actor.can(Role.ADMIN, cluster), actor.can(Role.OPERATOR, cluster)
    progress = _progress(change)
    guided = pendingguides.guide(change) if change.state == State.PENDING else guidance.guide(change, progress["steps"])
    # Pods came that nobody had seen: going on is a decision like the first one.
    needs_admin = any(each.code == "decide-newcomers" for each in guided.advice)
    context = {
        "nav": "approvals",
        "change": change,
        "pool": change.pool,
        **progress,
        "way_text": way_text(change),
        "guidance": guided,
        "form": form,
        "confirm_form": ConfirmForm(initial={"reason": form["reason"].value()}),
        "needs_admin": needs_admin,
        "radius": changes.visible_radius(actor, change),
        "is_requester": is_requester,
        "is_open": change.state in OPEN_STATES,
        "planned": () if change.steps.exists() else _planned(actor, change),
        "needs": needs_of(change.target_mode, component_states(cluster)),
        "may_decide": Move.APPROVE in open_moves and is_admin and decides,
        "waits_for_another": Move.APPROVE in open_moves and is_requester,
        "may_roll_back": is_operator and Move.ROLL_BACK in open_moves,
        "way_back": courses.steps_back(change) if is_operator and Move.ROLL_BACK in open_moves else (),
        "newcomers_back": courses.visible_newcomers_back(actor, change) if Move.ROLL_BACK in open_moves else (),
        "ticks": is_admin and decides,
        "ticked": request.POST.getlist("approved_pods"),
        "by_hand": courses.waiting_for_a_person(change) if is_operator else None,
        "may_undo": is_operator and change.state == State.APPLIED.value and change.way != Way.JOIN,
        "may_ask_again": is_operator and change.state in ENDED_UNDONE,
        "ask_again": urlencode(
            {
                "target_mode": change.target_mode,
                "target_policy": change.target_policy,
                "holders": change.holders,
                "way": change.way,
                "batch_size": change.batch_size or "",
                "target_pool": change.target_pool.name if change.target_pool else "",
                "node_names": change.node_names,
            },
            doseq=True,
        ),
        "undone_by": change.undone_by.order_by("-pk").first(),
        "may_withdraw": Move.WITHDRAW in open_moves and is_requester,
        "may_retry": is_operator
        and not (needs_admin and not (is_admin and decides))
        and (Move.RETRY in open_moves or Move.RESUME in open_moves),
        "may_pause": is_operator and Move.PAUSE in open_moves,
        "may_abandon": is_operator and Move.ABANDON in open_moves,
        "may_release": is_operator
        and not open_moves
        and holdings.held_by(change, progress["steps"]).is_returnable
        and not holdings.is_letting_go(change),
    }
    return show(request, "change.html", context, status=status)


def _progress(change: ModeChange) -> dict[str, Any]:
    """Return the steps with what is left of them: a long plan shows the batch under way and folds the others."""
    steps = list(change.steps.select_related("confirmed_by"))
    ended = (ChangeStep.State.DONE, ChangeStep.State.SKIPPED)
    now = next((step for step in steps if step.state not in ended), None)
    left = [step for step in steps if step.state not in ended and step.is_rollback == bool(now and now.is_rollback)]
    last = max((step.wave for step in steps), default=0)
    return {
        "steps": steps,
        "step_now": now,
        "done_count": sum(step.state == ChangeStep.State.DONE for step in steps),
        "seconds_left": sum(step.expected_seconds for step in left),
        "batches": last,
        "fold": len(steps) > MOST_UNFOLDED,
    }


def _planned(actor: Actor, change: ModeChange) -> tuple[Any, ...]:
    """Return the steps as they would be now; none once it cannot be carried out any more."""
    if change.state not in OPEN_STATES or change.pool.cluster.state == Cluster.State.UNREACHABLE:
        return ()
    try:
        wanted = {
            "target_mode": change.target_mode,
            "target_policy": change.target_policy or None,
            "holders": change.holders,
            "way": change.way,
            "batch_size": change.batch_size,
            "node_names": change.node_names,
            "target_pool": change.target_pool,
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
    "roll_back": (changes.roll_back, True, gettext_lazy("It is being rolled back.")),
    "confirm": (changes.confirm, True, gettext_lazy("Confirmed. It goes on.")),
    "abandon": (
        changes.abandon,
        True,
        gettext_lazy("Given up. What it cordoned is uncordoned, and auto scaling that it paused goes on."),
    ),
    "release": (changes.release, True, gettext_lazy("It is being given back.")),
}


@taker("web:change", "pk")
def decide(request: HttpRequest, pk: int) -> HttpResponse:
    """Approve, reject, withdraw, retry, pause, confirm, roll back, undo, abandon or release, as the button says."""
    if request.POST.get("action") == "undo":
        return _undo(request, _change_of(request, pk))
    change, form = _change_of(request, pk), DecisionForm(request.POST)
    call, takes_reason, done = ACTIONS.get(request.POST.get("action", ""), (None, False, ""))
    if call is None:
        raise Missing(_("There is no such decision."))
    words: dict[str, Any] = {"reason": request.POST.get("reason", "")} if takes_reason else {}
    if request.POST["action"] == "roll_back":
        words["approved_pods"] = request.POST.getlist("approved_pods")
    attempt(form, lambda: call(actor_of(request), change, **words))
    if form.errors:
        change.refresh_from_db()
        return _detail(request, change, form, status=400)
    messages.success(request, done)
    return redirect("web:change", change.pk)


def _undo(request: HttpRequest, change: ModeChange) -> HttpResponse:
    form = DecisionForm(request.POST)
    reason = request.POST.get("reason", "")
    made = attempt(form, lambda: changes.undo(actor_of(request), change, reason=reason))
    if not made:
        return _detail(request, change, form, status=400)
    messages.success(request, _("The way back is asked for. A second person must decide on it."))
    return redirect("web:change", made.pk)
