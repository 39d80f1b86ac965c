"""Late answers, failed binds, restarted plugins, switched ECC as the console words them; and that no kind is left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from gpupools.domain.modes import ACK_POOL_LABEL
from gpupools.errors import Unreachable
from gpupools.models import Cluster, Push, Role
from gpupools.services import allocation, clusters, components, gateways, pools, poolsync, pushing, tokens
from gpupools.services.access import Actor
from gpupools.simulator import faults
from tests.services.driving import a_sleeper
from tests.services.work import connected, queue, until, work
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.harness import SimulatorProcess

TYPE = "ecs.gn6v-c8g1.8xlarge"
WHOLE = "nvidia.com/gpu"
SILENT = "The cluster did not answer: silent for 1 s."


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", ack=True, speed=50) as running:
        yield running


@pytest.fixture(scope="module")
def slow() -> Iterator[SimulatorProcess]:
    """A cluster with a clock like ours: what lasts a moment can be looked at."""
    with SimulatorProcess(fleet="small", speed=1) as running:
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
def rest(admin: Actor) -> APIClient:
    """A client of the API, by a token of the administrator's."""
    _, text = tokens.issue(admin, name="looking", role=Role.ADMIN.value)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    return client


def read(rest: APIClient, path: str, **query: str) -> Any:
    answer = rest.get(f"/api/v1/{path}", query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def node_with_cards(cluster: Cluster) -> str:
    with gateways.kubernetes_of(cluster) as kubernetes:
        until(lambda: any(node.whole_cards == 4 for node in kubernetes.nodes()))
        return next(node.name for node in kubernetes.nodes() if node.whole_cards == 4)


def diagnosed(rest: APIClient, cluster: Cluster, code: str) -> list[dict[str, Any]]:
    """Look at the cluster once and return what is called so."""
    allocation.poll(cluster)
    return [each for each in read(rest, f"clusters/{cluster.name}/diagnosis/")["results"] if each["code"] == code]


# Lateness


def test_a_cluster_that_answers_too_late_is_unreachable_and_its_last_numbers_stay_with_their_age(
    cluster: Cluster, breaker: Breaker, rest: APIClient, settings: Any
) -> None:
    gpu = node_with_cards(cluster)
    allocation.poll(cluster)
    before = read(rest, "clusters/embedded/allocation/")
    assert {row["node"]: row["cards"] for row in before["nodes"]}[gpu] == 4
    settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS = 1
    id_ = breaker.begin("latency", seconds=60)
    clusters.probe(cluster)
    seen = read(rest, "clusters/embedded/")
    assert (seen["state"], seen["last_error"]) == ("unreachable", SILENT)
    assert seen["unreachable_since"] is not None
    with pytest.raises(Unreachable, match="silent for 1 s"):
        allocation.poll(cluster)
    after = read(rest, "clusters/embedded/allocation/")
    assert (after["taken_at"], after["nodes"]) == (before["taken_at"], before["nodes"])
    breaker.end(id_)
    clusters.probe(cluster)
    allocation.poll(cluster)
    assert read(rest, "clusters/embedded/")["last_error"] == ""
    assert read(rest, "clusters/embedded/allocation/")["taken_at"] > before["taken_at"]


def test_an_operation_that_ack_answers_too_late_is_tried_again_with_its_error_shown_and_done_once(
    cluster: Cluster, admin: Actor, breaker: Breaker, rest: APIClient, settings: Any
) -> None:
    settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS = 1
    # Longer than anybody waits, and yet carried out in the end: what is tried again must not be made twice.
    breaker.begin("ack-latency", seconds=1.5)
    pools.create(admin, cluster, name="late", mode="exclusive", instance_types=[TYPE], desired_size=0)
    until(lambda: any(error for _, _, error in queue()), doing=pushing.run_due)
    (shown,) = [each for each in read(rest, "pushes/")["results"] if each["kind"] == "pool.create"]
    assert (shown["state"], shown["error"]) == ("queued", "ACK's OpenAPI did not answer.")
    breaker.http.call("DELETE", "/faults")
    settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS = 10
    Push.objects.filter(state=Push.State.QUEUED).update(due_at=Push.objects.get(kind="pool.create").created_at)
    work()
    push = Push.objects.get(kind="pool.create")
    assert (push.state, push.error) == (Push.State.DONE, "")
    with gateways.pools_of(cluster) as (_, provider):
        assert [pool.name for pool in provider.pools()].count("late") == 1


# Pods and plugins


def test_a_pod_that_could_not_be_bound_waits_with_the_schedulers_sentence(
    cluster: Cluster, breaker: Breaker, rest: APIClient
) -> None:
    gpu = node_with_cards(cluster)
    id_ = breaker.begin("bind-fail", pod="unbound", times=0)
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.create(a_sleeper("unbound", seconds=360_000, limits={WHOLE: 1}, node=gpu), op_id="unbound")
    until(lambda: bool(diagnosed(rest, cluster, "bind-failed")))
    (found,) = diagnosed(rest, cluster, "bind-failed")
    (pod,) = read(rest, "clusters/embedded/pods/", owner="Job/unbound")["results"]
    assert found["pods"] == [f"default/{pod['name']}"]
    assert "could not bind" in found["message"]
    assert (pod["phase"], pod["node"], pod["reason"]) == ("Pending", "", "SchedulerError")
    assert pod["message"].startswith("binding rejected: running Bind plugin")
    breaker.end(id_)
    until(lambda: not diagnosed(rest, cluster, "bind-failed"))
    (pod,) = read(rest, "clusters/embedded/pods/", owner="Job/unbound")["results"]
    assert (pod["node"], pod["message"]) == (gpu, "")
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.delete("Job", "default", "unbound")


def test_a_plugin_that_restarts_is_named_and_its_cards_are_missing_not_free(
    db: None, slow: SimulatorProcess, empty_redis: object, rest: APIClient
) -> None:
    cluster = connected(slow)
    gpu = node_with_cards(cluster)

    def row() -> dict[str, Any]:
        (found,) = [each for each in read(rest, "clusters/embedded/allocation/")["nodes"] if each["node"] == gpu]
        return dict(found)

    def is_named() -> bool:
        return any(each["node"] == gpu for each in diagnosed(rest, cluster, "exclusive-reports-nothing"))

    until(lambda: not is_named())
    assert (row()["cards_missing"], row()["wrong"]) == (0, [])
    with breaking(slow) as breaker:
        breaker.begin("plugin-restart", node=gpu)
        until(is_named)
        named, seen = read(rest, "clusters/embedded/diagnosis/", node=gpu)["results"], row()
        assert [each["message"] for each in named] == [f"{gpu} is in mode exclusive and reports no {WHOLE}."]
        assert named[0]["evidence"]
        assert (seen["cards"], seen["cards_missing"], seen["wrong"]) == (0, 4, [f"{WHOLE} is not reported"])
        until(lambda: not is_named())
    assert (row()["cards"], row()["cards_missing"], row()["wrong"]) == (4, 0, [])


def test_nodes_of_one_model_whose_ecc_differs_are_named_with_the_cause(
    cluster: Cluster, admin: Actor, breaker: Breaker, rest: APIClient
) -> None:
    components.install(admin, cluster, "ack-ai-installer")
    work()
    pool = pools.create(
        admin, cluster, name="ecc", mode="share", policy="binpack", instance_types=[TYPE], desired_size=2
    )
    work()
    pool.refresh_from_db()

    def units() -> dict[str, int]:
        allocation.poll(cluster)
        picture = allocation.current(cluster)
        assert picture is not None
        return {n.name: n.memory_units for n in picture.nodes if n.labels.get(ACK_POOL_LABEL) == pool.pool_id}

    until(lambda: len(units()) == 2 and all(units().values()))
    whole, part = sorted(units())
    for node in (whole, part):
        breaker.begin("ecc", node=node, on=False)
    until(lambda: units() == {whole: 64, part: 64})
    assert diagnosed(rest, cluster, "same-model-differs") == []
    breaker.begin("ecc", node=part, on=True)
    until(lambda: units() == {whole: 64, part: 60})
    (found,) = diagnosed(rest, cluster, "same-model-differs")
    assert (found["node"], found["scenario"]) == (part, 35)
    assert found["evidence"].startswith(f"15 units a card here, 16 on {whole}")
    assert found["fix"].startswith("ECC takes part of a card's memory")


# All of them


def begun() -> dict[str, set[str]]:
    """Return the kinds that tests of this folder begin, each with the names of those tests."""
    found: dict[str, set[str]] = {}
    for name in ("test_faults_seen.py", Path(__file__).name):
        for function in ast.parse((Path(__file__).parent / name).read_text()).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                for call in ast.walk(function):
                    match call:
                        case ast.Call(func=ast.Attribute(attr="begin"), args=[ast.Constant(value=str(kind)), *_]):
                            found.setdefault(kind, set()).add(function.name)
    return found


@pytest.mark.parametrize("kind", sorted(str(kind.__struct_config__.tag) for kind in faults.KINDS))
def test_every_kind_of_fault_is_seen_in_the_console_by_a_test(kind: str) -> None:
    assert begun().get(kind), f"no test here begins {kind} and looks at what the console says of it"
