"""The embedded ACK: node pools with machines that start, join, leave; add-ons; tasks that carry it all out.

The operations of the OpenAPI are methods here, free of HTTP; what they start is seen through by acktasks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpupools.simulator import ackrules
from gpupools.simulator.ackaddons import Addons
from gpupools.simulator.ackmachines import Machines
from gpupools.simulator.ackrules import AckError, Body, invalid, section
from gpupools.simulator.ackstate import AckState, Record
from gpupools.simulator.acktasks import Key, Tasks, nobody
from gpupools.simulator.clock import Clock
from gpupools.simulator.faults import Faults
from gpupools.simulator.fleet import Fleet
from gpupools.simulator.journal import Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.machines import Place
from gpupools.simulator.store import Store

_STARTED = ("starting", "joining", "running")


class AckCloud:
    """One ACK cluster. Also a reconciler: keys are ("task", id) and ("machine", instance id)."""

    name = "ack"
    kinds = ("Node", "DaemonSet", "Pod")

    def __init__(self, store: Store, clock: Clock, plan: Fleet, *, cluster_id: str, faults: Faults) -> None:
        cluster = plan.cluster
        self._store = store
        self._clock = clock
        self._wake: Callable[[Key], None] = nobody
        self.plan = plan
        self.state = AckState(store, clock, cluster_id=cluster_id, region=cluster.region, zones=cluster.zones)
        self.machines = Machines(store, clock, self.state, Place(cluster.region, cluster.version, cluster_id))
        self.tasks = Tasks(store, clock, self.state, self.machines, faults, region=cluster.region)
        self.addons = Addons(store, self.state, self.tasks, plan)

    def on_wake(self, wake: Callable[[Key], None]) -> None:
        """Say how a key gets looked at soon."""
        self._wake = self.tasks.wake = wake

    # As a reconciler

    def keys_of(self, event: Event) -> Iterable[Key]:
        """Name the running tasks and the machine whose node changed."""
        keys = [("task", task["task_id"]) for task in self.state.tasks.values() if task["state"] == "running"]
        if event.kind == "Node":
            machine_id = (event.object["metadata"].get("labels") or {}).get("alibabacloud.com/ecs-instance-id", "")
            if machine_id in self.state.machines:
                keys.append(("machine", machine_id))
        return keys

    def all_keys(self) -> Iterable[Key]:
        """Name every machine and every running task."""
        return [
            *(("machine", machine_id) for machine_id in self.state.machines),
            *(("task", task["task_id"]) for task in self.state.tasks.values() if task["state"] == "running"),
        ]

    def reconcile(self, key: Key) -> float | None:
        """Take one machine or one task a step further."""
        kind, name = key
        if kind == "machine":
            return self.machines.advance(name)
        return self.tasks.advance(name)

    # Birth

    def make_first_pools(self) -> None:
        """Make the fleet's pools with machines that are up already."""
        for declared in self.plan.pools:
            body = {
                "nodepool_info": {"name": declared.name},
                "scaling_group": {
                    "vswitch_ids": self.vswitch_ids,
                    "instance_types": declared.instance_types,
                    "instance_charge_type": "PostPaid",
                    "desired_size": declared.size,
                },
                "kubernetes_config": {
                    "labels": [{"key": key, "value": value} for key, value in declared.labels.items()],
                    "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in declared.taints],
                },
            }
            pool = self._make_pool(body, default=declared.default)
            for machine in self._grow(pool, declared.size):
                self.machines.join(machine, self._config(pool))

    @property
    def vswitch_ids(self) -> list[str]:
        """The virtual switches of the cluster, one per zone."""
        return [f"vsw-{self.state.cluster_id[1:9]}{number:02}" for number in range(len(self.plan.cluster.zones))]

    # Node pools

    def pool(self, pool_id: str) -> Record:
        """Return a pool; 404 when there is none."""
        found = self.state.pools.get(pool_id)
        if found is None:
            raise AckError(404, "ErrorNodePoolNotFound", f"The node pool {pool_id} does not exist.")
        return found

    def create_pool(self, body: Body) -> tuple[Record, Record]:
        """CreateClusterNodePool: returns the pool and its task."""
        ackrules.new_pool(body)
        pool = self._make_pool(body, default=False)
        size = pool["scaling_group"].get("desired_size") or 0
        added = self._grow(pool, size)
        works: list[Record] = [{"stage": "create_scaling_group", "kind": "wait", "seconds": 1.0, "want": "running"}]
        works.append(_machines_work("scale_out", added, "running"))
        return pool, self._pool_task("nodepool_create", pool, works)

    def modify_pool(self, pool_id: str, body: Body) -> tuple[Record, Record]:
        """ModifyClusterNodePool. Labels and taints are given as whole lists and replace the pool's.

        Nodes that join later get the new lists. Nodes that are there follow only with ``update_nodes``: then the keys
        that this pool had put on a node and that are no longer listed are taken off it, and the listed ones are set;
        what others put there stays. ``update_nodes`` without any change to the lists does nothing to the nodes.
        """
        pool = self.pool(pool_id)
        self._check_not_deleting(pool)
        info, group = section(body, "nodepool_info"), section(body, "scaling_group")
        config = section(body, "kubernetes_config")
        labels, taints = ackrules.labels(config), ackrules.taints(config)
        types, size = ackrules.instance_types(group, required=False), ackrules.size(group)
        scaling = ackrules.auto_scaling(body)
        if info.get("name"):
            pool["nodepool_info"]["name"] = str(info["name"])
        known = pool["kubernetes_config"]
        changed = (labels is not None and _sorted(labels) != _sorted(known["labels"])) or (
            taints is not None and _sorted(taints) != _sorted(known["taints"])
        )
        known.update({name: value for name, value in config.items() if name not in ("labels", "taints")})
        known["labels"] = known["labels"] if labels is None else labels
        known["taints"] = known["taints"] if taints is None else taints
        pool["scaling_group"].update({name: value for name, value in group.items() if value is not None})
        if types is not None:
            pool["scaling_group"]["instance_types"] = types
        pool["auto_scaling"].update(scaling)
        works: list[Record] = [{"stage": "update_nodepool", "kind": "wait", "seconds": 0.5}]
        if _flag(body.get("update_nodes")) and changed:
            ids = [m["instance_id"] for m in self.state.machines_of(pool_id) if m["state"] in ("joining", "running")]
            works.append({"stage": "update_nodes", "kind": "labels", "machines": ids, "done": []})
        if size is not None:
            works += self._resize(pool, size)
        self._stamp(pool)
        return pool, self._pool_task("nodepool_update", pool, works)

    def scale_pool(self, pool_id: str, body: Body) -> Record:
        """ScaleClusterNodePool: adds ``count`` machines."""
        pool = self.pool(pool_id)
        self._check_not_deleting(pool)
        count = body.get("count")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= ackrules.MOST_NODES:
            raise invalid(f"count must be a number from 1 to {ackrules.MOST_NODES}.")
        size = len(self._present(pool_id)) + count
        works = self._resize(pool, size)
        return self._pool_task("nodepool_scaleout", pool, works)

    def delete_pool(self, pool_id: str, *, force: bool) -> Record:
        """DeleteClusterNodepool: a pool that still has nodes is refused without ``force``."""
        pool = self.pool(pool_id)
        self._check_not_deleting(pool)
        if pool["nodepool_info"]["is_default"]:
            raise AckError(400, "DefaultNodePoolCanNotBeDeleted", "The default node pool cannot be deleted.")
        ids = [machine["instance_id"] for machine in self.state.machines_of(pool_id)]
        if ids and not force:
            raise AckError(
                400,
                "NodePoolNotEmpty",
                f"The node pool {pool_id} still has {len(ids)} nodes. Remove them or set force to true.",
            )
        for machine_id in ids:
            self.machines.remove(machine_id, release=True, drain=False)
        works: list[Record] = [
            {"stage": "remove_nodes", "kind": "machines", "machines": ids, "want": "gone"},
            {"stage": "delete_nodepool", "kind": "delete-pool", "pool": pool_id},
        ]
        pool["deleting"] = True
        return self._pool_task("nodepool_delete", pool, works)

    def remove_nodes(self, pool_id: str, machine_ids: list[str], *, drain: bool, release: bool) -> Record:
        """RemoveNodePoolNodes. Without ``release`` the machine goes on as an instance outside the cluster."""
        pool = self.pool(pool_id)
        for machine_id in machine_ids:
            machine = self.state.machines.get(machine_id)
            if machine is None or machine["pool_id"] != pool_id:
                raise AckError(400, "InvalidInstanceId.NotFound", f"{machine_id} is not in the node pool {pool_id}.")
        if not machine_ids:
            raise ackrules.missing("instance_ids")
        for machine_id in machine_ids:
            self.machines.remove(machine_id, release=release, drain=drain)
        group = pool["scaling_group"]
        group["desired_size"] = max(0, (group.get("desired_size") or 0) - len(machine_ids))
        work = {"stage": "remove_nodes", "kind": "machines", "machines": machine_ids, "want": "gone"}
        return self._pool_task("nodepool_remove_nodes", pool, [work])

    def attach(self, pool_id: str, body: Body) -> Record:
        """AttachInstancesToNodePool: machines outside the cluster are set up anew and join with the pool's labels."""
        pool = self.pool(pool_id)
        self._check_not_deleting(pool)
        ids = [str(machine_id) for machine_id in body.get("instances") or ()]
        if not ids:
            raise ackrules.missing("instances")
        for machine_id in ids:
            machine = self.state.machines.get(machine_id)
            if machine is None:
                raise AckError(400, "InvalidInstanceId.NotFound", f"The instance {machine_id} does not exist.")
            if machine["state"] != "detached":
                raise AckError(400, "InstanceAlreadyInCluster", f"The instance {machine_id} is in the cluster already.")
        for machine_id in ids:
            self.machines.attach(machine_id, pool_id)
            self._wake(("machine", machine_id))
        group = pool["scaling_group"]
        group["desired_size"] = (group.get("desired_size") or 0) + len(ids)
        work = {"stage": "attach_instances", "kind": "machines", "machines": ids, "want": "running"}
        return self._pool_task("nodepool_attach", pool, [work])

    def sync_pools(self) -> None:
        """SyncClusterNodePool: machines whose Node somebody deleted count no longer, and sizes are what is there."""
        for machine in self.state.machines.values():
            if machine["state"] == "running" and self.machines_node(machine) is None:
                self.machines.lose(machine)
        for pool_id, pool in self.state.pools.items():
            pool["scaling_group"]["desired_size"] = len(self._present(pool_id))
        self.state.touch()

    # Reading

    def pool_state(self, pool_id: str) -> str:
        """Return what a pool is doing: active, scaling, removing, deleting or updating."""
        if self.state.pools[pool_id].get("deleting"):
            return "deleting"
        return self.tasks.doing(pool_id)

    def machines_node(self, machine: Record) -> Object | None:
        """Return the Node of a machine, None before it joined."""
        return self._store.peek("Node", "", machine["node_name"])

    # Inside

    def _pool_task(self, task_type: str, pool: Record, works: list[Record]) -> Record:
        pool_id = pool["nodepool_info"]["nodepool_id"]
        return self.tasks.start(task_type, works, target_id=pool_id, target_type="nodepool")

    def _make_pool(self, body: Body, *, default: bool) -> Record:
        config = section(body, "kubernetes_config")
        stamp = self._clock.stamp()
        group = {
            "tags": [],
            "image_type": "AliyunLinux3",
            "system_disk_category": "cloud_essd",
            "system_disk_size": 120,
        }
        pool_id = self.state.new_pool_id()
        pool = {
            "nodepool_info": {
                "nodepool_id": pool_id,
                "name": section(body, "nodepool_info")["name"],
                "type": section(body, "nodepool_info").get("type") or "ess",
                "is_default": default,
                "region_id": self.plan.cluster.region,
                "resource_group_id": section(body, "nodepool_info").get("resource_group_id") or "rg-embedded",
                "created": stamp,
                "updated": stamp,
            },
            "scaling_group": {**group, **section(body, "scaling_group"), "scaling_group_id": f"asg-{pool_id[2:22]}"},
            "kubernetes_config": {
                "runtime": "containerd",
                "runtime_version": "2.1.5",
                "cpu_policy": "none",
                "cms_enabled": False,
                "unschedulable": False,
                **config,
                "labels": ackrules.labels(config) or [],
                "taints": ackrules.taints(config) or [],
            },
            "auto_scaling": {"enable": False, "min_instances": 0, "max_instances": 0, **ackrules.auto_scaling(body)},
            "management": section(body, "management") or {"enable": False},
            "node_config": section(body, "node_config"),
            "tee_config": {"tee_enable": False},
        }
        pool["scaling_group"].pop("login_password", None)
        self.state.pools[pool_id] = pool
        self.state.touch()
        return pool

    def _config(self, pool: Record) -> Record:
        config: Record = pool["kubernetes_config"]
        return config

    def _present(self, pool_id: str) -> list[Record]:
        return [machine for machine in self.state.machines_of(pool_id) if machine["state"] in _STARTED]

    def _grow(self, pool: Record, count: int) -> list[Record]:
        group, pool_id = pool["scaling_group"], pool["nodepool_info"]["nodepool_id"]
        charge_type = group.get("instance_charge_type", "PostPaid")
        made = [
            self.state.new_machine(pool_id, group["instance_types"][0], charge_type=charge_type) for _ in range(count)
        ]
        for machine in made:
            self._wake(("machine", machine["instance_id"]))
        return made

    def _resize(self, pool: Record, size: int) -> list[Record]:
        """Make or remove machines until the pool has ``size``; returns the works that see it through.

        The newest go first, as they are the least likely to run anything.
        """
        present = self._present(pool["nodepool_info"]["nodepool_id"])
        pool["scaling_group"]["desired_size"] = size
        if size > len(present):
            return [_machines_work("scale_out", self._grow(pool, size - len(present)), "running")]
        surplus = sorted(present, key=lambda machine: -machine["number"])[: len(present) - size]
        for machine in surplus:
            self.machines.remove(machine["instance_id"], release=True, drain=True)
        return [_machines_work("scale_in", surplus, "gone")] if surplus else []

    def _stamp(self, pool: Record) -> None:
        pool["nodepool_info"]["updated"] = self._clock.stamp()
        self.state.touch()

    def _check_not_deleting(self, pool: Record) -> None:
        if pool.get("deleting"):
            raise AckError(409, "NodePoolStateConflict", "The node pool is being deleted.")


def _machines_work(stage: str, machines: list[Record], want: str) -> Record:
    ids = [machine["instance_id"] for machine in machines]
    return {"stage": stage, "kind": "machines", "machines": ids, "want": want}


def _sorted(entries: list[dict[str, str]]) -> list[tuple[tuple[str, str], ...]]:
    return sorted(tuple(sorted(entry.items())) for entry in entries)


def _flag(value: Any) -> bool:
    return value is True or str(value).lower() == "true"
