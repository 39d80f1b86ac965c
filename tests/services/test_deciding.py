"""Deciding on mode changes: who, with which reason, and when a change lapses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gpupools.domain.changes import State
from gpupools.domain.gpus import Taint
from gpupools.errors import Conflict, Invalid, Missing, NotAllowed
from gpupools.models import AuditEntry, Cluster, ModeChange, NodePool, Push, Role
from gpupools.services import changequeue, changes
from gpupools.services.access import SYSTEM, Actor
from tests.domain.builders import a_node, a_pod
from tests.services.asking import POOL, asked, two_nodes
from tests.services.builders import a_cluster, an_actor, with_token
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


# -- Deciding


def test_an_approval_makes_the_steps_and_one_push(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = changes.approve(admin, asked(operator, pool), reason="agreed")
    assert change.state == State.APPROVED
    assert (change.decided_by, change.decision_reason) == (admin.user, "agreed")
    assert [step.kind for step in change.steps.all()] == [
        "preflight", "cordon", "drain", "write_labels", "wait_resources", "uncordon", "verify",
    ]  # fmt: skip
    push = Push.objects.get()
    assert (push.kind, push.payload) == (changequeue.STEP, {"change": change.pk})
    entry = AuditEntry.objects.get(action="change.approve")
    assert (entry.actor_name, entry.data["reason"]) == ("ada", "agreed")


def test_a_change_of_policy_alone_needs_no_drain(operator: Actor, admin: Actor, lab: Cluster, pool: NodePool) -> None:
    NodePool.objects.filter(pk=pool.pk).update(mode="cgpu", policy="binpack")
    pool.refresh_from_db()
    show(lab, [a_node("n1", "cgpu", policy="binpack", labels=POOL)])
    change = changes.approve(admin, asked(operator, pool, target_policy="spread"), reason="agreed")
    assert [step.kind for step in change.steps.all()] == ["preflight", "write_labels", "verify"]


def test_an_empty_pool_needs_no_cordon(operator: Actor, admin: Actor, lab: Cluster, pool: NodePool) -> None:
    show(lab, [])
    change = changes.approve(admin, asked(operator, pool), reason="agreed")
    assert [step.kind for step in change.steps.all()] == ["preflight", "write_labels", "verify"]


@pytest.mark.parametrize("decide", [changes.approve, changes.reject])
@pytest.mark.parametrize("is_superuser", [False, True])
def test_nobody_decides_on_their_own_request(
    admin: Actor, pool: NodePool, decide: Callable[..., Any], is_superuser: bool
) -> None:
    assert admin.user is not None
    admin.user.is_superuser = is_superuser
    admin.user.save()
    change = asked(admin, pool)
    with pytest.raises(NotAllowed) as caught:
        decide(admin, change, reason="I say so")
    assert caught.value.code == "self-approval"
    change.refresh_from_db()
    assert change.state == State.PENDING


def test_a_token_of_the_requester_is_the_requester(admin: Actor, pool: NodePool) -> None:
    change = asked(admin, pool)
    with pytest.raises(NotAllowed) as caught:
        changes.approve(with_token(admin, Role.ADMIN), change, reason="from a robot")
    assert caught.value.code == "self-approval"


def test_only_an_administrator_of_the_cluster_decides(operator: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    another = a_cluster("another")
    for actor in (
        an_actor(Role.OPERATOR, name="otto"),
        an_actor(Role.VIEWER, name="vic"),
        an_actor(Role.ADMIN, pool.cluster, "vision", name="nadia"),
        with_token(an_actor(Role.ADMIN, name="abe"), Role.OPERATOR),
    ):
        with pytest.raises(NotAllowed):
            changes.approve(actor, change, reason="agreed")
    with pytest.raises(Missing):
        changes.approve(an_actor(Role.ADMIN, another, name="alien"), change, reason="agreed")
    with pytest.raises(NotAllowed):
        changes.approve(SYSTEM, change, reason="agreed")


@pytest.mark.parametrize("decide", [changes.approve, changes.reject])
def test_a_decision_needs_a_reason(operator: Actor, admin: Actor, pool: NodePool, decide: Callable[..., Any]) -> None:
    change = asked(operator, pool)
    with pytest.raises(Invalid) as caught:
        decide(admin, change, reason=" ")
    assert caught.value.errors[0].field == "reason"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda pool: show(pool.cluster, two_nodes()[:1]), "Node n2 left the pool."),
        (
            lambda pool: show(pool.cluster, [*two_nodes(), a_node("n3", "exclusive", labels=POOL)]),
            "Node n3 joined the pool.",
        ),
        (lambda pool: show(pool.cluster, [two_nodes()[0], a_node("n2", "share", labels=POOL)]), "changed its mode"),
        (lambda pool: NodePool.objects.update(labels={"team": "x"}), "labels changed: team"),
        (lambda pool: NodePool.objects.update(taints=[{"key": "a", "effect": "NoSchedule"}]), "taints changed"),
    ],
)
def test_when_something_moved_the_change_lapses_and_says_what(
    operator: Actor, admin: Actor, pool: NodePool, what: Callable[[NodePool], object], said: str
) -> None:
    change = asked(operator, pool)
    what(pool)
    with pytest.raises(Conflict) as caught:
        changes.approve(admin, change, reason="agreed")
    assert caught.value.code == "lapsed"
    assert said in caught.value.message
    change.refresh_from_db()
    assert change.state == State.LAPSED, "and that it lapsed is kept"
    assert said in change.note
    assert AuditEntry.objects.filter(action="change.lapse").exists()
    assert not Push.objects.exists()


def test_a_component_that_went_makes_the_change_lapse(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    pool.cluster.components.all().delete()
    with pytest.raises(Conflict) as caught:
        changes.approve(admin, change, reason="agreed")
    assert "ack-ai-installer is no longer installed" in caught.value.message


def test_pods_that_come_and_go_do_not_make_it_lapse(
    operator: Actor, admin: Actor, lab: Cluster, pool: NodePool
) -> None:
    change = asked(operator, pool)
    show(lab, two_nodes(unschedulable=True), [a_pod("new", whole=1, on="n2")])
    assert changes.approve(admin, change, reason="agreed").state == State.APPROVED


def test_taints_of_the_node_itself_do_not_make_it_lapse(
    operator: Actor, admin: Actor, lab: Cluster, pool: NodePool
) -> None:
    change = asked(operator, pool)
    show(lab, two_nodes(taints=(Taint("node.kubernetes.io/unschedulable"),)))
    assert changes.approve(admin, change, reason="agreed").state == State.APPROVED


def test_an_expired_change_is_not_approved_any_more(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    ModeChange.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    change.refresh_from_db()
    with pytest.raises(Conflict) as caught:
        changes.approve(admin, change, reason="agreed")
    assert caught.value.code == "expired"
    change.refresh_from_db()
    assert change.state == State.EXPIRED


def test_only_the_requester_withdraws(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    with pytest.raises(NotAllowed):
        changes.withdraw(admin, change)
    assert changes.withdraw(operator, change).state == State.WITHDRAWN
    assert change.finished_at is not None


def test_an_approved_change_can_be_withdrawn_before_it_starts(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = changes.approve(admin, asked(operator, pool), reason="agreed")
    assert changes.withdraw(operator, change).state == State.WITHDRAWN


def test_a_refused_move_says_the_state_and_who_moved_it_there(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    held = ModeChange.objects.get(pk=change.pk)  # as another administrator has it before them
    changes.reject(admin, change, reason="not now")
    with pytest.raises(Conflict) as refused:
        changes.approve(admin, change, reason="yes, now")
    assert refused.value.message == f"Cannot approve: the change is rejected (by {admin.name}, just now)."
    with pytest.raises(Conflict) as late:
        changes.approve(admin, held, reason="yes, now")
    said = f"This change was moved on meanwhile: it is rejected (by {admin.name}, just now) now."
    assert late.value.message == said
    assert (late.value.data["state"], late.value.data["moved_by"]) == ("rejected", admin.name)
