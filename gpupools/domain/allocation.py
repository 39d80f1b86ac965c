"""The fold: pods onto the cards of their node, with what is releasing, pending and orphan kept apart.

Sums never clamp, a card that is not there gets no entry, and no index is invented for exclusive cards.
It knows no cluster and no history: the same nodes and pods always give the same values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from operator import attrgetter

import msgspec

from gpupools.domain.annotations import MOST_UNITS, UNREADABLE, claims, topology_claim
from gpupools.domain.asks import effective_requests
from gpupools.domain.gpus import MOST_CARDS, Gpu, GpuNode, Holding, NodeAllocation, Pod, Warning_
from gpupools.domain.modes import EXCLUSIVE_GPU, GPU_CORE, GPU_MEM, MODE_LABEL, TOPOLOGY_GPU, Mode
from gpupools.domain.units import unit_mib

PENDING = "pending"
UNKNOWN_CARD = "unknown-card"
FORMER_MODE = "former-mode"
NO_CARDS = "no-cards"
OVER_ALLOCATED = "over-allocated"
UNIT_CHANGED = "unit-changed"
LIMIT_DIFFERS = "limit-differs"
CARDS_OUT = "cards-out"


def mode_of(node: GpuNode) -> Mode | None:
    """Return the mode that a node is in: its label's, and without the label what its resources tell.

    A node without the label that reports shared memory comes from the time before ACK's label, or its label
    was taken off: only the old labels can tell which shared mode it is. None also for a node without GPUs.
    """
    if MODE_LABEL in node.labels or not node.is_gpu:
        return node.declared if node.is_gpu else None
    if node.memory_units:
        if node.labels.get("cgpu") == "true":
            return Mode.CGPU
        return Mode.SHARE if node.labels.get("gpushare") == "true" else None
    return Mode.TOPOLOGY if node.allocatable.get(TOPOLOGY_GPU) else Mode.EXCLUSIVE


class _Card:
    """One card while pods are being added to it."""

    __slots__ = ("cards", "core", "core_held", "held", "holdings", "memory", "releasing", "rescaled")

    def __init__(self) -> None:
        self.memory = self.releasing = self.core = self.cards = self.held = self.core_held = 0
        self.rescaled: Fraction | int = 0  # of what is held, the part that was given when a card had other units
        self.holdings: list[Holding] = []

    def add(self, holding: Holding, *, ratio: Fraction | None = None) -> None:
        """Add what a pod holds; ``ratio`` is the card's units now by its units then, where they differ."""
        memory, core = holding.memory_units, holding.core_percent
        self.memory += memory
        self.core += core
        self.cards += holding.cards
        if holding.releasing:
            self.releasing += memory
        else:
            self.core_held += core
            if ratio is None:
                self.held += memory
            else:
                self.rescaled += memory * ratio
        self.holdings.append(holding)


class _Fold:
    """One node while pods are being added to it."""

    def __init__(self, node: GpuNode) -> None:
        self.node = node
        self.shared = node.memory_units > 0
        self.topology = not self.shared and node.allocatable.get(TOPOLOGY_GPU, 0) > 0
        if self.shared:
            self.count = node.shared_cards
        elif self.topology:
            # Cards that the plugin calls unhealthy leave allocatable but keep their index.
            self.count = max(node.allocatable[TOPOLOGY_GPU], node.capacity.get(TOPOLOGY_GPU, 0))
        else:
            self.count = 0
        if not 0 <= self.count <= MOST_CARDS:
            self.count = 0
        self.cards = [_Card() for _ in range(self.count)]
        split = self.shared and self.count > 0
        self.card_units = node.per_card(GPU_MEM) if split else 0
        self.card_core = node.per_card(GPU_CORE) if split else 0
        # What ACK's scheduler takes a card for: less than it has while another one is sick.
        self.given_units = node.given(GPU_MEM) if split else 0
        self.core_withheld = self.card_core - node.given(GPU_CORE) if split else 0
        self.holdings: list[Holding] = []
        self.unplaced: list[Holding] = []
        self.strays: dict[int, int] = {}
        self.warnings: list[Warning_] = []
        self.pending = self.orphan = self.former = 0
        # Sums of everything that the present mode accounts for.
        self.memory_used = self.core_used = self.cards_used = self.releasing_memory = self.releasing_cards = 0

    def add(self, pod: Pod) -> None:
        """Add a pod that is bound to this node and not finished."""
        units = core = 0
        whole = False
        for container in pod.ask.containers:
            limits, requests = container.limits, container.requests
            if limits:
                units += limits.get(GPU_MEM, 0)
                core += limits.get(GPU_CORE, 0)
            whole = whole or EXCLUSIVE_GPU in requests or TOPOLOGY_GPU in requests
        units, core = max(0, min(units, MOST_UNITS)), max(0, min(core, MOST_UNITS))
        if units:
            self._add_share(pod, units, core)
        elif core:
            # Compute without memory gets no card from ACK, but the scheduler counts it on the node.
            self._keep(_holding(pod, core=core), former=not self.node.core_percent, placed=False)
        if whole or pod.ask.init_containers or pod.ask.overhead:
            self._add_whole(pod)

    def _add_whole(self, pod: Pod) -> None:
        requests = effective_requests(pod.ask)
        if (count := min(requests.get(TOPOLOGY_GPU, 0), MOST_UNITS)) > 0:
            self._add_topology(pod, count)
        if (count := min(requests.get(EXCLUSIVE_GPU, 0), MOST_UNITS)) > 0:
            in_mode = not self.shared and not self.topology and self.node.allocatable.get(EXCLUSIVE_GPU, 0) > 0
            self._keep(_holding(pod, cards=count), former=not in_mode)
            if not in_mode:
                self._warn_former(pod, f"{count} whole {_plural(count, 'card')}")

    def _add_share(self, pod: Pod, units: int, asked_core: int) -> None:
        claim = claims(pod.annotations, asked_units=units)
        if claim.problem:
            self._warn(UNREADABLE, f"{_name(pod)} has an allocation that cannot be read.", pod)
        memory, core = claim.memory_units, claim.core_percent
        claimed = sum(memory.values()) if memory else units
        if not self.shared:
            held_core = sum(core.values()) or asked_core
            self._keep(_holding(pod, memory=claimed, core=held_core), former=True)
            cards = ", ".join(f"GPU{index}" for index in sorted(memory)) or "an unknown card"
            self._warn_former(pod, f"{claimed} memory {_plural(claimed, 'unit')} on {cards}")
            self.orphan += claimed
            return
        if not memory:
            self._keep(_holding(pod, memory=units, core=sum(core.values()) or asked_core), placed=False)
            self.pending += units
            return
        if claimed != units:
            self._warn(
                LIMIT_DIFFERS,
                f"{_name(pod)} asks for {units} memory {_plural(units, 'unit')}, but its allocation says {claimed}.",
                pod,
            )
        if asked_core and not core:
            # Compute is given on the cards of the memory, so a missing word on it leaves only one place for it.
            core = dict.fromkeys(memory, asked_core // len(memory))
        self._place_share(pod, memory, core, claim.card_units)

    def _place_share(
        self, pod: Pod, memory: Mapping[int, int], core: Mapping[int, int], card_units: Mapping[int, int]
    ) -> None:
        if len(memory) == 1 and core.keys() <= memory.keys():
            (index,) = memory
            indexes = [index]
            total = part = _holding(pod, memory=memory[index], core=core.get(index, 0))
        else:
            indexes = sorted(memory.keys() | core.keys())
            total = _holding(pod, memory=sum(memory.values()), core=sum(core.values()))
            part = None
        changed = 0
        for index in indexes:
            if index < self.count:
                was = card_units.get(index, 0)
                ratio = Fraction(self.given_units, was) if was > 0 and was != self.given_units else None
                changed = was if ratio is not None and was != self.card_units else changed
                share = part or _holding(pod, memory=memory.get(index, 0), core=core.get(index, 0))
                self.cards[index].add(share, ratio=ratio)
        self._keep(total)
        if strays := [index for index in indexes if index >= self.count]:
            stray_units = sum(memory.get(index, 0) for index in strays)
            self._lose(
                _holding(pod, memory=stray_units, core=sum(core.get(index, 0) for index in strays)), UNKNOWN_CARD
            )
            self.orphan += stray_units
            for index in strays:
                self.strays[index] = self.strays.get(index, 0) + memory.get(index, 0)
            self._warn_strays(pod, strays)
        if changed:
            self._warn(
                UNIT_CHANGED,
                f"{_name(pod)} was bound when a card had {changed} memory {_plural(changed, 'unit')}; it has "
                f"{self.card_units} now, and ACK's scheduler counts it in proportion.",
                pod,
            )

    def _add_topology(self, pod: Pod, count: int) -> None:
        if not self.topology:
            self._keep(_holding(pod, cards=count), former=True)
            self._warn_former(pod, f"{count} whole {_plural(count, 'card')}")
            return
        claim = topology_claim(pod.annotations)
        if claim.problem:
            self._warn(UNREADABLE, f"{_name(pod)} has an allocation that cannot be read.", pod)
        placed = [index for index in claim.cards if index < self.count]
        for index in placed:
            self.cards[index].add(_holding(pod, cards=1))
        self._keep(_holding(pod, cards=max(count, len(claim.cards))))
        strays = [index for index in claim.cards if index >= self.count]
        if strays:
            self._lose(_holding(pod, cards=len(strays)), UNKNOWN_CARD)
            self._warn_strays(pod, strays)
        if count > len(claim.cards):
            self._lose(_holding(pod, cards=count - len(claim.cards)), PENDING)

    def _keep(self, holding: Holding, *, former: bool = False, placed: bool = True) -> None:
        """List a pod's holding, and count it unless it belongs to a mode that the node left."""
        self.holdings.append(holding)
        if former or not placed:
            self._lose(holding, FORMER_MODE if former else PENDING)
        if former:
            return
        self.memory_used += holding.memory_units
        self.core_used += holding.core_percent
        self.cards_used += holding.cards
        if holding.releasing:
            self.releasing_memory += holding.memory_units
            self.releasing_cards += holding.cards

    def _lose(self, holding: Holding, why: str) -> None:
        self.unplaced.append(msgspec.structs.replace(holding, lost=why))

    def _warn(self, code: str, message: str, *pods: Pod) -> None:
        self.warnings.append(Warning_(code, message, tuple(_name(pod) for pod in pods)))

    def _warn_former(self, pod: Pod, what: str) -> None:
        self._warn(FORMER_MODE, f"{_name(pod)} holds {what}, allocated under a former mode of the node.", pod)

    def _warn_strays(self, pod: Pod, strays: list[int]) -> None:
        named = ", ".join(f"GPU{index}" for index in strays)
        has = f"{self.count} {_plural(self.count, 'card')}"
        self._warn(UNKNOWN_CARD, f"{_name(pod)} is allocated on {named}, but the node has {has}.", pod)

    def close(self) -> NodeAllocation:
        """Return the finished fold."""
        node = self.node
        if self.shared and not self.count:
            odd = f"{node.shared_cards} cards, which no machine has" if node.shared_cards else "no cards"
            self._warn(
                NO_CARDS,
                f"The node reports {node.memory_units} memory {_plural(node.memory_units, 'unit')}, but {odd}.",
            )
        if self.card_units > self.given_units and len(node.unhealthy) < node.cards_out:
            self._warn_sick()
        gpus = tuple([self._gpu(index, card) for index, card in enumerate(self.cards)])
        if self.shared:
            cards, held = self.count, [card for card in self.cards if card.holdings]
            cards_used = len(held)
            cards_releasing = 0
            if self.releasing_memory:
                cards_releasing = sum(all(holding.releasing for holding in card.holdings) for card in held)
        else:
            cards, cards_used, cards_releasing = node.whole_cards, self.cards_used, self.releasing_cards
            if cards_used > cards:
                self._warn(
                    OVER_ALLOCATED,
                    f"{cards_used} {'card is' if cards_used == 1 else 'cards are'} held, but the node has {cards}.",
                )
        return NodeAllocation(
            node=node.name,
            uid=node.uid,
            mode=mode_of(node),
            policy=node.policy,
            gpus=gpus,
            cards=cards,
            cards_used=cards_used,
            cards_releasing=cards_releasing,
            memory_units=node.memory_units,
            memory_units_used=self.memory_used,
            memory_units_releasing=self.releasing_memory,
            memory_units_pending=self.pending,
            memory_units_orphan=self.orphan,
            core_percent=node.core_percent,
            core_percent_used=self.core_used,
            unit_mib=unit_mib(node),
            holdings=tuple(self.holdings),
            unplaced=tuple(self.unplaced),
            warnings=tuple(self.warnings),
            strays=self.strays,
            cards_missing=node.cards_missing,
        )

    def _gpu(self, index: int, card: _Card) -> Gpu:
        units, core = self.card_units, self.card_core
        if card.memory > units or (core and card.core > core) or card.cards > 1:
            self._warn_over(index, card)
        return Gpu(
            index,
            units,
            core,
            card.memory,
            card.releasing,
            card.core,
            (1 if card.holdings else 0) if self.shared else card.cards,
            index not in self.node.unhealthy,
            tuple(card.holdings),
            card.held + math.ceil(card.rescaled) if card.rescaled else card.held,
            card.core_held,
            units - self.given_units,
            self.core_withheld,
        )

    def _warn_sick(self) -> None:
        out, cards = self.node.cards_out, _plural(self.count, "card")
        self._warn(
            CARDS_OUT,
            f"The device plugin calls {out} of {self.count} {cards} unhealthy and does not say which: each is shown as "
            f"if it were well, with its {self.card_units} memory units. Of these ACK's scheduler gives at most "
            f"{self.given_units} meanwhile.",
        )

    def _warn_over(self, index: int, card: _Card) -> None:
        over = [
            f"{card.memory} of {self.card_units} memory {_plural(self.card_units, 'unit')}"
            if card.memory > self.card_units
            else "",
            f"{card.core}% of {self.card_core}% compute" if self.card_core and card.core > self.card_core else "",
            f"{card.cards} whole-card pods" if card.cards > 1 else "",
        ]
        said = " and ".join(part for part in over if part)
        pods = tuple(_who(holding) for holding in card.holdings)
        self.warnings.append(Warning_(OVER_ALLOCATED, f"GPU{index} is over-allocated: {said}.", pods))


def _holding(pod: Pod, *, memory: int = 0, core: int = 0, cards: int = 0) -> Holding:
    owner = pod.owner_kind, pod.owner_name
    return Holding(pod.uid, pod.namespace, pod.name, memory, core, cards, pod.terminating, *owner, pod.created_at)


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _who(holding: Holding) -> str:
    return f"{holding.namespace}/{holding.pod}"


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


_by_name = attrgetter("namespace", "name", "uid")


def holders(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Group the pods that hold something by the name of their node: bound, and in no terminal phase."""
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node and not pod.finished:
            by_node.setdefault(pod.node, []).append(pod)
    return by_node


def fold_holders(node: GpuNode, pods: Iterable[Pod]) -> NodeAllocation:
    """Fold pods that ``holders`` found for this node; their order does not matter."""
    fold = _Fold(node)
    for pod in sorted(pods, key=_by_name):
        fold.add(pod)
    return fold.close()


def fold(node: GpuNode, pods: Iterable[Pod]) -> NodeAllocation:
    """Fold the pods of a node onto its cards; pods of other nodes and finished pods are passed over.

    On a shared node ``memory_units_used`` is the sum of all cards plus pending plus orphan: what the node's
    total is short of. What was allocated under a former mode stands in ``unplaced`` and, for memory, in
    ``memory_units_orphan``, and counts in no total. ``holdings`` has one entry per pod, ``unplaced`` the
    parts of them that sit on no known card. ``cards_used`` counts cards in use wherever
    it stands: a shared card with a holder is one, however many pods share it; whole cards are those that pods hold.
    """
    return fold_holders(node, holders(pod for pod in pods if pod.node == node.name).get(node.name, ()))


def fold_all(nodes: Iterable[GpuNode], pods: Iterable[Pod]) -> dict[str, NodeAllocation]:
    """Fold a cluster. Only GPU nodes have an entry."""
    by_node = holders(pods)
    return {node.name: fold_holders(node, by_node.get(node.name, ())) for node in nodes if node.is_gpu}


def difference(old: Mapping[str, NodeAllocation], new: Mapping[str, NodeAllocation]) -> frozenset[str]:
    """Return the names of nodes whose allocation changed, came or went."""
    return frozenset(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
