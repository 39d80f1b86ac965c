"""Asking for mode changes and deciding on them: two people, the exact facts, one open change per pool."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gpupools.domain.changes import MOVES, OPEN, Move, State
from gpupools.errors import Conflict, ConsoleError, Invalid, Missing, NotAllowed, Unreachable
from gpupools.models import AuditEntry, ChangeStep, Cluster, ModeChange, NodePool, Push, Role
from gpupools.services import changequeue, changes, flights
from gpupools.services.access import SYSTEM, Actor
from gpupools.services.rows import ANOTHER_NAMESPACE
from tests.domain.builders import a_node, a_pod
from tests.services.asking import MODE, POOL, WHY, asked, in_state, two_nodes
from tests.services.builders import a_cluster, a_pool, an_actor
from tests.services.showing import a_daemonset, show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


# -- Asking


def test_a_request_keeps_diff_blast_radius_and_facts(operator: Actor, pool: NodePool) -> None:
    change = asked(operator, pool, target_policy="spread")
    assert (change.from_mode, change.target_mode, change.target_policy) == ("exclusive", "cgpu", "spread")
    assert change.state == State.PENDING
    assert change.diff["pool"] == [
        {"key": "ack.node.gpu.placement", "old": "", "new": "spread"},
        {"key": MODE, "old": "default", "new": "cgpu"},
    ]
    assert [each["node"] for each in change.diff["nodes"]] == ["n1", "n2"]
    [hit] = change.blast_radius
    assert (hit["pod"], hit["node"], hit["owner"], hit["fate"]) == ("busy", "n1", "Job/train", "waits")
    assert hit["holds"] == {"nvidia.com/gpu": 2}
    assert change.expires_at - change.requested_at == timedelta(hours=24)
    assert not change.steps.exists()
    assert not Push.objects.exists(), "nothing happens before somebody approves"
    entry = AuditEntry.objects.get(action="change.request")
    assert (entry.actor_name, entry.data["reason"]) == ("olga", WHY)


def test_eviction_is_told_in_the_blast_radius(operator: Actor, pool: NodePool) -> None:
    [hit] = asked(operator, pool, holders="evict").blast_radius
    assert hit["fate"] == "evicted"


def test_a_change_of_policy_alone_hits_nobody(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    NodePool.objects.filter(pk=pool.pk).update(mode="cgpu", policy="binpack")
    pool.refresh_from_db()
    nodes = [a_node("n1", "cgpu", policy="binpack", labels=POOL)]
    show(lab, nodes, [a_pod("busy", mem=4, at={0: 4}, on="n1")])
    change = asked(operator, pool, target_policy="spread")
    assert change.blast_radius == []
    assert change.diff["pool"] == [{"key": "ack.node.gpu.placement", "old": "binpack", "new": "spread"}]


@pytest.mark.parametrize(
    ("wishes", "field", "code"),
    [
        ({"target_mode": "turbo"}, "target_mode", "unknown"),
        ({"target_mode": "mig"}, "target_mode", "read-only"),
        ({"target_mode": "disabled"}, "target_mode", "read-only"),
        ({"target_policy": "random"}, "target_policy", "unknown"),
        ({"target_mode": "topology", "target_policy": "spread"}, "target_policy", "no-effect"),
        ({"holders": "kill"}, "holders", "unknown"),
        ({"reason": "  "}, "reason", "required"),
        ({"target_mode": "mps"}, "target_mode", "needs-component"),
        ({"target_mode": "exclusive"}, "target_mode", "same"),
    ],
)
def test_what_cannot_be_asked_for_is_named_by_field(
    operator: Actor, pool: NodePool, wishes: dict[str, str], field: str, code: str
) -> None:
    with pytest.raises(Invalid) as caught:
        asked(operator, pool, **wishes)
    assert (caught.value.errors[0].field, caught.value.errors[0].code) == (field, code)
    assert not ModeChange.objects.exists()


def test_all_wrong_fields_are_named_at_once(operator: Actor, pool: NodePool) -> None:
    with pytest.raises(Invalid) as caught:
        asked(operator, pool, target_mode="turbo", holders="kill", reason="")
    assert [each.field for each in caught.value.errors] == ["target_mode", "holders", "reason"]


def test_mps_may_be_asked_for_once_its_daemon_is_there(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    show(lab, two_nodes(), workloads=[a_daemonset("ack-mps-control", wanted=0, ready=0)])
    assert asked(operator, pool, target_mode="mps").target_mode == "mps"


def test_a_missing_component_is_a_warning(operator: Actor, lab: Cluster) -> None:
    pool = a_pool(lab, "shared", mode="exclusive", policy="")
    show(lab, two_nodes())
    assert "component-missing" in {each["code"] for each in asked(operator, pool).warnings}


def test_shared_modes_need_a_pro_cluster_on_ack(operator: Actor) -> None:
    basic = a_cluster("basic", provider="ack", spec="ack.standard")
    pool = a_pool(basic, mode="exclusive", policy="")
    show(basic, [])
    with pytest.raises(Invalid) as caught:
        asked(operator, pool)
    assert caught.value.errors[0].code == "needs-pro"


def test_nodes_of_an_ack_pool_are_not_relabelled_without_its_api(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    show(lab, [a_node("n1", "exclusive", labels={**POOL, "alibabacloud.com/nodepool-id": "np1"})])
    with pytest.raises(Conflict) as caught:
        asked(operator, pool)
    assert caught.value.code == "ack-node"


def test_a_drifted_pool_may_be_asked_back_into_its_own_mode(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    show(lab, [a_node("n1", "cgpu", labels=POOL), a_node("n2", "exclusive", labels=POOL)])
    change = asked(operator, pool, target_mode="exclusive")
    assert [each["node"] for each in change.diff["nodes"]] == ["n1"]


def test_a_viewer_may_not_ask_and_to_a_stranger_there_is_no_cluster(
    viewer: Actor, stranger: Actor, pool: NodePool
) -> None:
    with pytest.raises(NotAllowed):
        asked(viewer, pool)
    with pytest.raises(Missing):
        asked(stranger, pool)
    with pytest.raises(NotAllowed):
        asked(SYSTEM, pool)


def test_one_open_change_holds_a_pool(operator: Actor, admin: Actor, pool: NodePool) -> None:
    first = asked(operator, pool)
    with pytest.raises(Conflict) as caught:
        asked(admin, pool, target_mode="topology")
    assert caught.value.code == "change-open"
    changes.reject(admin, first, reason="not now")
    assert asked(operator, pool).state == State.PENDING


def test_the_database_lets_only_one_of_two_racing_requests_in(
    operator: Actor, pool: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(operator, pool)
    monkeypatch.setattr(changequeue, "check_not_held", lambda pools: None)  # both have looked before either wrote
    with pytest.raises(Conflict) as caught:
        asked(operator, pool)
    assert caught.value.code == "change-open"
    assert ModeChange.objects.count() == 1


def test_without_picture_and_cluster_nothing_is_asked_for(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    show(lab, two_nodes(), taken_at=time.time() - 3600, epoch=2)
    with pytest.raises(Unreachable):
        asked(operator, pool)


# -- Every move from every state

ACTS: dict[Move, Callable[[Actor, Actor, ModeChange], Any]] = {
    Move.APPROVE: lambda operator, admin, change: changes.approve(admin, change, reason="yes"),
    Move.REJECT: lambda operator, admin, change: changes.reject(admin, change, reason="no"),
    Move.WITHDRAW: lambda operator, admin, change: changes.withdraw(operator, change),
    Move.PAUSE: lambda operator, admin, change: changes.pause(operator, change, reason="wait"),
    Move.RETRY: lambda operator, admin, change: changes.retry(operator, change),
    Move.ABANDON: lambda operator, admin, change: changes.abandon(operator, change, reason="enough"),
}


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("act", list(ACTS))
def test_every_move_from_every_state_is_made_or_refused_by_the_table(
    operator: Actor, admin: Actor, pool: NodePool, state: State, act: Move
) -> None:
    change = in_state(operator, pool, state)
    made = Move.RESUME if act is Move.RETRY and state is State.PAUSED else act
    expected = MOVES.get((state, made))
    if expected is None:
        with pytest.raises(Conflict) as caught:
            ACTS[act](operator, admin, change)
        assert caught.value.code == "illegal-move"
        change.refresh_from_db()
        assert change.state == state.value
    else:
        ACTS[act](operator, admin, change)
        change.refresh_from_db()
        assert change.state == expected.value
        assert (change.finished_at is not None) == (expected not in OPEN)
        assert AuditEntry.objects.filter(object_type="modechange", data__new=expected.value).exists()


@pytest.mark.parametrize("act", list(ACTS))
def test_a_stale_instance_makes_no_second_move(operator: Actor, admin: Actor, pool: NodePool, act: Move) -> None:
    state = next(before for before, move in MOVES if move is act)
    stale = in_state(operator, pool, state)
    ModeChange.objects.filter(pk=stale.pk).update(state=State.REJECTED.value)  # somebody else was quicker
    entries = AuditEntry.objects.count()
    with pytest.raises(Conflict) as caught:
        ACTS[act](operator, admin, stale)
    assert caught.value.code == "stale"
    assert ModeChange.objects.get(pk=stale.pk).state == State.REJECTED
    assert AuditEntry.objects.count() == entries
    assert not Push.objects.exists()
    assert not ChangeStep.objects.exists()


# -- By the clock


def test_changes_expire_once_and_only_when_due(operator: Actor, admin: Actor, lab: Cluster, pool: NodePool) -> None:
    due, later = asked(operator, pool), asked(operator, a_pool(lab, "later", mode="exclusive", policy="", pool_id="x"),
                                              target_mode="topology")  # fmt: skip
    ModeChange.objects.filter(pk=due.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert changes.expire_due() == 1
    assert changes.expire_due() == 0
    due.refresh_from_db()
    later.refresh_from_db()
    assert (due.state, later.state) == (State.EXPIRED, State.PENDING)


def test_a_change_whose_push_got_lost_gets_a_new_one(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = changes.approve(admin, asked(operator, pool), reason="agreed")
    assert changes.expire_due() == 0
    Push.objects.update(state=Push.State.DONE)
    assert changes.expire_due() == 1
    assert Push.objects.get(state=Push.State.QUEUED).payload == {"change": change.pk}


# -- Looking


def test_pods_of_other_namespaces_have_no_name_in_the_blast_radius(operator: Actor, pool: NodePool) -> None:
    change = asked(operator, pool)
    assert changes.visible_radius(operator, change) == change.blast_radius
    [hit] = changes.visible_radius(an_actor(Role.VIEWER, pool.cluster, "vision"), change)
    assert (hit["pod"], hit["namespace"], hit["owner"], hit["uid"]) == (ANOTHER_NAMESPACE, "", "", "")
    assert hit["holds"] == {"nvidia.com/gpu": 2}


def test_reasons_for_pausing_and_giving_up_are_needed(operator: Actor, pool: NodePool) -> None:
    change = in_state(operator, pool, State.APPLYING)
    for act in (changes.pause, changes.abandon):
        with pytest.raises(ConsoleError) as caught:
            act(operator, change, reason="")
        assert isinstance(caught.value, Invalid)


def test_a_wish_for_a_policy_alone_keeps_the_mode_of_the_pool(operator: Actor, lab: Cluster, pool: NodePool) -> None:
    NodePool.objects.filter(pk=pool.pk).update(mode="cgpu", policy="binpack")
    pool.refresh_from_db()
    show(lab, [a_node("n1", "cgpu", policy="binpack", labels=POOL)])
    change = asked(operator, pool, target_mode="", target_policy="spread")
    assert (change.target_mode, change.target_policy) == ("cgpu", "spread")


def test_beside_a_node_that_drifted_all_nodes_that_are_written_are_counted(
    operator: Actor, lab: Cluster, pool: NodePool
) -> None:
    NodePool.objects.filter(pk=pool.pk).update(mode="cgpu", policy="binpack")
    pool.refresh_from_db()
    kept = [a_node(f"n{number}", "cgpu", policy="binpack", labels=POOL) for number in (1, 2, 3)]
    show(
        lab, [*kept, a_node("n4", "share", policy="binpack", labels=POOL)], [a_pod("stays", mem=2, at={0: 2}, on="n1")]
    )
    change = asked(operator, pool, target_mode="cgpu", target_policy="spread")
    assert sum(each["nodes"] for each in change.outlook["before"]) == 4
    assert change.outlook["after"]["nodes"] == 4
    titles = [step.title for step in flights.plan(operator, pool, target_mode="cgpu", target_policy="spread").steps]
    assert "Cordon n4" in titles
    assert "Write the labels to 4 nodes, one after the other" in titles
    assert change.blast_radius == [], "who only gets another choice of cards keeps its pods"
