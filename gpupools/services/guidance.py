"""What a person reads first of a change that does not go well: where it stopped, what is held, what can be done.

It reads rows that are loaded already, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from gpupools.domain import routes
from gpupools.domain.changes import State
from gpupools.domain.modes import MODES, Mode
from gpupools.models import ChangeStep, ComponentState, ModeChange
from gpupools.services import holdings, stepprogress
from gpupools.services.holdings import Held
from gpupools.services.moves import mover_of
from gpupools.services.site import listed

# A drain that has waited for the same pods for so long is worth a word.
STUCK: Final = timedelta(minutes=5)
_TASKS: Final = frozenset({"task-failed", "task-gone"})
_RIGHTS: Final = frozenset({"forbidden", "unauthorized"})
_ENDED: Final = {State.ABANDONED: "Given up", State.ROLLED_BACK: "Rolled back", State.APPLIED: "Applied"}


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that a person can do, with a code that stays."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Guidance:
    """Where a change stands that does not go well. Empty ``headline``: nothing is wrong.

    ``why``: in the words of what stopped it; ``since``: for how long it has been so; ``done`` and ``left``: the nodes
    of the step at which it stopped; ``is_way_back``: it stopped while it was rolled back. Of a change that waits for a
    decision: ``moved`` and ``newcomers`` (namespace/name) since the request; ``blocks``: it cannot be approved.
    """

    headline: str = ""
    why: str = ""
    is_bad: bool = False
    is_way_back: bool = False
    since: datetime | None = None
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    held: Held = Held()
    advice: tuple[Advice, ...] = ()
    blocks: bool = False
    moved: tuple[str, ...] = ()
    newcomers: tuple[str, ...] = ()


def guide(change: ModeChange, steps: Sequence[ChangeStep]) -> Guidance:
    """Return what to read first. ``steps``: all of the change, in order."""
    held = holdings.held_by(change, steps)
    if change.state == State.FAILED:
        return _failed(change, steps, held)
    if change.state == State.PAUSED:
        return _paused(change, steps, held)
    if change.state in (State.APPLYING, State.ROLLING_BACK):
        return _running(change, steps, held)
    if change.state in (State.ABANDONED, State.ROLLED_BACK, State.APPLIED) and held:
        return _ended(change, held)
    return Guidance(held=held)


def _nodes(step: ChangeStep, which: str) -> tuple[str, ...]:
    return tuple(step.learned.get(which, ()))


def _at(steps: Sequence[ChangeStep], step: ChangeStep, said: str) -> str:
    way = [each for each in steps if each.is_rollback == step.is_rollback]
    back = " of the way back" if step.is_rollback else ""
    return f"{said} at step {way.index(step) + 1} of {len(way)}{back}: {step.title}"


def _failed(change: ModeChange, steps: Sequence[ChangeStep], held: Held) -> Guidance:
    step = next((each for each in reversed(steps) if each.state == ChangeStep.State.FAILED), None)
    if step is None:
        return Guidance("It failed", change.note, True, held=held)
    code = step.learned.get("code", "")
    found = []
    if code in _RIGHTS:
        where = "the cluster's page tells what it may; on ACK its RAM policy counts too"
        message = f"Give the console's identity the right that is missing, then try again: {where}."
        found.append(Advice("give-right", message))
    elif code in _TASKS:
        message = "Look at the machine or node that is not done in the ACK console, then try again or roll back."
        found.append(Advice("look-at-machine", message))
    elif code == "unreachable":
        found.append(Advice("wait-for-cluster", "When the cluster answers again, try again: nothing is done twice."))
    elif step.kind == routes.DRAIN:
        found.append(_free_the_nodes(change))
    left = _nodes(step, "left")
    rest = f" on {listed(left)}" if left and _nodes(step, "done") else ""
    if step.is_rollback:
        found.append(Advice("roll-back", "Rolling back once more goes on with the way back; what is back stays so."))
        found.append(Advice("retry", "Going forward takes up the change itself again; each step looks what is due."))
    else:
        found.append(Advice("retry", f"Try again goes on with this step and does only what is missing{rest}."))
        found.append(Advice("roll-back", "Rolling back brings the nodes back to where the change found them."))
    if held:
        rest = "; machines in no pool stay outside" if held.outside else ""
        found.append(Advice("give-up", f"Giving it up uncordons and leaves everything else as it is now{rest}."))
    headline, done = _at(steps, step, "Stopped"), _nodes(step, "done")
    why = change.note.removesuffix(stepprogress.told(step)).strip()
    return Guidance(headline, why, True, step.is_rollback, step.finished_at, done, left, held, tuple(found))


def _paused(change: ModeChange, steps: Sequence[ChangeStep], held: Held) -> Guidance:
    step = next((each for each in steps if each.state == ChangeStep.State.RUNNING), None)
    newcomers = [each["pod"] for each in step.learned.get("newcomers", ())] if step else []
    mover = mover_of(change)
    since = mover.at if mover else None
    if step is None or not newcomers:
        wait = Advice("go-on", "Nothing happens until somebody lets it go on, rolls it back or gives it up.")
        headline = _at(steps, step, "Paused") if step else "Paused"
        done, left = (_nodes(step, "done"), _nodes(step, "left")) if step else ((), ())
        return Guidance(headline, change.note, False, False, since, done, left, held, (wait,))
    evicts = change.holders == ModeChange.Holders.EVICT
    fate = "evicts them like the others" if evicts else "waits for them like for the others"
    found = (
        Advice("decide-newcomers", f"Going on {fate}: an administrator who did not ask for the change decides that."),
        Advice("end-newcomers", "Or end them first, or roll the change back and ask again."),
    )
    count = "1 pod holds" if len(newcomers) == 1 else f"{len(newcomers)} pods hold"
    headline = f"Paused: {count} cards that nobody had seen at the request: {listed(newcomers)}"
    return Guidance(headline, "", False, False, since, (), (), held, found)


def _running(change: ModeChange, steps: Sequence[ChangeStep], held: Held) -> Guidance:
    step = next((each for each in steps if each.state == ChangeStep.State.RUNNING), None)
    since = (step.waiting_since or step.started_at) if step else None
    if step is None or since is None:
        return Guidance(held=held)
    done, left = _nodes(step, "done"), _nodes(step, "left")
    if step.learned.get("code"):
        headline = _at(steps, step, "The cluster does not do its part")
        wait = Advice("wait-for-cluster", "It is tried again by itself for some minutes; nothing is done twice.")
        return Guidance(headline, step.detail, True, False, since, done, left, held, (wait,))
    if step.kind in routes.MANUAL:
        return _by_hand(change, steps, step, held)
    if step.kind in (routes.WAIT_RESOURCES, routes.WAIT_DAEMON) and (lacking := _lacking_components(change, step)):
        headline = _at(steps, step, f"Waits for {' and '.join(lacking)}")
        said = "; ".join(f"{name}: {state}" for name, state in lacking.items())
        message = (
            f"{said}. Install or repair it on the cluster's page Cloud-native AI Suite; then this goes on by itself."
        )
        found = (Advice("fix-component", message), Advice("pause", "Or pause it, and roll it back or give it up."))
        return Guidance(headline, step.detail, False, False, since, done, left, held, found)
    is_stuck = step.kind == routes.DRAIN and step.detail and timezone.now() - since >= STUCK
    if not (is_stuck or (step.kind == routes.DRAIN and step.learned.get("refused"))):
        return Guidance(held=held)
    headline = _at(steps, step, "Pods still hold cards")
    pause = Advice("pause", "Or pause it: the nodes stay cordoned until it goes on or is given up.")
    found = (_free_the_nodes(change, bool(step.learned.get("refused"))), pause)
    return Guidance(headline, step.detail, False, False, since, done, left, held, found)


def _by_hand(change: ModeChange, steps: Sequence[ChangeStep], step: ChangeStep, held: Held) -> Guidance:
    known = change.diff.get("facts", {}).get("nodes", {})
    named = tuple(sorted(step.node_names or [each["name"] for each in known.values()]))
    unseen = tuple(name for name in step.learned.get("unseen", ()) if name in named)
    left, done = unseen or named, tuple(name for name in named if unseen and name not in unseen)
    since = step.waiting_since or step.started_at
    if step.confirmed_at is not None:
        wait = Advice("wait-for-nodes", "It goes on by itself when every node is in the cluster and ready.")
        return Guidance(
            _at(steps, step, "Confirmed by a person"), step.detail, False, False, since, (), (), held, (wait,)
        )
    how = (
        "Restart each of these nodes: drain it as you do for a reboot, reboot the machine, wait until it is Ready."
        if step.kind == routes.RESTART
        else "Take each of these nodes out of the cluster, delete its Node object, and let it join anew."
    )
    found = (
        Advice("do-by-hand", how),
        Advice("confirm", "Then confirm it with a sentence on what was done; the console looks whether it shows."),
    )
    return Guidance(_at(steps, step, "Waits for a person"), step.detail, False, False, since, done, left, held, found)


def _lacking_components(change: ModeChange, step: ChangeStep) -> dict[str, str]:
    """Return the components of the mode that is waited for which are missing or not well, with their states."""
    mode = change.from_mode if step.is_rollback else change.target_mode
    needed = [each.value for each in MODES[Mode(mode)].components] if mode else []
    rows = ComponentState.objects.filter(cluster=change.pool.cluster, name__in=needed)
    bad = rows.exclude(state=ComponentState.State.INSTALLED)
    return {each.name: each.get_state_display().lower() for each in bad.order_by("name")}


def _free_the_nodes(change: ModeChange, by_budget: bool = False) -> Advice:
    if by_budget:
        message = (
            "A disruption budget holds pods: start more replicas elsewhere, relax the budget, or end them yourself."
        )
        return Advice("relax-budget", message)
    if change.holders == ModeChange.Holders.WAIT:
        message = "Wait, end the pods yourself, or give the change up and ask again with eviction."
        return Advice("end-pods", message)
    return Advice("end-pods", "See why these pods do not end (their pages tell), or end them yourself.")


def _ended(change: ModeChange, held: Held) -> Guidance:
    found = []
    if held.is_returnable:
        what = (
            "It is being given back now."
            if holdings.is_letting_go(change)
            else "Give it back with the button here, once nothing stands in its way."
        )
        found.append(Advice("give-back", what))
    if held.outside:
        message = "Machines in no pool are added by the page of the pool that they shall be in."
        found.append(Advice("add-machines", message))
    headline = f"{_ENDED[State(change.state)]}, but not everything is given back"
    _, mark, why = change.note.partition(holdings.NOT_GIVEN_BACK)
    return Guidance(headline, f"{mark}{why}", True, since=change.finished_at, held=held, advice=tuple(found))
