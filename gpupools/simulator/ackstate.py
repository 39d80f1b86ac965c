"""What the embedded ACK remembers: pools, machines, tasks, add-ons. JSON values on a shelf of the store.

It gives out ids and makes records; what becomes of them is decided in ackcloud.py.
"""

from __future__ import annotations

import secrets
from typing import Any

from gpupools.simulator.clock import Clock
from gpupools.simulator.machines import address, instance_id
from gpupools.simulator.store import Store

SHELF = "ack"
_TASKS_KEPT = 500

Record = dict[str, Any]


class AckState:
    """Records by id. Whoever changes one calls ``touch``."""

    def __init__(self, store: Store, clock: Clock, *, cluster_id: str, region: str, zones: list[str]) -> None:
        self._store = store
        self._clock = clock
        self.cluster_id = cluster_id
        self._region = region
        self._zones = zones
        self._shelf = store.shelf(SHELF)
        for name in ("pools", "machines", "tasks", "addons"):
            self._shelf.setdefault(name, {})
        self._shelf.setdefault("created", clock.stamp())
        self._shelf.setdefault("machine_number", 0)

    @property
    def pools(self) -> dict[str, Record]:
        """Node pools by id."""
        return self._shelf["pools"]  # type: ignore[no-any-return]  # a shelf holds any JSON

    @property
    def machines(self) -> dict[str, Record]:
        """Machines by instance id, those that left the cluster without being released among them."""
        return self._shelf["machines"]  # type: ignore[no-any-return]  # a shelf holds any JSON

    @property
    def tasks(self) -> dict[str, Record]:
        """Tasks by id, oldest first."""
        return self._shelf["tasks"]  # type: ignore[no-any-return]  # a shelf holds any JSON

    @property
    def addons(self) -> dict[str, Record]:
        """Installed add-ons by name."""
        return self._shelf["addons"]  # type: ignore[no-any-return]  # a shelf holds any JSON

    @property
    def created(self) -> str:
        """When the cluster was made."""
        return str(self._shelf["created"])

    def touch(self) -> None:
        """Have the change saved."""
        self._store.touch()

    def machines_of(self, pool_id: str) -> list[Record]:
        """Return the machines of a pool, oldest first."""
        return [machine for machine in self.machines.values() if machine["pool_id"] == pool_id]

    def new_pool_id(self) -> str:
        """Make the id of a node pool: ``np`` and 32 hexadecimal digits."""
        return f"np{secrets.token_hex(16)}"

    def new_machine(self, pool_id: str, instance_type: str, *, charge_type: str) -> Record:
        """Make a machine of a type; it is being started and has not joined."""
        self._shelf["machine_number"] += 1
        number = self._shelf["machine_number"]
        ip = address(number)
        machine_id = instance_id(f"{self.cluster_id}/{number}")
        machine = {
            "instance_id": machine_id,
            "number": number,
            "ip": ip,
            "node_name": f"{self._region}.{ip}",
            "instance_type": instance_type,
            "charge_type": charge_type,
            "zone": self._zones[number % len(self._zones)],
            "pool_id": pool_id,
            "state": "starting",
            "since": self._clock.micro_stamp(),
            "created": self._clock.stamp(),
            "labels": {},
            "taints": [],
        }
        self.machines[machine_id] = machine
        self.touch()
        return machine

    def new_task(self, task_type: str, works: list[Record], *, target_id: str, target_type: str) -> Record:
        """Make a running task of several works, one stage each."""
        stamp = self._clock.stamp()
        task: Record = {
            "task_id": f"T-{secrets.token_hex(12)}",
            "task_type": task_type,
            "state": "running",
            "created": stamp,
            "updated": stamp,
            "target": {"id": target_id, "type": target_type},
            "works": works,
            "position": 0,
            "stages": [{"name": work["stage"], "state": "initial"} for work in works],
            "events": [],
            "results": {},
            "error": {},
        }
        self.tasks[task["task_id"]] = task
        ended = [task_id for task_id, record in self.tasks.items() if record["state"] != "running"]
        for task_id in ended[: max(0, len(self.tasks) - _TASKS_KEPT)]:
            del self.tasks[task_id]
        self.touch()
        return task
