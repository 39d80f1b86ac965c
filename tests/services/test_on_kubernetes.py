"""Clusters, node pools and components against a running API server without the ACK OpenAPI."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from gpupools.domain.gpus import Taint
from gpupools.domain.modes import MODE_LABEL, OP_LABEL, PLACEMENT_LABEL, POOL_LABEL
from gpupools.errors import Conflict, Invalid, NotAllowed
from gpupools.models import AuditEntry, Cluster, ModeChange, NodePool, Push
from gpupools.services import (
    allocation,
    clusters,
    components,
    gateways,
    jobs,
    poolcuts,
    pools,
    poolsync,
    pushes,
    pushing,
)
from gpupools.services.access import SYSTEM
from tests.services.asking import let
from tests.services.work import connected, node, until, work
from tests.simulator.harness import SimulatorProcess


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small") as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, empty_redis: object) -> Cluster:
    made = connected(simulator)
    with gateways.kubernetes_of(made) as kubernetes:
        until(lambda: len(kubernetes.nodes()) == 11)
    return made


@pytest.fixture
def gpu(cluster: Cluster) -> Iterator[str]:
    """The name of a GPU node that no pool has; what a test does to it is undone."""
    with gateways.kubernetes_of(cluster) as kubernetes:
        found = next(
            each
            for each in sorted(kubernetes.nodes(), key=lambda each: each.name)
            if each.labels.get(MODE_LABEL) == "default" and POOL_LABEL not in each.labels
        )
        yield found.name
        left = kubernetes.node(found.name)
        kubernetes.label_node(
            found.name,
            labels={
                **{key: None for key in left.labels if key not in found.labels},
                **{key: value for key, value in found.labels.items() if left.labels.get(key) != value},
            },
            taints_remove=[taint for taint in left.taints if taint not in found.taints],
            op_id=f"undo-{timezone.now().timestamp()}",
        )


def create(actor, cluster, gpu, **wishes):
    return pools.create(
        actor, cluster, **{"name": f"pool-{gpu[-8:]}", "mode": "exclusive", "node_names": [gpu], **wishes}
    )


def test_a_connected_cluster_has_its_version_and_no_readable_secret(cluster, simulator):
    assert cluster.version.startswith("v1.")
    assert cluster.state == Cluster.State.CONNECTED
    assert cluster.provider == "kubernetes"
    token = simulator.kubeconfig.read_text().split("token: ")[1].split()[0]
    assert token not in cluster.credentials
    assert token not in str(list(AuditEntry.objects.values()))


def test_a_cluster_that_stops_answering_keeps_its_name_and_comes_back(db, empty_redis, tmp_path):
    with SimulatorProcess(fleet="small", directory=tmp_path) as simulator:
        cluster = connected(simulator, "flaky")
        clusters.probe(cluster)
        assert cluster.state == Cluster.State.CONNECTED
        simulator.kill()
        clusters.probe(cluster)
        assert (cluster.state, bool(cluster.last_error)) == (Cluster.State.UNREACHABLE, True)
        assert cluster.unreachable_since is not None
        simulator.start()
        clusters.refresh(SYSTEM, cluster, kubeconfig=simulator.kubeconfig.read_text())
        clusters.probe(cluster)
        assert (cluster.state, cluster.last_error, cluster.unreachable_since) == (Cluster.State.CONNECTED, "", None)


def test_refreshing_with_the_same_credentials_is_no_deed(cluster, simulator):
    clusters.refresh(SYSTEM, cluster, kubeconfig=simulator.kubeconfig.read_text())
    assert not AuditEntry.objects.filter(action="cluster.refresh").exists()


def test_a_pool_over_nodes_of_its_mode_is_labels_and_taints_on_them(cluster, gpu, operator):
    pool = create(operator, cluster, gpu, labels={"team": "red"}, taints=[Taint("gpu", "yes")])
    assert (pool.state, pool.mode) == (NodePool.State.PENDING, "exclusive")
    assert not ModeChange.objects.exists()
    work()
    pool.refresh_from_db()
    assert (pool.state, pool.error, pool.pool_id) == (NodePool.State.ACTIVE, "", pool.name)
    labels = node(cluster, gpu).labels
    assert (labels[POOL_LABEL], labels[MODE_LABEL], labels["team"]) == (pool.name, "default", "red")
    assert Taint("gpu", "yes") in node(cluster, gpu).taints
    push = Push.objects.get()
    assert node(cluster, gpu).annotations[OP_LABEL] == str(push.op_id)
    assert [entry.action for entry in AuditEntry.objects.order_by("pk")][-2:] == ["pool.create", "push.done"]


def test_a_pool_over_nodes_of_another_mode_asks_for_a_mode_change_and_writes_no_mode(cluster, gpu, operator):
    with pytest.raises(Invalid) as refusal:
        create(operator, cluster, gpu, mode="cgpu")
    assert [error.field for error in refusal.value.errors] == ["reason"]
    assert gpu in refusal.value.message
    assert not NodePool.objects.exists()
    pool = create(operator, cluster, gpu, mode="cgpu", policy="spread", reason="inference needs parts of cards")
    change = ModeChange.objects.get()
    assert (change.pool, change.target_mode, change.target_policy) == (pool, "cgpu", "spread")
    assert (change.requested_by, change.state) == (operator.user, "pending")
    work()
    pool.refresh_from_db()
    assert (pool.state, pool.mode) == (NodePool.State.ACTIVE, "")
    labels = node(cluster, gpu).labels
    assert (labels[POOL_LABEL], labels[MODE_LABEL]) == (pool.name, "default")
    assert PLACEMENT_LABEL not in labels


def test_a_viewer_makes_no_pool(cluster, gpu, viewer):
    with pytest.raises(NotAllowed):
        create(viewer, cluster, gpu)


def test_nodes_that_are_not_there_or_taken_are_refused_by_name(cluster, gpu, operator):
    create(operator, cluster, gpu)
    with pytest.raises(Invalid) as refusal:
        pools.create(operator, cluster, name="second", mode="exclusive", node_names=[gpu, "ghost"])
    assert [(error.found, error.code) for error in refusal.value.errors] == [(gpu, "owned"), ("ghost", "unknown")]


def test_a_lost_race_for_a_name_is_a_conflict(cluster, gpu, operator, monkeypatch):
    create(operator, cluster, gpu, name="contested")
    # As if the other request had come between this one's look and its write.
    monkeypatch.setattr(pools.poolrules, "_name", lambda cluster, name: [])
    monkeypatch.setattr(pools.poolrules, "check_nodes", lambda cluster, spec, nodes: None)
    with pytest.raises(Conflict) as refusal:
        create(operator, cluster, gpu, name="contested")
    assert refusal.value.code == "taken"


def test_an_edit_reaches_the_nodes_and_takes_back_only_what_was_ours(cluster, gpu, operator):
    pool = create(operator, cluster, gpu, labels={"team": "red", "tier": "gold"})
    work()
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.label_node(gpu, labels={"owner": "someone"}, op_id="by-hand")
    pool.refresh_from_db()
    edited = pools.edit(operator, pool, labels={"team": "blue"}, version=pool.version)
    assert edited.version == pool.version
    work()
    labels = node(cluster, gpu).labels
    assert labels["team"] == "blue"
    assert "tier" not in labels
    assert labels["owner"] == "someone"
    entry = AuditEntry.objects.get(action="pool.edit")
    assert entry.data["labels"] == {"old": {"team": "red", "tier": "gold"}, "new": {"team": "blue"}}


def test_an_edit_of_what_somebody_else_edited_meanwhile_is_refused(cluster, gpu, operator):
    pool = create(operator, cluster, gpu)
    work()
    pool.refresh_from_db()
    stale = NodePool.objects.get(pk=pool.pk)
    pools.edit(operator, pool, labels={"team": "red"})
    work()
    with pytest.raises(Conflict) as refusal:
        pools.edit(operator, stale, labels={"team": "blue"}, version=stale.version)
    assert refusal.value.code == "stale"
    assert node(cluster, gpu).labels["team"] == "red"


def test_an_edit_that_would_change_the_mode_of_a_drifted_node_is_refused(cluster, gpu, operator):
    pool = create(operator, cluster, gpu)
    work()
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.label_node(gpu, labels={MODE_LABEL: "share"}, op_id="by-hand")
    pool.refresh_from_db()
    with pytest.raises(Conflict) as refusal:
        pools.edit(operator, pool, labels={"team": "red"})
    assert (refusal.value.code, refusal.value.data["nodes"]) == ("would-change-mode", [gpu])


def test_a_node_that_drifts_between_request_and_push_is_not_relabelled(cluster, gpu, operator):
    pool = create(operator, cluster, gpu)
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.label_node(gpu, labels={MODE_LABEL: "share"}, op_id="by-hand")
    work()
    pool.refresh_from_db()
    assert pool.state == NodePool.State.FAILED
    assert gpu in pool.error
    assert "mode change" in pool.error
    assert node(cluster, gpu).labels[MODE_LABEL] == "share"
    assert POOL_LABEL not in node(cluster, gpu).labels


def test_an_open_mode_change_holds_its_pool(cluster, gpu, operator):
    pool = create(operator, cluster, gpu, mode="share", reason="tests share")
    work()
    pool.refresh_from_db()
    for act in (
        lambda: pools.edit(operator, pool, labels={"team": "red"}),
        lambda: poolcuts.delete(operator, pool),
    ):
        with pytest.raises(Conflict) as refusal:
            act()
        assert refusal.value.code == "change-open"


def test_a_pool_with_an_operation_on_its_way_is_busy(cluster, gpu, operator):
    pool = create(operator, cluster, gpu)
    with pytest.raises(Conflict) as refusal:
        poolcuts.delete(operator, pool)
    assert refusal.value.code == "busy"


def test_a_pool_on_kubernetes_is_not_scaled(cluster, gpu, operator):
    pool = create(operator, cluster, gpu)
    work()
    pool.refresh_from_db()
    with pytest.raises(Invalid) as refusal:
        poolcuts.scale(operator, pool, desired_size=3)
    assert refusal.value.errors[0].field == "desired_size"


def test_deleting_a_pool_leaves_the_nodes_in_their_mode_without_our_labels(cluster, gpu, operator):
    pool = create(operator, cluster, gpu, labels={"team": "red"}, taints=[Taint("gpu", "yes")])
    work()
    pool.refresh_from_db()
    poolcuts.delete(operator, pool)
    work()
    pool.refresh_from_db()
    assert pool.state == NodePool.State.GONE
    after = node(cluster, gpu)
    assert POOL_LABEL not in after.labels
    assert "team" not in after.labels
    assert after.labels[MODE_LABEL] == "default"
    assert not after.taints
    again = create(operator, cluster, gpu, name=pool.name)
    assert again.pk == pool.pk
    work()
    assert node(cluster, gpu).labels[POOL_LABEL] == pool.name


def test_a_worker_killed_after_the_labels_were_written_does_nothing_twice(cluster, gpu, operator):
    pool = create(operator, cluster, gpu, labels={"team": "red"})
    claimed = pushes.claim()
    pushing.HANDLERS["pool.create"].run(claimed)  # and killed before it could write what became of it
    version = node_version(cluster, gpu)
    Push.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    work()
    pool.refresh_from_db()
    assert pool.state == NodePool.State.ACTIVE
    assert node_version(cluster, gpu) == version


def node_version(cluster, name):
    found = node(cluster, name)
    return found.labels, found.annotations, found.taints


def test_a_sync_refreshes_what_was_seen_and_never_what_is_wanted(cluster, gpu, operator):
    pool = create(operator, cluster, gpu, labels={"team": "red"})
    work()
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.label_node(gpu, labels={"team": "blue", MODE_LABEL: "share"}, op_id="by-hand")
    poolsync.sync(cluster)
    pool.refresh_from_db()
    assert (pool.labels, pool.mode) == ({"team": "red"}, "exclusive")
    assert pool.seen["labels"]["team"] == "blue"
    assert pool.seen["total_nodes"] == 1
    assert pool.synced_at is not None


def test_a_sync_adds_pools_that_the_labels_show_and_does_so_once(cluster, gpu):
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.label_node(gpu, labels={POOL_LABEL: "by-hand"}, op_id="by-hand")
    poolsync.sync(cluster)
    poolsync.sync(cluster)
    pool = NodePool.objects.get(name="by-hand")
    assert (pool.mode, pool.node_names, pool.state) == ("exclusive", [gpu], NodePool.State.ACTIVE)
    assert AuditEntry.objects.filter(action="pool.found").count() == 1


def test_components_are_checked_by_their_daemonsets(cluster):
    components.check(cluster)
    states = {each.name: each for each in components.overview(cluster)}
    plugin = states["ack-nvidia-device-plugin"]
    assert plugin.state in {"installed", "degraded"}
    assert plugin.found_by == "DaemonSets"
    assert states["ack-ai-installer"].state == "absent"


def test_a_component_is_installed_from_manifests_and_removed_again(cluster, operator, admin):
    components.install(operator, cluster, "ack-mps-control", image_prefix="registry.example.com/gpu")
    work()
    components.check(cluster)
    shown = next(each for each in components.overview(cluster) if each.name == "ack-mps-control")
    assert (shown.state, shown.found_by, shown.error) == ("installed", "DaemonSets", "")
    with gateways.kubernetes_of(cluster) as kubernetes:
        (found,) = [each for each in kubernetes.workloads() if each.name == "ack-mps-control"]
    assert found.image == "registry.example.com/gpu/mps-control-daemon"
    allocation.poll(cluster)
    let(admin, components.uninstall(operator, cluster, "ack-mps-control", reason="only tried it"))
    work()
    with gateways.kubernetes_of(cluster) as kubernetes:
        assert not [each for each in kubernetes.workloads() if each.name == "ack-mps-control"]
    components.check(cluster)
    shown = next(each for each in components.overview(cluster) if each.name == "ack-mps-control")
    assert shown.state == "absent"


def test_what_somebody_else_installed_is_theirs_to_uninstall(cluster, operator, admin):
    components.check(cluster)
    let(admin, components.uninstall(operator, cluster, "ack-nvidia-device-plugin", reason="tidying up"))
    work()
    shown = next(each for each in components.overview(cluster) if each.name == "ack-nvidia-device-plugin")
    assert "not installed by the console" in shown.error
    with gateways.kubernetes_of(cluster) as kubernetes:
        assert [each for each in kubernetes.workloads() if each.name == "ack-nvidia-device-plugin"]


def test_what_somebody_else_installed_is_not_taken_over_by_installing_it(cluster, operator):
    # Before the first check the console does not know that it is there.
    components.install(operator, cluster, "ack-nvidia-device-plugin", image_prefix="registry.example.com/gpu")
    work()
    shown = next(each for each in components.overview(cluster) if each.name == "ack-nvidia-device-plugin")
    assert "there already" in shown.error
    with gateways.kubernetes_of(cluster) as kubernetes:
        (found,) = [each for each in kubernetes.workloads() if each.name == "ack-nvidia-device-plugin"]
    assert OP_LABEL not in found.annotations
    assert "registry.example.com" not in found.image


def test_a_check_asks_the_cluster_whether_it_would_take_a_manifest_and_keeps_nothing(cluster, gpu, operator):
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: rehearsed, namespace: SOMEWHERE}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: "example.com/train:1", resources: {limits: {nvidia.com/gpu: 1}}}
"""
    nowhere = jobs.check(operator, cluster, manifest.replace("SOMEWHERE", "no-such-namespace")).manifest
    (found,) = jobs.rehearse(operator, cluster, nowhere).findings
    assert (found.code, found.path, found.refused_by) == ("no-such-namespace", "metadata.namespace", "api-server")
    assert "no-such-namespace" in found.message
    good = jobs.check(operator, cluster, manifest.replace("SOMEWHERE", "default")).manifest
    assert jobs.rehearse(operator, cluster, good) == jobs.Rehearsal()
    with gateways.kubernetes_of(cluster) as kubernetes:
        assert "rehearsed" not in {pod.name for pod in kubernetes.pods(namespace="default")}
