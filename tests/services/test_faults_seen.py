"""Faults of a running cluster, begun on command, as the console words them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpupools.clusters.feed import Pace
from gpupools.clusters.reflector import Reflector
from gpupools.domain.checks import Check
from gpupools.domain.modes import ACK_POOL_LABEL
from gpupools.models import Cluster, NodePool, Push
from gpupools.services import allocation, clusters, components, credentials, gateways, nodes, pools, poolsync, pushing
from gpupools.services.access import Actor
from tests.services.driving import a_sleeper
from tests.services.work import connected, queue, until, work
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.harness import SimulatorProcess

# Long silences count after two seconds: no test waits for minutes.
FAST = Pace(silence=2.0, settled=1.0, first_delay=0.05, longest_delay=0.2, ring=0.1)
TYPE = "ecs.gn6v-c8g1.8xlarge"


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=50) as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, empty_redis: object) -> Cluster:
    made = connected(simulator)
    poolsync.sync(made)
    return made


@pytest.fixture
def breaker(simulator: SimulatorProcess) -> Iterator[Breaker]:
    with breaking(simulator) as found:
        yield found


@pytest.fixture
def gpu(cluster: Cluster) -> str:
    """A GPU node that reports its four cards."""
    with gateways.kubernetes_of(cluster) as kubernetes:
        until(lambda: any(node.whole_cards == 4 for node in kubernetes.nodes()))
        return next(node.name for node in kubernetes.nodes() if node.whole_cards == 4)


def checks_of(actor: Actor, cluster: Cluster, name: str) -> dict[str, Check]:
    """Look at a node as its page does."""
    allocation.poll(cluster)
    (row,) = nodes.listing(actor, cluster, name=name).rows
    return {check.code: check for check in row.checks}


# The API server


@pytest.mark.parametrize(("status", "words"), [(503, "503"), (500, "500"), (429, "429")])
def test_a_cluster_that_refuses_is_unreachable_since_and_says_why(
    cluster: Cluster, breaker: Breaker, status: int, words: str
) -> None:
    id_ = breaker.begin("error", status=status, message="the storage is being repaired")
    clusters.probe(cluster)
    assert cluster.state == Cluster.State.UNREACHABLE
    assert cluster.unreachable_since is not None
    assert words in cluster.last_error or "storage is being repaired" in cluster.last_error
    breaker.end(id_)
    clusters.probe(cluster)
    assert (cluster.state, cluster.last_error, cluster.unreachable_since) == (Cluster.State.CONNECTED, "", None)


@pytest.fixture
def copy(cluster: Cluster) -> Iterator[Reflector]:
    with Reflector(credentials.connection_of(cluster), pace=FAST) as reflector:
        until(lambda: reflector.live)
        yield reflector


def mark(cluster: Cluster, node: str, value: str) -> None:
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.label_node(node, labels={"marked": value}, op_id=f"mark-{value}")


def sees(copy: Reflector, node: str, value: str) -> Callable[[], bool]:
    return lambda: any(n.name == node and n.labels.get("marked") == value for n in copy.nodes())


def test_a_watcher_comes_through_dropped_doubled_and_late_watches_and_compactions(
    cluster: Cluster, breaker: Breaker, copy: Reflector, gpu: str
) -> None:
    breaker.begin("watch-duplicate")
    breaker.begin("watch-late", seconds=0.1)
    mark(cluster, gpu, "one")
    until(sees(copy, gpu, "one"))
    breaker.begin("watch-drop")
    breaker.begin("compaction")
    mark(cluster, gpu, "two")
    until(sees(copy, gpu, "two"))
    breaker.begin("watch-drop")
    breaker.begin("compaction", status=True)
    mark(cluster, gpu, "three")
    until(sees(copy, gpu, "three"))
    until(lambda: copy.live and not copy.error)


def test_a_frozen_watch_is_noticed_by_its_silence(
    cluster: Cluster, breaker: Breaker, copy: Reflector, gpu: str
) -> None:
    breaker.begin("watch-freeze")
    mark(cluster, gpu, "frozen")
    # Nothing comes on the watches: each is left after its silence and opened anew.
    before = {kind: counts.watches for kind, counts in copy.counts.items()}
    until(lambda: all(counts.watches > before[kind] for kind, counts in copy.counts.items()))
    breaker.http.call("DELETE", "/faults")
    until(sees(copy, gpu, "frozen"))
    until(lambda: copy.live and not copy.error)


def test_a_watcher_says_why_it_is_not_current(cluster: Cluster, breaker: Breaker, copy: Reflector) -> None:
    breaker.begin("error", status=503, message="the storage is being repaired", verbs=["list", "watch"])
    breaker.begin("watch-drop")
    until(lambda: bool(copy.error))
    assert not copy.live
    assert copy.last_seen is not None
    breaker.http.call("DELETE", "/faults")
    until(lambda: copy.live and not copy.error)


# Operations


def a_pool(actor: Actor, cluster: Cluster, name: str, **wishes: Any) -> NodePool:
    return pools.create(
        actor,
        cluster,
        **{"name": name, "mode": "exclusive", "instance_types": [TYPE], "desired_size": 1, **wishes},
    )


def test_a_throttled_operation_is_tried_again_with_its_error_shown(
    cluster: Cluster, admin: Actor, breaker: Breaker
) -> None:
    breaker.begin("ack-error", path="/nodepools")
    a_pool(admin, cluster, "throttled")
    until(lambda: any("Throttling" in error or "flow control" in error for _, _, error in queue()),
          doing=pushing.run_due)  # fmt: skip
    push = Push.objects.get(kind="pool.create")
    assert (push.state, push.attempts > 0) == (Push.State.QUEUED, True)
    breaker.http.call("DELETE", "/faults")
    Push.objects.filter(state=Push.State.QUEUED).update(due_at=push.created_at)
    work()
    push.refresh_from_db()
    assert push.state == Push.State.DONE


def test_a_task_that_fails_half_way_fails_the_operation_with_its_words(
    cluster: Cluster, admin: Actor, breaker: Breaker
) -> None:
    pool = a_pool(admin, cluster, "half-way")
    work()
    pool.refresh_from_db()
    breaker.begin("task-fail", task_type="nodepool_update", after=0, message="node i-7 did not answer")
    pools.edit(admin, pool, labels={"team": "a"}, update_nodes=True, version=pool.version)
    work()
    push = Push.objects.filter(kind__startswith="pool.").latest("created_at")
    assert push.state == Push.State.FAILED
    assert "node i-7 did not answer" in push.error


# Nodes


def test_a_dead_node_is_not_ready_on_its_page(cluster: Cluster, admin: Actor, breaker: Breaker, gpu: str) -> None:
    assert checks_of(admin, cluster, gpu)["ready"].ok is True
    breaker.begin("node-down", node=gpu)
    until(lambda: checks_of(admin, cluster, gpu)["ready"].ok is False)
    found = checks_of(admin, cluster, gpu)["ready"]
    assert (found.found, "kubelet does not answer" in found.fix) == ("NotReady", True)
    breaker.http.call("DELETE", "/faults")
    until(lambda: checks_of(admin, cluster, gpu)["ready"].ok is True)


def test_a_broken_card_is_named_on_the_nodes_page(cluster: Cluster, admin: Actor, breaker: Breaker, gpu: str) -> None:
    breaker.begin("card", node=gpu, index=2)
    until(lambda: checks_of(admin, cluster, gpu)["healthy"].ok is False)
    assert checks_of(admin, cluster, gpu)["healthy"].found == "nvidia.com/gpu: 3 of 4 allocatable"
    breaker.http.call("DELETE", "/faults")
    until(lambda: checks_of(admin, cluster, gpu)["healthy"].ok is True)


def test_a_node_that_somebody_relabelled_is_shown_as_drifted(
    cluster: Cluster, admin: Actor, breaker: Breaker, gpu: str
) -> None:
    breaker.begin("label", node=gpu, labels={"ack.node.gpu.schedule": "cgpu"})
    allocation.poll(cluster)
    (row,) = nodes.listing(admin, cluster, name=gpu).rows
    assert [(drift.key, drift.found) for drift in row.drift] == [("ack.node.gpu.schedule", "cgpu")]
    breaker.begin("label", node=gpu, labels={"ack.node.gpu.schedule": "default"})


def a_shared_node(actor: Actor, cluster: Cluster, name: str) -> str:
    """Make a shared pool of one node and wait for its memory; return the node."""
    components.install(actor, cluster, "ack-ai-installer")
    work()
    pool = a_pool(actor, cluster, name, mode="cgpu", policy="binpack")
    work()
    with gateways.kubernetes_of(cluster) as kubernetes:

        def there() -> list[str]:
            return [n.name for n in kubernetes.nodes() if n.labels.get(ACK_POOL_LABEL) == pool_id and n.memory_units]

        pool.refresh_from_db()
        pool_id = pool.pool_id
        until(lambda: bool(there()))
        return there()[0]


def test_cards_that_differ_and_a_stuck_pod_are_shown_on_the_nodes_page(
    cluster: Cluster, admin: Actor, breaker: Breaker
) -> None:
    node = a_shared_node(admin, cluster, "odd-cards")
    assert checks_of(admin, cluster, node)["plausible"].ok is True
    pod = a_sleeper("stuck", seconds=3600, limits={"aliyun.com/gpu-mem": 4}, node=node)
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.create(pod, op_id="stuck")

        def held() -> list[Any]:
            return [pod for pod in kubernetes.pods() if pod.node == node and pod.name.startswith("stuck")]

        until(lambda: bool(held()) and held()[0].phase == "Running")
        breaker.begin("stuck-pod", pod=held()[0].name)
        kubernetes.delete("Job", "default", "stuck")
        until(lambda: held()[0].terminating)
    allocation.poll(cluster)
    (row,) = nodes.listing(admin, cluster, name=node).rows
    assert row.allocation is not None
    assert (row.allocation.memory_units_used, row.allocation.memory_units_releasing) == (4, 4)
    # The second card has more memory than the first, by which all are counted.
    breaker.begin("mixed-cards", node=node, cards=["Tesla-T4:15079", "NVIDIA-A10:23028", "NVIDIA-A10:23028"])
    until(lambda: checks_of(admin, cluster, node)["card-labels"].found.startswith("3 x Tesla-T4"))
    breaker.begin("ecc", node=node, on=False)
    until(lambda: nodes.listing(admin, cluster, name=node).rows[0].node.memory_units == 3 * 14,
          doing=lambda: allocation.poll(cluster))  # fmt: skip
