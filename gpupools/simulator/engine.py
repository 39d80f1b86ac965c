"""Everything that moves in the embedded cluster: it makes the fleet on the first start and runs all loops.

``prepare`` writes what the cluster is born with; ``run`` works until cancelled. State comes back with the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpupools.simulator.ackapi import AckApi
from gpupools.simulator.ackcloud import AckCloud
from gpupools.simulator.ackdaemons import create_daemonsets
from gpupools.simulator.ackkeys import AckKeys
from gpupools.simulator.clock import Clock
from gpupools.simulator.daemonsets import DaemonSetController
from gpupools.simulator.devices import DevicePlugins
from gpupools.simulator.disruptions import DisruptionController
from gpupools.simulator.evictions import TaintEvictions
from gpupools.simulator.faultactions import FaultActions
from gpupools.simulator.faults import Fault, Faults
from gpupools.simulator.fleet import Fleet
from gpupools.simulator.garbage import GarbageCollector, NamespaceController
from gpupools.simulator.hardware import hardware_of
from gpupools.simulator.jobs import JobController
from gpupools.simulator.kubelet import Kubelet
from gpupools.simulator.logs import LogBook
from gpupools.simulator.loops import Loop
from gpupools.simulator.machines import Place, address, node_object
from gpupools.simulator.nodes import NodeLifecycle
from gpupools.simulator.records import Recorder
from gpupools.simulator.scheduler import Scheduler
from gpupools.simulator.store import Store

SHELF = "engine"
_CRITICAL_CLASSES = (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))


class Engine:
    """The moving part of one embedded cluster."""

    def __init__(self, store: Store, clock: Clock, logbook: LogBook, plan: Fleet, keys: AckKeys) -> None:
        self._store = store
        self._clock = clock
        self._plan = plan
        self._keys = keys
        self._recorder = Recorder(store, clock)
        self.faults = Faults()
        self.fault_actions = FaultActions(store, self._recorder)
        self.faults.listen(self.fault_actions)
        self.ack = AckCloud(store, clock, plan, cluster_id=keys.cluster_id, faults=self.faults)
        unit_mib = plan.cluster.memory_unit_mib
        self.kubelet = Kubelet(store, clock, self._recorder, logbook, self.faults, unit_mib=unit_mib)
        self._devices = DevicePlugins(store, clock, self.faults, unit_mib=unit_mib)
        self._lifecycle = NodeLifecycle(store, clock, self._recorder, self.faults)

    def ack_application(self, kubeconfig: Callable[[], str]) -> AckApi:
        """Return the ACK OpenAPI as an ASGI application; ``kubeconfig`` reads what it hands out."""
        return AckApi(self.ack, self._keys, self._clock, self.faults, kubeconfig=kubeconfig)

    def prepare(self) -> None:
        """Write what the cluster is born with, where it is not there yet."""
        for name, value in _CRITICAL_CLASSES:
            if self._store.peek("PriorityClass", "", name) is None:
                self._store.create("PriorityClass", {"metadata": {"name": name}, "value": value})
        shelf = self._store.shelf(SHELF)
        if shelf.get("born"):
            return
        self._make_plain_nodes()
        if self._plan.cluster.spec:
            self.ack.make_first_pools()
            for name in self._plan.addons:
                self.ack.addons.install_at_birth(name)
        else:
            for name in self._plan.addons:
                create_daemonsets(self._store, name, region=self._plan.cluster.region)
        shelf["born"] = True
        self._store.touch()

    def _make_plain_nodes(self) -> None:
        place = Place(self._plan.cluster.region, self._plan.cluster.version)
        number = 0
        for group in self._plan.nodes:
            hardware = hardware_of(group.instance_type)
            assert hardware is not None  # noqa: S101  # the fleet was checked when it was read
            for position in range(1, group.count + 1):
                number += 1
                name = f"{group.prefix}-{position:02}"
                self._store.create(
                    "Node",
                    node_object(
                        name=name,
                        ip=address(number),
                        machine=name,
                        hardware=hardware,
                        place=place,
                        zone=self._plan.cluster.zones[number % len(self._plan.cluster.zones)],
                        labels=group.labels,
                        taints=[{"key": t.key, "value": t.value, "effect": t.effect} for t in group.taints],
                        number=number,
                        stamp=self._clock.stamp(),
                    ),
                )

    async def run(self) -> None:
        """Run every loop until cancelled, or until one fails."""
        store, clock, recorder = self._store, self._clock, self._recorder
        ack_loop = Loop(self.ack, store, clock)
        self.ack.on_wake(ack_loop.add)
        nodes = Loop(self._lifecycle, store, clock)
        kubelets = Loop(self.kubelet, store, clock)
        devices = Loop(self._devices, store, clock)

        def wake(fault: Fault, begins: bool) -> None:
            for name in self._lifecycle.keys_of_fault(fault):
                nodes.add(name)
            for key in self.kubelet.keys_of_fault(fault):
                kubelets.add(key)
            for name in self._devices.keys_of_fault(fault):
                devices.add(name)

        self.faults.listen(wake)
        loops = {
            "namespaces": Loop(NamespaceController(store), store, clock).run,
            "nodes": nodes.run,
            "evictions": Loop(TaintEvictions(store, clock, recorder), store, clock).run,
            "daemonsets": Loop(DaemonSetController(store, clock, recorder), store, clock).run,
            "jobs": Loop(JobController(store, clock, recorder), store, clock).run,
            "disruption": Loop(DisruptionController(store, clock), store, clock).run,
            "garbage": Loop(GarbageCollector(store), store, clock).run,
            "kubelets": kubelets.run,
            "devices": devices.run,
            "scheduler": Scheduler(store, clock, recorder, self.faults).run,
            "ack": ack_loop.run,
        }
        async with asyncio.TaskGroup() as group:
            for name, run in loops.items():
                group.create_task(run(), name=name)
