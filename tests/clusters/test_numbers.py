"""Numbers of cards that consoles are known to get wrong, read from the embedded cluster's own process as it changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.clusters import kubeconfig
from gpupools.clusters.feed import Pace
from gpupools.clusters.port import Connection
from gpupools.clusters.reflector import Reflector
from gpupools.domain import allocation
from gpupools.domain.gpus import NodeAllocation
from gpupools.domain.modes import MODE_LABEL, Component
from gpupools.services.componentpushes import manifests
from tests.clusters.faults import COUNT, MEM, WHOLE, World, wait_for
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.harness import SimulatorProcess

PACE = Pace(silence=2.0, settled=0.5, first_delay=0.01, longest_delay=0.1, ring=0.05)
NOTE = {"scheduler.framework.gpushare.allocation": '{"0":{"0":5}}'}


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=50) as running:
        yield running


@pytest.fixture
def connection(simulator: SimulatorProcess) -> Connection:
    return kubeconfig.parse(simulator.kubeconfig.read_text(), allow_loopback=True)


@pytest.fixture
def world(connection: Connection) -> Iterator[World]:
    made = World(connection)
    wait_for(lambda: sum(node.whole_cards > 0 for node in made.client.nodes()) >= 8, what=lambda: "cards")
    yield made
    made.close()


@pytest.fixture
def breaker(simulator: SimulatorProcess) -> Iterator[Breaker]:
    with breaking(simulator) as found:
        yield found


@pytest.fixture
def copy(connection: Connection, world: World) -> Iterator[Reflector]:
    with Reflector(connection, pace=PACE) as reflector:
        wait_for(lambda: reflector.live, what=lambda: reflector.error)
        yield reflector


def fold(copy: Reflector, node: str) -> NodeAllocation | None:
    return allocation.fold_all(copy.nodes(), copy.pods()).get(node)


def shows(copy: Reflector, node: str, **numbers: int) -> None:
    def is_so() -> bool:
        found = fold(copy, node)
        return found is not None and all(getattr(found, name) == value for name, value in numbers.items())

    wait_for(is_so, what=lambda: f"{numbers} in {fold(copy, node)}")


def whole(cards: int) -> dict[str, int]:
    return {WHOLE: cards}


def test_a_deleted_pod_gives_its_cards_back_and_another_of_its_name_is_another(copy: Reflector, world: World) -> None:
    world.pod("gpu-01", whole(1), name="same")
    shows(copy, "gpu-01", cards_used=1)
    first = next(pod.uid for pod in copy.pods() if pod.name == "same")
    world.client.evict("default", "same")
    shows(copy, "gpu-01", cards_used=0)
    world.pod("gpu-02", whole(1), name="same-again")
    shows(copy, "gpu-02", cards_used=1)
    assert first not in {pod.uid for pod in copy.pods()}


def test_a_pod_that_went_while_nobody_heard_is_not_counted_for_ever(
    copy: Reflector, world: World, breaker: Breaker
) -> None:
    world.pod("gpu-03", whole(2), name="unheard")
    shows(copy, "gpu-03", cards_used=2)
    breaker.begin("watch-freeze")
    world.client.evict("default", "unheard")
    breaker.begin("compaction")
    breaker.begin("watch-drop")
    breaker.http.call("DELETE", "/faults")
    shows(copy, "gpu-03", cards_used=0)


def test_what_has_ended_and_what_waits_holds_nothing(copy: Reflector, world: World) -> None:
    world.pod(limits=whole(1), name="ends", more={"containers": [_container("true")]})
    waiting = world.pod(limits=whole(99))
    wait_for(lambda: any(pod.name == "ends" and pod.finished for pod in copy.pods()), what=lambda: "the end of a pod")
    wait_for(lambda: waiting in {f"{pod.namespace}/{pod.name}" for pod in copy.pods()}, what=lambda: "a waiting pod")
    folds = allocation.fold_all(copy.nodes(), copy.pods()).values()
    assert sum(each.cards_used for each in folds) == 0


def _container(command: str) -> dict:
    return {"name": "main", "image": "busybox", "command": [command], "resources": {"limits": {WHOLE: "1"}}}


def test_a_resource_of_a_former_mode_stays_in_capacity_and_is_not_counted(copy: Reflector, world: World) -> None:
    node = world.node("by-hand", "cgpu", {WHOLE: 0, MEM: 30, COUNT: 2}, capacity={WHOLE: 2, MEM: 30, COUNT: 2})
    shows(copy, node, cards=2, memory_units=30, cards_used=0)


def test_a_plugin_that_restarts_shows_no_card_for_a_moment_and_loses_no_holder(
    copy: Reflector, world: World, breaker: Breaker
) -> None:
    pod = world.pod("gpu-04", whole(1))
    shows(copy, "gpu-04", cards_used=1)
    before = fold(copy, "gpu-04").cards
    breaker.begin("plugin-restart", node="gpu-04")
    wait_for(lambda: bool(fold(copy, "gpu-04")) and held(copy, "gpu-04", pod), what=lambda: "the holder")
    shows(copy, "gpu-04", cards=before, cards_used=1)


def held(copy: Reflector, node: str, pod: str) -> bool:
    found = fold(copy, node)
    return found is not None and pod in {f"{each.namespace}/{each.pod}" for each in found.holdings}


def test_a_node_that_went_leaves_the_numbers(copy: Reflector, connection: Connection) -> None:
    other = World(connection)
    other.node("short-lived", "default", whole(8))
    shows(copy, "short-lived", cards=8)
    other.close()
    wait_for(lambda: fold(copy, "short-lived") is None, what=lambda: "the end of a node")


def test_a_switch_under_a_pod_counts_it_in_neither_mode_twice(copy: Reflector, world: World) -> None:
    for manifest in manifests(Component.AI_INSTALLER, image_prefix="registry.example.com/acs"):
        world.client.apply(manifest, op_id="install")
    world.label("gpu-05", mode="share")
    wait_for(lambda: (fold(copy, "gpu-05") or 0) and fold(copy, "gpu-05").memory_units > 0, what=lambda: "shared cards")
    node = next(node for node in copy.nodes() if node.name == "gpu-05")
    assert node.allocatable[WHOLE] == 0
    assert node.labels[MODE_LABEL] == "share"
    world.pod("gpu-05", {MEM: 5}, annotations=NOTE)
    shows(copy, "gpu-05", memory_units_used=5, memory_units_pending=0, memory_units_orphan=0)


def test_a_node_that_is_away_keeps_its_holders_and_says_so(copy: Reflector, world: World, breaker: Breaker) -> None:
    pod = world.pod("gpu-06", whole(1))
    shows(copy, "gpu-06", cards_used=1)
    breaker.begin("node-down", node="gpu-06", how="not-ready")
    wait_for(lambda: any(node.name == "gpu-06" and not node.ready for node in copy.nodes()), what=lambda: "NotReady")
    assert held(copy, "gpu-06", pod)
