"""ACK's allocation annotations on pods: reading all three generations, writing the current one.

A reading never fails: what cannot be read is a claim with a problem code. This module knows no node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from gpupools.domain.asks import card_count
from gpupools.domain.gpus import Ask
from gpupools.domain.modes import GPU_CORE, GPU_MEM, TOPOLOGY_GPU
from gpupools.domain.quantities import integer

ALLOCATION = "scheduler.framework.gpushare.allocation"
ASSUME_TIME = "scheduler.framework.gpushare.assume-time"
ASSIGNED = "scheduler.framework.gpushare.assigned"
CORE_PERCENTAGE = "gpushare.alibabacloud.com/core-percentage"
DEVICE_RESOURCE = "gpushare.alibabacloud.com/device-resource"
V1_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
V1_UNITS = "ALIYUN_COM_GPU_MEM_POD"
TOPOLOGY_ALLOCATION = "gputopology.alibabacloud.com/allocation"
TOPOLOGY_GROUP = "topology.kubernetes.io/gpu-group"
TOPOLOGY_VISIBLE = "topology.kubernetes.io/gpu-visible"

UNREADABLE = "unreadable-allocation"

# As the programs that read them decode them: whole numbers that are no text, and null for nothing. A card has far
# fewer units than this, and sums of what is above would leave the 64 bits that they travel in.
MOST_UNITS = 2**40
_Amount = Annotated[int, msgspec.Meta(ge=0, le=MOST_UNITS)]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a pod's annotations say that it holds.

    ``memory_units`` and ``core_percent`` go from card index to amount, ``cards`` are whole cards, ``card_units``
    is what each card of the node had when the pod was bound. ``problem`` is a code, empty when all could be read.
    """

    memory_units: dict[int, int] = {}
    core_percent: dict[int, int] = {}
    cards: tuple[int, ...] = ()
    card_units: dict[int, int] = {}
    problem: str = ""


class _TopologyAllocation(msgspec.Struct, rename="camel"):
    allocated: dict[str, list[str] | None] | None = msgspec.field(name="allocatedGPUs", default=None)


_shares = msgspec.json.Decoder(dict[str, dict[str, _Amount | None] | None])
_units = msgspec.json.Decoder(dict[str, _Amount | None])
_topology = msgspec.json.Decoder(_TopologyAllocation)
_UNREADABLE_TEXT = (msgspec.DecodeError, UnicodeEncodeError)


def claims(annotations: Mapping[str, str], *, asked_units: int = 0) -> Claim:
    """Read what a pod holds: the current annotations first, then the old ones, as ACK's own readers do.

    ``asked_units`` is the pod's limit of gpu-mem: the amount behind an old card index that stands alone.
    """
    problem = ""
    text = annotations.get(ALLOCATION)
    memory = _share(text) if text else None
    if text and memory is None:
        problem = UNREADABLE
    if memory and any(memory.values()):
        core_text = annotations.get(CORE_PERCENTAGE)
        core = _share(core_text) if core_text else {}
        return Claim(
            memory_units=memory,
            core_percent=core or {},
            card_units=_card_units(annotations.get(DEVICE_RESOURCE, "")),
            problem=UNREADABLE if core is None else "",
        )
    old = _number(annotations.get(V1_INDEX, ""))
    if old is not None:
        return Claim(memory_units={old: _units_of(annotations.get(V1_UNITS, "")) or asked_units})
    if annotations.get(V1_INDEX):
        problem = UNREADABLE
    topology = topology_claim(annotations)
    return Claim(cards=topology.cards, problem=problem or topology.problem)


def topology_claim(annotations: Mapping[str, str]) -> Claim:
    """Read which whole cards a topology pod holds, whatever else its annotations say."""
    if TOPOLOGY_ALLOCATION in annotations or TOPOLOGY_GROUP in annotations:
        cards = _topology_cards(annotations)
        return Claim(cards=cards or (), problem="" if cards else UNREADABLE)
    return Claim()


def _number(text: str) -> int | None:
    number = integer(text)
    return number if number is not None and number >= 0 else None


def _units_of(text: str) -> int | None:
    number = _number(text)
    return number if number is not None and number <= MOST_UNITS else None


@lru_cache(maxsize=4096)
def _share(text: str) -> dict[int, int] | None:
    """Sum ``{container: {card: amount}}`` over containers; None when unreadable.

    A fleet has few different texts, so each is read once; nobody changes what is returned.
    """
    try:
        read = _shares.decode(text)
    except _UNREADABLE_TEXT:
        return None
    total: dict[int, int] = {}
    for container, cards in read.items():
        if integer(container) is None:
            return None
        for index, amount in (cards or {}).items():
            card = _number(index)
            if card is None:
                return None
            total[card] = total.get(card, 0) + (amount or 0)
    return total


@lru_cache(maxsize=4096)
def _card_units(text: str) -> dict[int, int]:
    try:
        read = _units.decode(text) if text else {}
    except _UNREADABLE_TEXT:
        return {}
    return {card: units for index, units in read.items() if units and (card := _number(index)) is not None}


def _topology_cards(annotations: Mapping[str, str]) -> tuple[int, ...] | None:
    if text := annotations.get(TOPOLOGY_ALLOCATION, ""):
        try:
            read = _topology.decode(text)
        except _UNREADABLE_TEXT:
            read = _TopologyAllocation()
        if read.allocated:
            return _indexes(index for cards in read.allocated.values() for index in cards or ())
    text = annotations.get(TOPOLOGY_GROUP, "")
    return _indexes(part.strip() for part in text.split(",")) if text else None


def _indexes(texts: Iterable[str]) -> tuple[int, ...] | None:
    numbers = [_number(text) for text in texts]
    known = {number for number in numbers if number is not None}
    return tuple(sorted(known)) if known and None not in numbers else None


def share_annotations(
    ask: Ask, cards: Sequence[int], *, card_units: Sequence[int], assumed_at_ns: int, assigned: bool = False
) -> dict[str, str]:
    """Return what ACK's scheduler writes on a pod that it gives shares of ``cards``.

    ``card_units`` has the memory units of every card of the node, by index; ``assumed_at_ns`` counts from the
    epoch. Each container's amount is divided evenly over the cards; containers without a share are left out.
    """
    annotations = {
        ALLOCATION: _share_json(ask, cards, GPU_MEM),
        ASSUME_TIME: str(assumed_at_ns),
        ASSIGNED: "true" if assigned else "false",
        DEVICE_RESOURCE: _json({str(index): units for index, units in enumerate(card_units)}),
    }
    if any(container.limits.get(GPU_CORE) for container in ask.containers):
        annotations[CORE_PERCENTAGE] = _share_json(ask, cards, GPU_CORE)
    return annotations


def _share_json(ask: Ask, cards: Sequence[int], resource: str) -> str:
    count = card_count(ask)
    return _json(
        {
            str(index): {str(card): container.limits[resource] // count for card in cards}
            for index, container in enumerate(ask.containers)
            if container.limits.get(resource)
        }
    )


def topology_annotations(
    ask: Ask, cards: Sequence[int], *, assumed_at_ns: int, assigned: bool = False
) -> dict[str, str]:
    """Return what ACK's scheduler writes on a pod that gets whole ``cards``, handed to its containers in turn."""
    allocated: dict[str, list[str]] = {}
    rest = [str(card) for card in cards]
    for index, container in enumerate(ask.containers):
        if count := container.limits.get(TOPOLOGY_GPU, 0):
            allocated[str(index)], rest = rest[:count], rest[count:]
    # The order of keys is the one of ACK's own document.
    document = (
        f'{{"allocatedGPUs":{_json(allocated)},"visibleGPUs":{_json([str(card) for card in cards])},'
        f'"assumeTime":{assumed_at_ns},"assigned":{"true" if assigned else "false"}}}'
    )
    return {TOPOLOGY_ALLOCATION: document}


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
