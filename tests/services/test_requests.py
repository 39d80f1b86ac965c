"""Asking for dangerous operations: which need a second person by policy, and what a request says of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from gpupools.errors import Conflict, Invalid, NotAllowed, Unreachable
from gpupools.models import AuditEntry, Cluster, NodePool, OperationRequest, Push, Role
from gpupools.services import componentcare, components, pictures, poolcuts, requestrules
from gpupools.services.access import SYSTEM, Actor
from tests.domain.builders import a_pod
from tests.services.builders import a_component, an_actor
from tests.services.dangers import HELD, LONE, MPS, WHY, a_cloud, a_vision_pool, an_mps_node, asked, machines
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
KINDS = ("forced-delete", "size-0", "component-uninstall", "mps-upgrade")


@pytest.fixture
def cloud(db: None) -> Cluster:
    return a_cloud()


@pytest.fixture
def vision(cloud: Cluster) -> NodePool:
    a_component(cloud, "ack-ai-installer")
    a_component(cloud, MPS)
    return a_vision_pool(cloud)


def untouched(pool: NodePool) -> bool:
    """Tell whether nothing was done to a pool: neither its row nor the queue."""
    before = (pool.state, pool.desired_size, pool.version)
    pool.refresh_from_db()
    return (pool.state, pool.desired_size, pool.version) == before and not Push.objects.exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("who", [Role.OPERATOR, Role.ADMIN])
def test_whoever_asks_gets_a_request_and_nothing_is_done(vision: NodePool, kind: str, who: Role) -> None:
    actor = an_actor(who, name="someone")
    request = asked(actor, vision, kind)
    assert (request.kind, request.state, request.reason) == (kind, "pending", WHY)
    assert (request.requested_by, request.push) == (actor.user, None)
    assert untouched(vision)
    entry = AuditEntry.objects.get(action="request.make")
    assert (entry.actor_name, entry.cluster, entry.data["kind"], entry.data["reason"]) == (
        "someone",
        vision.cluster,
        kind,
        WHY,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_viewer_asks_for_nothing_and_the_system_has_nobody_to_ask(vision: NodePool, viewer: Actor, kind: str) -> None:
    with pytest.raises(NotAllowed):
        asked(viewer, vision, kind)
    with pytest.raises(NotAllowed) as refusal:
        asked(SYSTEM, vision, kind)
    assert refusal.value.code == "needs-user"
    assert not OperationRequest.objects.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_asking_needs_a_reason(vision: NodePool, operator: Actor, kind: str) -> None:
    deeds: dict[str, Any] = {
        "size-0": lambda: poolcuts.scale(operator, vision, desired_size=0, reason=" "),
        "forced-delete": lambda: poolcuts.delete(operator, vision, force=True, reason=" "),
        "component-uninstall": lambda: components.uninstall(operator, vision.cluster, MPS, reason=" "),
        "mps-upgrade": lambda: componentcare.upgrade(operator, vision.cluster, MPS, reason=" "),
    }
    with pytest.raises(Invalid) as refusal:
        deeds[kind]()
    assert refusal.value.errors[0].field == "reason"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_is_asked_for_once_at_a_time(vision: NodePool, operator: Actor, admin: Actor, kind: str) -> None:
    first = asked(operator, vision, kind)
    with pytest.raises(Conflict) as refusal:
        asked(admin, vision, kind)
    assert (refusal.value.code, refusal.value.data["request"]) == ("request-open", first.pk)
    assert "olga" in refusal.value.message
    OperationRequest.objects.filter(pk=first.pk).update(state="withdrawn")
    assert asked(admin, vision, kind).pk != first.pk


def test_the_database_itself_keeps_a_second_pending_request_out(vision: NodePool, operator: Actor) -> None:
    first = asked(operator, vision, "size-0")
    first.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        first.save(force_insert=True)


def test_two_kinds_may_wait_for_one_pool(vision: NodePool, operator: Actor) -> None:
    asked(operator, vision, "size-0")
    asked(operator, vision, "forced-delete")
    assert OperationRequest.objects.filter(state="pending").count() == 2


def test_a_request_to_empty_a_pool_says_what_is_done_and_who_is_hit(vision: NodePool, operator: Actor) -> None:
    request = asked(operator, vision, "size-0", auto_scaling={"enable": False})
    assert (request.title, request.target, request.pool, request.component) == (
        "Scale vision to 0",
        "vision",
        vision,
        "",
    )
    assert request.diff == [{"what": "Wanted nodes", "old": "2", "new": "0"}]
    radius = request.blast_radius
    assert [node["name"] for node in radius["nodes"]] == ["m1", "m2"]
    assert [(pod["namespace"], pod["pod"], pod["owner"], pod["created_at"]) for pod in radius["pods"]] == [
        ("default", "train", "Job/train", "2026-11-30T08:00:00Z"),
        ("research", "notebook", "", ""),
    ]
    assert request.facts == {
        "version": vision.version,
        "desired_size": 2,
        "auto_scaling": {},
        "nodes": {"uid-m1": "m1", "uid-m2": "m2"},
    }
    assert [each["code"] for each in request.warnings] == ["lost-pods"]


def test_bounds_of_auto_scaling_that_go_with_it_are_part_of_the_request(vision: NodePool, operator: Actor) -> None:
    request = asked(
        operator, vision, "size-0", auto_scaling={"enable": True, "min_instances": 0, "max_instances": 4, "type": "gpu"}
    )
    assert request.diff[1] == {"what": "Auto scaling", "old": "off", "new": "0 to 4 nodes"}
    assert request.params["auto_scaling"]["max_instances"] == 4


def test_a_request_to_delete_says_how_many_machines_go(vision: NodePool, operator: Actor) -> None:
    request = asked(operator, vision, "forced-delete")
    assert request.title == "Delete vision with its machines"
    assert {"what": "Machines", "old": "2", "new": "released"} in request.diff
    assert len(request.blast_radius["pods"]) == 2


def test_a_request_on_a_component_says_which_pods_and_pools_it_hits(cloud: Cluster, operator: Actor) -> None:
    an_mps_node(cloud)
    NodePool.objects.create(cluster=cloud, name="night", mode="mps", created_at="2026-11-30T00:00:00Z")
    request = componentcare.upgrade(operator, cloud, MPS, version="1.1", config='{"threads": 50}', reason=WHY)
    assert isinstance(request, OperationRequest)
    assert (request.title, request.component, request.pool) == (f"Upgrade {MPS}", MPS, None)
    assert request.diff == [
        {"what": "Version", "old": "1.0", "new": "1.1"},
        {"what": "Configuration", "old": "", "new": '{"threads": 50}'},
    ]
    assert request.blast_radius["pools"] == ["night"]
    assert [pod["pod"] for pod in request.blast_radius["pods"]] == ["one"]
    assert request.facts == {"present": True, "version": "1.0", "pools": ["night"]}


def test_a_component_that_pools_need_is_not_even_asked_about(vision: NodePool, operator: Actor) -> None:
    NodePool.objects.filter(pk=vision.pk).update(mode="cgpu")
    with pytest.raises(Conflict) as refusal:
        components.uninstall(operator, vision.cluster, "ack-ai-installer", reason=WHY)
    assert refusal.value.code == "in-use"


def test_what_restarts_nobody_is_upgraded_at_once(vision: NodePool, operator: Actor) -> None:
    made = componentcare.upgrade(operator, vision.cluster, "ack-ai-installer", version="2", reason=WHY)
    assert isinstance(made, Push)


# -- What is not dangerous


@pytest.mark.parametrize("size", [2, 3])
def test_a_size_that_releases_no_machine_needs_nobody(vision: NodePool, operator: Actor, size: int) -> None:
    poolcuts.scale(operator, vision, desired_size=size)
    assert Push.objects.get().payload["spec"]["desired_size"] == size


def test_a_pool_without_a_machine_is_emptied_and_deleted_by_one_person(vision: NodePool, operator: Actor) -> None:
    NodePool.objects.filter(pk=vision.pk).update(seen={"total_nodes": 0})
    show(vision.cluster, [])
    vision.refresh_from_db()
    poolcuts.scale(operator, vision, desired_size=0)
    assert Push.objects.get().kind == "pool.modify"
    Push.objects.update(state="done")
    vision.refresh_from_db()
    poolcuts.delete(operator, vision, force=True)
    push = Push.objects.get(state="queued")
    assert (push.kind, push.payload["force"]) == ("pool.delete", False), "nothing is known that could be forced"


def test_a_machine_that_only_the_watch_has_seen_counts(vision: NodePool, operator: Actor) -> None:
    NodePool.objects.filter(pk=vision.pk).update(seen={"total_nodes": 0})
    vision.refresh_from_db()
    show(vision.cluster, machines("m1"))
    assert [node["name"] for node in asked(operator, vision, "size-0").blast_radius["nodes"]] == ["m1"]
    with pytest.raises(Conflict) as refusal:
        poolcuts.delete(operator, vision)
    assert (refusal.value.code, refusal.value.data["nodes"]) == ("has-nodes", 1)


def test_a_pool_whose_machines_nobody_has_counted_is_not_taken_for_empty(vision: NodePool, operator: Actor) -> None:
    NodePool.objects.filter(pk=vision.pk).update(seen={})
    vision.refresh_from_db()
    show(vision.cluster, [])
    assert asked(operator, vision, "size-0").state == "pending"


def test_while_nobody_knows_who_is_hit_nobody_is_asked(vision: NodePool, operator: Actor) -> None:
    pictures.forget(vision.cluster.pk)
    Cluster.objects.filter(pk=vision.cluster.pk).update(state="unreachable")
    vision = NodePool.objects.select_related("cluster").get(pk=vision.pk)
    for kind in ("size-0", "forced-delete", "mps-upgrade"):
        with pytest.raises(Unreachable):
            asked(operator, vision, kind)


# -- The policy


def test_the_policy_names_the_kinds_that_are_asked_for(settings: Any) -> None:
    settings.GPUPOOLS_APPROVAL_REQUIRED = ("size-0",)
    assert {kind: requestrules.needed_for(kind) for kind in requestrules.Kind} == {
        "forced-delete": False,
        "size-0": True,
        "scale-down": False,
        "evicting-taint": False,
        "component-uninstall": False,
        "mps-upgrade": False,
    }


def test_without_the_policy_emptying_still_needs_a_reason_and_every_pod_named(
    vision: NodePool, operator: Actor, at_once: None
) -> None:
    with pytest.raises(Invalid) as needed:
        poolcuts.scale(operator, vision, desired_size=0)
    assert needed.value.errors[0].field == "reason"
    with pytest.raises(Conflict) as refusal:
        poolcuts.scale(operator, vision, desired_size=0, reason=WHY, approved_pods=["default/train"])
    assert (refusal.value.code, refusal.value.data["pods"]) == (
        "kills-pods",
        ["default/train", "research/notebook"],
    )
    assert "1 pod: research/notebook" in refusal.value.message
    assert untouched(vision)
    both = ["default/train", "research/notebook"]
    made = poolcuts.scale(operator, vision, desired_size=0, reason=WHY, approved_pods=both)
    assert isinstance(made, NodePool)
    assert Push.objects.get().payload["spec"]["desired_size"] == 0
    assert AuditEntry.objects.get(action="pool.scale").data["reason"] == WHY


def test_without_the_policy_each_kind_is_done_at_once(vision: NodePool, operator: Actor, at_once: None) -> None:
    show(vision.cluster, machines(), [])
    poolcuts.delete(operator, vision, force=True, reason=WHY)
    components.uninstall(operator, vision.cluster, "ack-ai-installer", reason=WHY)
    componentcare.upgrade(operator, vision.cluster, MPS, version="1.1", reason=WHY)
    assert not OperationRequest.objects.exists()
    assert sorted(Push.objects.values_list("kind", flat=True)) == [
        "component.uninstall",
        "component.upgrade",
        "pool.delete",
    ]


def test_finished_pods_and_those_of_daemons_do_not_stand_in_the_way(
    vision: NodePool, operator: Actor, at_once: None
) -> None:
    agent = a_pod("agent", on="m1", owner_kind="DaemonSet", owner_name="agent")
    show(vision.cluster, machines(), [agent, a_pod("done", whole=1, on="m1", phase="Succeeded")])
    poolcuts.scale(operator, vision, desired_size=0, reason=WHY)
    assert Push.objects.get().kind == "pool.modify"


def test_only_those_who_see_the_whole_cluster_see_its_requests(vision: NodePool, operator: Actor) -> None:
    request = asked(operator, vision, "size-0")
    part = an_actor(Role.ADMIN, vision.cluster, "research", name="part")
    whole = an_actor(Role.VIEWER, vision.cluster, name="whole")
    assert list(OperationRequest.objects.visible_to(whole)) == [request]
    assert not OperationRequest.objects.visible_to(part).exists()
    assert {HELD.name, LONE.name} == {pod["pod"] for pod in request.blast_radius["pods"]}
