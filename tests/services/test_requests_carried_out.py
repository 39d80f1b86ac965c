"""Dangerous operations on the embedded cluster: asked for, approved by another, and done there exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from alibabacloud_cs20151215.models import DescribeClusterTasksRequest
from django.utils import timezone

from gpupools.errors import Conflict
from gpupools.models import Cluster, NodePool, Notice, Push
from gpupools.services import (
    allocation,
    componentcare,
    components,
    gateways,
    poolcuts,
    pools,
    poolsync,
    pushes,
    pushing,
    requests,
)
from gpupools.services.access import Actor
from gpupools.services.poolspecs import members
from tests.services.asking import let
from tests.services.dangers import MPS, WHY, asked
from tests.services.driving import a_sleeper, opened, with_components
from tests.services.work import connected, until, work
from tests.simulator.harness import SimulatorProcess

pytestmark = pytest.mark.usefixtures("empty_redis")


@pytest.fixture(scope="module")
def ack() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=50) as running:
        yield running


@pytest.fixture(scope="module")
def plain() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=50) as running:
        yield running


def tasks(cluster: Cluster) -> Counter[str]:
    """Count the tasks that ACK was asked for, by type."""
    with gateways.pools_of(cluster) as (_, provider):
        newest = DescribeClusterTasksRequest(page_size=50)
        answer = provider._client.describe_cluster_tasks(cluster.ack_cluster_id, newest)
    return Counter(task.task_type for task in answer.body.tasks)


def left(cluster: Cluster, pool: NodePool) -> list[str]:
    """The nodes of a pool that the API server still has."""
    with opened(cluster) as kubernetes:
        return [node.name for node in members(pool, kubernetes.nodes())]


def die_after_the_call(kind: str) -> None:
    """Carry a push out and die before what it learned is written; its lease runs out."""
    push = pushes.claim()
    assert push is not None
    assert push.kind == kind
    pushing.HANDLERS[kind].run(push)
    Push.objects.filter(pk=push.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def test_on_ack_a_pool_goes_to_0_after_a_second_person_and_its_machines_go_once(
    db: None, ack: SimulatorProcess, operator: Actor, admin: Actor
) -> None:
    cluster = connected(ack, "cloud")
    poolsync.sync(cluster)
    pool = NodePool.objects.select_related("cluster").get(cluster=cluster, name="training")
    machines = left(cluster, pool)
    assert len(machines) == 2
    with opened(cluster) as kubernetes:
        sleeper = a_sleeper("held", seconds=10**6, limits={"nvidia.com/gpu": 1}, node=machines[0])
        kubernetes.create(sleeper, op_id="sleeper")
        until(lambda: any(pod.owner_name == "held" and pod.phase == "Running" for pod in kubernetes.pods()))
    allocation.poll(cluster)
    before = tasks(cluster)
    request = poolcuts.scale(operator, pool, desired_size=0, reason=WHY)
    assert [pod["owner"] for pod in request.blast_radius["pods"]] == ["Job/held"]
    work()
    assert left(cluster, pool) == machines, "a request releases nothing"
    let(admin, request)
    die_after_the_call("pool.modify")
    work()
    until(lambda: left(cluster, pool) == [])
    given = tasks(cluster) - before
    assert given.total() == 1, f"ACK was asked for {given}"
    request.refresh_from_db()
    assert (request.state, request.push.state, request.push.error) == ("approved", "done", "")
    poolsync.sync(cluster)
    pool.refresh_from_db()
    assert (pool.state, pool.desired_size, pool.seen["total_nodes"]) == (NodePool.State.ACTIVE, 0, 0)
    with pytest.raises(Conflict):
        requests.approve(admin, request, reason="Again.")


@pytest.mark.parametrize("kind", ["size-0", "forced-delete"])
def test_a_pod_that_came_after_the_approval_keeps_the_machines_and_both_people_are_told(
    db: None, ack: SimulatorProcess, operator: Actor, admin: Actor, kind: str
) -> None:
    cluster = connected(ack, "cloud")
    name = f"late-{kind}"
    made = pools.create(
        operator, cluster, name=name, mode="exclusive", instance_types=["ecs.gn6v-c8g1.8xlarge"], desired_size=1
    )
    work()
    until(lambda: len(left(cluster, NodePool.objects.get(pk=made.pk))) == 1)
    poolsync.sync(cluster)
    allocation.poll(cluster)
    pool = NodePool.objects.select_related("cluster").get(pk=made.pk)
    request = let(admin, asked(operator, pool, kind))
    (machine,) = left(cluster, pool)
    with opened(cluster) as kubernetes:
        kubernetes.create(a_sleeper(name, seconds=10**6, limits={"nvidia.com/gpu": 1}, node=machine), op_id=name)
        until(lambda: any(pod.owner_name == name and pod.phase == "Running" for pod in kubernetes.pods()))
    work()
    request.refresh_from_db()
    assert request.push.state == "failed"
    assert "1 pod would end that came since this was approved: default/late-" in request.push.error
    assert left(cluster, pool) == [machine]
    assert sorted(Notice.objects.filter(kind="failed").values_list("user__username", flat=True)) == ["ada", "olga"]


def test_the_newest_version_is_named_when_it_is_asked_for_and_is_what_is_carried_out(
    db: None, ack: SimulatorProcess, operator: Actor, admin: Actor
) -> None:
    cluster = connected(ack, "cloud")
    with_components(admin, cluster, MPS)
    components.check(cluster)
    allocation.poll(cluster)
    newest = componentcare.offer(operator, cluster, MPS).version
    request = componentcare.upgrade(operator, cluster, MPS, config='{"threads": 50}', reason=WHY)
    assert [(line["what"], line["new"]) for line in request.diff] == [
        ("Version", newest),
        ("Configuration", '{"threads": 50}'),
    ]
    work()
    assert componentcare.offer(operator, cluster, MPS).configuration != '{"threads": 50}', "a request changes nothing"
    push = let(admin, request).push
    work()
    push.refresh_from_db()
    assert (push.state, push.error, push.payload["version"]) == ("done", "", newest)
    assert componentcare.offer(operator, cluster, MPS).configuration == '{"threads": 50}'


def test_on_plain_kubernetes_a_component_goes_after_a_second_person_and_once(
    db: None, plain: SimulatorProcess, operator: Actor, admin: Actor
) -> None:
    cluster = connected(plain, "lab")
    with_components(admin, cluster, MPS)
    components.check(cluster)
    allocation.poll(cluster)
    request = components.uninstall(operator, cluster, MPS, reason=WHY)
    work()

    def there() -> list[str]:
        with opened(cluster) as kubernetes:
            return [each.name for each in kubernetes.workloads() if each.name == MPS]

    assert there() == [MPS], "a request removes nothing"
    let(admin, request)
    die_after_the_call("component.uninstall")
    work()
    assert there() == []
    request.refresh_from_db()
    assert (request.state, request.push.state) == ("approved", "done")
    assert Push.objects.filter(kind="component.uninstall").count() == 1
