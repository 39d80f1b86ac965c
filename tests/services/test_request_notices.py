"""What people are told of requests for dangerous operations, on the pages and by e-mail."""

from __future__ import annotations

import pytest
from django.core import mail

from gpupools.models import NodePool, Notice, Push
from gpupools.services import notices, poolcuts, pushes, pushing, requests
from gpupools.services.access import Actor
from tests.services.dangers import WHY, a_cloud, a_vision_pool, asked

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


@pytest.fixture
def vision(db: None) -> NodePool:
    return a_vision_pool(a_cloud())


@pytest.fixture
def reachable(admin: Actor) -> Actor:
    assert admin.user is not None
    admin.user.email = "ada@example.com"
    admin.user.save()
    return admin


def test_administrators_are_told_and_mailed_that_a_request_waits(
    vision: NodePool, operator: Actor, reachable: Actor
) -> None:
    request = asked(operator, vision, "size-0")
    assert list(Notice.objects.values_list("user__username", "kind")) == [("ada", "waiting")]
    assert notices.send_due() == 1
    (sent,) = mail.outbox
    assert sent.subject == "Scale vision to 0 on cloud: it waits for your decision"
    assert f"/requests/{request.pk}/" in sent.body
    assert WHY in sent.body
    assert "notebook" not in sent.body, "no pod is named in a mail"


def test_what_was_decided_or_is_not_wanted_is_not_mailed(vision: NodePool, operator: Actor, reachable: Actor) -> None:
    requests.withdraw(operator, asked(operator, vision, "size-0"))
    assert notices.send_due() == 0
    notices.wish(reachable, mail_waiting=False, mail_failed=True)
    asked(operator, vision, "forced-delete")
    assert notices.send_due() == 0
    assert mail.outbox == []


def test_when_it_fails_both_are_told_until_they_look(vision: NodePool, operator: Actor, reachable: Actor) -> None:
    request = requests.approve(reachable, asked(operator, vision, "forced-delete"), reason="Agreed.")
    push = pushes.claim()
    assert push is not None
    failed = pushing.HANDLERS["pool.delete"].failed
    assert failed is not None
    Push.objects.filter(pk=push.pk).update(state=Push.State.FAILED, error="ACK says no.")
    failed(push, "ACK says no.")
    assert notices.unseen(operator) == notices.unseen(reachable) == 1
    assert notices.send_due() == 1
    assert (mail.outbox[0].subject, "ACK says no." in mail.outbox[0].body) == (
        "Delete vision with its machines on cloud: it failed",
        True,
    )
    notices.see(operator, request)
    assert (notices.unseen(operator), notices.unseen(reachable)) == (0, 1)


def test_a_push_that_nobody_asked_for_tells_nobody(vision: NodePool, operator: Actor) -> None:
    poolcuts.scale(operator, vision, desired_size=3)
    push = pushes.claim()
    assert push is not None
    failed = pushing.HANDLERS["pool.modify"].failed
    assert failed is not None
    failed(push, "ACK says no.")
    assert not Notice.objects.exists()
