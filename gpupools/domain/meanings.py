"""What the scheduler's reasons mean for one pod: each counted reason beside what that very pod asks for.

The scheduler names no node and no amount; what the sentences add comes from the pod and from the nodes as they are now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpupools.domain.filters import explained
from gpupools.domain.gpus import Ask, GpuNode
from gpupools.domain.messages import GATED, Reason
from gpupools.domain.modes import GPU_MEM, GPU_RESOURCES
from gpupools.domain.quantities import format_quantity
from gpupools.domain.wishes import Wish, wish

MOST_NAMED = 3
_MOST_PODS = "The number of pods per gpu device"
_WHOLE_DEVICE = "Pod's RequireWholeGPU is true"
_BAD_LABEL = "node(s) had an invalid value of label"


def meaning(reason: Reason, ask: Ask, nodes: Sequence[GpuNode]) -> str:
    """Say what a counted reason means for a pod that asks for this, by the nodes as they are now."""
    wanted = wish(ask)
    match reason.code:
        case "insufficient":
            return _short(reason, wanted)
        case "device":
            return _device(reason, wanted)
        case "topology":
            return f"It asks for {_cards(wanted.topology_cards)} with their links; fewer healthy ones were free there."
        case "mode":
            return (
                f"The nodes are in another mode: they hand out other GPU resources than what it asks for "
                f"({_gpu_asks(wanted)}), and the two must be the same."
            )
        case "taint":
            found = reason.taint or _named(each.get("taint", "") for each in _against(ask, nodes))
            return f"It does not tolerate {found}." if found else "It does not tolerate a taint that nodes had then."
        case "affinity":
            found = _named(each.get("affinity", "") for each in _against(ask, nodes))
            return f"Its node selector or affinity wants {found}." if found else "It asks for other nodes by labels."
        case "unschedulable":
            return "The nodes are cordoned: nothing new gets on until they are uncordoned."
        case "name":
            return f"It names its node: {ask.node_name}." if ask.node_name else "It names another node."
        case "ports":
            ports = ", ".join(str(each.port) for each in wanted.ports)
            return f"It wants a port of its node{f' ({ports})' if ports else ''} that another pod there has."
    return (
        "The estimate here does not reckon with this: volumes, spreading, pod affinity, or a plugin of the cluster. "
        "Read it as it stands."
    )


def meaning_of_all(prefilter: str) -> str:
    """Say what a reason means that stands for every node at once."""
    if prefilter == GATED:
        return "It has scheduling gates: it is not looked at before whoever set them has taken them off."
    return "It stands for every node: as it is written, the pod goes nowhere, however much becomes free."


def _short(reason: Reason, wanted: Wish) -> str:
    if reason.resource == "pods":
        return "The nodes carry as many pods as they may, whatever these ask for."
    amount = dict(wanted.requests).get(reason.resource)
    if amount is None:
        return f"Less of {reason.resource} was left there than its containers ask for."
    asked = format_quantity(reason.resource, amount)
    left = (
        "had less left in all its cards together, or hands out none in its mode"
        if reason.resource == GPU_MEM
        else ("had less left")
    )
    return f"It asks for {asked} of {reason.resource}; each of these nodes {left}."


def _device(reason: Reason, wanted: Wish) -> str:
    if reason.text.startswith(_MOST_PODS):
        return "Every card there has as many pods as the node's label ack.node.gpu.max-pod allows."
    if reason.text.startswith(_WHOLE_DEVICE):
        return "It wants a shared card to itself and all of its units; no card there was empty and of just that size."
    if reason.text.startswith(_BAD_LABEL):
        return "The node's label cannot be read, so nothing is placed there until it is put right."
    core = f" and {wanted.core_percent}% of its compute" if wanted.core_percent else ""
    each = f"{wanted.memory_units} memory unit{'' if wanted.memory_units == 1 else 's'}{core}"
    if wanted.cards > 1:
        return f"It needs {each} on each of {wanted.cards} cards of one node; fewer cards there had that left."
    return f"Each node had enough in sum, but no single card had {each} left: what is free is in pieces."


def _against(ask: Ask, nodes: Iterable[GpuNode]) -> list[dict[str, str]]:
    return [explained(ask, node) for node in nodes]


def _named(texts: Iterable[str]) -> str:
    found = list(dict.fromkeys(text for text in texts if text))
    named = "; ".join(found[:MOST_NAMED])
    return f"{named}; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else named


def _gpu_asks(wanted: Wish) -> str:
    asks = [f"{name}: {amount}" for name, amount in wanted.requests if name in GPU_RESOURCES]
    return ", ".join(asks) or "no GPU"


def _cards(count: int) -> str:
    return f"{count} card{'' if count == 1 else 's'}"
