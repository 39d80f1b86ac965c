"""What a preview of an edit says is what happens to the nodes, on both providers; and bounds reach ACK on creation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from gpupools.clusters.port import AutoScaling
from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.modes import MODE_LABEL, OP_LABEL, POOL_LABEL
from gpupools.domain.nodewrites import KeyWrite, taint_key
from gpupools.errors import Conflict
from gpupools.models import Cluster, NodePool
from gpupools.services import gateways, poolcuts, poolpreviews, pools, poolsync
from gpupools.services.access import Actor
from gpupools.services.poolspecs import members
from tests.services.work import connected, until, work
from tests.simulator.harness import SimulatorProcess

TYPE = "ecs.gn7i-c8g1.2xlarge"
BEFORE = {"labels": {"team": "red", "tier": "gold"}, "taints": [Taint("gpu", "yes"), Taint("old", "x", "NoExecute")]}
AFTER = {"labels": {"team": "blue", "new": "1"}, "taints": [Taint("gpu", "no"), Taint("fresh")]}


@pytest.fixture(scope="module")
def on_ack() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=20) as running:
        yield running


@pytest.fixture(scope="module")
def plain() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small") as running:
        yield running


@pytest.fixture
def cloud(db: None, on_ack: SimulatorProcess, empty_redis: object) -> Cluster:
    made = connected(on_ack)
    poolsync.sync(made)
    return made


@pytest.fixture
def lab(db: None, plain: SimulatorProcess, empty_redis: object) -> Cluster:
    return connected(plain, "lab")


def nodes_of(pool: NodePool) -> list[GpuNode]:
    with gateways.kubernetes_of(pool.cluster) as kubernetes:
        return sorted(members(pool, kubernetes.nodes()), key=lambda node: node.name)


def carried(node: GpuNode) -> dict[str, str]:
    """Everything on a node that a pool can write; the operation's own label is no part of any wish."""
    labels = {key: value for key, value in node.labels.items() if key != OP_LABEL}
    return {**labels, **{taint_key(taint): taint.value for taint in node.taints}}


def foretold(preview: poolpreviews.EditPreview, before: Mapping[str, GpuNode]) -> dict[str, dict[str, str]]:
    """What nodes would carry if every write of the preview came true, and nothing else."""
    expected = {}
    for node in preview.nodes:
        found = carried(before[node.node])
        for write in node.writes:
            assert found.get(write.key) == write.old
            if write.new is None:
                del found[write.key]
            else:
                found[write.key] = write.new
        expected[node.node] = found
    return expected


def made(operator: Actor, cluster: Cluster, name: str, **wishes: object) -> NodePool:
    pool = pools.create(operator, cluster, name=name, **{**BEFORE, **wishes})
    work()
    until(lambda: bool(nodes_of(pool)), doing=pool.refresh_from_db)
    pool.refresh_from_db()
    return pool


def edited(operator: Actor, pool: NodePool, *, update_nodes: bool) -> tuple[dict[str, dict[str, str]], NodePool]:
    before = {node.name: node for node in nodes_of(pool)}
    preview = poolpreviews.edit(operator, pool, **AFTER, update_nodes=update_nodes)
    pools.edit(operator, pool, **AFTER, update_nodes=update_nodes)
    work()
    pool.refresh_from_db()
    assert pool.error == ""
    return (foretold(preview, before) if update_nodes else {name: carried(each) for name, each in before.items()}), pool


def test_on_ack_every_write_of_the_preview_happens_and_no_other(cloud: Cluster, operator: Actor) -> None:
    pool = made(operator, cloud, "foretold", mode="exclusive", instance_types=[TYPE], desired_size=2)
    until(lambda: len(nodes_of(pool)) == 2)
    with gateways.kubernetes_of(cloud) as kubernetes:
        kubernetes.label_node(nodes_of(pool)[0].name, labels={"team": "theirs", "own": "kept"}, op_id="by-hand")
    expected, pool = edited(operator, pool, update_nodes=True)
    until(lambda: {node.name: carried(node) for node in nodes_of(pool)} == expected)


def test_on_ack_without_the_choice_no_node_changes_and_the_same_list_is_then_what_differs(
    cloud: Cluster, operator: Actor
) -> None:
    pool = made(operator, cloud, "left-alone", mode="exclusive", instance_types=[TYPE], desired_size=1)
    said = poolpreviews.edit(operator, pool, **AFTER, update_nodes=False).nodes[0].writes
    expected, pool = edited(operator, pool, update_nodes=False)
    assert {node.name: carried(node) for node in nodes_of(pool)} == expected
    still = poolpreviews.edit(operator, pool, update_nodes=False).nodes[0]
    # What was taken away from the pool is on the node still, and is nobody's business any more.
    assert still.writes == tuple(write for write in said if write.new is not None)
    assert {each.key for each in still.drift} == {"team", "new", "taint gpu", "taint fresh"}


def test_on_plain_kubernetes_every_write_of_the_preview_happens_and_no_other(lab: Cluster, operator: Actor) -> None:
    with gateways.kubernetes_of(lab) as kubernetes:
        free = [
            node.name
            for node in kubernetes.nodes()
            if node.labels.get(MODE_LABEL) == "default" and POOL_LABEL not in node.labels
        ]
    pool = made(operator, lab, "foretold", mode="exclusive", node_names=free[:2])
    with gateways.kubernetes_of(lab) as kubernetes:
        kubernetes.label_node(free[0], labels={"team": "theirs", "own": "kept"}, op_id="by-hand")
    expected, pool = edited(operator, pool, update_nodes=True)
    assert {node.name: carried(node) for node in nodes_of(pool)} == expected
    assert all("tier" not in node.labels for node in nodes_of(pool))


def test_a_mode_that_the_preview_refuses_is_refused_by_saving(lab: Cluster, operator: Actor) -> None:
    with gateways.kubernetes_of(lab) as kubernetes:
        free = next(
            node.name
            for node in kubernetes.nodes()
            if node.labels.get(MODE_LABEL) == "default" and POOL_LABEL not in node.labels
        )
    pool = made(operator, lab, "refused", mode="exclusive", node_names=[free])
    with gateways.kubernetes_of(lab) as kubernetes:
        kubernetes.label_node(free, labels={MODE_LABEL: "share"}, op_id="by-hand")
    preview = poolpreviews.edit(operator, pool, labels={"team": "blue"})
    assert preview.refused == (free,)
    assert KeyWrite(MODE_LABEL, "share", "default") in preview.nodes[0].writes
    with pytest.raises(Conflict) as refusal:
        pools.edit(operator, pool, labels={"team": "blue"})
    assert (refusal.value.code, refusal.value.data["nodes"]) == ("would-change-mode", [free])


def test_bounds_reach_ack_with_the_creation_and_can_be_moved_afterwards(cloud: Cluster, operator: Actor) -> None:
    bounds = {"enable": True, "min_instances": 0, "max_instances": 3}
    wishes = {"mode": "cgpu", "instance_types": [TYPE], "desired_size": 1, "auto_scaling": bounds}
    pool = pools.create(operator, cloud, name="bounded", **wishes)
    work()
    pool.refresh_from_db()
    with gateways.pools_of(cloud) as (_, provider):
        found = provider.pool(pool.pool_id)
    assert found.auto_scaling == AutoScaling(True, 0, 3, "gpushare")
    poolsync.sync(cloud)
    pool.refresh_from_db()
    assert pool.auto_scaling == {**bounds, "type": "gpushare"}, "the row and ACK agree"
    poolcuts.scale(operator, pool, desired_size=2, auto_scaling={**bounds, "max_instances": 5})
    work()
    with gateways.pools_of(cloud) as (_, provider):
        assert provider.pool(pool.pool_id).auto_scaling == AutoScaling(True, 0, 5, "gpushare")
