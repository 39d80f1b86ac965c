"""Clusters, node pools and components against a running cluster with the ACK OpenAPI."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from gpupools.clusters.port import PoolSpec
from gpupools.domain.modes import ACK_POOL_LABEL, MODE_LABEL, PLACEMENT_LABEL, Mode, PlacementPolicy
from gpupools.errors import Conflict, Invalid
from gpupools.models import AuditEntry, Cluster, NodePool, Push
from gpupools.services import allocation, bootstrap, components, gateways, poolcuts, pools, poolsync, pushes, pushing
from gpupools.services.poolspecs import members
from tests.services.asking import let
from tests.services.work import connected, until, work
from tests.simulator.harness import SimulatorProcess

TYPE = "ecs.gn7i-c8g1.2xlarge"


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=20) as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, empty_redis: object) -> Cluster:
    made = connected(simulator)
    poolsync.sync(made)
    return made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A pool name of the test's own: pools outlive tests in the cluster."""
    return request.node.originalname.removeprefix("test_").replace("_", "-")[:50].strip("-")


def create(actor, cluster, name, **wishes):
    return pools.create(
        actor, cluster, **{"name": name, "mode": "cgpu", "instance_types": [TYPE], "desired_size": 1, **wishes}
    )


def provider_pools(cluster):
    with gateways.pools_of(cluster) as (_, provider):
        return provider.pools()


def nodes_of(cluster, pool):
    with gateways.kubernetes_of(cluster) as kubernetes:
        return members(pool, kubernetes.nodes())


def test_connecting_learns_specification_and_region(cluster):
    assert (cluster.provider, cluster.spec, cluster.region) == ("ack", "ack.pro.small", "cn-hangzhou")
    assert cluster.ack_cluster_id


def test_the_first_sync_shows_the_pools_that_are_there(cluster):
    found = {pool.name: pool for pool in NodePool.objects.all()}
    assert found["training"].mode == "exclusive"
    assert found["training"].state == NodePool.State.ACTIVE
    assert found["training"].seen["total_nodes"] == 2
    assert found["default-nodepool"].mode == ""
    assert AuditEntry.objects.filter(action="pool.found").count() == len(found)


def test_a_pool_is_made_with_its_mode_as_a_label_and_its_nodes_carry_it(cluster, operator, name):
    pool = create(operator, cluster, name, policy="spread", labels={"team": "red"})
    work()
    pool.refresh_from_db()
    assert (pool.state, pool.error) == (NodePool.State.ACTIVE, "")
    assert pool.pool_id
    until(lambda: len(nodes_of(cluster, pool)) == 1)
    (node,) = nodes_of(cluster, pool)
    assert node.labels[ACK_POOL_LABEL] == pool.pool_id
    assert (node.labels[MODE_LABEL], node.labels[PLACEMENT_LABEL], node.labels["team"]) == ("cgpu", "spread", "red")


def test_a_worker_killed_after_it_made_the_pool_finds_it_instead_of_making_another(cluster, operator, name):
    pool = create(operator, cluster, name)
    pushing.HANDLERS["pool.create"].run(pushes.claim())  # and killed before it could write what it learned
    assert [each.name for each in provider_pools(cluster)].count(name) == 1
    Push.objects.filter(target=f"pool:{pool.pk}").update(lease_until=timezone.now() - timedelta(seconds=1))
    work()
    pool.refresh_from_db()
    assert pool.state == NodePool.State.ACTIVE
    assert [each.name for each in provider_pools(cluster)].count(name) == 1


def test_a_sync_while_the_pool_is_being_made_shows_it_once(cluster, operator, name):
    pool = create(operator, cluster, name)
    pushing.HANDLERS["pool.create"].run(pushes.claim())
    poolsync.sync(cluster)
    assert list(NodePool.objects.filter(name__startswith=name)) == [pool]
    Push.objects.filter(target=f"pool:{pool.pk}").update(lease_until=timezone.now() - timedelta(seconds=1))
    work()
    poolsync.sync(cluster)
    assert list(NodePool.objects.filter(name__startswith=name)) == [pool]


def test_a_pool_that_was_made_after_a_sync_had_read_the_rows_is_not_shown_twice(cluster, operator, name):
    started = timezone.now()
    rows = list(NodePool.objects.filter(cluster=cluster))
    pool = create(operator, cluster, name, desired_size=0)
    work()
    facts = provider_pools(cluster)
    poolsync._reconcile(cluster, rows, facts, {}, started=started, owned_by_provider=True)
    assert list(NodePool.objects.filter(name__startswith=name[:40])) == [pool]


def test_the_first_sync_of_a_new_pool_is_no_edit(cluster, operator, name):
    pool = create(operator, cluster, name)
    work()
    before = NodePool.objects.get(pk=pool.pk)
    poolsync.sync(cluster)
    after = NodePool.objects.get(pk=pool.pk)
    assert (before.cpu_policy, after.cpu_policy) == ("", "none")  # what ACK says of it is filled in
    assert after.version == before.version


def test_an_edit_reaches_existing_nodes_only_when_that_was_chosen(cluster, operator, name):
    pool = create(operator, cluster, name)
    work()
    until(lambda: len(nodes_of(cluster, pool)) == 1, doing=pool.refresh_from_db)
    pool.refresh_from_db()
    pools.edit(operator, pool, labels={"team": "red"})
    work()
    assert "team" not in nodes_of(cluster, pool)[0].labels
    pool.refresh_from_db()
    pools.edit(operator, pool, labels={"team": "blue"}, update_nodes=True)
    work()
    until(lambda: nodes_of(cluster, pool)[0].labels.get("team") == "blue")
    assert nodes_of(cluster, pool)[0].labels[MODE_LABEL] == "cgpu"


def test_scaling_is_absolute(cluster, operator, name):
    pool = create(operator, cluster, name, desired_size=0)
    work()
    for _ in range(2):
        pool.refresh_from_db()
        poolcuts.scale(operator, pool, desired_size=2)
        work()
    until(lambda: len(nodes_of(cluster, pool)) == 2, doing=pool.refresh_from_db)
    poolsync.sync(cluster)
    pool.refresh_from_db()
    assert pool.desired_size == 2


def test_an_edit_made_elsewhere_is_shown_and_never_written_over(cluster, operator, name):
    pool = create(operator, cluster, name, desired_size=0, labels={"team": "red"})
    work()
    pool.refresh_from_db()
    outside = PoolSpec(name, Mode.CGPU, PlacementPolicy.BINPACK, {"team": "outside"}, (), (TYPE,), 0)
    with gateways.pools_of(cluster) as (_, provider):
        task = provider.modify(pool.pool_id, outside, update_nodes=False, op_id="elsewhere").task_id
        until(lambda: provider.task(task).state == "success")
    pools.edit(operator, pool, labels={"team": "blue"})
    work()
    pool.refresh_from_db()
    assert "changed outside the console" in pool.error
    assert Push.objects.filter(target=f"pool:{pool.pk}").last().state == Push.State.FAILED
    poolsync.sync(cluster)
    version = pool.version
    pool.refresh_from_db()
    assert pool.labels == {"team": "outside"}
    assert pool.version > version


def test_a_sync_leaves_an_edit_alone_that_has_not_reached_ack_yet(cluster, operator, name):
    pool = create(operator, cluster, name, desired_size=0, labels={"team": "red"})
    work()
    pool.refresh_from_db()
    pools.edit(operator, pool, labels={"team": "blue"})
    poolsync.sync(cluster)
    pool.refresh_from_db()
    assert (pool.labels, pool.state) == ({"team": "blue"}, NodePool.State.UPDATING)
    work()
    poolsync.sync(cluster)
    pool.refresh_from_db()
    assert (pool.labels, pool.state) == ({"team": "blue"}, NodePool.State.ACTIVE)


def test_a_sync_that_read_before_an_edit_does_not_undo_it(cluster, operator, name):
    pool = create(operator, cluster, name, desired_size=0, labels={"team": "red"})
    work()
    row = NodePool.objects.get(pk=pool.pk)
    facts = next(each for each in provider_pools(cluster) if each.pool_id == row.pool_id)
    pool.refresh_from_db()
    pools.edit(operator, pool, labels={"team": "blue"})
    work()
    older = dataclasses.replace(facts, labels={**facts.labels, "team": "outside"})
    poolsync._refresh(row, older, owned_by_provider=True)
    pool.refresh_from_db()
    assert pool.labels == {"team": "blue"}


def test_a_pool_with_nodes_is_deleted_only_by_force_with_a_reason_and_a_second_person(cluster, operator, admin, name):
    pool = create(operator, cluster, name)
    work()
    until(lambda: len(nodes_of(cluster, pool)) == 1, doing=pool.refresh_from_db)
    poolsync.sync(cluster)
    pool.refresh_from_db()
    with pytest.raises(Conflict) as refusal:
        poolcuts.delete(operator, pool)
    assert (refusal.value.code, refusal.value.data["nodes"]) == ("has-nodes", 1)
    with pytest.raises(Invalid):
        poolcuts.delete(operator, pool, force=True)
    let(admin, poolcuts.delete(operator, pool, force=True, reason="end of the experiment"))
    work()
    pool.refresh_from_db()
    assert pool.state == NodePool.State.GONE
    assert pool.name not in [each.name for each in provider_pools(cluster)]


def test_a_pool_deleted_elsewhere_is_gone_and_says_so_once(cluster, operator, name):
    pool = create(operator, cluster, name, desired_size=0)
    work()
    pool.refresh_from_db()
    with gateways.pools_of(cluster) as (_, provider):
        task = provider.delete(pool.pool_id, force=False, op_id="elsewhere").task_id
        until(lambda: provider.pool(pool.pool_id) is None)
        assert provider.task(task).state == "success"
    Push.objects.update(finished_at=timezone.now() - timedelta(minutes=1))
    poolsync.sync(cluster)
    poolsync.sync(cluster)
    pool.refresh_from_db()
    assert pool.state == NodePool.State.GONE
    assert AuditEntry.objects.filter(action="pool.gone", object_label=name).count() == 1


def test_a_refusal_of_ack_is_shown_on_the_pool(cluster, operator, name):
    pool = create(operator, cluster, name, instance_types=["ecs.nosuchfamily.large"])
    work()
    pool.refresh_from_db()
    assert pool.state == NodePool.State.FAILED
    assert "ACK" in pool.error


def test_components_are_installed_as_add_ons_and_uninstalled_when_nothing_needs_them(cluster, operator, admin):
    components.check(cluster)
    components.install(operator, cluster, "ack-mps-control")
    work()
    components.check(cluster)
    shown = next(each for each in components.overview(cluster) if each.name == "ack-mps-control")
    assert (shown.state, shown.error) == ("installed", "")
    assert "add-on" in shown.found_by
    assert shown.version
    allocation.poll(cluster)
    let(admin, components.uninstall(operator, cluster, "ack-mps-control", reason="only tried it"))
    work()
    components.check(cluster)
    shown = next(each for each in components.overview(cluster) if each.name == "ack-mps-control")
    assert (shown.state, shown.error) == ("absent", "")


def test_a_worker_killed_after_it_asked_for_an_add_on_does_not_ask_again(cluster, operator):
    components.check(cluster)
    push = components.install(operator, cluster, "ack-ai-installer")
    pushing.HANDLERS["component.install"].run(pushes.claim())
    Push.objects.filter(pk=push.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    work()
    push.refresh_from_db()
    assert push.state == Push.State.DONE
    components.check(cluster)
    shown = next(each for each in components.overview(cluster) if each.name == "ack-ai-installer")
    assert shown.state in {"installed", "degraded"}


def test_the_first_run_connects_the_cluster_and_makes_two_accounts_once(db, simulator, empty_redis):
    first = bootstrap.first_run(kubeconfig=simulator.kubeconfig.read_text(), ack=simulator.ack)
    assert [username for username, _ in first] == ["admin", "operator"]
    assert len({password for _, password in first}) == 2
    cluster = Cluster.objects.get()
    assert (cluster.name, cluster.is_embedded, cluster.provider) == ("embedded", True, "ack")
    assert bootstrap.first_run(kubeconfig=simulator.kubeconfig.read_text(), ack=simulator.ack) == []
    assert Cluster.objects.count() == 1
    for _, password in first:
        assert password not in str(list(AuditEntry.objects.values()))
