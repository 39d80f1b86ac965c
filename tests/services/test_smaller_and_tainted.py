"""Fewer machines than a pool has, and taints that end pods: asked for by one, approved by another, looked at again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpupools.domain.gpus import Taint
from gpupools.errors import Conflict, Invalid
from gpupools.models import AuditEntry, Cluster, NodePool, OperationRequest, Push
from gpupools.services import allocation, componentcare, members, poolcuts, pools, poolsync, requests
from gpupools.services.access import Actor
from tests.services.asking import let
from tests.services.builders import a_component
from tests.services.dangers import HELD, LONE, MPS, WHY, a_cloud, a_vision_pool, machines
from tests.services.driving import a_sleeper, opened
from tests.services.showing import show
from tests.services.test_requests_carried_out import left
from tests.services.work import connected, until, work
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
DRAIN = [{"key": "drain", "value": "", "effect": "NoExecute"}]
BOTH = ["default/train", "research/notebook"]


@pytest.fixture
def vision(db: None) -> NodePool:
    return a_vision_pool(a_cloud())


@pytest.fixture(scope="module")
def ack() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=50) as running:
        yield running


def made(answer: object) -> OperationRequest:
    assert isinstance(answer, OperationRequest), "it was done at once"
    return answer


# -- Fewer machines


def test_below_the_number_of_nodes_all_pods_are_at_risk_and_a_second_person_decides(
    vision: NodePool, operator: Actor, admin: Actor
) -> None:
    request = made(poolcuts.scale(operator, vision, desired_size=1, reason=WHY))
    assert (request.kind, request.title) == ("scale-down", "Scale vision down")
    assert request.diff == [{"what": "Wanted nodes", "old": "2", "new": "1"}]
    assert [pod["sentence"] for pod in request.blast_radius["pods"]] == [
        "It ends if its machine goes; Job train starts it again where it fits.",
        "It ends if its machine goes, and nothing starts it again: it has no owner.",
    ]
    assert not Push.objects.exists()
    requests.approve(admin, request, reason="Agreed.")
    payload = Push.objects.get().payload
    assert (payload["spec"]["desired_size"], payload["approved"]["nodes"]) == (1, ["uid-m1", "uid-m2"])
    assert AuditEntry.objects.get(action="pool.scale").data["approved_by"] == "ada"


def test_bounds_whose_largest_size_is_below_the_number_of_nodes_ask_too(vision: NodePool, operator: Actor) -> None:
    bounds = {"enable": True, "min_instances": 0, "max_instances": 1, "type": "gpu"}
    request = made(poolcuts.scale(operator, vision, desired_size=1, auto_scaling=bounds, reason=WHY))
    assert request.params["auto_scaling"]["max_instances"] == 1


def test_where_no_pod_runs_it_goes_through_and_one_that_comes_by_then_stops_it(
    vision: NodePool, operator: Actor
) -> None:
    show(vision.cluster, machines(), [])
    assert isinstance(poolcuts.scale(operator, vision, desired_size=1), NodePool)
    assert Push.objects.get().payload["approved"] == {"nodes": ["uid-m1", "uid-m2"], "pods": []}


def test_without_the_policy_it_wants_a_reason_and_every_pod_named(
    vision: NodePool, operator: Actor, at_once: None
) -> None:
    with pytest.raises(Invalid) as needed:
        poolcuts.scale(operator, vision, desired_size=1)
    assert needed.value.errors[0].field == "reason"
    with pytest.raises(Conflict) as refusal:
        poolcuts.scale(operator, vision, desired_size=1, reason=WHY, approved_pods=BOTH[:1])
    assert (refusal.value.code, refusal.value.data["pods"]) == ("kills-pods", BOTH)
    assert not Push.objects.exists()
    poolcuts.scale(operator, vision, desired_size=1, reason=WHY, approved_pods=BOTH)
    assert Push.objects.get().payload["spec"]["desired_size"] == 1


def a_held_pool(cluster: Cluster, name: str = "training") -> tuple[NodePool, list[str]]:
    """Return a pool of ACK, synced and read, with a Job on its first machine."""
    poolsync.sync(cluster)
    pool = NodePool.objects.select_related("cluster").get(cluster=cluster, name=name)
    there = left(cluster, pool)
    with opened(cluster) as kubernetes:
        if not any(pod.owner_name == "held" for pod in kubernetes.pods()):
            sleeper = a_sleeper("held", seconds=10**6, limits={"nvidia.com/gpu": 1}, node=there[0])
            kubernetes.create(sleeper, op_id="sleeper")
        until(lambda: any(pod.owner_name == "held" and pod.phase == "Running" for pod in kubernetes.pods()))
    allocation.poll(cluster)
    return pool, there


def test_on_ack_a_taint_ends_pods_and_a_pool_gets_smaller_only_after_a_second_person(
    db: None, ack: SimulatorProcess, operator: Actor, admin: Actor
) -> None:
    cluster = connected(ack, "cloud")
    pool, there = a_held_pool(cluster)
    smaller = made(poolcuts.scale(operator, pool, desired_size=len(there) - 1, reason=WHY))
    assert [pod["owner"] for pod in smaller.blast_radius["pods"]] == ["Job/held"]
    tainted = made(pools.edit(operator, pool, taints=DRAIN, update_nodes=True, reason=WHY))
    assert "Job/held" in [pod["owner"] for pod in tainted.blast_radius["pods"]]
    work()
    assert left(cluster, pool) == there, "a request releases nothing"
    ended = {pod["uid"] for pod in tainted.blast_radius["pods"]}
    with opened(cluster) as kubernetes:
        assert ended <= {pod.uid for pod in kubernetes.pods()}, "a request ends nothing"
    requests.withdraw(operator, tainted)
    let(admin, smaller)
    work()
    until(lambda: len(left(cluster, pool)) == len(there) - 1)
    smaller.refresh_from_db()
    assert (smaller.push.state, smaller.push.error) == ("done", "")
    pool, there = a_held_pool(cluster)
    tainted = let(admin, pools.edit(operator, pool, taints=DRAIN, update_nodes=True, reason=WHY))
    work()
    tainted.refresh_from_db()
    assert (tainted.push.state, tainted.push.error) == ("done", "")
    gone = {pod["uid"] for pod in tainted.blast_radius["pods"]}
    with opened(cluster) as kubernetes:
        until(lambda: not any(pod.uid in gone and pod.phase == "Running" for pod in kubernetes.pods()))
        nodes = [node for node in kubernetes.nodes() if node.name in there]
    assert all(Taint("drain", "", "NoExecute") in node.taints for node in nodes)


# -- Taints that end pods


def test_a_taint_that_ends_pods_is_asked_for_and_written_by_the_approval(
    vision: NodePool, operator: Actor, admin: Actor
) -> None:
    request = made(pools.edit(operator, vision, taints=DRAIN, labels={"team": "a"}, update_nodes=True, reason=WHY))
    assert (request.kind, request.title) == ("evicting-taint", "Taint vision and end pods")
    assert request.diff == [
        {"what": "Label team", "old": "none", "new": "a"},
        {"what": "Taint", "old": "none", "new": "drain:NoExecute"},
    ]
    assert request.blast_radius["nodes"] == []
    assert [f"{pod['namespace']}/{pod['pod']}" for pod in request.blast_radius["pods"]] == BOTH
    assert not Push.objects.exists()
    requests.approve(admin, request, reason="Agreed.")
    vision.refresh_from_db()
    assert (vision.taints, vision.labels, vision.state) == (DRAIN, {"team": "a"}, NodePool.State.UPDATING)
    payload = Push.objects.get().payload
    assert payload["update_nodes"] is True
    assert [pod["pod"] for pod in payload["approved"]["pods"]] == ["train", "notebook"]
    entry = AuditEntry.objects.get(action="pool.edit")
    assert (entry.data["requested_by"], entry.data["approved_by"]) == ("olga", "ada")


@pytest.mark.parametrize(
    "edit",
    [
        {"taints": DRAIN, "update_nodes": False},
        {"taints": [{"key": "drain", "effect": "NoSchedule"}], "update_nodes": True},
        {"labels": {"team": "a"}, "update_nodes": True},
    ],
)
def test_an_edit_that_ends_no_pod_needs_nobody(vision: NodePool, operator: Actor, edit: dict[str, Any]) -> None:
    assert isinstance(pools.edit(operator, vision, **edit), NodePool)
    assert Push.objects.get().kind == "pool.modify"


def test_a_taint_that_the_nodes_carry_already_ends_nothing(vision: NodePool, operator: Actor) -> None:
    show(vision.cluster, machines(taints=(Taint("drain", "", "NoExecute"),)), [HELD, LONE])
    assert isinstance(pools.edit(operator, vision, taints=DRAIN, update_nodes=True), NodePool)


def test_without_the_policy_a_taint_wants_a_reason_and_every_pod_named(
    vision: NodePool, operator: Actor, at_once: None
) -> None:
    with pytest.raises(Invalid) as needed:
        pools.edit(operator, vision, taints=DRAIN, update_nodes=True)
    assert needed.value.errors[0].field == "reason"
    with pytest.raises(Conflict) as refusal:
        pools.edit(operator, vision, taints=DRAIN, update_nodes=True, reason=WHY)
    assert (refusal.value.code, refusal.value.data["pods"]) == ("kills-pods", BOTH)
    pools.edit(operator, vision, taints=DRAIN, update_nodes=True, reason=WHY, approved_pods=BOTH)
    assert AuditEntry.objects.get(action="pool.edit").data["reason"] == WHY


def test_bringing_such_a_taint_back_asks_too(vision: NodePool, operator: Actor) -> None:
    NodePool.objects.filter(pk=vision.pk).update(taints=DRAIN)
    vision.refresh_from_db()
    request = made(members.restore(operator, vision, reason=WHY))
    assert request.diff == [{"what": "Taint", "old": "not on every node", "new": "drain:NoExecute"}]


def test_an_edit_of_an_old_version_is_not_asked_for(vision: NodePool, operator: Actor) -> None:
    with pytest.raises(Conflict) as refusal:
        pools.edit(operator, vision, taints=DRAIN, update_nodes=True, reason=WHY, version=vision.version + 1)
    assert refusal.value.code == "stale"
    assert not OperationRequest.objects.exists()


# -- An upgrade to what is there


def test_an_mps_upgrade_to_what_is_there_is_refused_unless_something_differs(
    vision: NodePool, operator: Actor, admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = a_component(vision.cluster, MPS)
    type(state).objects.filter(pk=state.pk).update(version="1.0")
    here = componentcare.Offer("1.0", '{"threads": 50}')
    monkeypatch.setattr(componentcare, "offer", lambda *_: here)
    for same in ({"version": "1.0"}, {}, {"config": '{ "threads":50 }'}):
        with pytest.raises(Conflict) as refusal:
            componentcare.upgrade(operator, vision.cluster, MPS, **same, reason=WHY)
        assert refusal.value.code == "same"
    assert not OperationRequest.objects.exists()
    other = componentcare.upgrade(operator, vision.cluster, MPS, config='{"threads": 25}', reason=WHY)
    assert made(other).kind == "mps-upgrade"
