"""Node pools and add-ons of an ACK cluster through Alibaba Cloud's own SDK (CS 2015-12-15), unmodified.

The node-pool calls have no client token, so nothing here adds: sizes are absolute, and a pool carries the id of the
operation that wrote it last as a label, which is looked for before writing again. Nothing is retried here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from alibabacloud_cs20151215 import models
from alibabacloud_cs20151215.client import Client
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException
from alibabacloud_tea_openapi.utils_models import Config
from darabonba.exceptions import DaraException, RequiredArgumentException, RetryError, ValidateException
from darabonba.runtime import RuntimeOptions
from Tea.exceptions import UnretryableException

from gpupools.clusters.ackshapes import group_change, pool_facts, scaling, scaling_change, tags, taints
from gpupools.clusters.channel import CONNECT_SECONDS, cut
from gpupools.clusters.port import (
    AckAccess,
    AddonFacts,
    AutoScaling,
    ClusterFacts,
    PoolFacts,
    PoolSpec,
    Started,
    TaskFacts,
)
from gpupools.clusters.roles import credentials_of
from gpupools.errors import Conflict, ConsoleError, Invalid, Refused, Unreachable

PAGE_SIZE = 100  # the most that DescribeClusterNodes gives at once
SYSTEM_DISK_CATEGORY = "cloud_essd"
SYSTEM_DISK_GIB = 120
_BUSY = frozenset({"scaling", "removing", "deleting", "updating"})
# Documented is ``fail`` for a task and ``failed`` for a part of its result; a task can be cancelled, too.
_ENDED_BADLY = frozenset({"fail", "failed", "canceled", "cancelled"})
_ADDON_TASKS = ("addon", "component")
_Answer = TypeVar("_Answer")


class AckClient:
    """One ACK cluster; implements ``port.PoolProvider`` and ``port.AddonProvider``."""

    owns_nodes = True

    def __init__(self, access: AckAccess, *, timeout_seconds: float = 10.0) -> None:
        self._cluster_id = access.cluster_id
        self._client = Client(
            Config(
                access_key_id=access.access_key_id or None,
                access_key_secret=access.secret or None,
                credential=credentials_of(access.ram_role) if access.ram_role else None,
                region_id=access.region,
                endpoint=access.endpoint or f"cs.{access.region}.aliyuncs.com",
                protocol=access.protocol,
                user_agent="gpupools-console",
            )
        )
        self._runtime = RuntimeOptions(
            autoretry=False,
            connect_timeout=int(min(CONNECT_SECONDS, timeout_seconds) * 1000),
            read_timeout=int(timeout_seconds * 1000),
        )

    # -- Node pools

    def pools(self) -> list[PoolFacts]:
        """Return all node pools."""
        request = models.DescribeClusterNodePoolsRequest()
        answer = self._call(self._client.describe_cluster_node_pools_with_options, self._cluster_id, request)
        return [pool_facts(pool) for pool in answer.body.nodepools or ()]

    def pool(self, pool_id: str) -> PoolFacts | None:
        """Return one node pool, None when it is gone."""
        call = self._client.describe_cluster_node_pool_detail_with_options
        answer = self._unless_missing(lambda: self._call(call, self._cluster_id, pool_id))
        return None if answer is None else pool_facts(answer.body)

    def find(self, op_id: str) -> PoolFacts | None:
        """Look for the pool that this operation made."""
        return next((pool for pool in self.pools() if pool.op_id == op_id), None)

    def create(self, spec: PoolSpec, *, op_id: str) -> Started:
        """Create a node pool of pay-as-you-go instances. Without vSwitches in the spec the cluster's own are used."""
        if not spec.instance_types:
            raise Invalid.field(
                "instance_types", "Choose at least one instance type.", allowed="1 to 10 instance types"
            )
        vswitch_ids = list(spec.vswitch_ids) or self._cluster_vswitches()
        request = models.CreateClusterNodePoolRequest(
            nodepool_info=models.CreateClusterNodePoolRequestNodepoolInfo(name=spec.name),
            scaling_group=models.CreateClusterNodePoolRequestScalingGroup(
                vswitch_ids=vswitch_ids,
                instance_types=list(spec.instance_types),
                instance_charge_type="PostPaid",
                desired_size=spec.desired_size,
                system_disk_category=SYSTEM_DISK_CATEGORY,
                system_disk_size=SYSTEM_DISK_GIB,
            ),
            kubernetes_config=models.CreateClusterNodePoolRequestKubernetesConfig(
                labels=tags(spec, op_id),
                taints=taints(spec),
                # The static policy breaks cGPU on shared nodes.
                cpu_policy="none",
                runtime="containerd",
            ),
            auto_scaling=models.CreateClusterNodePoolRequestAutoScaling(**scaling(spec.auto_scaling or AutoScaling())),
        )
        answer = self._call(self._client.create_cluster_node_pool_with_options, self._cluster_id, request)
        return Started(answer.body.nodepool_id or "", answer.body.task_id or "")

    def modify(self, pool_id: str, spec: PoolSpec, *, update_nodes: bool, op_id: str) -> Started:
        """Write name, labels, taints and the absolute size; vSwitches stay as they are.

        The label with the operation's id changes every time: ACK does nothing on ``update_nodes`` without a change.
        """
        there = self.pool(pool_id)
        if there is None:
            raise Refused(f"ACK has no node pool {pool_id}.", code="not-found", status=404)
        if there.op_id == op_id:
            return Started(pool_id, self._running_task(pool_id=pool_id) if there.state in _BUSY else "")
        request = models.ModifyClusterNodePoolRequest(
            nodepool_info=models.ModifyClusterNodePoolRequestNodepoolInfo(name=spec.name),
            scaling_group=group_change(there, spec),
            kubernetes_config=models.ModifyClusterNodePoolRequestKubernetesConfig(
                labels=tags(spec, op_id), taints=taints(spec)
            ),
            auto_scaling=scaling_change(there, spec),
            update_nodes=update_nodes,
        )
        call = self._client.modify_cluster_node_pool_with_options
        answer = self._call(call, self._cluster_id, pool_id, request)
        return Started(pool_id, answer.body.task_id or "")

    def delete(self, pool_id: str, *, force: bool, op_id: str) -> Started:
        """Delete a node pool; one that is gone already, or on its way, counts as done."""
        there = self.pool(pool_id)
        if there is None:
            return Started(pool_id)
        if there.state == "deleting":
            return Started(pool_id, self._running_task(pool_id=pool_id))
        request = models.DeleteClusterNodepoolRequest(force=force)
        call = self._client.delete_cluster_nodepool_with_options
        answer = self._unless_missing(lambda: self._call(call, self._cluster_id, pool_id, request))
        return Started(pool_id, "" if answer is None else answer.body.task_id or "")

    def node_names(self, pool_id: str) -> list[str]:
        """Return the names of the pool's nodes; an instance that has not joined yet has none."""
        return [node.node_name for node in self._nodes(pool_id) if node.node_name]

    def instances(self, pool_id: str) -> dict[str, str]:
        """Return the pool's machines with the names of their nodes, which are empty until they have joined."""
        return {node.instance_id: node.node_name or "" for node in self._nodes(pool_id) if node.instance_id}

    def remove(self, pool_id: str, instance_ids: Sequence[str]) -> Started:
        """Take machines out of the pool and the cluster, and keep them; none that is out already is asked for again.

        Their pods are gone by then: whoever calls this has drained the nodes.
        """
        there = self.pool(pool_id)
        if there is None:
            raise Refused(f"ACK has no node pool {pool_id}.", code="not-found", status=404)
        members = self.instances(pool_id)
        due = [each for each in instance_ids if each in members]
        if not due:
            return Started(pool_id)
        if there.state == "removing":
            return Started(pool_id, self._running_task(("remove",), pool_id))
        request = models.RemoveNodePoolNodesRequest(instance_ids=due, drain_node=True, release_node=False)
        answer = self._call(self._client.remove_node_pool_nodes_with_options, self._cluster_id, pool_id, request)
        return Started(pool_id, answer.body.task_id or "")

    def attach(self, pool_id: str, instance_ids: Sequence[str]) -> Started:
        """Let machines join a pool; one that is in it, or on its way, counts as done."""
        there = self.instances(pool_id)
        due = [each for each in instance_ids if each not in there]
        if not due:
            return Started(pool_id, self._running_task(("attach",), pool_id))
        request = models.AttachInstancesToNodePoolRequest(instances=due, format_disk=True, keep_instance_name=True)
        call = self._client.attach_instances_to_node_pool_with_options
        answer = self._call(call, self._cluster_id, pool_id, request)
        return Started(pool_id, answer.body.task_id or "")

    def place(self, spec: PoolSpec, node_names: Sequence[str], *, op_id: str) -> Started:
        """Refuse: on ACK a node is in the pool that its machine joined."""
        raise _by_machine_only()

    def leave(self, pool_id: str, node_names: Sequence[str], *, op_id: str) -> Started:
        """Refuse: on ACK a node is in the pool that its machine joined."""
        raise _by_machine_only()

    def task(self, task_id: str) -> TaskFacts:
        """Return the state of a task: running, success or fail."""
        if not task_id:
            return TaskFacts(task_id, "success")
        body = self._call(self._client.describe_task_info_with_options, task_id).body
        error = body.error.message or body.error.code or "" if body.error else ""
        state = (body.state or "").lower()
        state = "success" if state == "success" else "fail" if state in _ENDED_BADLY else "running"
        failed = tuple(str(each.data) for each in body.task_result or () if (each.status or "").lower() in _ENDED_BADLY)
        return TaskFacts(task_id, state, cut(error), failed)

    # -- Add-ons

    def addons(self) -> list[AddonFacts]:
        """Return the add-ons that ACK itself knows to be installed; Helm releases are not among them."""
        body = self._call(self._client.list_cluster_addon_instances_with_options, self._cluster_id).body
        return [AddonFacts(a.name or "", a.version or "", a.state or "") for a in body.addons or ()]

    def install(self, name: str) -> Started:
        """Install an add-on in its current version; one that is there, or coming, counts as done.

        Raises Refused with code ``addon-not-found`` where the API does not know it.
        """
        there = self._addon(name)
        if there is not None:
            return Started(task_id="" if there.state == "active" else self._running_task(_ADDON_TASKS))
        request = models.DescribeAddonRequest(cluster_id=self._cluster_id)
        addon = self._call(self._client.describe_addon_with_options, name, request, missing="addon-not-found")
        wanted = models.InstallClusterAddonsRequestBody(name=name, version=addon.body.version or "")
        install = models.InstallClusterAddonsRequest(body=[wanted])
        call = self._client.install_cluster_addons_with_options
        answer = self._call(call, self._cluster_id, install, missing="addon-not-found")
        return Started(task_id=answer.body.task_id or "")

    def uninstall(self, name: str) -> Started:
        """Uninstall an add-on, with the cloud resources that it made; one that is gone counts as done."""
        there = self._addon(name)
        if there is None:
            return Started()
        if there.state == "deleting":
            return Started(task_id=self._running_task(_ADDON_TASKS))
        addon = models.UnInstallClusterAddonsRequestAddons(name=name, cleanup_cloud_resources=True)
        request = models.UnInstallClusterAddonsRequest(addons=[addon])
        call = self._client.un_install_cluster_addons_with_options
        answer = self._call(call, self._cluster_id, request)
        return Started(task_id=answer.body.task_id or "")

    def newest(self, name: str) -> str:
        """Return the version that an upgrade of an add-on leads to: the newest that this cluster may have."""
        request = models.DescribeAddonRequest(cluster_id=self._cluster_id)
        body = self._call(self._client.describe_addon_with_options, name, request, missing="addon-not-found").body
        newer = [each.version for each in body.newer_versions or () if each.upgradable and each.version]
        return str(newer[-1] if newer else body.version or "")

    def upgrade(self, name: str, version: str, *, config: str = "") -> Started:
        """Upgrade an add-on; see the port. One on its way is waited for, and none is started beside it."""
        there = self._addon(name)
        if there is None:
            raise Refused(f"{name} is not installed as an add-on.", code="addon-not-found")
        if there.state != "active":
            return Started(task_id=self._running_task(_ADDON_TASKS))
        if there.version == version:
            return Started()
        wanted = models.UpgradeClusterAddonsRequestBody(
            component_name=name, version=there.version, next_version=version, config=config or None
        )
        call = self._client.upgrade_cluster_addons_with_options
        answer = self._call(call, self._cluster_id, models.UpgradeClusterAddonsRequest(body=[wanted]))
        return Started(task_id=answer.body.task_id or "")

    def configure(self, name: str, config: str) -> None:
        """Write an add-on's configuration."""
        call = self._client.modify_cluster_addon_with_options
        self._call(call, self._cluster_id, name, models.ModifyClusterAddonRequest(config=config), empty=True)

    def configuration(self, name: str) -> str:
        """Return an add-on's configuration as ACK keeps it."""
        call = self._client.get_cluster_addon_instance_with_options
        answer = self._call(call, self._cluster_id, name, missing="addon-not-found")
        return answer.body.config or ""

    # -- The cluster

    def cluster(self) -> ClusterFacts:
        """Return version, specification, name and region."""
        body = self._detail()
        return ClusterFacts(body.current_version or "", body.cluster_spec or "", body.name or "", body.region_id or "")

    def kubeconfig(self) -> str:
        """Return a kubeconfig of the caller's identity, for the public endpoint."""
        request = models.DescribeClusterUserKubeconfigRequest()
        call = self._client.describe_cluster_user_kubeconfig_with_options
        config: str = self._call(call, self._cluster_id, request).body.config or ""
        return config

    # -- Inside

    def _detail(self) -> Any:
        return self._call(self._client.describe_cluster_detail_with_options, self._cluster_id).body

    def _cluster_vswitches(self) -> list[str]:
        found = [str(vswitch) for vswitch in self._detail().vswitch_ids or ()]
        if not found:
            raise Invalid.field(
                "vswitch_ids", "ACK names no vSwitch of this cluster: choose one.", allowed="vSwitch ids"
            )
        return found

    def _nodes(self, pool_id: str) -> list[Any]:
        found: list[Any] = []
        page, total = 1, 1
        while len(found) < total:
            request = models.DescribeClusterNodesRequest(
                nodepool_id=pool_id, page_number=str(page), page_size=str(PAGE_SIZE)
            )
            body = self._call(self._client.describe_cluster_nodes_with_options, self._cluster_id, request).body
            if not body.nodes:
                break
            found += body.nodes
            total = (body.page.total_count if body.page else 0) or 0
            page += 1
        return found

    def _addon(self, name: str) -> AddonFacts | None:
        return next((addon for addon in self.addons() if addon.name == name), None)

    def _running_task(self, words: tuple[str, ...] = ("nodepool",), pool_id: str = "") -> str:
        """Return the newest running task of a type with one of these words: the answer that named it was lost.

        With ``pool_id`` it is not one that ACK says to be about another pool.
        """
        request = models.DescribeClusterTasksRequest(page_number=1, page_size=50)
        body = self._call(self._client.describe_cluster_tasks_with_options, self._cluster_id, request).body
        running = [
            task for task in body.tasks or () if task.state == "running" and _is_about(task.task_type or "", words)
        ]
        newest_first = sorted((task for task in running if task.task_id), key=lambda t: t.created or "", reverse=True)
        return next((task.task_id for task in newest_first if not self._is_elsewhere(task.task_id, pool_id)), "")

    def _is_elsewhere(self, task_id: str, pool_id: str) -> bool:
        call = self._client.describe_task_info_with_options
        answer = self._unless_missing(lambda: self._call(call, task_id)) if pool_id else None
        target = answer.body.target if answer else None
        return bool(target and target.id and "nodepool" in (target.type or "").lower() and target.id != pool_id)

    def _unless_missing(self, call: Callable[[], _Answer]) -> _Answer | None:
        try:
            return call()
        except Refused as error:
            if error.data.get("status") == 404:
                return None
            raise

    def _call(self, call: Callable[..., Any], *arguments: Any, missing: str = "not-found", empty: bool = False) -> Any:
        """Make one call, once. ``missing`` is the code of a 404; ``empty``: the answer may have no body."""
        try:
            answer = call(*arguments, {}, self._runtime)
        except AlibabaCloudException as error:
            raise _refusal(error, missing) from None
        except (UnretryableException, RetryError, DaraException) as error:
            raise _unreachable(error) from None
        except (RequiredArgumentException, ValidateException) as error:
            raise Invalid(f"The ACK SDK does not take this request: {cut(str(error))}") from None
        except (AttributeError, TypeError, KeyError, ValueError):
            raise _unreadable() from None
        if not empty and getattr(answer, "body", None) is None:
            raise _unreadable()
        return answer


def _refusal(error: AlibabaCloudException, missing: str) -> ConsoleError:
    status = int(error.status_code or 0)
    code = str(error.code or "")
    data: Mapping[str, Any] = error.data if isinstance(error.data, dict) else {}
    said = cut(str(data.get("Message") or data.get("message") or code or status))
    if status >= 500 or status == 429 or code.startswith("Throttling"):
        return Unreachable(f"ACK cannot do that now: {said}", status=status, ack_code=code)
    if status == 409:
        return Conflict(f"ACK refused: {said}", status=status, ack_code=code)
    ours = "addon-not-found" if code == "AddonNotFound" else missing if status == 404 else "refused"
    return Refused(f"ACK refused: {said}", code=ours, status=status, ack_code=code)


def _unreachable(error: Exception) -> Unreachable:
    inner = getattr(error, "inner_exception", None) or error
    if isinstance(inner, Unreachable):  # a RAM role's credentials could not be had
        return inner
    if isinstance(inner, RetryError):
        return Unreachable("ACK's OpenAPI did not answer.")
    return _unreadable()


def _unreadable() -> Unreachable:
    return Unreachable("ACK's OpenAPI gave an answer that cannot be read.")


def _is_about(task_type: str, words: tuple[str, ...]) -> bool:
    plain = task_type.replace("_", "").replace("-", "").lower()
    return any(word in plain for word in words)


def _by_machine_only() -> Refused:
    return Refused("On ACK a node changes its pool with its machine, not by labels.", code="by-machine-only")
