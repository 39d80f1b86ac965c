"""Deciding on dangerous operations: who, and that deed and approval are one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpupools.domain.changes import Move, State
from gpupools.domain.requests import STATES
from gpupools.errors import Conflict, Invalid, Missing, NotAllowed
from gpupools.models import AuditEntry, Cluster, ComponentState, NodePool, OperationRequest, Push, Role
from gpupools.services import changes, pushes, requestrules, requests
from gpupools.services.access import SYSTEM, Actor
from tests.services.builders import a_cluster, a_component, an_actor, with_token
from tests.services.dangers import MPS, WHY, a_cloud, a_vision_pool, an_mps_node, asked, client

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
KINDS = ("forced-delete", "size-0", "component-uninstall", "mps-upgrade")
PUSHED = {
    "forced-delete": "pool.delete",
    "size-0": "pool.modify",
    "component-uninstall": "component.uninstall",
    "mps-upgrade": "component.upgrade",
}
ACTION = {**PUSHED, "forced-delete": "pool.delete", "size-0": "pool.scale"}


@pytest.fixture
def cloud(db: None) -> Cluster:
    return a_cloud()


@pytest.fixture
def vision(cloud: Cluster) -> NodePool:
    a_component(cloud, "ack-ai-installer")
    a_component(cloud, MPS)
    return a_vision_pool(cloud)


def in_state(actor: Actor, pool: NodePool, state: State) -> OperationRequest:
    request = asked(actor, pool, "size-0")
    OperationRequest.objects.filter(pk=request.pk).update(state=state.value)
    request.refresh_from_db()
    return request


# -- Approving


@pytest.mark.parametrize("kind", KINDS)
def test_an_approval_does_the_deed_in_its_own_transaction_and_names_both_people(
    vision: NodePool, operator: Actor, admin: Actor, kind: str
) -> None:
    request = requests.approve(admin, asked(operator, vision, kind), reason="Agreed.")
    push = Push.objects.get()
    request.refresh_from_db()
    assert (request.state, request.push, request.decided_by) == ("approved", push, admin.user)
    assert (request.decision_reason, push.kind) == ("Agreed.", PUSHED[kind])
    approval = AuditEntry.objects.get(action="request.approve")
    assert (approval.actor_name, approval.data["requested_by"], approval.data["reason"]) == ("ada", "olga", "Agreed.")
    deed = AuditEntry.objects.get(action=ACTION[kind])
    assert (deed.actor_name, deed.data["requested_by"], deed.data["approved_by"], deed.data["request"]) == (
        "ada",
        "olga",
        "ada",
        request.pk,
    )
    assert deed.data["reason"] == WHY


def test_what_is_carried_out_is_what_was_asked_for(vision: NodePool, operator: Actor, admin: Actor) -> None:
    bounds = {"enable": True, "min_instances": 0, "max_instances": 4, "type": "gpu"}
    requests.approve(admin, asked(operator, vision, "size-0", auto_scaling=bounds), reason="Agreed.")
    vision.refresh_from_db()
    assert (vision.desired_size, vision.auto_scaling, vision.state) == (0, bounds, NodePool.State.UPDATING)
    spec = Push.objects.get().payload["spec"]
    assert (spec["desired_size"], spec["auto_scaling"]) == (0, bounds)


def test_a_delete_is_pushed_with_force(vision: NodePool, operator: Actor, admin: Actor) -> None:
    requests.approve(admin, asked(operator, vision, "forced-delete"), reason="Agreed.")
    payload = Push.objects.get().payload
    assert (payload["pool"], payload["force"]) == (vision.pk, True)
    assert payload["approved"]["nodes"] == ["uid-m1", "uid-m2"]
    assert [pod["pod"] for pod in payload["approved"]["pods"]] == ["train", "notebook"]


def test_an_upgrade_is_pushed_with_the_pods_that_were_approved_to_end(
    cloud: Cluster, vision: NodePool, operator: Actor, admin: Actor
) -> None:
    ComponentState.objects.filter(name=MPS).delete()
    an_mps_node(cloud, client("one"), client("two"))
    requests.approve(admin, asked(operator, vision, "mps-upgrade"), reason="Agreed.")
    payload = Push.objects.get().payload
    assert (payload["version"], payload["approved_pods"]) == ("1.1", ["default/one", "default/two"])


def test_when_the_deed_is_refused_nothing_is_decided(vision: NodePool, operator: Actor, admin: Actor) -> None:
    request = asked(operator, vision, "size-0")
    pushes.enqueue(SYSTEM, kind="pool.modify", cluster=vision.cluster, target=f"pool:{vision.pk}", payload={})
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert refusal.value.code == "busy"
    request.refresh_from_db()
    assert (request.state, request.decided_by) == ("pending", None)
    assert not AuditEntry.objects.filter(action="request.approve").exists()


def test_a_pool_that_a_mode_change_holds_meanwhile_is_not_emptied(
    vision: NodePool, operator: Actor, admin: Actor
) -> None:
    request = asked(operator, vision, "size-0")
    changes.request(operator, vision, target_mode="topology", reason="another plan")
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert refusal.value.code == "change-open"
    request.refresh_from_db()
    assert request.state == "pending"


# -- Who


@pytest.mark.parametrize("decide", [requests.approve, requests.reject])
@pytest.mark.parametrize("is_superuser", [False, True])
def test_nobody_decides_on_their_own_request(
    vision: NodePool, admin: Actor, decide: Callable[..., Any], is_superuser: bool
) -> None:
    assert admin.user is not None
    admin.user.is_superuser = is_superuser
    admin.user.save()
    request = asked(admin, vision, "size-0")
    for actor in (admin, with_token(admin, Role.ADMIN)):
        with pytest.raises(NotAllowed) as refusal:
            decide(actor, request, reason="I know what I do")
        assert refusal.value.code == "self-approval"
    assert not Push.objects.exists()


def test_one_person_may_ask_and_approve_only_where_the_setting_says_so(
    vision: NodePool, admin: Actor, settings: Any
) -> None:
    settings.GPUPOOLS_ALLOW_SELF_APPROVAL = True
    request = requests.approve(admin, asked(admin, vision, "size-0"), reason="I am alone here")
    assert (request.state, request.note) == ("approved", "Approved by whoever asked for it.")
    assert AuditEntry.objects.get(action="request.approve").data["note"] == "Approved by whoever asked for it."


@pytest.mark.parametrize("decide", [requests.approve, requests.reject])
def test_only_an_administrator_of_the_cluster_decides_with_a_reason(
    vision: NodePool, operator: Actor, admin: Actor, viewer: Actor, decide: Callable[..., Any]
) -> None:
    request = asked(operator, vision, "size-0")
    for actor in (viewer, an_actor(Role.OPERATOR, name="otto"), with_token(admin, Role.OPERATOR)):
        with pytest.raises(NotAllowed):
            decide(actor, request, reason="Agreed.")
    with pytest.raises(Missing):
        decide(an_actor(Role.ADMIN, a_cluster("elsewhere"), name="eve"), request, reason="Agreed.")
    with pytest.raises(NotAllowed):
        decide(SYSTEM, request, reason="Agreed.")
    with pytest.raises(Invalid) as refusal:
        decide(admin, request, reason="  ")
    assert refusal.value.errors[0].field == "reason"
    request.refresh_from_db()
    assert request.state == "pending"


def test_only_whoever_asked_withdraws(vision: NodePool, operator: Actor, admin: Actor) -> None:
    request = asked(operator, vision, "size-0")
    with pytest.raises(NotAllowed) as refusal:
        requests.withdraw(admin, request)
    assert refusal.value.code == "not-the-requester"
    assert requests.withdraw(operator, request).state == "withdrawn"


# -- Every move in every state, and two at once


@pytest.mark.parametrize("state", [state for state in STATES if state is not State.PENDING])
@pytest.mark.parametrize("move", sorted(requestrules.ACTIONS, key=str))
def test_a_request_that_has_ended_moves_no_more_and_says_who_ended_it(
    vision: NodePool, operator: Actor, admin: Actor, state: State, move: Move
) -> None:
    request = in_state(operator, vision, state)
    with pytest.raises(Conflict) as refusal:
        requestrules.move(request, move, admin)
    assert (refusal.value.code, refusal.value.data["state"]) == ("illegal-move", state.value)
    request.refresh_from_db()
    assert request.state == state.value


def test_a_refusal_says_who_moved_it_there(vision: NodePool, operator: Actor, admin: Actor) -> None:
    request = requests.reject(admin, asked(operator, vision, "size-0"), reason="Not today.")
    with pytest.raises(Conflict) as refusal:
        requests.approve(an_actor(Role.ADMIN, name="amir"), request, reason="Agreed.")
    assert refusal.value.message == "Cannot approve: the request is rejected. ada moved it there."


@pytest.mark.parametrize("first", [requests.approve, requests.reject])
@pytest.mark.parametrize("second", [requests.approve, requests.reject])
def test_of_two_administrators_at_once_one_wins_and_the_other_is_told(
    vision: NodePool, operator: Actor, admin: Actor, first: Callable[..., Any], second: Callable[..., Any]
) -> None:
    mine = asked(operator, vision, "component-uninstall")
    theirs = OperationRequest.objects.get(pk=mine.pk)
    first(admin, mine, reason="Mine.")
    with pytest.raises(Conflict) as refusal:
        second(an_actor(Role.ADMIN, name="amir"), theirs, reason="Theirs.")
    assert refusal.value.code in {"stale", "lapsed"}
    mine.refresh_from_db()
    assert mine.state == ("approved" if first is requests.approve else "rejected")
    assert mine.decision_reason == "Mine."
    assert Push.objects.count() == (first is requests.approve)
