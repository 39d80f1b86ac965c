"""A cluster with a node in each mode, all in order, for the tests that break it; and what they say of its pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from gpupools.clusters import kubeconfig
from gpupools.domain.diagnosis import diagnose
from gpupools.domain.modes import MODE_LABEL, Component
from gpupools.services.componentpushes import manifests
from tests.clusters.faults import World, wait_for
from tests.simulator.harness import SimulatorProcess

MODES = {"gpu-01": "cgpu", "gpu-02": "core_mem", "gpu-03": "mps", "gpu-04": "topology", "gpu-05": "share"}
PREFIX = "registry.example.com/acs"
RUNNING = {"phase": "Running"}


def daemonsets() -> dict[str, dict]:
    return {
        each["metadata"]["name"]: each
        for name in (Component.AI_INSTALLER, Component.MPS_CONTROL)
        for each in manifests(name, image_prefix=PREFIX)
    }


def in_order(world: World) -> None:
    """Wait until nothing is wrong with any node: what the test before this one did has passed."""
    wait_for(
        lambda: not diagnose(world.scene(spec="ack.pro.small")),
        what=lambda: str([(each.code, each.message, each.evidence) for each in diagnose(world.scene())]),
    )


def running(world: World, name: str) -> bool:
    return any(f"{pod.namespace}/{pod.name}" == name and pod.phase == "Running" for pod in world.client.pods())


def note(**cards: int) -> dict[str, str]:
    document = {"0": {key.removeprefix("card"): value for key, value in cards.items()}}
    return {"scheduler.framework.gpushare.allocation": json.dumps(document)}


def selecting(mode: str) -> dict[str, dict[str, str]]:
    return {"nodeSelector": {MODE_LABEL: mode}}


@contextmanager
def cluster_of_every_mode() -> Iterator[SimulatorProcess]:
    """Run a cluster with a node in each mode, all in order."""
    with SimulatorProcess(fleet="small", speed=50) as running:
        world = World(kubeconfig.parse(running.kubeconfig.read_text(), allow_loopback=True))
        wait_for(lambda: len(world.client.nodes()) == 11, what=lambda: "eleven nodes")
        for name, daemonset in daemonsets().items():
            world.client.apply(daemonset, op_id=f"install-{name}")
        for node, mode in MODES.items():
            world.client.label_node(node, labels={MODE_LABEL: mode}, op_id=f"mode-{node}")
        world.client.close()
        yield running
