"""Requests for dangerous operations that are no mode change: which there are, their life, and what they are bound to.

Pure; it knows no rows. The life is the first part of a mode change's: once approved, the operation is in the queue and
says there how it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from gpupools.domain import changes
from gpupools.domain.changes import Move, State
from gpupools.domain.filters import untolerated
from gpupools.domain.gpus import GpuNode, Pod, Taint
from gpupools.domain.plans import Affected, holds
from gpupools.errors import Conflict


class Kind(StrEnum):
    """What a second person may have to approve, in the words of the setting."""

    FORCED_DELETE = "forced-delete"
    SIZE_0 = "size-0"
    SCALE_DOWN = "scale-down"
    EVICTING_TAINT = "evicting-taint"
    COMPONENT_UNINSTALL = "component-uninstall"
    MPS_UPGRADE = "mps-upgrade"


TITLES: Mapping[Kind, str] = {
    Kind.FORCED_DELETE: "Delete {target} with its machines",
    Kind.SIZE_0: "Scale {target} to 0",
    Kind.SCALE_DOWN: "Scale {target} down",
    Kind.EVICTING_TAINT: "Taint {target} and end pods",
    Kind.COMPONENT_UNINSTALL: "Uninstall {target}",
    Kind.MPS_UPGRADE: "Upgrade {target}",
}

MOVES: dict[tuple[State, Move], State] = {
    (before, move): after for (before, move), after in changes.MOVES.items() if before is State.PENDING
}
STATES: tuple[State, ...] = (State.PENDING, *MOVES.values())

# Pods that belong to a node rather than to somebody: they are there again wherever a node is.
_OF_THE_NODE = frozenset({"DaemonSet", "Node"})
_EVICTS = frozenset({"NoExecute"})


def next_state(state: State, move: Move) -> State:
    """Return where the move leads; raise Conflict when the table has no such move."""
    try:
        return MOVES[state, move]
    except KeyError:
        raise Conflict(
            f"Cannot {move.value.replace('_', ' ')}: the request is {state.value}.",
            code="illegal-move",
            state=state.value,
            move=move.value,
        ) from None


def moves_from(state: State) -> tuple[Move, ...]:
    """Return the moves that are possible in a state, in the table's order."""
    return tuple(move for before, move in MOVES if before is state)


def ending_on(nodes: Iterable[GpuNode], pods: Iterable[Pod], *, some: bool = False) -> list[Affected]:
    """Return the pods that end when the machines of these nodes are released, by node and name.

    Without those that end already, and without a node's own: of DaemonSets (unless they hold cards) and of its kubelet.
    ``some``: only some of the machines go, and nobody knows yet which.
    """
    names = {node.name for node in nodes}
    there = (pod for pod in pods if pod.node in names and (pod.owner_kind not in _OF_THE_NODE or bool(holds(pod))))
    return endings(there, when="It ends if its machine goes" if some else "It ends")


def evicted(nodes: Iterable[GpuNode], pods: Iterable[Pod], taints: Iterable[Taint]) -> list[Pod]:
    """Return the pods that end when these taints are written to the nodes: NoExecute ones that a node does not carry.

    A node's own pods are among them: what a taint ends does not start on that node again.
    """
    hard = [taint for taint in taints if taint.effect in _EVICTS]
    due = {node.name: [taint for taint in hard if taint not in node.taints] for node in nodes}
    return [
        pod for pod in pods if not pod.finished and due.get(pod.node) and untolerated(pod.ask, due[pod.node], _EVICTS)
    ]


def endings(pods: Iterable[Pod], *, when: str = "It ends") -> list[Affected]:
    """Return what becomes of pods that are ended; those that have finished or end already are left out."""
    ending = [pod for pod in pods if not pod.finished and not pod.terminating]
    return [
        Affected(
            pod.uid,
            pod.namespace,
            pod.name,
            pod.node,
            f"{pod.owner_kind}/{pod.owner_name}" if pod.owner_kind else "",
            pod.created_at,
            holds(pod),
            *_fate(pod, when),
        )
        for pod in sorted(ending, key=lambda pod: (pod.node, pod.namespace, pod.name))
    ]


def _fate(pod: Pod, when: str) -> tuple[str, str]:
    if not pod.owner_kind:
        return "lost", f"{when}, and nothing starts it again: it has no owner."
    return "ends", f"{when}; {pod.owner_kind} {pod.owner_name} starts it again where it fits."


def moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in sentences what is different between two sets of facts about the same pool or component.

    Of a pool: version, desired_size, auto_scaling and nodes (uid -> name); of a component: present, version and pools.
    """
    said = []
    before, after = old.get("nodes", {}), new.get("nodes", {})
    said += [f"Node {after[uid]} joined the pool." for uid in after if uid not in before]
    said += [f"Node {before[uid]} left the pool." for uid in before if uid not in after]
    if old.get("desired_size") != new.get("desired_size"):
        said.append(f"The pool's wanted size was {old['desired_size']} and is {new['desired_size']} now.")
    if old.get("auto_scaling") != new.get("auto_scaling"):
        said.append("The pool's auto scaling was changed.")
    if "nodes" in old and old.get("version") != new.get("version") and not said:
        said.append("The pool was edited.")
    if old.get("present") != new.get("present"):
        said.append(f"The component is {'there again' if new['present'] else 'not installed any more'}.")
    elif "present" in old and old.get("version") != new.get("version"):
        said.append(f"Its version was {old['version'] or 'not known'} and is {new['version'] or 'not known'} now.")
    said += [f"{name} needs it now." for name in new.get("pools", ()) if name not in old.get("pools", ())]
    said += [f"{name} does not need it any more." for name in old.get("pools", ()) if name not in new.get("pools", ())]
    return said
