"""Which nodes are not as their pool wants them, key by key."""

from __future__ import annotations

import pytest

from gpupools.domain.changes import State
from gpupools.domain.gpus import Taint
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import allocation, diagnosing, drift, pooladvice, poolfound
from gpupools.services.access import Actor
from gpupools.services.drift import Drift, drifted
from tests.domain.builders import a_node
from tests.services.asking import POOL, asked, in_state, two_nodes
from tests.services.builders import a_pool
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
MODE, POLICY = "ack.node.gpu.schedule", "ack.node.gpu.placement"


def test_a_node_that_carries_all_has_no_drift(lab: Cluster) -> None:
    pool = a_pool(lab, labels={"team": "vision"})
    assert drifted(pool, [a_node("n1", "cgpu", policy="binpack", labels={"team": "vision", "other": "x"})]) == []


def test_each_wrong_key_is_named_with_wanted_and_found(lab: Cluster) -> None:
    pool = a_pool(lab, policy="spread", labels={"team": "vision"})
    assert drifted(pool, [a_node("n1", "share", policy="binpack")]) == [
        Drift("n1", "team", "vision", ""),
        Drift("n1", MODE, "cgpu", "share"),
        Drift("n1", POLICY, "spread", "binpack"),
    ]


def test_without_the_label_a_node_with_whole_cards_is_exclusive_all_the_same(lab: Cluster) -> None:
    pool = a_pool(lab, mode="exclusive", policy="")
    whole = a_node("n1", None, resources={"nvidia.com/gpu": 4})
    without = a_node("n2", None)
    assert drifted(pool, [whole, without]) == [Drift("n2", MODE, "default", "")]


def test_without_the_placement_label_a_node_packs(lab: Cluster) -> None:
    assert drifted(a_pool(lab, "packs"), [a_node("n1", "cgpu")]) == []
    assert drifted(a_pool(lab, "spreads", policy="spread"), [a_node("n1", "cgpu")]) == [
        Drift("n1", POLICY, "spread", "")
    ]


def test_a_pool_without_a_mode_says_nothing_about_modes(lab: Cluster) -> None:
    assert drifted(a_pool(lab, mode="", policy=""), [a_node("n1", "mps"), a_node("n2", "topology")]) == []


def test_missing_and_different_taints_are_drift_and_foreign_ones_are_not(lab: Cluster) -> None:
    wanted = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    pool = a_pool(lab, taints=[wanted])
    foreign = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    found = drifted(
        pool,
        [
            a_node("right", taints=(Taint("nvidia.com/gpu", "present", "NoSchedule"), foreign)),
            a_node("none", taints=(foreign,)),
            a_node("other", taints=(Taint("nvidia.com/gpu", "maybe", "NoSchedule"),)),
        ],
    )
    assert found == [
        Drift("none", "taint nvidia.com/gpu", "nvidia.com/gpu=present:NoSchedule", ""),
        Drift("other", "taint nvidia.com/gpu", "nvidia.com/gpu=present:NoSchedule", "nvidia.com/gpu=maybe:NoSchedule"),
    ]


def test_what_a_change_under_way_writes_is_no_drift_and_anything_else_is(operator: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    halfway = [a_node("n1", "cgpu", policy="binpack", labels=POOL), a_node("n2", "share", labels=POOL)]
    assert drift.writings(pool.cluster) == {}, "a request writes nothing"
    for state in (State.APPLYING, State.PAUSED, State.FAILED, State.ROLLING_BACK):
        ModeChange.objects.filter(pk=change.pk).update(state=state.value)
        real, changing = drift.split(drifted(pool, halfway), drift.writings(pool.cluster))
        assert [(each.node, each.found) for each in real] == [("n2", "share")]
        assert [(each.node, each.key, each.change) for each in changing] == [("n1", MODE, change.pk)]
    ModeChange.objects.filter(pk=change.pk).update(state=State.APPLIED.value)
    assert len(drifted(pool, halfway)) == 2
    assert drift.writings(pool.cluster) == {}


def test_a_change_under_way_is_told_apart_from_drift_wherever_nodes_are_shown(operator: Actor, pool: NodePool) -> None:
    change = in_state(operator, pool, State.APPLYING)
    show(pool.cluster, [a_node("n1", "cgpu", policy="binpack", labels=POOL), two_nodes()[1]])
    found = poolfound.of(operator, pool)[1]
    assert found is not None
    assert (found.drifting, found.changing) == ((), ("n1",))
    assert [row["drift"] for row in allocation.view(pool.cluster)["nodes"]] == [[], []]
    report = diagnosing.report(operator, pool.cluster)
    assert {each.code for each in report.found} & {"pool-not-synced", "pool-mixed"} == set()
    assert "mixed-modes" not in {each.code for each in pooladvice.of(operator, pool)}
    ModeChange.objects.filter(pk=change.pk).update(state=State.ABANDONED.value)
    found = poolfound.of(operator, pool)[1]
    assert found is not None
    assert (found.drifting, found.changing) == (("n1",), ())
    assert [len(row["drift"]) for row in allocation.view(pool.cluster)["nodes"]] == [1, 0]
    report = diagnosing.report(operator, pool.cluster)
    advised = {each.code: each.fix for each in report.found}
    assert "Restore what the pool wants" in advised["pool-not-synced"]
    assert "Restore what the pool wants" in advised["pool-mixed"]
    assert "mixed-modes" in {each.code for each in pooladvice.of(operator, pool)}
