"""What would help a pod that fits nowhere: a few fixed changes, each tried out by asking the engine again.

Nothing is promised that the engine did not confirm. It changes no cluster and knows none; a pool is a label's value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from gpupools.domain.allocation import mode_of
from gpupools.domain.asks import SHARE_COUNT_LABEL, card_count, limit_of
from gpupools.domain.filters import HARD_EFFECTS, untolerated
from gpupools.domain.gpus import MOST_CARDS, Ask, ContainerAsk, Pod, Taint, Toleration
from gpupools.domain.modes import (
    EXCLUSIVE_GPU,
    GPU_CORE,
    GPU_MEM,
    GPU_RESOURCES,
    MODE_LABEL,
    MODES,
    TOPOLOGY_GPU,
    Mode,
)
from gpupools.domain.newnodes import LIFECYCLE, POOL_LABELS, NewNode, new_nodes
from gpupools.domain.placement import preview
from gpupools.domain.validation import CORE_STEP_PERCENT
from gpupools.domain.verdicts import NodeState, Preview

MOST_NAMED = 3  # DaemonSets of a new node
MOST_TRIED = 8  # values of one selector, or taints: beyond, a list helps nobody
OUT_OF_REACH = frozenset({"unschedulable", "name", "taint", "affinity", "ports", "mode"})


class LargestFree(msgspec.Struct, frozen=True):
    """The most that one ask could get now on a node that would take the pod: of one card, or whole cards.

    ``gpu`` is None for whole cards, whose index the API does not tell.
    """

    node: str
    resource: str
    amount: int
    gpu: int | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """A change with which the pod would land on ``node``. Codes: wait, smaller, toleration, selector, pool, mode, node.

    ``field``, ``found`` and ``value`` say what to change in the manifest; they are empty where nothing in it changes.
    """

    code: str
    sentence: str
    node: str
    cards: tuple[int, ...] = ()
    field: str = ""
    found: str = ""
    value: str = ""


class Help(msgspec.Struct, frozen=True):
    """What would help. ``largest`` is None when no node in reach has anything free."""

    largest: LargestFree | None = None
    options: tuple[WhatIf, ...] = ()


def what_would_help(
    ask: Ask,
    states: Sequence[NodeState],
    found: Preview | None = None,
    *,
    daemons: Iterable[Pod] = (),
    namespaces: Collection[str] | None = None,
) -> Help:
    """Try the changes that could make an ask fit; nothing for one that fits, or that no node is asked about.

    ``found`` is the ask's own preview on these states, where the caller has it. ``daemons`` are pods among which those
    of DaemonSets are: a new node carries some of them before it takes anything else. They are named where they are of
    ``namespaces`` (None: all), and count wherever they are.
    """
    found = found or preview(ask, states)
    if found.chosen is not None or found.problems or found.prefilter or not states:
        return Help()
    largest = _largest(ask, states, found)
    tries = (
        *_waiting(ask, states),
        *_smaller(ask, states, largest),
        *_tolerating(ask, states, found),
        *_selecting(ask, states),
        *_other_modes(ask, states),
        *_one_more_node(ask, states, daemons, namespaces),
    )
    return Help(largest, tries)


def _try(
    ask: Ask,
    states: Sequence[NodeState],
    code: str,
    change: str,
    *,
    field: str = "",
    found: str = "",
    value: str = "",
) -> Iterator[WhatIf]:
    """Yield the change, said in words without a full stop, if the engine confirms it."""
    seen = preview(ask, states)
    if seen.chosen is not None:
        yield WhatIf(code, f"{change}: it would land on {seen.chosen}.", seen.chosen, seen.cards, field, found, value)


# -- What is free in reach


def _largest(ask: Ask, states: Sequence[NodeState], found: Preview) -> LargestFree | None:
    best: LargestFree | None = None
    for state, verdict in zip(states, found.verdicts, strict=True):
        if any(rejection.code in OUT_OF_REACH for rejection in verdict.rejections):
            continue
        free = _free_of(ask, state)
        if free and free.amount and (best is None or (-free.amount, free.node) < (-best.amount, best.node)):
            best = free
    return best


def _free_of(ask: Ask, state: NodeState) -> LargestFree | None:
    node, requested = state.node, state.requested
    if limit_of(ask, GPU_MEM):
        on_node = node.memory_units - requested.get(GPU_MEM, 0)
        room, index = max(((room, -index) for index, room in enumerate(state.rooms)), default=(0, 0))
        return LargestFree(node.name, GPU_MEM, max(0, min(room, on_node)), -index)
    for resource in (TOPOLOGY_GPU, EXCLUSIVE_GPU):
        if limit_of(ask, resource):
            return LargestFree(node.name, resource, node.allocatable.get(resource, 0) - requested.get(resource, 0))
    return None


def _smaller(ask: Ask, states: Sequence[NodeState], largest: LargestFree | None) -> Iterator[WhatIf]:
    """The ask with what the largest free card has, for a pod with one container that asks for cards."""
    asking = [
        index for index, each in enumerate(ask.containers) if any(each.limits.get(name) for name in GPU_RESOURCES)
    ]
    if largest is None or len(asking) != 1:
        return
    asked = limit_of(ask, largest.resource)
    amount = largest.amount * (card_count(ask) if largest.resource == GPU_MEM else 1)
    if not 0 < amount < asked:
        return
    smaller = _with_limits(ask, {largest.resource: amount})
    yield from _try(
        smaller,
        states,
        "smaller",
        f"Ask for {amount} of {largest.resource} instead of {asked}",
        field=f"spec.containers[{asking[0]}].resources.limits[{largest.resource}]",
        found=str(asked),
        value=str(amount),
    )


def _waiting(ask: Ask, states: Sequence[NodeState]) -> Iterator[WhatIf]:
    """The nodes once their terminating pods have ended, as far as cards go."""
    later, ending = [], 0
    for state in states:
        leaving = [holding for holding in state.allocation.holdings if holding.releasing]
        ending += len(leaving)
        later.append(_without(state, leaving) if leaving else state)
    if ending:
        pods = "the terminating pod has" if ending == 1 else f"the {ending} terminating pods have"
        yield from _try(ask, later, "wait", f"Wait until {pods} ended")


def _without(state: NodeState, leaving: Sequence[object]) -> NodeState:
    allocation, requested = state.allocation, dict(state.requested)
    core = sum(holding.core_percent for holding in allocation.holdings if holding.releasing)
    cards = EXCLUSIVE_GPU if state.node.allocatable.get(EXCLUSIVE_GPU) else TOPOLOGY_GPU
    for resource, amount in (
        (GPU_MEM, allocation.memory_units_releasing),
        (GPU_CORE, core),
        (cards, 0 if state.node.memory_units else allocation.cards_releasing),
    ):
        if amount:
            requested[resource] = max(0, requested.get(resource, 0) - amount)
    return msgspec.structs.replace(state, requested=requested, pods=max(0, state.pods - len(leaving)))


# -- Tolerations and selectors


def _tolerating(ask: Ask, states: Sequence[NodeState], found: Preview) -> Iterator[WhatIf]:
    tainted = (
        taint
        for state, verdict in zip(states, found.verdicts, strict=True)
        if any(rejection.code == "taint" for rejection in verdict.rejections)
        for taint in untolerated(ask, state.node.taints, HARD_EFFECTS)
    )
    for taint in _distinct(tainted):
        # Tolerating that a node is away helps nobody.
        if taint.key.startswith(LIFECYCLE):
            continue
        operator = "Equal" if taint.value else "Exists"
        more = Toleration(taint.key, operator, taint.value, taint.effect)
        written = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        yield from _try(
            msgspec.structs.replace(ask, tolerations=(*ask.tolerations, more)),
            states,
            "toleration",
            f"Tolerate the taint {written}",
            field="spec.tolerations",
            value=written,
        )


def _distinct(taints: Iterable[Taint]) -> list[Taint]:
    found = sorted({(taint.key, taint.value, taint.effect) for taint in taints})
    return [Taint(*each) for each in found[:MOST_TRIED]]


def _selecting(ask: Ask, states: Sequence[NodeState]) -> Iterator[WhatIf]:
    for key, old in sorted(ask.node_selector.items()):
        field = f"spec.nodeSelector[{key}]"
        code = "pool" if key in POOL_LABELS else "mode" if key == MODE_LABEL else "selector"
        values = sorted({state.node.labels[key] for state in states if key in state.node.labels} - {old})
        fitting = [
            option
            for value in values[:MOST_TRIED]
            for option in _try(
                msgspec.structs.replace(ask, node_selector={**ask.node_selector, key: value}),
                states,
                code,
                f"Select {key}={value} instead of {old}",
                field=field,
                found=old,
                value=value,
            )
        ]
        yield from fitting
        if not fitting:
            rest = {name: value for name, value in ask.node_selector.items() if name != key}
            yield from _try(
                msgspec.structs.replace(ask, node_selector=rest),
                states,
                code,
                f"Do not select {key}={old}",
                field=field,
                found=old,
            )
    if ask.required_terms is not None:
        yield from _try(
            msgspec.structs.replace(ask, required_terms=None),
            states,
            "selector",
            "Do not require the node affinity",
            field="spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        )


# -- Another mode


def _other_modes(ask: Ask, states: Sequence[NodeState]) -> Iterator[WhatIf]:
    """The same pod with the resources of another mode, on nodes that are in it."""
    if sum(1 for each in ask.containers if any(each.limits.get(name) for name in GPU_RESOURCES)) != 1:
        return
    tried: set[tuple[tuple[str, int], ...]] = {tuple(sorted(_gpu_limits(ask).items()))}
    for mode in (Mode.EXCLUSIVE, Mode.CGPU, Mode.SHARE, Mode.MPS, Mode.CORE_MEM, Mode.TOPOLOGY):
        in_mode = [state for state in states if mode_of(state.node) is mode]
        for limits, count in _limits_in(mode, ask, in_mode):
            key = tuple(sorted(limits.items()))
            if key in tried:
                continue
            tried.add(key)
            words = " and ".join(f"{amount} of {name}" for name, amount in limits.items())
            spread = f" over {count} cards" if GPU_MEM in limits and count > 1 else ""
            yield from _try(
                _in_mode(ask, mode, limits, count),
                in_mode,
                "mode",
                f"Ask for {words}{spread} ({MODES[mode].title})",
                field="spec.containers.resources.limits",
                found=", ".join(f"{name}: {amount}" for name, amount in _gpu_limits(ask).items()),
                value=", ".join(f"{name}: {amount}" for name, amount in limits.items()),
            )


def _gpu_limits(ask: Ask) -> dict[str, int]:
    return {name: amount for name in GPU_RESOURCES if (amount := limit_of(ask, name))}


def _limits_in(mode: Mode, ask: Ask, states: Sequence[NodeState]) -> Iterator[tuple[dict[str, int], int]]:
    """Yield what the pod would ask for in a mode, with its number of cards."""
    memory, core = limit_of(ask, GPU_MEM), limit_of(ask, GPU_CORE)
    cards = limit_of(ask, EXCLUSIVE_GPU) or limit_of(ask, TOPOLOGY_GPU) or card_count(ask)
    if mode in {Mode.EXCLUSIVE, Mode.TOPOLOGY}:
        yield {EXCLUSIVE_GPU if mode is Mode.EXCLUSIVE else TOPOLOGY_GPU: cards}, 1
        return
    if cards > MOST_CARDS:
        return
    sizes = {state.allocation.gpus[0].memory_units for state in states if state.allocation.gpus}
    for units in sorted(sizes - {0}):
        asked = memory or units * cards
        if mode is not Mode.CORE_MEM:
            yield {GPU_MEM: asked}, cards
        elif cards == 1:
            # As much of a card's compute as of its memory, in the steps that ACK has.
            share = min(100, -(-100 * asked // units // CORE_STEP_PERCENT) * CORE_STEP_PERCENT)
            yield {GPU_MEM: asked, GPU_CORE: core or max(CORE_STEP_PERCENT, share)}, 1


def _in_mode(ask: Ask, mode: Mode, limits: dict[str, int], count: int) -> Ask:
    changed = _with_limits(ask, {**dict.fromkeys(GPU_RESOURCES, 0), **limits})
    labels = {key: value for key, value in ask.labels.items() if key != SHARE_COUNT_LABEL}
    if GPU_MEM in limits and count > 1:
        labels[SHARE_COUNT_LABEL] = str(count)
    selector = dict(ask.node_selector)
    if MODE_LABEL in selector:
        selector[MODE_LABEL] = MODES[mode].label_value
    return msgspec.structs.replace(changed, labels=labels, node_selector=selector)


def _with_limits(ask: Ask, limits: dict[str, int]) -> Ask:
    """Change what the container that asks for cards asks for; an amount of 0 takes the resource out."""

    def changed(container: ContainerAsk) -> ContainerAsk:
        if not any(container.limits.get(name) for name in GPU_RESOURCES):
            return container
        amounts = {name: amount for name, amount in limits.items() if amount}
        kept = {name: amount for name, amount in container.limits.items() if name not in limits}
        asked = {name: amount for name, amount in container.requests.items() if name not in limits}
        return msgspec.structs.replace(container, limits=kept | amounts, requests=asked | amounts, fractions={})

    return msgspec.structs.replace(ask, containers=tuple(changed(container) for container in ask.containers))


# -- One more node


def _one_more_node(
    ask: Ask, states: Sequence[NodeState], daemons: Iterable[Pod], namespaces: Collection[str] | None
) -> Iterator[WhatIf]:
    """A node like those of a pool, with the DaemonSet pods that it would carry; the sentence says what was assumed."""
    for more in new_nodes(states, daemons):
        seen = preview(ask, [more.state])
        if seen.chosen is not None:
            yield WhatIf("node", _assumed(more, namespaces), more.state.node.name, seen.cards, value=more.pool)


def _assumed(more: NewNode, namespaces: Collection[str] | None) -> str:
    made = f"One more node of pool {more.pool} would take it, if made as {more.pattern} is"
    count = len(more.daemons)
    if not count:
        return f"{made}; no DaemonSet pods are known that it would carry."
    split = [name.partition("/") for name in more.daemons]
    seen = [name for namespace, _, name in split if namespaces is None or namespace in namespaces][:MOST_NAMED]
    rest = [f"{count - len(seen)} more"] if len(seen) < count else []
    named = f" ({', '.join([*seen, *rest])})" if seen else ""
    return f"{made} with {count} DaemonSet pod{'' if count == 1 else 's'}{named}."
