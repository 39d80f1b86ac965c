"""Requests for dangerous operations that cannot be approved as they are: what moved, who came, and time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from msgspec.structs import replace

from gpupools.errors import Conflict, Unreachable
from gpupools.models import AuditEntry, Cluster, ComponentState, NodePool, OperationRequest, Push
from gpupools.services import pictures, pools, requests
from gpupools.services.access import Actor
from tests.domain.builders import a_pod
from tests.services.builders import a_component
from tests.services.dangers import HELD, LONE, MPS, a_cloud, a_vision_pool, an_mps_node, asked, client, machines
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


@pytest.fixture
def cloud(db: None) -> Cluster:
    return a_cloud()


@pytest.fixture
def vision(cloud: Cluster) -> NodePool:
    a_component(cloud, "ack-ai-installer")
    a_component(cloud, MPS)
    return a_vision_pool(cloud)


# -- What moved


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        (lambda pool: show(pool.cluster, machines("m1"), [HELD]), "Node m2 left the pool."),
        (lambda pool: show(pool.cluster, machines("m1", "m2", "m3"), [HELD, LONE]), "Node m3 joined the pool."),
        (
            lambda pool: show(pool.cluster, [*machines("m1"), replace(*machines("m2"), uid="anew")], [HELD, LONE]),
            "Node m2 joined the pool. Node m2 left the pool.",
        ),
        (lambda pool: NodePool.objects.filter(pk=pool.pk).update(version=9), "The pool was edited."),
        (
            lambda pool: NodePool.objects.filter(pk=pool.pk).update(version=9, desired_size=4),
            "The pool's wanted size was 2 and is 4 now.",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["size-0", "forced-delete"])
def test_a_request_lapses_when_its_pool_moved_and_says_what(
    vision: NodePool, operator: Actor, admin: Actor, kind: str, moves: Callable[[NodePool], Any], said: str
) -> None:
    request = asked(operator, vision, kind)
    moves(vision)
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert refusal.value.code == "lapsed"
    request.refresh_from_db()
    assert (request.state, request.note) == ("lapsed", said)
    assert not Push.objects.exists()
    assert AuditEntry.objects.get(action="request.lapse").data["note"] == said


def test_an_edit_through_the_console_makes_it_lapse(vision: NodePool, operator: Actor, admin: Actor) -> None:
    request = asked(operator, vision, "size-0")
    pools.edit(operator, vision, labels={"team": "red"})
    Push.objects.update(state=Push.State.DONE)
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert refusal.value.code == "lapsed"


def test_of_two_requests_for_one_pool_the_second_lapses_when_the_first_is_approved(
    vision: NodePool, operator: Actor, admin: Actor
) -> None:
    emptying, deleting = asked(operator, vision, "size-0"), asked(operator, vision, "forced-delete")
    requests.approve(admin, emptying, reason="Agreed.")
    assert requests.expire_due() == 1
    deleting.refresh_from_db()
    assert deleting.state == "lapsed"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"version": "1.2"}, "Its version was 1.0 and is 1.2 now."),
        ({"state": "absent", "version": ""}, "The component is not installed any more."),
    ],
)
def test_a_request_lapses_when_its_component_moved(
    cloud: Cluster, vision: NodePool, operator: Actor, admin: Actor, columns: dict[str, str], said: str
) -> None:
    ComponentState.objects.filter(name=MPS).update(version="1.0")
    request = asked(operator, vision, "mps-upgrade")
    ComponentState.objects.filter(name=MPS).update(**columns)
    with pytest.raises(Conflict):
        requests.approve(admin, request, reason="Agreed.")
    request.refresh_from_db()
    assert (request.state, request.note) == ("lapsed", said)


def test_a_component_that_a_pool_needs_by_now_is_not_uninstalled(
    vision: NodePool, operator: Actor, admin: Actor
) -> None:
    request = asked(operator, vision, "component-uninstall")
    NodePool.objects.create(cluster=vision.cluster, name="night", mode="share", created_at=timezone.now())
    with pytest.raises(Conflict):
        requests.approve(admin, request, reason="Agreed.")
    request.refresh_from_db()
    assert (request.state, request.note) == ("lapsed", "night needs it now.")


def test_while_the_cluster_is_silent_nobody_approves_and_everybody_may_reject(
    vision: NodePool, operator: Actor, admin: Actor
) -> None:
    request = asked(operator, vision, "size-0")
    pictures.forget(vision.cluster.pk)
    Cluster.objects.update(state="unreachable")
    request = OperationRequest.objects.get(pk=request.pk)
    with pytest.raises(Unreachable):
        requests.approve(admin, request, reason="Agreed.")
    assert requests.expire_due() == 0, "what nobody knows did not move"
    assert requests.reject(admin, request, reason="Later.").state == "rejected"


# -- Pods come and go


def test_pods_that_came_since_are_named_and_approved_by_name(vision: NodePool, operator: Actor, admin: Actor) -> None:
    request = asked(operator, vision, "size-0")
    came = a_pod("late", whole=1, on="m2", namespace="research")
    show(vision.cluster, machines(), [HELD, LONE, came])
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert (refusal.value.code, refusal.value.data["pods"]) == ("kills-pods", ["research/late"])
    assert "research/late" in refusal.value.message
    request.refresh_from_db()
    assert request.state == "pending", "pods are no fact: the request stands"
    requests.approve(admin, request, reason="Agreed.", approved_pods=["research/late"])
    assert request.state == "approved"


def test_a_pod_of_the_same_name_is_another_pod(vision: NodePool, operator: Actor, admin: Actor) -> None:
    request = asked(operator, vision, "size-0")
    show(vision.cluster, machines(), [HELD, a_pod("notebook", on="m2", namespace="research", uid="another")])
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert refusal.value.data["pods"] == ["research/notebook"]


def test_a_pod_that_stands_in_for_one_that_ended_is_no_newcomer(
    vision: NodePool, operator: Actor, admin: Actor
) -> None:
    request = asked(operator, vision, "size-0")
    again = {"owner_kind": "Job", "owner_name": "train"}
    show(vision.cluster, machines(), [a_pod("train-2", on="m2", **again), a_pod("train-3", on="m2", **again), LONE])
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert refusal.value.data["pods"] == ["default/train-3"], "one stands in for the one that was shown, two do not"
    show(vision.cluster, machines(), [a_pod("train-2", on="m2", **again), LONE])
    assert requests.approve(admin, request, reason="Agreed.").state == "approved"


def test_pods_that_ended_meanwhile_stand_in_nobodys_way(vision: NodePool, operator: Actor, admin: Actor) -> None:
    request = asked(operator, vision, "size-0")
    show(vision.cluster, machines(), [])
    assert requests.approve(admin, request, reason="Agreed.").state == "approved"


def test_a_client_that_came_since_is_named_for_a_daemon_too(
    cloud: Cluster, vision: NodePool, operator: Actor, admin: Actor
) -> None:
    ComponentState.objects.filter(name=MPS).delete()
    an_mps_node(cloud)
    request = asked(operator, vision, "mps-upgrade")
    ComponentState.objects.filter(name=MPS).delete()
    an_mps_node(cloud, client("one"), client("two"))
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert refusal.value.data["pods"] == ["default/two"]
    requests.approve(admin, request, reason="Agreed.", approved_pods=["default/two"])
    assert Push.objects.get().payload["approved_pods"] == ["default/one", "default/two"]


# -- By the clock


def test_a_request_expires_when_nobody_decides(vision: NodePool, operator: Actor, settings: Any) -> None:
    settings.GPUPOOLS_CHANGE_EXPIRY_HOURS = 2
    request = asked(operator, vision, "size-0")
    assert request.expires_at - request.requested_at == timedelta(hours=2)
    assert requests.expire_due() == 0
    OperationRequest.objects.update(expires_at=timezone.now())
    assert requests.expire_due() == 1
    assert requests.expire_due() == 0
    request.refresh_from_db()
    assert (request.state, request.note) == ("expired", "Nobody decided on it in time.")
    assert AuditEntry.objects.get(action="request.expire").actor_name == "system"


def test_one_that_is_approved_after_its_time_expires_instead(vision: NodePool, operator: Actor, admin: Actor) -> None:
    request = asked(operator, vision, "size-0")
    OperationRequest.objects.update(expires_at=timezone.now())
    request.refresh_from_db()
    with pytest.raises(Conflict) as refusal:
        requests.approve(admin, request, reason="Agreed.")
    assert refusal.value.code == "expired"
    request.refresh_from_db()
    assert request.state == "expired"


def test_what_can_be_approved_no_more_leaves_the_list_by_itself(vision: NodePool, operator: Actor) -> None:
    request = asked(operator, vision, "size-0")
    show(vision.cluster, machines("m1"), [HELD])
    assert requests.expire_due() == 1
    request.refresh_from_db()
    assert (request.state, request.note) == ("lapsed", "Node m2 left the pool.")
