"""Changes that evict: who has no place, who is lost, who is held up by a budget, and who is never evicted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpupools.clusters.channel import Channel
from gpupools.domain.changes import State
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import changes, credentials, pools
from gpupools.services.access import Actor
from tests.services import driving
from tests.services.driving import a_sleeper, connected, drive, opened, reaches, settle, until
from tests.services.test_carrying import gpu_nodes, nodes_of, reported
from tests.simulator.harness import SimulatorProcess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
GPU = {"nvidia.com/gpu": "1"}


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=20.0) as running:
        yield running


@pytest.fixture
def cluster(db: None, simulator: SimulatorProcess, admin: Actor) -> Cluster:
    cluster = connected(simulator)
    with opened(cluster) as kubernetes:
        # The first node may be in another mode by now.
        until(lambda: all(reported(n) for n in gpu_nodes(kubernetes.nodes())[1:3]), what="nodes that report cards")
    driving.with_components(admin, cluster, "ack-ai-installer")
    return cluster


@pytest.fixture
def channel(cluster: Cluster) -> Iterator[Channel]:
    made = Channel(credentials.connection_of(cluster))
    yield made
    made.close()


def made(operator: Actor, cluster: Cluster, node: str) -> NodePool:
    pool = pools.create(operator, cluster, name=f"of-{node}", mode="exclusive", node_names=[node])
    settle()
    pool.refresh_from_db()
    return pool


def a_pod_on(channel: Channel, name: str, node: str, **labels: str) -> None:
    """Start a pod of nobody that holds a card of a node."""
    job = a_sleeper(name, seconds=100_000, limits={"nvidia.com/gpu": 1}, node=node)
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": job["spec"]["template"]["spec"],  # type: ignore[index]  # the manifest is ours
    }
    channel.request("POST", "/api/v1/namespaces/default/pods", body=body)


def runs(cluster: Cluster, *names: str) -> None:
    with opened(cluster) as kubernetes:
        until(
            lambda: {pod.name for pod in kubernetes.pods(namespace="default") if pod.ready} >= set(names),
            what=f"running pods {names}",
        )


def evicting(operator: Actor, pool: NodePool) -> ModeChange:
    return changes.request(operator, pool, target_mode="cgpu", holders="evict", reason="needed")


def codes(change: ModeChange) -> dict[str, str]:
    return {each["code"]: each["message"] for each in change.warnings}


def test_a_budget_is_named_before_and_while_it_holds_an_eviction_up_and_nobody_else_waits_for_it(
    operator: Actor, admin: Actor, cluster: Cluster, channel: Channel
) -> None:
    pool = made(operator, cluster, "gpu-01")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "keep"}}},
    }
    channel.request("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", body=budget)
    a_pod_on(channel, "a-kept", "gpu-01", app="keep")
    a_pod_on(channel, "b-free", "gpu-01")
    runs(cluster, "a-kept", "b-free")
    with opened(cluster) as kubernetes:
        until(lambda: [b.status.current_healthy for b in kubernetes.budgets()] == [1], what="a counted budget")
    change = evicting(operator, pool)
    assert "default/keep lets none of its 1 pod here go now" in codes(change)["disruption-budget"]
    assert {hit["pod"]: hit["budget"] for hit in change.blast_radius} == {"a-kept": "default/keep", "b-free": ""}
    assert "default/a-kept, default/b-free have no owner and are lost for good" in codes(change)["lost-pods"]
    changes.approve(admin, change, reason="agreed")
    draining = change.steps.get(kind="drain")

    def only_the_kept_one_is_left() -> bool:
        draining.refresh_from_db()
        return "1 pod still holds cards on gpu-01: default/a-kept. default/a-kept may not be" in draining.detail

    drive(only_the_kept_one_is_left, what="a step that names the budget while the other pod is gone")
    assert "The disruption budget keep needs 1 healthy pods and has 1 currently." in draining.detail
    assert draining.waiting_since is not None
    channel.request("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep")
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert not nodes_of(cluster)["gpu-01"].unschedulable


def test_pods_whose_owner_finds_no_room_for_them_are_named_before(
    operator: Actor, cluster: Cluster, channel: Channel
) -> None:
    pool = made(operator, cluster, "gpu-02")
    with opened(cluster) as kubernetes:
        kubernetes.create(a_sleeper("tied", seconds=100_000, limits={"nvidia.com/gpu": 1}, node="gpu-02"), op_id="t")
        until(lambda: any(p.owner_name == "tied" and p.ready for p in kubernetes.pods()), what="a running pod")
        name = next(pod.name for pod in kubernetes.pods() if pod.owner_name == "tied")
    change = evicting(operator, pool)
    assert codes(change)["no-place"] == (
        f"Nowhere to go for default/{name}: a Deployment or Job starts it again, and it stays Pending until there is "
        "room."
    )
    assert [each["pod"] for each in change.outlook["homeless"]] == [name]
    assert "lost-pods" not in codes(change)


def test_a_pod_of_a_daemonset_is_never_evicted_and_the_step_says_who_must_let_go(
    operator: Actor, admin: Actor, cluster: Cluster, channel: Channel
) -> None:
    pool = made(operator, cluster, "gpu-03")
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "exporter"},
        "spec": {
            "selector": {"matchLabels": {"app": "exporter"}},
            "template": {
                "metadata": {"labels": {"app": "exporter"}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": "gpu-03"},
                    "containers": [{"name": "main", "image": "busybox:1", "command": ["sleep", "100000"],
                                    "resources": {"limits": GPU}}],
                },
            },
        },
    }  # fmt: skip
    channel.request("POST", "/apis/apps/v1/namespaces/default/daemonsets", body=body)
    with opened(cluster) as kubernetes:
        until(lambda: any(p.owner_name == "exporter" and p.ready for p in kubernetes.pods()), what="a daemon's pod")
        uid = next(pod.uid for pod in kubernetes.pods() if pod.owner_name == "exporter")
    change = evicting(operator, pool)
    assert [hit["fate"] for hit in change.blast_radius] == ["stays"]
    assert "never-evicted" in codes(change)
    changes.approve(admin, change, reason="agreed")
    drive(lambda: "Never evicted are default/exporter" in change.steps.get(kind="drain").detail, what="who must let go")
    with opened(cluster) as kubernetes:
        assert uid in {pod.uid for pod in kubernetes.pods()}, "it is the same pod as before"
        kubernetes.delete("DaemonSet", "default", "exporter")
    drive(reaches(change, State.APPLIED), what="an applied change")
