"""One ask made into another: less of a resource, or as one of another mode, with all that goes with that.

It tries nothing out, and knows no manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gpupools.domain.asks import SHARE_COUNT_LABEL, card_count, limit_of
from gpupools.domain.gpus import MOST_CARDS, AffinityTerm, Ask, ContainerAsk
from gpupools.domain.manifests import selects_mode
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
from gpupools.domain.validation import CORE_STEP_PERCENT
from gpupools.domain.verdicts import NodeState

MEBIBYTE = 1024**2


def step_of(resource: str, cards: int) -> int:
    """Return in which steps a resource is asked for: all cards of a share alike, compute as ACK has it, whole MiB."""
    if resource == GPU_CORE:
        return CORE_STEP_PERCENT
    return MEBIBYTE if resource in {"memory", "ephemeral-storage"} else cards


def asks_once(ask: Ask, resource: str) -> bool:
    """Whether just one container asks for a resource, and none before it: only then it is plain which asks for less."""
    names = GPU_RESOURCES if resource in GPU_RESOURCES else (resource,)
    asking = [each for each in ask.containers if any(each.requests.get(name) for name in names)]
    return len(asking) == 1


def asking_less(ask: Ask, resource: str, amount: int) -> Ask:
    """Ask for another amount of a resource in the container that asks for it; its limit of what is no card stays."""
    if resource in GPU_RESOURCES:
        return _with_limits(ask, {resource: amount})
    return msgspec.structs.replace(
        ask,
        containers=tuple(
            msgspec.structs.replace(each, requests={**each.requests, resource: amount})
            if each.requests.get(resource)
            else each
            for each in ask.containers
        ),
    )


# -- Another mode


def with_ipc(before: Ask, after: Ask) -> Ask:
    """Give a pod that comes to mode mps the host's IPC namespace, and take it from one that leaves that mode."""
    mps = MODES[Mode.MPS].label_value
    if selects_mode(after) == mps:
        return msgspec.structs.replace(after, host_ipc=True)
    return msgspec.structs.replace(after, host_ipc=False) if selects_mode(before) == mps else after


def limits_in(mode: Mode, ask: Ask, states: Sequence[NodeState]) -> Iterator[tuple[dict[str, int], int]]:
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


def asking_for(ask: Ask, limits: dict[str, int], count: int) -> Ask:
    """Ask for these resources of cards in the stead of all others, over so many cards."""
    changed = _with_limits(ask, {**dict.fromkeys(GPU_RESOURCES, 0), **limits})
    labels = {key: value for key, value in ask.labels.items() if key != SHARE_COUNT_LABEL}
    if GPU_MEM in limits and count > 1:
        labels[SHARE_COUNT_LABEL] = str(count)
    return msgspec.structs.replace(changed, labels=labels)


def bound_to(mode: Mode, ask: Ask) -> Iterator[Ask]:
    """Bind a pod to a mode wherever it binds itself to one now; where modes offer the same resource, always.

    A node without the mode's label is exclusive too, so there not to select a mode is a second way.
    """
    value = MODES[mode].label_value
    terms = ask.required_terms and tuple(_term_in(value, term) for term in ask.required_terms)
    bound = msgspec.structs.replace(ask, required_terms=terms)
    alike = MODES[mode].resources == (GPU_MEM,)
    if MODE_LABEL in ask.node_selector or (alike and selects_mode(bound) != value):
        yield msgspec.structs.replace(bound, node_selector={**ask.node_selector, MODE_LABEL: value})
    else:
        yield bound
    if mode is Mode.EXCLUSIVE and MODE_LABEL in ask.node_selector:
        rest = {key: each for key, each in ask.node_selector.items() if key != MODE_LABEL}
        yield msgspec.structs.replace(bound, node_selector=rest)


def _term_in(value: str, term: AffinityTerm) -> AffinityTerm:
    return msgspec.structs.replace(
        term,
        expressions=tuple(
            msgspec.structs.replace(each, values=(value,))
            if each.key == MODE_LABEL and each.operator == "In" and value not in each.values
            else each
            for each in term.expressions
        ),
    )


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
