"""What people are told of mode changes, by page and by e-mail; and one person who may ask and decide."""

from __future__ import annotations

import pytest
from django.core import mail
from django.test import override_settings

from gpupools.domain.changes import State
from gpupools.errors import NotAllowed
from gpupools.models import AuditEntry, ModeChange, NodePool, Notice, PoolHold, Role
from gpupools.services import changepushes, changes, notices
from gpupools.services.access import Actor
from tests.services.asking import WHY, asked, in_state
from tests.services.builders import a_cluster, an_actor

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


@pytest.fixture
def reachable(admin: Actor) -> Actor:
    assert admin.user is not None
    admin.user.email = "ada@example.com"
    admin.user.save()
    return admin


def told(actor: Actor) -> list[str]:
    return list(Notice.objects.filter(user=actor.user).values_list("kind", flat=True))


def fail(change: ModeChange) -> None:
    """Fail a change as the queue does when its push is parked."""
    push = change.pool.cluster.pushes.get(target=f"change:{change.pk}")
    changepushes.HANDLERS["change.step"].failed(push, "ACK said no.")


def test_a_request_is_told_to_administrators_and_not_to_whoever_made_it(
    operator: Actor, reachable: Actor, viewer: Actor, pool: NodePool
) -> None:
    asked(operator, pool)
    assert told(reachable) == ["waiting"]
    assert told(operator) == told(viewer) == []
    assert notices.send_due() == 1
    (sent,) = mail.outbox
    assert sent.to == ["ada@example.com"]
    assert sent.subject == "shared on lab: a change to cgpu waits for your decision"
    assert WHY in sent.body
    assert notices.send_due() == 0, "nobody is told twice"


def test_what_was_decided_meanwhile_is_not_mailed(operator: Actor, reachable: Actor, pool: NodePool) -> None:
    changes.withdraw(operator, asked(operator, pool))
    assert notices.send_due() == 0
    assert mail.outbox == []


def test_whoever_wants_no_mail_gets_none(operator: Actor, reachable: Actor, pool: NodePool) -> None:
    notices.wish(reachable, mail_waiting=False, mail_failed=True)
    asked(operator, pool)
    assert told(reachable) == ["waiting"]
    assert notices.send_due() == 0


def test_a_server_that_refuses_costs_only_time(
    operator: Actor, reachable: Actor, pool: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(operator, pool)

    def refuses(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as broken:
        broken.setattr("gpupools.services.notices.send_mail", refuses)
        assert notices.send_due() == 0
    assert notices.send_due() == 0, "it waits before it tries again"
    Notice.objects.update(mail_due="2026-01-01T00:00:00Z")
    assert notices.send_due() == 1


def test_a_failed_change_is_told_to_both_until_they_look(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = changes.approve(admin, asked(operator, pool), reason="agreed")
    ModeChange.objects.filter(pk=change.pk).update(state=State.APPLYING.value)
    fail(change)
    change.refresh_from_db()
    assert change.state == State.FAILED
    assert notices.unseen(operator) == notices.unseen(admin) == 1
    notices.see(operator, change)
    assert (notices.unseen(operator), notices.unseen(admin)) == (0, 1)


def test_one_person_may_ask_and_decide_only_where_the_setting_says_so(admin: Actor, pool: NodePool) -> None:
    change = asked(admin, pool)
    with pytest.raises(NotAllowed) as refused:
        changes.approve(admin, change, reason="I am alone here")
    assert refused.value.code == "self-approval"
    with override_settings(GPUPOOLS_ALLOW_SELF_APPROVAL=True):
        changes.approve(admin, change, reason="I am alone here")
    assert change.state == State.APPROVED
    entry = AuditEntry.objects.get(action="change.approve")
    assert entry.data["note"] == "Approved by whoever asked for it."


def test_an_operator_does_not_decide_even_where_the_setting_is_on(operator: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    with override_settings(GPUPOOLS_ALLOW_SELF_APPROVAL=True), pytest.raises(NotAllowed):
        changes.approve(operator, change, reason="I may not")


def test_administrators_of_other_clusters_are_not_told(operator: Actor, pool: NodePool) -> None:
    elsewhere = an_actor(Role.ADMIN, a_cluster("other"), name="otto")
    asked(operator, pool)
    assert told(elsewhere) == []


def test_a_change_in_any_state_keeps_its_pool_held_until_it_is_final(operator: Actor, pool: NodePool) -> None:
    change = in_state(operator, pool, State.PENDING)
    assert PoolHold.objects.get().change == change
    changes.withdraw(operator, change)
    assert not PoolHold.objects.exists()


def test_a_pause_is_told_to_whoever_did_not_pause(operator: Actor, reachable: Actor, pool: NodePool) -> None:
    change = changes.approve(reachable, asked(operator, pool), reason="agreed")
    Notice.objects.update(mail_due=None)
    ModeChange.objects.filter(pk=change.pk).update(state=State.APPLYING.value)
    change.refresh_from_db()
    changes.pause(operator, change, reason="a look")
    assert told(operator) == []
    assert told(reachable) == ["paused", "waiting"]
    assert notices.send_due() == 1
    assert mail.outbox[0].subject == "shared on lab: the change to cgpu is paused"


def test_a_step_for_a_person_is_told_and_mailed_while_it_is_due(
    operator: Actor, reachable: Actor, pool: NodePool
) -> None:
    change = changes.approve(reachable, asked(operator, pool), reason="agreed")
    Notice.objects.update(mail_due=None)
    ModeChange.objects.filter(pk=change.pk).update(state=State.APPLYING.value)
    change.steps.all().delete()
    change.steps.create(position=1, kind="restart", title="Restart 2 nodes", state="running")
    notices.needs_person(change)
    assert told(operator) == ["person"]
    assert notices.unseen(operator) == 1
    assert notices.send_due() == 1
    assert mail.outbox[0].subject == "shared on lab: the change to cgpu waits for a person"
    notices.needs_person(change)
    change.steps.update(state="done")
    assert notices.send_due() == 0, "nobody is called for what is done"
