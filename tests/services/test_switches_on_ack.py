"""Every kind of step on ACK, carried out under running pods, seen to work, and undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gpupools.models import NodePool
from gpupools.services import changes
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.breakage import Maker, machines_of, names_of
from tests.services.switching import Bench, there_and_back
from tests.services.test_carrying_on_ack import PLACEMENT

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


@pytest.fixture
def bench(operator: Actor, admin: Actor) -> Iterator[Callable[[NodePool], Bench]]:
    """Make the bench of a pool; its Jobs end with the test."""
    made: list[Bench] = []

    def of(pool: NodePool) -> Bench:
        made.append(Bench(operator, admin, pool.cluster, names_of(pool)))
        return made[-1]

    yield of
    for each in made:
        each.end()


@pytest.mark.parametrize(
    ("start", "mode", "kinds"),
    [
        ("exclusive", "cgpu", {"cordon", "drain", "write_labels", "wait_resources", "uncordon", "verify"}),
        ("exclusive", "topology", {"write_labels"}),
        ("exclusive", "mps", {"wait_daemon"}),
        ("exclusive", "core_mem", {"write_pool", "remove", "attach"}),
        ("cgpu", "share", {"write_pool", "remove", "attach"}),
    ],
)
def test_a_pool_is_switched_under_running_pods_and_back(
    make: Maker, admin: Actor, bench: Callable[[NodePool], Bench], start: str, mode: str, kinds: set[str]
) -> None:
    pool = make("pool", start, 2)
    if mode == "mps":
        driving.with_components(admin, pool.cluster, "ack-mps-control")
    machines = set(machines_of(pool))
    change = there_and_back(bench(pool), pool, target_mode=mode)
    assert kinds <= {step.kind for step in change.steps.all()}
    assert set(machines_of(pool)) == machines, "no machine was released or made"


def test_a_pool_is_freed_by_batches_and_back(make: Maker, bench: Callable[[NodePool], Bench]) -> None:
    pool = make("batches", size=2)
    change = there_and_back(bench(pool), pool, target_mode="cgpu", way="batches", batch_size=1)
    for each in (change, change.undone_by.get()):
        assert [step.wave for step in each.steps.filter(kind="drain")] == [1, 2]
        assert each.steps.filter(kind="write_labels").count() == 1


def test_a_policy_is_changed_under_running_pods_that_stay_and_back(
    make: Maker, operator: Actor, bench: Callable[[NodePool], Bench]
) -> None:
    pool = make("policy", "cgpu", 1)
    place = bench(pool)
    jobs = place.start("cgpu")
    uids = {pod.uid for pod in place.running(jobs).values()}
    change = changes.request(operator, pool, target_mode="cgpu", target_policy="spread", reason="there")
    place.carry_out(change)
    assert {node.labels[PLACEMENT] for node in place.nodes().values()} == {"spread"}
    change.pool.refresh_from_db()
    place.carry_out(changes.undo(operator, change, reason="and back"))
    assert {node.labels[PLACEMENT] for node in place.nodes().values()} == {"binpack"}
    assert {pod.uid for pod in place.running(jobs).values()} == uids


def test_a_pool_moves_piece_by_piece_into_another_one_and_back(make: Maker, bench: Callable[[NodePool], Bench]) -> None:
    source, target = make("source", size=2), make("target", "cgpu", 0)
    machines = set(machines_of(source))
    change = there_and_back(bench(source), source, way="move", target_pool=target)
    assert [step.wave for step in change.steps.filter(kind="attach")] == [1, 2]
    assert (set(machines_of(source)), machines_of(target)) == (machines, {})
