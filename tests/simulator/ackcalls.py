"""One cluster through the official ACK SDK, for tests that want pools, add-ons and the ends of tasks."""

from __future__ import annotations

import time
from typing import Any

from alibabacloud_cs20151215 import models

from tests.simulator.clients import V100_FOUR, ack_client
from tests.simulator.harness import SimulatorProcess


class Ack:
    """One cluster through the SDK, with the few shapes that these tests need."""

    def __init__(self, simulator: SimulatorProcess) -> None:
        self.client = ack_client(simulator)
        self.cluster_id = simulator.ack["cluster_id"]

    def create_pool(self, name: str, labels: dict[str, str], *, size: int = 1, **group: Any) -> Any:
        request = models.CreateClusterNodePoolRequest(
            nodepool_info=models.CreateClusterNodePoolRequestNodepoolInfo(name=name),
            scaling_group=models.CreateClusterNodePoolRequestScalingGroup(
                **{
                    "vswitch_ids": ["vsw-1"],
                    "instance_types": [V100_FOUR],
                    "instance_charge_type": "PostPaid",
                    "desired_size": size,
                    **group,
                }
            ),
            kubernetes_config=models.CreateClusterNodePoolRequestKubernetesConfig(labels=tags(labels)),
        )
        return self.client.create_cluster_node_pool(self.cluster_id, request).body

    def pool_of(self, name: str, labels: dict[str, str], *, size: int = 1) -> str:
        """Create a pool and wait for its machines; return its id."""
        answer = self.create_pool(name, labels, size=size)
        self.succeed(answer.task_id)
        return str(answer.nodepool_id)

    def modify(self, pool_id: str, **fields: Any) -> Any:
        request = models.ModifyClusterNodePoolRequest(**fields)
        return self.client.modify_cluster_node_pool(self.cluster_id, pool_id, request).body

    def relabel(self, pool_id: str, labels: dict[str, str], *, update_nodes: bool) -> None:
        config = models.ModifyClusterNodePoolRequestKubernetesConfig(labels=tags(labels))
        self.succeed(self.modify(pool_id, kubernetes_config=config, update_nodes=update_nodes).task_id)

    def task(self, task_id: str) -> Any:
        return self.client.describe_task_info(task_id).body

    def succeed(self, task_id: str) -> Any:
        """Wait for the end of a task; it must be a success."""
        task = self.ended(task_id)
        assert task.state == "success", task.error
        return task

    def ended(self, task_id: str) -> Any:
        """Wait for the end of a task, good or bad."""
        until = time.monotonic() + 40
        while (task := self.task(task_id)).state == "running":
            assert time.monotonic() < until, f"task {task_id} still runs: {task.current_stage}"
            time.sleep(0.05)  # the API can only be asked; there is nothing to wait on
        return task

    def nodes(self, pool_id: str) -> list[Any]:
        request = models.DescribeClusterNodesRequest(nodepool_id=pool_id, page_size="100")
        return list(self.client.describe_cluster_nodes(self.cluster_id, request).body.nodes)

    def pool(self, pool_id: str) -> Any:
        return self.client.describe_cluster_node_pool_detail(self.cluster_id, pool_id).body

    def install(self, name: str) -> Any:
        version = self.client.describe_addon(name, models.DescribeAddonRequest()).body.version
        body = [models.InstallClusterAddonsRequestBody(name=name, version=version)]
        return self.client.install_cluster_addons(self.cluster_id, models.InstallClusterAddonsRequest(body=body)).body

    def upgrade(self, name: str, version: str) -> Any:
        body = [models.UpgradeClusterAddonsRequestBody(component_name=name, next_version=version)]
        return self.client.upgrade_cluster_addons(self.cluster_id, models.UpgradeClusterAddonsRequest(body=body)).body

    def addons(self) -> dict[str, str]:
        """Return the installed add-ons with their states."""
        listed = self.client.list_cluster_addon_instances(self.cluster_id).body.addons
        return {addon.name: addon.state for addon in listed}

    def ensure(self, name: str) -> None:
        """Have an add-on installed."""
        if name not in self.addons():
            self.succeed(self.install(name).task_id)

    def ensure_absent(self, name: str) -> None:
        """Have an add-on not installed."""
        if name in self.addons():
            self.succeed(self.uninstall(name).task_id)

    def uninstall(self, name: str) -> Any:
        wanted = [models.UnInstallClusterAddonsRequestAddons(name=name)]
        request = models.UnInstallClusterAddonsRequest(addons=wanted)
        return self.client.un_install_cluster_addons(self.cluster_id, request).body


def tags(labels: dict[str, str]) -> list[Any]:
    return [models.Tag(key=key, value=value) for key, value in labels.items()]
