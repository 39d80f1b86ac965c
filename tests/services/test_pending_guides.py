"""What is said of a change that waits for a decision: what moved since the request, and which pods came."""

from __future__ import annotations

import pytest

from gpupools.domain.changes import State
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import changes, pendingguides
from gpupools.services.access import Actor
from gpupools.services.guidance import Guidance
from tests.domain.builders import a_node, a_pod
from tests.services.asking import POOL, asked, two_nodes
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


def test_nothing_is_said_while_all_is_as_at_the_request(operator: Actor, pool: NodePool) -> None:
    assert pendingguides.guide(asked(operator, pool)) == Guidance()


def test_what_moved_is_said_in_the_words_in_which_it_would_lapse(operator: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    show(pool.cluster, [two_nodes()[0], a_node("n2", "share", labels=POOL)])
    found = pendingguides.guide(change)
    assert found.blocks
    assert found.moved == ("Node n2 changed its mode: 'default' is now 'share'.",)
    assert found.why in found.moved


def test_pods_that_came_are_named_and_do_not_stand_in_the_way_of_an_approval(
    operator: Actor, admin: Actor, pool: NodePool
) -> None:
    seen = a_pod("seen", whole=1, on="n1")
    show(pool.cluster, two_nodes(), [seen])
    change = asked(operator, pool)
    going = a_pod("going", whole=1, on="n2", terminating=True)
    show(pool.cluster, two_nodes(), [seen, going, a_pod("came", whole=1, on="n2"), a_pod("idle", on="n1")])
    found = pendingguides.guide(change)
    assert (found.blocks, found.newcomers) == (False, ("default/came",))
    assert "1 pod holds cards that nobody had seen at the request: default/came" in found.headline
    assert [each.code for each in found.advice] == ["decide-newcomers", "ask-again"]
    assert changes.approve(admin, change, reason="agreed").state == State.APPROVED


def test_a_cluster_that_is_silent_blocks_and_is_said(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    change = asked(operator, pool)
    Cluster.objects.filter(pk=lab.pk).update(state=Cluster.State.UNREACHABLE)
    show(lab, two_nodes(), taken_at=1.0)
    found = pendingguides.guide(ModeChange.objects.get(pk=change.pk))
    assert found.blocks
    assert found.headline == "The cluster does not say how it is now"


def test_a_change_that_was_decided_on_is_not_looked_into(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = changes.approve(admin, asked(operator, pool), reason="agreed")
    show(pool.cluster, two_nodes()[:1])
    assert pendingguides.guide(change) == Guidance()
