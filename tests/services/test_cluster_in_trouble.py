"""A cluster that vanishes, throttles, breaks or takes rights away at each kind of step: wait or stop, then go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

import pytest
from django.utils import timezone

from gpupools.domain.changes import State
from gpupools.models import ChangeStep, Cluster, ModeChange, NodePool, Push
from gpupools.services import changes, credentials, guidance, poolcuts, pools, poolsync, pushes
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.breakage import Maker, asked_for
from tests.services.builders import a_connection
from tests.services.driving import connected, drive, reaches, run_one, settle, until
from tests.services.test_carrying import nodes_of, reported, start_pod
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
Trouble = Callable[[Cluster, Breaker, str], AbstractContextManager[None]]
ON_KUBERNETES = ("preflight", "cordon", "drain", "write_labels", "wait_daemon", "wait_resources", "uncordon", "verify")
BY_MACHINE = ("pause_scaling", "write_pool", "remove", "attach", "resume_scaling", "verify")
# What a step asks of the API server that a look at the cluster does not.
POINTED = {
    "cordon": {"verbs": ["patch"], "resources": ["nodes"]},
    "drain": {"verbs": ["create"], "resources": ["pods"]},
    "write_labels": {"verbs": ["patch"], "resources": ["nodes"]},
    "uncordon": {"verbs": ["patch"], "resources": ["nodes"]},
}


# Trouble


@contextmanager
def vanished(cluster: Cluster, breaker: Breaker, kind: str) -> Iterator[None]:
    """Nobody listens where the API server and ACK's OpenAPI were: connections are refused."""
    real = Cluster.objects.values_list("credentials", flat=True).get(pk=cluster.pk)
    nowhere = credentials.seal(a_connection(ack=cluster.provider == Cluster.Provider.ACK))
    Cluster.objects.filter(pk=cluster.pk).update(credentials=nowhere)
    yield
    Cluster.objects.filter(pk=cluster.pk).update(credentials=real)


def answering(status: int, message: str, **more: int) -> Trouble:
    """Let the API server answer like this, where it can to the request that is the step's own."""

    @contextmanager
    def trouble(cluster: Cluster, breaker: Breaker, kind: str) -> Iterator[None]:
        breaker.begin("error", status=status, message=message, **more, **POINTED.get(kind, {}))
        yield
        breaker.http.call("DELETE", "/faults")

    return trouble


def ack_answering(status: int, code: str, message: str) -> Trouble:
    """Let ACK's OpenAPI answer like this."""

    @contextmanager
    def trouble(cluster: Cluster, breaker: Breaker, kind: str) -> Iterator[None]:
        breaker.begin("ack-error", status=status, code=code, message=message)
        yield
        breaker.http.call("DELETE", "/faults")

    return trouble


# Getting to a step


def due(change: ModeChange) -> ChangeStep | None:
    """The step that comes next, once the change is under way."""
    change.refresh_from_db()
    if change.state != State.APPLYING:
        return None
    return change.steps.exclude(state__in=["done", "skipped"]).order_by("position").first()


def is_due(change: ModeChange, kind: str) -> Callable[[], bool]:
    def here() -> bool:
        step = due(change)
        return step is not None and step.kind == kind

    return here


def queued_at() -> datetime:
    return Push.objects.get(state=Push.State.QUEUED).due_at


def waits_through(change: ModeChange, trouble: Trouble, breaker: Breaker, kind: str, words: str, pause: float) -> None:
    """See that a change waits at a step, says why, comes back no sooner than it may, and stays under way."""
    drive(is_due(change, kind), what=f"a change at {kind}")
    cluster = change.pool.cluster
    with trouble(cluster, breaker, kind):
        drive(
            lambda: change.steps.filter(kind=kind, detail__contains=words).exists(),
            what=f"a step {kind} that says: {words}",
        )
        assert (queued_at() - timezone.now()).total_seconds() > pause, kind
        step = due(change)
        assert step is not None
        assert (change.state, step.kind) == (State.APPLYING, kind)
        found = guidance.guide(change, list(change.steps.all()))
        assert found.headline.startswith("The cluster does not do its part at step")
        assert [each.code for each in found.advice] == ["wait-for-cluster"]


def stops_and_goes_on(
    operator: Actor, change: ModeChange, trouble: Trouble, breaker: Breaker, kind: str, words: str
) -> None:
    """See that a change stops at once at a step for want of a right, and goes on from there when it is given."""
    drive(is_due(change, kind), what=f"a change at {kind}")
    with trouble(change.pool.cluster, breaker, kind):
        drive(reaches(change, State.FAILED), what=f"a change that failed at {kind}")
        assert words in change.note
        assert not Push.objects.filter(state=Push.State.QUEUED).exists(), "nothing is tried for ever"
        assert change.steps.get(state="failed").kind == kind
        found = guidance.guide(change, list(change.steps.all()))
        assert found.headline.startswith("Stopped at step")
        assert [each.code for each in found.advice][:3] == ["give-right", "retry", "roll-back"]
    changes.retry(operator, change)


# On plain Kubernetes


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=50.0) as running:
        yield running


@pytest.fixture
def plain(simulator: SimulatorProcess) -> Iterator[Breaker]:
    with breaking(simulator) as found:
        yield found


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, admin: Actor) -> Cluster:
    cluster = connected(simulator)
    driving.with_components(admin, cluster, "ack-ai-installer", "ack-mps-control")
    return cluster


def pool_of(operator: Actor, cluster: Cluster, node: str) -> NodePool:
    """A pool of one exclusive node; each test has a node of its own, as they change the mode."""
    until(lambda: reported(nodes_of(cluster)[node]), what=f"{node} with its cards")
    pool = pools.create(operator, cluster, name=f"of-{node}", mode="exclusive", node_names=[node])
    settle()
    pool.refresh_from_db()
    return pool


def evicting(operator: Actor, admin: Actor, cluster: Cluster, node: str) -> ModeChange:
    pool = pool_of(operator, cluster, node)
    start_pod(cluster, f"on-{node}", node=node)
    return asked_for(operator, admin, pool, target_mode="mps", holders="evict")


@pytest.mark.parametrize(
    ("node", "trouble", "words", "pause"),
    [
        ("gpu-06", vanished, "The cluster did not answer: the connection was refused.", 1.0),
        ("gpu-07", answering(429, "too busy", retry_after_seconds=9), "cannot do that now: too busy", 6.0),
        ("gpu-08", answering(503, "no storage"), "cannot do that now: no storage", 3.0),
    ],
)
def test_a_change_waits_at_each_kind_of_step_while_the_cluster_is_away_and_then_goes_on(
    operator: Actor, admin: Actor, cluster: Cluster, plain: Breaker, node: str, trouble: Trouble, words: str,
    pause: float,
) -> None:  # fmt: skip
    change = evicting(operator, admin, cluster, node)
    assert [step.kind for step in change.steps.all()] == list(ON_KUBERNETES)
    for kind in ON_KUBERNETES:
        waits_through(change, trouble, plain, kind, words, pause)
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_a_change_stops_at_each_kind_of_step_that_it_may_not_do_and_goes_on_when_it_may(
    operator: Actor, admin: Actor, cluster: Cluster, plain: Breaker
) -> None:
    change = evicting(operator, admin, cluster, "gpu-09")
    for kind in ON_KUBERNETES:
        trouble, words = answering(403, "gpupools may not do that"), "The cluster refused: gpupools may not do that"
        if kind in ("preflight", "wait_resources"):
            trouble, words = answering(401, "Unauthorized"), "The cluster refused: Unauthorized"
        stops_and_goes_on(operator, change, trouble, plain, kind, words)
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_a_cluster_that_stays_away_fails_the_change_after_so_many_tries_and_a_retry_goes_on(
    operator: Actor, admin: Actor, cluster: Cluster, plain: Breaker
) -> None:
    change = asked_for(operator, admin, pool_of(operator, cluster, "gpu-05"), target_mode="topology")
    drive(is_due(change, "write_labels"), what="a change about to write")
    with vanished(cluster, plain, ""):
        for _ in range(pushes.MAX_TRIES):
            run_one()
        change.refresh_from_db()
        assert change.state == State.FAILED
    assert change.note.startswith(f"Given up after {pushes.MAX_TRIES} tries. The cluster did not answer")
    found = guidance.guide(change, list(change.steps.all()))
    assert [each.code for each in found.advice] == ["wait-for-cluster", "retry", "roll-back", "give-up"]
    assert found.held.cordoned == ("gpu-05",)
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")


# On ACK, by machine


@pytest.fixture
def scaled(operator: Actor, make: Maker) -> NodePool:
    """A pool that ACK scales by itself."""
    pool = make("scaled", size=2)
    bounds = {"enable": True, "min_instances": 1, "max_instances": 5}
    poolcuts.scale(operator, pool, desired_size=2, auto_scaling=bounds)
    settle()
    poolsync.sync(pool.cluster)
    pool.refresh_from_db()
    return pool


@pytest.mark.parametrize(
    ("trouble", "words", "pause"),
    [
        (vanished, "did not answer", 1.0),
        (ack_answering(400, "Throttling.User", "flow control"), "ACK cannot do that now: flow control", 3.0),
        (ack_answering(503, "ServiceUnavailable", "a pause"), "ACK cannot do that now: a pause", 3.0),
    ],
)
def test_a_change_by_machine_waits_at_each_kind_of_step_while_ack_is_away_and_then_goes_on(
    operator: Actor, admin: Actor, scaled: NodePool, breaker: Breaker, trouble: Trouble, words: str, pause: float
) -> None:
    change = asked_for(operator, admin, scaled, target_mode="core_mem")
    assert set(BY_MACHINE) < {step.kind for step in change.steps.all()}
    for kind in BY_MACHINE:
        waits_through(change, trouble, breaker, kind, words, pause)
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_a_change_by_machine_stops_at_each_kind_of_step_that_ack_forbids_and_goes_on_when_it_may(
    operator: Actor, admin: Actor, scaled: NodePool, breaker: Breaker
) -> None:
    change = asked_for(operator, admin, scaled, target_mode="core_mem")
    trouble = ack_answering(403, "Forbidden.RAM", "User not authorized to operate on the specified resource.")
    for kind in BY_MACHINE:
        stops_and_goes_on(operator, change, trouble, breaker, kind, "ACK refused: User not authorized")
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_the_pool_wide_label_call_waits_and_stops_too(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change = asked_for(operator, admin, make("labels", size=1), target_mode="cgpu")
    throttled = ack_answering(400, "Throttling.User", "flow control")
    waits_through(change, throttled, breaker, "write_labels", "ACK cannot do that now: flow control", 3.0)
    forbidden = ack_answering(401, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
    stops_and_goes_on(operator, change, forbidden, breaker, "write_labels", "ACK refused: Specified access key")
    drive(reaches(change, State.APPLIED), what="an applied change")


def test_a_pool_that_ack_is_busy_with_is_waited_for(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change = asked_for(operator, admin, make("busy", size=1), target_mode="cgpu")
    drive(is_due(change, "write_labels"), what="a change about to write")
    breaker.begin("ack-error", status=409, code="NodePoolStateConflict", message="The node pool is being scaled.")
    drive(
        lambda: change.steps.filter(kind="write_labels", detail="ACK refused: The node pool is being scaled.").exists(),
        what="a step that says what it waits for",
    )
    assert due(change) is not None, "it is under way"
    breaker.http.call("DELETE", "/faults")
    drive(reaches(change, State.APPLIED), what="an applied change")
