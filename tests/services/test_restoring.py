"""Asking that nodes which drifted are brought back: what it is called, and what becomes of pods on them."""

from __future__ import annotations

import pytest

from gpupools.errors import Invalid
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import members
from gpupools.services.access import Actor
from tests.domain.builders import a_node, a_pod
from tests.services.asking import POOL, asked, two_nodes
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


def test_a_restore_names_what_was_found_and_any_other_change_does_not(
    operator: Actor, lab: Cluster, pool: NodePool
) -> None:
    show(lab, [two_nodes()[0], a_node("n2", "share", labels=POOL)])
    change = members.restore(operator, pool, reason="somebody relabelled it")
    assert isinstance(change, ModeChange)
    assert change.restored_from == ("share",)
    ModeChange.objects.all().delete()
    assert asked(operator, pool).restored_from == ()


def test_a_restore_waits_for_pods_unless_they_shall_be_evicted(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    show(lab, [two_nodes()[0], a_node("n2", "share", labels=POOL)], [a_pod("job", mem=2, at={0: 2}, on="n2")])
    with pytest.raises(Invalid):
        members.restore(operator, pool, reason="back", holders="shoot")
    change = members.restore(operator, pool, reason="back", holders="evict")
    assert isinstance(change, ModeChange)
    assert [each["fate"] for each in change.blast_radius] == ["lost"]
    ModeChange.objects.all().delete()
    change = members.restore(operator, pool, reason="back")
    assert isinstance(change, ModeChange)
    assert [each["fate"] for each in change.blast_radius] == ["waits"]
