"""A pool of ACK with two machines, and an MPS daemon with a client: what tests of dangerous operations start from."""

from __future__ import annotations

from typing import Any

from gpupools.domain.modes import ACK_POOL_LABEL
from gpupools.models import Cluster, NodePool, OperationRequest
from gpupools.services import componentcare, components, poolcuts
from gpupools.services.access import Actor
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_cluster, a_component, a_pool
from tests.services.showing import show

WHY = "The project has ended."
MPS = "ack-mps-control"
HELD = a_pod("train", whole=2, on="m1", owner_kind="Job", owner_name="train", created_at="2026-11-30T08:00:00Z")
LONE = a_pod("notebook", on="m2", namespace="research")


def machines(*names: str, **fields: Any) -> list[Any]:
    """Nodes of the pool ``vision``."""
    return [a_node(name, "exclusive", labels={ACK_POOL_LABEL: "np-vision"}, **fields) for name in names or ("m1", "m2")]


def a_cloud() -> Cluster:
    """A cluster of ACK that does not answer."""
    return a_cluster("cloud", provider=Cluster.Provider.ACK, ack_cluster_id="c1", spec="ack.pro.small")


def a_vision_pool(cloud: Cluster) -> NodePool:
    """Two machines: one with a Job's pod on its cards, one with a pod that nobody owns and that holds none."""
    pool = a_pool(
        cloud, "vision", pool_id="np-vision", mode="exclusive", policy="", desired_size=2, seen={"total_nodes": 2}
    )
    show(cloud, machines(), [HELD, LONE])
    return pool


def an_mps_node(cluster: Cluster, *pods: Any) -> None:
    """An MPS daemon of version 1.0, an mps node and pods that compute through it."""
    state = a_component(cluster, MPS)
    type(state).objects.filter(pk=state.pk).update(version="1.0")
    show(cluster, [a_node("n1", "mps")], pods or [client("one")])


def client(name: str, **fields: Any) -> Any:
    """A pod that computes through the MPS daemon of n1."""
    return a_pod(name, mem=4, at={0: 4}, on="n1", **fields)


def asked(actor: Actor, pool: NodePool, kind: str, **more: Any) -> OperationRequest:
    """Ask for an operation of a kind: on the pool, or on the MPS daemon of its cluster."""
    cluster = pool.cluster
    made = {
        "size-0": lambda: poolcuts.scale(actor, pool, desired_size=0, reason=WHY, **more),
        "forced-delete": lambda: poolcuts.delete(actor, pool, force=True, reason=WHY, **more),
        "component-uninstall": lambda: components.uninstall(
            actor, pool.cluster, "ack-ai-installer", reason=WHY, **more
        ),
        "mps-upgrade": lambda: componentcare.upgrade(actor, cluster, MPS, **{"version": "1.1", "reason": WHY, **more}),
    }[kind]()
    assert isinstance(made, OperationRequest), f"{kind} was done at once"
    return made
