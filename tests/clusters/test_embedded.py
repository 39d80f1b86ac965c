"""The clients and the reflector against the embedded cluster's own process, over TLS and signed requests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gpupools import clusters
from gpupools.clusters import kubeconfig
from gpupools.clusters.ack import AckClient
from gpupools.clusters.feed import Pace
from gpupools.clusters.kube import KubeClient
from gpupools.clusters.labelled import LabelledPools
from gpupools.clusters.port import AckAccess, Connection, PoolSpec
from gpupools.clusters.reflector import Reflector
from gpupools.domain.gpus import GpuNode, Pod, Taint
from gpupools.domain.modes import ACK_POOL_LABEL, MODE_LABEL, OP_LABEL, POOL_LABEL, Mode
from gpupools.errors import Conflict, Refused
from tests.clusters.test_reflector import until
from tests.simulator.harness import SimulatorProcess

PACE = Pace(silence=1.0, settled=1.0, first_delay=0.05, longest_delay=0.2)


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", ack=True, speed=50) as running:
        yield running


def way_into(simulator: SimulatorProcess, role: str = "admin", *, with_ack: bool = False) -> Connection:
    text = simulator.kubeconfig_of(role).read_text()
    return kubeconfig.parse(text, allow_loopback=True, ack=access(simulator) if with_ack else None)


def access(simulator: SimulatorProcess) -> AckAccess:
    found = simulator.ack
    return AckAccess(
        found["cluster_id"],
        found["region"],
        found["access_key_id"],
        found["access_key_secret"],
        endpoint=found["endpoint"],
        protocol=found["protocol"],
    )


@pytest.fixture(scope="module")
def client(simulator: SimulatorProcess) -> Iterator[KubeClient]:
    with clusters.connect(way_into(simulator)) as made:
        yield made


def job(name: str, **annotations: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def pods_of(client: KubeClient, name: str) -> list[Pod]:
    return [pod for pod in client.pods(namespace="default") if pod.owner_name == name]


def by_uid(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: value.uid)


def test_the_server_tells_its_version(client: KubeClient) -> None:
    assert client.version().startswith("v1.")


def test_nodes_come_with_their_cards(client: KubeClient) -> None:
    node = client.node("gpu-01")
    assert node is not None
    assert node.declared is Mode.EXCLUSIVE
    assert node.card_model == "Tesla-V100-SXM2-16GB"
    assert node.card_memory_mib == 16130
    assert client.node("gpu-99") is None
    assert node.name in {n.name for n in client.nodes()}


def test_a_job_is_tried_created_once_logged_and_deleted(client: KubeClient) -> None:
    name, op_id = f"job-{uuid4().hex[:8]}", uuid4().hex
    assert client.create(job(name), op_id=op_id, dry_run=True).outcome == "created"
    assert name not in {w.name for w in client.workloads()}
    made = client.create(job(name), op_id=op_id)
    assert made.outcome == "created"
    again = client.create(job(name), op_id=op_id)
    assert (again.outcome, again.uid) == ("already", made.uid)
    with pytest.raises(Conflict) as caught:
        client.create(job(name), op_id=uuid4().hex)
    assert caught.value.code == "already-exists"
    until(lambda: any(p.finished for p in pods_of(client, name)), seconds=30)
    (pod,) = pods_of(client, name)
    assert "hello" in client.pod_log("default", pod.name)
    assert client.delete("Job", "default", name) is True
    until(lambda: not pods_of(client, name), seconds=30)
    assert client.delete("Job", "default", name) is False


def test_a_typing_mistake_in_a_manifest_is_refused_with_its_place(client: KubeClient) -> None:
    wrong = job(f"job-{uuid4().hex[:8]}")
    wrong["spec"]["paralellism"] = 2
    with pytest.raises(Refused, match="paralellism"):
        client.create(wrong, op_id=uuid4().hex)


def test_labels_taints_and_cordon_reach_the_node_and_leave_the_rest(client: KubeClient) -> None:
    before = client.node("cpu-01")
    assert before is not None
    taint = Taint("team", "vision", "PreferNoSchedule")
    op_id = uuid4().hex
    assert client.label_node("cpu-01", labels={"team": "v"}, taints_add=[taint], op_id=op_id).outcome == "changed"
    assert client.label_node("cpu-01", labels={"team": "v"}, taints_add=[taint], op_id=op_id).outcome == "already"
    assert client.cordon("cpu-01", unschedulable=True, op_id=uuid4().hex).outcome == "changed"
    there = client.node("cpu-01")
    assert there is not None
    assert there.labels == {**before.labels, "team": "v"}
    assert taint in there.taints
    assert there.unschedulable
    client.label_node("cpu-01", labels={"team": None}, taints_remove=[taint], op_id=uuid4().hex)
    client.cordon("cpu-01", unschedulable=False, op_id=uuid4().hex)

    def restored() -> bool:
        after = client.node("cpu-01")
        assert after is not None
        return (after.labels, after.taints, after.unschedulable) == (before.labels, before.taints, False)

    until(restored)  # Kubernetes itself takes its taint of cordoned nodes back, a moment later


def test_server_side_apply_creates_changes_and_is_told_apart(client: KubeClient) -> None:
    name = f"cm-{uuid4().hex[:8]}"
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"a": "1"},
    }
    first, second = uuid4().hex, uuid4().hex
    assert client.apply(manifest, op_id=first).outcome == "created"
    assert client.apply(manifest, op_id=first).outcome == "already"
    assert client.apply({**manifest, "data": {"a": "2"}}, op_id=second).outcome == "changed"
    assert client.delete("ConfigMap", "default", name)


def test_a_viewer_may_look_and_not_write(simulator: SimulatorProcess) -> None:
    with clusters.connect(way_into(simulator, "viewer")) as viewer:
        assert viewer.nodes()
        assert viewer.may("get", "", "nodes")
        assert not viewer.may("patch", "", "nodes")
        with pytest.raises(Refused) as caught:
            viewer.label_node("cpu-01", labels={"x": "1"}, op_id=uuid4().hex)
        assert caught.value.code == "forbidden"


def test_a_wrong_token_is_refused(simulator: SimulatorProcess) -> None:
    right = way_into(simulator)
    config = {**right.kubeconfig, "users": [{"name": "u", "user": {"token": "wrong"}}]}
    with clusters.connect(Connection(right.server, config)) as stranger, pytest.raises(Refused) as caught:
        stranger.nodes()
    assert caught.value.code == "unauthorized"


def test_the_copy_follows_jobs_and_labels_and_equals_fresh_lists(
    simulator: SimulatorProcess, client: KubeClient
) -> None:
    def same() -> bool:
        return (
            by_uid(reflector.nodes()) == by_uid(client.nodes())
            and by_uid(reflector.pods()) == by_uid(client.pods())
            and by_uid(reflector.workloads()) == by_uid(client.workloads())
        )

    with Reflector(way_into(simulator), pace=PACE) as reflector:
        assert reflector.next_ring(timeout_seconds=10)
        assert (reflector.synced, reflector.error) == (True, "")
        names = [f"job-{uuid4().hex[:8]}" for _ in range(10)]
        for name in names:
            client.create(job(name), op_id=uuid4().hex)
        client.label_node("gpu-02", labels={"seen": "1"}, op_id=uuid4().hex)
        until(lambda: any(n.labels.get("seen") == "1" for n in reflector.nodes()))
        for name in names[:5]:
            client.delete("Job", "default", name)
        client.label_node("gpu-02", labels={"seen": None}, op_id=uuid4().hex)
        until(same, seconds=30)


def test_the_copy_outlives_a_killed_server_and_catches_up_with_the_next(tmp_path: Path) -> None:
    simulator = SimulatorProcess(fleet="small", directory=tmp_path, speed=50, state=True)
    with simulator:
        connection = way_into(simulator)
        with Reflector(connection, pace=PACE) as reflector:
            reflector.next_ring(timeout_seconds=20)
            before = {n.name for n in reflector.nodes()}
            simulator.stop()
            until(lambda: reflector.error != "")
            assert not reflector.live
            assert {n.name for n in reflector.nodes()} == before
            simulator.start()
            with clusters.connect(way_into(simulator)) as client:
                assert client.label_node("gpu-01", labels={"again": "1"}, op_id=uuid4().hex).outcome == "changed"
                until(lambda: any(n.labels.get("again") == "1" for n in reflector.nodes()), seconds=30)
                until(lambda: by_uid(reflector.nodes()) == by_uid(client.nodes()), seconds=30)
            until(lambda: reflector.error == "" and reflector.live)


def test_a_frozen_server_makes_the_copy_old_but_not_empty(tmp_path: Path) -> None:
    with SimulatorProcess(fleet="small", directory=tmp_path, speed=50) as simulator:
        connection = kubeconfig.parse(simulator.kubeconfig.read_text(), allow_loopback=True, timeout_seconds=1.0)
        with Reflector(connection, pace=PACE) as reflector:
            reflector.next_ring(timeout_seconds=20)
            until(lambda: reflector.live)
            count = len(reflector.nodes())
            simulator.signal(signal.SIGSTOP)
            try:
                until(lambda: not reflector.live and reflector.error != "", seconds=20)
                assert len(reflector.nodes()) == count
                frozen_at = reflector.last_seen
            finally:
                simulator.signal(signal.SIGCONT)
            until(lambda: reflector.live and reflector.error == "", seconds=20)
            assert frozen_at is not None
            assert reflector.last_seen is not None
            assert reflector.last_seen > frozen_at


def test_a_labelled_pool_is_made_changed_and_taken_away(client: KubeClient) -> None:
    pools = LabelledPools(client)
    spec = PoolSpec("plain", Mode.SHARE, labels={"team": "v"}, taints=[Taint("lab")], node_names=["gpu-03", "gpu-04"])
    pools.create(spec, op_id=uuid4().hex)
    facts = pools.pool("plain")
    assert facts is not None
    assert facts.labels == {MODE_LABEL: "share", "ack.node.gpu.placement": "binpack", "team": "v"}
    assert facts.taints == (Taint("lab"),)
    assert pools.node_names("plain") == ["gpu-03", "gpu-04"]
    pools.modify("plain", PoolSpec("plain", Mode.EXCLUSIVE), update_nodes=True, op_id=uuid4().hex)
    node = client.node("gpu-03")
    assert node is not None
    assert (node.declared, node.taints, node.labels.get("team")) == (Mode.EXCLUSIVE, (), None)
    pools.delete("plain", force=False, op_id=uuid4().hex)
    assert pools.pool("plain") is None
    node = client.node("gpu-03")
    assert node is not None
    assert POOL_LABEL not in node.labels


def done(ack: AckClient, task_id: str) -> bool:
    return ack.task(task_id).state == "success"


def ready(client: KubeClient, names: list[str], mode: Mode) -> list[GpuNode]:
    nodes = [client.node(name) for name in names]
    return [n for n in nodes if n is not None and n.ready and n.declared is mode]


def test_an_ack_pool_is_made_once_switched_and_deleted_with_signed_requests(
    simulator: SimulatorProcess, client: KubeClient
) -> None:
    connection = way_into(simulator, with_ack=True)
    ack = clusters.pools(connection, client)
    assert isinstance(ack, AckClient)
    assert ack.owns_nodes
    assert ack.cluster().version
    op_id = str(uuid4())
    spec = PoolSpec("signed", Mode.CGPU, instance_types=["ecs.gn7i-c8g1.2xlarge"], desired_size=2, labels={"t": "v"})
    started = ack.create(spec, op_id=op_id)
    found = ack.find(op_id)
    assert found is not None
    assert found.pool_id == started.pool_id
    until(lambda: done(ack, started.task_id), seconds=60)
    names = ack.node_names(started.pool_id)
    assert len(ready(client, names, Mode.CGPU)) == 2
    joined = client.node(names[0])
    assert joined is not None
    assert joined.labels[ACK_POOL_LABEL] == started.pool_id
    with pytest.raises(Refused) as caught:
        LabelledPools(client).create(PoolSpec("x", Mode.MPS, node_names=names), op_id=uuid4().hex)
    assert caught.value.code == "owned-by-ack"
    change = PoolSpec("signed", Mode.SHARE, instance_types=spec.instance_types, desired_size=2)
    op_id = str(uuid4())
    first = ack.modify(started.pool_id, change, update_nodes=True, op_id=op_id)
    again = ack.modify(started.pool_id, change, update_nodes=True, op_id=op_id)
    assert again.task_id in {first.task_id, ""}
    until(lambda: done(ack, first.task_id), seconds=60)
    until(lambda: len(ready(client, names, Mode.SHARE)) == 2)
    facts = ack.pool(started.pool_id)
    assert facts is not None
    assert (facts.labels[MODE_LABEL], facts.op_id) == ("share", op_id)
    assert OP_LABEL not in facts.labels
    gone = ack.delete(started.pool_id, force=True, op_id=str(uuid4()))
    until(lambda: done(ack, gone.task_id), seconds=60)
    assert ack.pool(started.pool_id) is None
    assert ack.delete(started.pool_id, force=True, op_id=str(uuid4())).task_id == ""


@pytest.fixture
def pro() -> Iterator[AckClient]:
    """The OpenAPI of a Pro cluster."""
    with SimulatorProcess(fleet="demo", ack=True, speed=50) as running:
        found = clusters.addons(way_into(running, with_ack=True))
        assert isinstance(found, AckClient)
        yield found


def test_add_ons_come_and_go_by_the_openapi_however_often_it_is_asked(pro: AckClient) -> None:
    ack = pro
    started = ack.install("ack-mps-control")
    assert ack.install("ack-mps-control").task_id in {started.task_id, ""}
    until(lambda: ack.task(started.task_id).state == "success", seconds=60)
    assert "ack-mps-control" in {addon.name for addon in ack.addons()}
    assert ack.install("ack-mps-control").task_id == ""
    started = ack.uninstall("ack-mps-control")
    assert ack.uninstall("ack-mps-control").task_id in {started.task_id, ""}
    until(lambda: ack.task(started.task_id).state == "success", seconds=60)
    assert "ack-mps-control" not in {addon.name for addon in ack.addons()}
    assert ack.uninstall("ack-mps-control").task_id == ""
    with pytest.raises(Refused) as caught:
        ack.install("gpu-manager")
    assert caught.value.code == "addon-not-found"


def test_an_add_on_of_pro_clusters_is_refused_elsewhere(simulator: SimulatorProcess) -> None:
    with pytest.raises(Refused, match="needs a Pro cluster"):
        AckClient(access(simulator)).install("ack-mps-control")


def test_a_wrong_secret_is_refused_and_not_shown(simulator: SimulatorProcess) -> None:
    right = access(simulator)
    wrong = AckAccess(right.cluster_id, right.region, right.access_key_id, "wrong-secret", right.endpoint, "http")
    with pytest.raises(Refused) as caught:
        AckClient(wrong).pools()
    assert "wrong-secret" not in str(caught.value)


def test_the_kubeconfig_that_the_openapi_gives_is_one_that_we_take(simulator: SimulatorProcess) -> None:
    text = AckClient(access(simulator)).kubeconfig()
    with clusters.connect(kubeconfig.parse(text, allow_loopback=True)) as found:
        assert found.version().startswith("v1.")


def test_a_cluster_without_the_openapi_has_labelled_pools_and_no_add_ons(
    simulator: SimulatorProcess, client: KubeClient
) -> None:
    connection = way_into(simulator)
    assert isinstance(clusters.pools(connection, client), LabelledPools)
    assert clusters.addons(connection) is None
