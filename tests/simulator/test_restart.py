"""What comes back when the embedded cluster is stopped or killed and started again on its state file."""

from __future__ import annotations

from pathlib import Path

from alibabacloud_cs20151215 import models

from tests.simulator.ackcalls import Ack
from tests.simulator.clients import MODE, WHOLE, connected
from tests.simulator.harness import SimulatorProcess


def test_pools_tasks_nodes_and_running_pods_come_back(tmp_path: Path) -> None:
    simulator = SimulatorProcess(fleet="demo", ack=True, speed=20, state=True, directory=tmp_path)
    with simulator:
        ack = Ack(simulator)
        pool_id = ack.pool_of("kept", {MODE: "default"})
        (node,) = ack.nodes(pool_id)
        started = ack.create_pool("coming", {MODE: "default"}, size=1)
        with connected(simulator) as cluster:
            cluster.node_reports(node.node_name, whole="4")
            cluster.create_pod("long", "sh", "-c", "echo begin; sleep infinity", limits={WHOLE: 1})
            before = cluster.pod_in_phase("long", "Running")
            cluster.create_pod("ending", "sh", "-c", "echo one; sleep 60; echo two")
            cluster.pod_in_phase("ending", "Running")
        assert simulator.stop() == 0

        simulator.start()
        again = Ack(simulator)
        assert again.cluster_id == ack.cluster_id
        assert [n.instance_id for n in again.nodes(pool_id)] == [node.instance_id]
        again.succeed(started.task_id)
        assert len(again.nodes(started.nodepool_id)) == 1
        pools = again.client.describe_cluster_node_pools(again.cluster_id, models.DescribeClusterNodePoolsRequest())
        names = [pool.nodepool_info.name for pool in pools.body.nodepools]
        assert sorted(names) == ["coming", "default-nodepool", "kept", "training"]
        with connected(simulator) as cluster:
            after = cluster.core.read_namespaced_pod("long", "default")
            assert after.metadata.uid == before.metadata.uid
            assert after.status.container_statuses[0].restart_count == 0
            assert cluster.log("long") == "begin\n"
            cluster.pod_in_phase("ending", "Succeeded")
            assert cluster.log("ending") == "one\ntwo\n"


def test_a_kill_in_the_middle_of_a_task_does_not_leave_it_hanging(tmp_path: Path) -> None:
    simulator = SimulatorProcess(fleet="demo", ack=True, speed=5, state=True, directory=tmp_path)
    with simulator:
        ack = Ack(simulator)
        pool = ack.create_pool("half", {MODE: "default"}, size=2)
        task = ack.task(pool.task_id)
        assert task.state == "running"
        assert simulator.stop() == 0  # the state is on the disk; what follows starts from it
        simulator.start()
        simulator.kill()
        simulator.start()
        again = Ack(simulator)
        again.succeed(pool.task_id)
        assert len(again.nodes(pool.nodepool_id)) == 2
