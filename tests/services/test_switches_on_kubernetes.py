"""Every kind of step on plain Kubernetes, carried out under running pods, seen to work, and undone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.models import Cluster, NodePool
from gpupools.services import changes, pools
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.driving import connected, opened, settle, until
from tests.services.switching import Bench, there_and_back
from tests.services.test_carrying import PLACEMENT, nodes_of, reported
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
POOL = "gpupools.internal/pool"
NODES = ("gpu-01", "gpu-02")


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    """Every test puts its nodes back into the mode that they had, so that one cluster does for all."""
    with SimulatorProcess(fleet="small", speed=50.0) as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, admin: Actor) -> Cluster:
    cluster = connected(simulator)
    driving.with_components(admin, cluster, "ack-ai-installer", "ack-mps-control")
    return cluster


@pytest.fixture
def bench(operator: Actor, admin: Actor, cluster: Cluster) -> Iterator[Bench]:
    until(lambda: all(reported(nodes_of(cluster)[name]) for name in NODES), what="nodes with their cards")
    made = Bench(operator, admin, cluster, NODES)
    yield made
    made.end()
    with opened(cluster) as kubernetes:
        for name in (*NODES, "gpu-03"):
            kubernetes.label_node(name, labels={POOL: None}, op_id="the end")


def made(operator: Actor, cluster: Cluster, name: str, mode: str, *nodes: str) -> NodePool:
    pool = pools.create(operator, cluster, name=name, mode=mode, node_names=nodes, reason="a test")
    settle()
    pool.refresh_from_db()
    return pool


@pytest.fixture
def pool(operator: Actor, cluster: Cluster, bench: Bench) -> Iterator[NodePool]:
    pool = made(operator, cluster, "shared", "exclusive", *NODES)
    yield pool
    pool.refresh_from_db()
    if pool.mode != "exclusive":
        bench.end()
        bench.carry_out(changes.request(operator, pool, target_mode="exclusive", holders="evict", reason="the end"))


def in_mode(bench: Bench, pool: NodePool, mode: str, **wishes: str) -> None:
    bench.carry_out(changes.request(bench.operator, pool, target_mode=mode, reason="to begin with", **wishes))
    pool.refresh_from_db()


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        ("cgpu", {"cordon", "drain", "write_labels", "wait_resources", "uncordon", "verify"}),
        ("topology", {"cordon", "drain", "write_labels", "wait_resources"}),
        ("mps", {"wait_daemon"}),
        ("core_mem", {"readd"}),
    ],
)
def test_a_pool_is_switched_under_running_pods_and_back(
    bench: Bench, pool: NodePool, mode: str, kinds: set[str]
) -> None:
    change = there_and_back(bench, pool, target_mode=mode)
    assert kinds <= {step.kind for step in change.steps.all()}


def test_cgpu_goes_to_share_by_a_restart_and_back_in_place(bench: Bench, pool: NodePool) -> None:
    in_mode(bench, pool, "cgpu")
    change = there_and_back(bench, pool, target_mode="share")
    assert change.steps.filter(kind="restart", confirmed_by=bench.operator.user).exists()
    assert not change.undone_by.get().steps.filter(kind="restart").exists()


def test_a_pool_is_switched_by_batches_and_back(bench: Bench, pool: NodePool) -> None:
    change = there_and_back(bench, pool, target_mode="cgpu", way="batches", batch_size=1)
    assert [step.wave for step in change.undone_by.get().steps.filter(kind="drain")] == [1, 2]


def test_a_policy_is_changed_under_running_pods_that_stay_and_back(bench: Bench, pool: NodePool) -> None:
    in_mode(bench, pool, "cgpu")
    jobs = bench.start("cgpu")
    uids = {pod.uid for pod in bench.running(jobs).values()}
    change = changes.request(bench.operator, pool, target_mode="cgpu", target_policy="spread", reason="there")
    bench.carry_out(change)
    assert {node.labels[PLACEMENT] for node in bench.nodes().values()} == {"spread"}
    change.pool.refresh_from_db()
    bench.carry_out(changes.undo(bench.operator, change, reason="and back"))
    assert {node.labels[PLACEMENT] for node in bench.nodes().values()} == {"binpack"}
    assert {pod.uid for pod in bench.running(jobs).values()} == uids


def test_a_whole_pool_moves_into_another_one_and_back(bench: Bench, operator: Actor, cluster: Cluster) -> None:
    source, target = (
        made(operator, cluster, "from", "exclusive", *NODES),
        made(operator, cluster, "into", "exclusive", "gpu-03"),
    )
    in_mode(Bench(bench.operator, bench.admin, cluster, ["gpu-03"]), target, "topology")
    change = there_and_back(bench, source, way="move", target_pool=target)
    assert change.node_names == []
    assert {node.labels[POOL] for node in bench.nodes().values()} == {"from"}
