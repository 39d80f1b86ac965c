"""The machines of an ACK cluster: they start, join with their pool's labels, take new labels, drain and leave.

A machine is a record; its Node is the cluster's. Machines that leave without being released stay as instances
outside the cluster and can be attached again.
"""

from __future__ import annotations

from gpupools.simulator.ackstate import AckState, Record
from gpupools.simulator.clock import Clock
from gpupools.simulator.hardware import hardware_of
from gpupools.simulator.kinds import Object
from gpupools.simulator.machines import INSTANCE_ID_LABEL, Place, node_object
from gpupools.simulator.records import condition_is, controller_of, finished
from gpupools.simulator.store import Store

_BOOT_SECONDS = 6.0  # an instance is bought, boots, and runs the join script
_DRAIN_SECONDS = 60.0  # pods that do not go by then go with the node
_LOOK_AGAIN_SECONDS = 1.0
_POOL_ID_LABELS = ("alibabacloud.com/nodepool-id", "node.alibabacloud.com/nodepool-id")


class Machines:
    """Takes machines through their states: starting, joining, running, removing, detached."""

    def __init__(self, store: Store, clock: Clock, state: AckState, place: Place) -> None:
        self._store = store
        self._clock = clock
        self._state = state
        self._place = place

    def advance(self, machine_id: str) -> float | None:
        """Take a machine a step further; returns when to look again."""
        machine = self._state.machines.get(machine_id)
        if machine is None:
            return None
        match machine["state"]:
            case "starting":
                left = _BOOT_SECONDS - self._clock.simulated_seconds_since(machine["since"])
                if left > 0:
                    return left
                pool = self._state.pools.get(machine["pool_id"])
                if pool is not None:
                    self.join(machine, pool["kubernetes_config"])
            case "joining":
                node = self._store.peek("Node", "", machine["node_name"])
                if node is not None and condition_is(node.get("status") or {}, "Ready"):
                    self._move(machine, "running")
            case "removing":
                return self._leave(machine)
        return None

    def join(self, machine: Record, config: Record) -> None:
        """Register the machine's Node with the labels and taints of its pool."""
        hardware = hardware_of(machine["instance_type"])
        assert hardware is not None  # noqa: S101  # checked when the machine was asked for
        labels, taints = _labels(config), _taints(config)
        self._store.create(
            "Node",
            node_object(
                name=machine["node_name"],
                ip=machine["ip"],
                machine=machine["instance_id"],
                hardware=hardware,
                place=self._place,
                zone=machine["zone"],
                labels={
                    "ack.aliyun.com": self._place.cluster_id,
                    INSTANCE_ID_LABEL: machine["instance_id"],
                    "node.alibabacloud.com/instance-charge-type": machine["charge_type"],
                    **dict.fromkeys(_POOL_ID_LABELS, str(machine["pool_id"])),
                    **labels,
                },
                taints=taints,
                number=machine["number"],
                stamp=self._clock.stamp(),
                unschedulable=bool(config.get("unschedulable")),
            ),
        )
        machine["labels"], machine["taints"] = labels, taints
        self._move(machine, "joining")

    def write_labels(self, machine_id: str, config: Record) -> None:
        """Bring a node's labels and taints from what its pool had put there to what the pool says now."""
        machine = self._state.machines.get(machine_id)
        if machine is None or self._store.peek("Node", "", machine["node_name"]) is None:
            return
        labels, taints = _labels(config), _taints(config)
        dropped = machine["labels"].keys() - labels.keys()
        ours = {(taint["key"], taint["effect"]) for taint in (*machine["taints"], *taints)}

        def edit(node: Object) -> None:
            kept = {key: value for key, value in node["metadata"]["labels"].items() if key not in dropped}
            node["metadata"]["labels"] = {**kept, **labels}
            others = [t for t in node["spec"].get("taints") or () if (t["key"], t.get("effect", "")) not in ours]
            node["spec"]["taints"] = [*taints, *others]

        self._store.change("Node", "", machine["node_name"], edit)
        machine["labels"], machine["taints"] = labels, taints
        self._state.touch()

    def remove(self, machine_id: str, *, release: bool, drain: bool) -> None:
        """Begin to take a machine out of the cluster; ``release`` gives the instance back."""
        machine = self._state.machines[machine_id]
        machine.update(release=release, drain=drain)
        self._move(machine, "removing")

    def give_up(self, machine_id: str) -> None:
        """Stop taking a machine out or setting it up: it stays in its pool, or outside, and its pool's size follows."""
        machine = self._state.machines.get(machine_id)
        if machine is None or machine["state"] not in ("removing", "starting"):
            return
        pool = self._state.pools.get(machine["pool_id"])
        is_staying = machine["state"] == "removing"
        if pool is not None:
            group = pool["scaling_group"]
            group["desired_size"] = max(0, (group.get("desired_size") or 0) + (1 if is_staying else -1))
        if is_staying:
            self._move(machine, "running")
        else:
            self.lose(machine)

    def lose(self, machine: Record) -> None:
        """Take note that a machine's Node was deleted by somebody else: it is an instance outside the cluster now."""
        machine.update(pool_id="", labels={}, taints=[])
        self._move(machine, "detached")

    def attach(self, machine_id: str, pool_id: str) -> None:
        """Begin to set a detached machine up anew for a pool."""
        machine = self._state.machines[machine_id]
        machine["pool_id"] = pool_id
        self._move(machine, "starting")

    def _leave(self, machine: Record) -> float | None:
        name = machine["node_name"]
        node = self._store.peek("Node", "", name)
        if node is not None:
            if machine["drain"] and self._drain(machine, node):
                return _LOOK_AGAIN_SECONDS
            self._store.delete("Node", "", name)
        if machine["release"]:
            del self._state.machines[machine["instance_id"]]
            self._state.touch()
        else:
            machine.update(pool_id="", labels={}, taints=[])
            self._move(machine, "detached")
        return None

    def _drain(self, machine: Record, node: Object) -> bool:
        """Cordon and delete what is not a daemon; return whether something is still there that may be waited for."""
        name = machine["node_name"]
        if not node["spec"].get("unschedulable"):

            def cordon(current: Object) -> None:
                current["spec"]["unschedulable"] = True

            self._store.change("Node", "", name, cordon)
        left = 0
        for pod in self._store.pods_on(name):
            owner = controller_of(pod)
            if finished(pod) or (owner is not None and owner["kind"] == "DaemonSet"):
                continue
            left += 1
            if not pod["metadata"].get("deletionTimestamp"):
                self._store.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
        return left > 0 and self._clock.simulated_seconds_since(machine["since"]) < _DRAIN_SECONDS

    def _move(self, machine: Record, state: str) -> None:
        machine.update(state=state, since=self._clock.micro_stamp())
        self._state.touch()


def _labels(config: Record) -> dict[str, str]:
    return {entry["key"]: entry["value"] for entry in config["labels"]}


def _taints(config: Record) -> list[dict[str, str]]:
    return [{name: value for name, value in entry.items() if value} for entry in config["taints"]]
