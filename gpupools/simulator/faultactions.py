"""What happens at once when a fault begins or ends: objects change, watches break off, event logs are forgotten."""

from __future__ import annotations

from collections.abc import Callable

from gpupools.domain.modes import CARD_COUNT_LABEL, CARD_MEMORY_LABEL, CARD_NAME_LABEL
from gpupools.simulator import faults
from gpupools.simulator.addons import DEVICE_PLUGINS, NAMESPACE
from gpupools.simulator.errors import bad_request, not_found
from gpupools.simulator.faults import Fault
from gpupools.simulator.hardware import (
    BROKEN_NOTE,
    CARD_MEMORY_NOTE,
    CARDS_NOTE,
    INSTANCE_TYPE_LABEL,
    hardware_of,
    hardware_of_node,
)
from gpupools.simulator.kinds import KINDS, Object
from gpupools.simulator.records import WARNING, Recorder, controller_of
from gpupools.simulator.store import Store

_OF_CARDS = (faults.Card, faults.Ecc, faults.MixedCards, faults.PluginRestart)
_ECC_PARTS = 16  # with ECC on, one part in sixteen of the memory holds check bits


class FaultActions:
    """Carries faults out on a store. ``check`` first: it refuses what cannot be (ApiError)."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder

    def check(self, fault: Fault) -> None:
        """Raise 404 for a fault of a node or pod that is not there, 400 for one of cards that a node does not have."""
        node = getattr(fault, "node", "")
        found = self._store.peek("Node", "", node) if node else None
        if node and found is None:
            raise not_found(KINDS["Node"], node)
        if found is not None and isinstance(fault, _OF_CARDS):
            hardware = hardware_of_node(found)
            cards = hardware.cards if hardware else 0
            if not cards:
                raise bad_request(f"node: {node} has no cards")
            if isinstance(fault, faults.Card) and fault.index >= cards:
                raise bad_request(f"index: {node} has the cards 0 to {cards - 1}, not {fault.index}")
        if isinstance(fault, faults.StuckPod) and self._store.peek("Pod", fault.namespace, fault.pod) is None:
            raise not_found(KINDS["Pod"], fault.pod)

    def __call__(self, fault: Fault, begins: bool) -> None:
        """Do what a fault that begins or ends does at once."""
        match fault:
            case faults.Compaction():
                self._store.compact()
            case faults.Labels():
                self._label(fault)
            case faults.Card():
                self._break_card(fault, begins=begins)
            case faults.PluginRestart():
                self._restart_plugin(fault.node)
            case faults.Ecc():
                self._switch_ecc(fault)
            case faults.MixedCards():
                self._mix(fault)

    def _change_node(self, name: str, edit: Callable[[Object], object], *, manager: str = "") -> None:
        if self._store.peek("Node", "", name) is not None:
            self._store.change("Node", "", name, edit, manager=manager)

    def _label(self, fault: faults.Labels) -> None:
        def edit(node: Object) -> None:
            kept = {**(node["metadata"].get("labels") or {}), **fault.labels}
            node["metadata"]["labels"] = {key: value for key, value in kept.items() if value is not None}

        self._change_node(fault.node, edit, manager="kubectl-label")

    def _break_card(self, fault: faults.Card, *, begins: bool) -> None:
        def edit(node: Object) -> None:
            notes = node["metadata"].setdefault("annotations", {})
            broken = {part for part in notes.get(BROKEN_NOTE, "").split(",") if part}
            broken = broken | {str(fault.index)} if begins else broken - {str(fault.index)}
            notes[BROKEN_NOTE] = ",".join(sorted(broken))
            if not broken:
                del notes[BROKEN_NOTE]

        self._change_node(fault.node, edit)
        node = self._store.peek("Node", "", fault.node)
        if begins and node is not None:
            message = f"XidCriticalError: Xid={fault.xid} on GPU {fault.index}: the device is marked unhealthy."
            self._recorder.event(node, WARNING, "GPUUnhealthy", message, component="device-plugin", host=fault.node)

    def _restart_plugin(self, node: str) -> None:
        for pod in self._store.pods_on(node):
            owner = controller_of(pod)
            if pod["metadata"]["namespace"] == NAMESPACE and owner and owner["name"] in DEVICE_PLUGINS.values():
                self._store.delete("Pod", NAMESPACE, pod["metadata"]["name"], grace_seconds=0)

    def _switch_ecc(self, fault: faults.Ecc) -> None:
        def edit(node: Object) -> None:
            meta = node["metadata"]
            hardware = hardware_of(meta["labels"].get(INSTANCE_TYPE_LABEL, ""))
            if hardware is None or not hardware.cards:
                return
            # What the board has: the driver reports a little less than whole GiB.
            full = -(-hardware.card_memory_mib // 1024) * 1024
            memory = full - full // _ECC_PARTS if fault.on else full
            meta.setdefault("annotations", {})[CARD_MEMORY_NOTE] = str(memory)
            meta["labels"][CARD_MEMORY_LABEL] = f"{memory}MiB"

        self._change_node(fault.node, edit)

    def _mix(self, fault: faults.MixedCards) -> None:
        def edit(node: Object) -> None:
            node["metadata"].setdefault("annotations", {})[CARDS_NOTE] = ",".join(fault.cards)
            if (hardware := hardware_of_node(node)) is not None:
                node["metadata"]["labels"] |= {
                    CARD_NAME_LABEL: hardware.card,
                    CARD_MEMORY_LABEL: f"{hardware.card_memory_mib}MiB",
                    CARD_COUNT_LABEL: str(hardware.cards),
                }

        self._change_node(fault.node, edit)
