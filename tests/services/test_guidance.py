"""What is said first of a change that does not go well, by where it stands and what stopped it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gpupools.domain.changes import State
from gpupools.models import ChangeStep, ComponentState, ModeChange, NodePool
from gpupools.services import courses, guidance, holdings
from gpupools.services.access import Actor
from gpupools.services.guidance import Guidance
from tests.services.asking import in_state

pytestmark = pytest.mark.django_db
KINDS = ("preflight", "cordon", "drain", "write_labels", "verify")
MACHINES = {"n1": "i-1", "n2": "i-2"}


def a_change(operator: Actor, pool: NodePool, state: State, at: str, step_state: str, **columns: Any) -> ModeChange:
    """A change whose steps before ``at`` are done and which stands there."""
    change = in_state(operator, pool, state)
    is_rollback = columns.pop("is_rollback", False)
    for position, kind in enumerate(KINDS, start=1):
        here = position - KINDS.index(at) - 1
        ChangeStep.objects.create(
            change=change,
            position=position,
            kind=kind,
            title=f"The {kind} of it",
            state="done" if here < 0 else step_state if here == 0 else "waiting",
            is_rollback=is_rollback,
            **(columns if here == 0 else {}),
        )
    return change


def guided(change: ModeChange) -> Guidance:
    return guidance.guide(change, list(change.steps.all()))


def codes(found: Guidance) -> list[str]:
    return [each.code for each in found.advice]


@pytest.mark.parametrize(
    ("at", "code", "first"),
    [
        ("cordon", "forbidden", "give-right"),
        ("cordon", "unauthorized", "give-right"),
        ("write_labels", "task-failed", "look-at-machine"),
        ("write_labels", "task-gone", "look-at-machine"),
        ("verify", "unreachable", "wait-for-cluster"),
        ("drain", "step-overdue", "end-pods"),
        ("verify", "step-overdue", "retry"),
    ],
)
def test_a_failed_change_says_at_which_step_and_what_to_do_about_what_stopped_it(
    operator: Actor, pool: NodePool, at: str, code: str, first: str
) -> None:
    learned = {"code": code, "done": ["n1"], "left": ["n2"]}
    change = a_change(operator, pool, State.FAILED, at, "failed", learned=learned)
    ModeChange.objects.filter(pk=change.pk).update(note="It broke. Done on n1; not on n2.")
    change.refresh_from_db()
    found = guided(change)
    assert found.headline == f"Stopped at step {KINDS.index(at) + 1} of 5: The {at} of it"
    assert (found.why, found.done, found.left) == ("It broke.", ("n1",), ("n2",))
    assert codes(found)[0] == first
    assert "does only what is missing on n2." in next(a.message for a in found.advice if a.code == "retry")


def test_a_roll_back_that_failed_offers_the_way_back_first(operator: Actor, pool: NodePool) -> None:
    change = a_change(operator, pool, State.FAILED, "cordon", "failed", is_rollback=True, learned={"code": "x"})
    found = guided(change)
    assert found.headline == "Stopped at step 2 of 5 of the way back: The cordon of it"
    assert found.is_way_back
    assert codes(found) == ["roll-back", "retry"]


def test_pods_that_nobody_had_seen_are_named_with_who_decides(operator: Actor, pool: NodePool) -> None:
    learned = {"newcomers": [{"uid": "u", "pod": "default/late", "node": "n1"}]}
    change = a_change(operator, pool, State.PAUSED, "preflight", "running", learned=learned)
    found = guided(change)
    assert found.headline == "Paused: 1 pod holds cards that nobody had seen at the request: default/late"
    assert codes(found) == ["decide-newcomers", "end-newcomers"]
    assert "waits for them" in found.advice[0].message


def test_a_change_paused_by_a_person_says_that_nothing_happens_by_itself(operator: Actor, pool: NodePool) -> None:
    change = a_change(operator, pool, State.PAUSED, "drain", "running")
    assert guided(change).headline == "Paused at step 3 of 5: The drain of it"
    assert codes(guided(change)) == ["go-on"]


@pytest.mark.parametrize(
    ("holders", "refused", "minutes", "advised"),
    [
        ("wait", False, 1, []),
        ("wait", False, 6, ["end-pods", "pause"]),
        ("evict", False, 6, ["end-pods", "pause"]),
        ("evict", True, 1, ["relax-budget", "pause"]),
    ],
)
def test_a_drain_that_is_stuck_says_so_since_when_and_what_a_person_can_do(
    operator: Actor, pool: NodePool, holders: str, refused: bool, minutes: int, advised: list[str]
) -> None:
    since = timezone.now() - timedelta(minutes=minutes)
    learned = {"refused": [["u", "The budget says no."]]} if refused else {}
    detail = "1 pod still holds cards on n1: default/busy."
    change = a_change(
        operator, pool, State.APPLYING, "drain", "running", learned=learned, detail=detail, waiting_since=since
    )
    ModeChange.objects.filter(pk=change.pk).update(holders=holders)
    change.refresh_from_db()
    found = guided(change)
    assert codes(found) == advised
    if advised:
        assert (found.since, found.why) == (since, detail)
        assert found.headline.startswith("Pods still hold cards at step 3 of 5")


def test_a_change_that_runs_well_or_ended_well_says_nothing(operator: Actor, pool: NodePool) -> None:
    change = a_change(operator, pool, State.APPLYING, "write_labels", "running", started_at=timezone.now())
    assert guided(change).headline == ""
    ModeChange.objects.filter(pk=change.pk).update(state=State.APPLIED.value)
    change.refresh_from_db()
    assert guided(change).headline == ""


def test_machines_that_left_a_pool_and_joined_none_are_named_until_they_join(operator: Actor, pool: NodePool) -> None:
    change = in_state(operator, pool, State.ABANDONED)
    change.remembered = {"machines": MACHINES, "ours": ["n1", "n2"]}
    change.save(update_fields=["remembered"])
    names = ["n1", "n2"]
    cordon = ChangeStep.objects.create(
        change=change, position=1, kind="cordon", title="c", learned={"done": ["n1"], "left": ["n2"]}
    )
    assert (holdings.held_by(change).ours, holdings.held_by(change).cordoned) == (("n1", "n2"), ("n1",))
    cordon.learned = {"done": names}
    cordon.save(update_fields=["learned"])
    assert holdings.held_by(change).cordoned == ("n1", "n2")
    ChangeStep.objects.create(change=change, position=2, kind="remove", title="r", learned={"done": names})
    assert holdings.held_by(change).outside == (("n1", "i-1"), ("n2", "i-2"))
    assert holdings.held_by(change).cordoned == (), "the cordon went with the Node"
    attach = ChangeStep.objects.create(change=change, position=3, kind="attach", title="a", learned={"done": ["n1"]})
    found = guided(change)
    assert found.headline == "Given up, but not everything is given back"
    assert found.held.sentences() == ["In no node pool: n2 (i-2)."]
    assert codes(found) == ["add-machines"]
    attach.learned = {"done": names}
    attach.save(update_fields=["learned"])
    assert not guided(change).held


def test_a_step_by_hand_names_every_node_and_what_to_do(operator: Actor, pool: NodePool) -> None:
    change = a_change(operator, pool, State.APPLYING, "drain", "running", started_at=timezone.now())
    change.steps.filter(kind="drain").update(kind="restart", detail="Waits for a person.")
    found = guided(change)
    assert found.headline == "Waits for a person at step 3 of 5: The drain of it"
    assert (found.done, found.left) == ((), ("n1", "n2"))
    assert codes(found) == ["do-by-hand", "confirm"]
    change.steps.filter(kind="restart").update(learned={"unseen": ["n2"]})
    found = guided(change)
    assert (found.done, found.left) == (("n1",), ("n2",)), "what shows no sign of it is still to be done"


def test_waiting_for_a_component_that_is_not_there_names_it(operator: Actor, pool: NodePool) -> None:
    change = a_change(operator, pool, State.APPLYING, "verify", "running", started_at=timezone.now())
    change.steps.filter(kind="verify").update(kind="wait_resources")
    assert guided(change).headline == ""
    row = ComponentState.objects.filter(cluster=pool.cluster, name="ack-ai-installer")
    assert row.update(state="absent") or ComponentState.objects.create(
        cluster=pool.cluster, name="ack-ai-installer", state="absent", checked_at=timezone.now()
    )
    found = guided(change)
    assert found.headline.startswith("Waits for ack-ai-installer at step 5 of 5")
    assert codes(found) == ["fix-component", "pause"]
    assert "ack-ai-installer: not installed" in found.advice[0].message


def test_paused_since_is_when_it_was_paused_and_not_when_its_step_began(operator: Actor, pool: NodePool) -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    change = a_change(operator, pool, State.APPLYING, "drain", "running", waiting_since=long_ago)
    courses.pause(operator, change, reason="a look")
    since = guided(change).since
    assert since is not None
    assert since > long_ago + timedelta(minutes=50)
