"""What a given-up change gives back on ACK: auto scaling within its bounds, and its cordons; once, or when asked."""

from __future__ import annotations

import pytest

from gpupools.clusters.port import AutoScaling, PoolFacts
from gpupools.domain.changes import State
from gpupools.errors import Conflict
from gpupools.models import AuditEntry, ModeChange, NodePool, Push
from gpupools.services import changes, gateways, guidance, holdings, poolcuts, poolsync
from gpupools.services.access import Actor
from tests.services.breakage import Maker, asked_for, names_of
from tests.services.driving import a_sleeper, drive, opened, reaches, run_one, settle, until
from tests.services.test_carrying_on_ack import nodes_of
from tests.simulator.breaking import Breaker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
BOUNDS = {"enable": True, "min_instances": 1, "max_instances": 5}
WANTED = AutoScaling(True, 1, 5)


def facts_of(pool: NodePool) -> PoolFacts:
    with gateways.pools_of(pool.cluster) as (_, provider):
        facts = provider.pool(pool.pool_id)
    assert facts is not None
    return facts


@pytest.fixture
def pool(operator: Actor, make: Maker) -> NodePool:
    """A pool that ACK scales by itself."""
    pool = make("scaled", size=2)
    poolcuts.scale(operator, pool, desired_size=2, auto_scaling=BOUNDS)
    settle()
    poolsync.sync(pool.cluster)
    pool.refresh_from_db()
    assert facts_of(pool).auto_scaling == WANTED
    return pool


def draining(operator: Actor, admin: Actor, pool: NodePool) -> ModeChange:
    """A change that has paused auto scaling and waits for a pod."""
    node = names_of(pool)[0]
    with opened(pool.cluster) as kubernetes:
        job = a_sleeper(f"busy-{pool.pk}", seconds=100_000, limits={"nvidia.com/gpu": 1}, node=node)
        kubernetes.create(job, op_id=f"busy-{pool.pool_id}")
        until(lambda: any(p.node == node and p.ready for p in kubernetes.pods(namespace="default")), what="a pod")
    change = asked_for(operator, admin, pool, target_mode="cgpu")
    drive(lambda: change.steps.filter(kind="drain", state="running").exists(), what="a change that drains")
    assert not facts_of(pool).auto_scaling.enable
    change.refresh_from_db()
    return change


def paused(operator: Actor, admin: Actor, pool: NodePool) -> ModeChange:
    change = draining(operator, admin, pool)
    changes.pause(operator, change, reason="wrong pool")
    return change


@pytest.fixture(autouse=True)
def ended_jobs(pool: NodePool):
    yield
    with opened(pool.cluster) as kubernetes:
        kubernetes.delete("Job", "default", f"busy-{pool.pk}")


def given_back(pool: NodePool) -> bool:
    return facts_of(pool).auto_scaling == WANTED and not any(node.unschedulable for node in nodes_of(pool))


def test_giving_a_paused_change_up_switches_auto_scaling_on_again_within_its_bounds(
    operator: Actor, admin: Actor, pool: NodePool
) -> None:
    change = paused(operator, admin, pool)
    assert holdings.held_by(change).scaling == WANTED
    assert "Auto scaling of the pool is off; it was on, for 1 to 5 machines." in holdings.held_by(change).sentences()
    changes.abandon(operator, change, reason="wrong pool")  # no worker has noticed the pause yet
    found = guidance.guide(change, list(change.steps.all()))
    assert [each.message for each in found.advice] == ["It is being given back now."]
    settle()
    assert given_back(pool)
    change.refresh_from_db()
    assert not holdings.held_by(change)
    assert guidance.guide(change, list(change.steps.all())).headline == ""
    entry = AuditEntry.objects.get(action="change.released")
    assert (entry.data["auto_scaling"], len(entry.data["uncordoned"])) == ([1, 5], 2)


def test_giving_a_failed_change_up_does_so_too_and_no_worker_that_dies_does_it_twice(
    operator: Actor, admin: Actor, pool: NodePool, breaker: Breaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = draining(operator, admin, pool)
    breaker.begin("error", status=403, verbs=["list"], resources=["pods"], message="pods is forbidden")
    drive(reaches(change, State.FAILED), what="a failed change")
    breaker.http.call("DELETE", "/faults")
    changes.abandon(operator, change, reason="not today")

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    def has_arrived_after_one_more_death() -> bool:
        with monkeypatch.context() as dying:
            dying.setattr("gpupools.services.pushes._settle", dies)
            try:
                run_one()
            except Killed:
                Push.objects.filter(state=Push.State.QUEUED).update(lease_until=None)  # it runs out in time
        run_one()
        return not Push.objects.filter(state=Push.State.QUEUED).exists()

    until(has_arrived_after_one_more_death, what="an empty queue")
    assert given_back(pool)
    assert AuditEntry.objects.filter(action="change.released").count() == 1


def test_what_could_not_be_given_back_is_said_and_given_back_when_asked_again(
    operator: Actor, admin: Actor, pool: NodePool, breaker: Breaker
) -> None:
    change = paused(operator, admin, pool)
    changes.abandon(operator, change, reason="wrong pool")
    breaker.begin("error", status=403, verbs=["patch"], resources=["nodes"], message="nodes is forbidden")
    settle()
    change.refresh_from_db()
    assert change.state == State.ABANDONED
    assert "Not given back yet: The cluster refused: nodes is forbidden" in change.note
    found = guidance.guide(change, list(change.steps.all()))
    assert found.headline == "Given up, but not everything is given back"
    assert found.why.startswith("Not given back yet: The cluster refused: nodes is forbidden")
    assert len(found.held.cordoned) == 2
    assert not facts_of(pool).auto_scaling.enable
    breaker.http.call("DELETE", "/faults")
    changes.release(operator, change)
    with pytest.raises(Conflict) as twice:
        changes.release(operator, change)
    assert twice.value.code == "busy"
    settle()
    assert given_back(pool)
    change.refresh_from_db()
    assert change.note == "wrong pool"
    with pytest.raises(Conflict) as nothing:
        changes.release(operator, change)
    assert nothing.value.code == "nothing-held"


def test_rolling_back_switches_auto_scaling_on_again(operator: Actor, admin: Actor, pool: NodePool) -> None:
    change = paused(operator, admin, pool)
    changes.roll_back(operator, change, reason="wrong pool")
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    assert given_back(pool)
    assert not holdings.held_by(change)
