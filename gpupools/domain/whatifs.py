"""What would help pods that fit nowhere: a few fixed changes, each tried out by asking the engine again.

Nothing is promised that the engine and a check of the manifest did not confirm. It changes no cluster and knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from gpupools.domain.allocation import mode_of
from gpupools.domain.asks import card_count, limit_of
from gpupools.domain.edits import Edit
from gpupools.domain.filters import HARD_EFFECTS, untolerated
from gpupools.domain.gpus import Ask, Pod, Taint, Toleration
from gpupools.domain.manifests import Manifest
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
from gpupools.domain.otherasks import asking_for, asking_less, asks_once, bound_to, limits_in, step_of, with_ipc
from gpupools.domain.quantities import format_quantity
from gpupools.domain.roomleft import LargestFree, asked_of, largest_free
from gpupools.domain.trials import Outcome, Trial
from gpupools.domain.verdicts import NodeState, Preview

__all__ = ["Edit", "Help", "LargestFree", "WhatIf", "what_would_help"]

MOST_NAMED = 3  # DaemonSets of a new node
MOST_TRIED = 8  # values of one selector, or taints: beyond, a list helps nobody


class WhatIf(msgspec.Struct, frozen=True):
    """A change with which more pods would fit. Codes: wait, smaller, toleration, selector, pool, mode, node.

    ``node`` is where the first pod would land that finds no room now, ``pods`` how many of all would fit. ``edits``
    are all that has to change in the manifest, with fields from its top; none where nothing in it changes. ``pool``
    is of which pool one more node would help.
    """

    code: str
    sentence: str
    node: str
    cards: tuple[int, ...] = ()
    edits: tuple[Edit, ...] = ()
    pods: int = 1
    pool: str = ""


class Help(msgspec.Struct, frozen=True):
    """What would help. ``largest`` is None when no node in reach has anything free; not ``tried``: nothing was."""

    largest: LargestFree | None = None
    options: tuple[WhatIf, ...] = ()
    tried: bool = False


def what_would_help(
    ask: Ask,
    states: Sequence[NodeState],
    previews: Sequence[Preview] = (),
    *,
    count: int = 1,
    mates: Sequence[Pod] = (),
    manifest: Manifest | None = None,
    daemons: Iterable[Pod] = (),
    namespaces: Collection[str] | None = None,
    pools: Mapping[str, str] | None = None,
) -> Help:
    """Try the changes with which more of ``count`` equal pods fit; nothing where all do, or no node is asked.

    ``previews`` are the pods' own on these states, where the caller has them; ``manifest`` is what the ask was read
    from, and ``mates`` are as in a preview. ``daemons`` are pods among which those of DaemonSets are: a new node
    carries some of them before it takes anything else. They are named where they are of ``namespaces`` (None: all),
    and count wherever they are. ``pools`` gives the names of pools by what their nodes' label says.
    """
    trial = Trial(ask, states, previews, count=count, mates=mates, manifest=manifest)
    found = trial.unfit
    if found is None or found.problems or found.prefilter or not states:
        return Help()
    taken = trial.taken()
    short = largest_free(ask, taken, found)
    words = _Words(trial, pools or {}, manifest.pod_path if manifest else "")
    tries = (
        *_waiting(trial, words),
        *_smaller(trial, words, short),
        *_tolerating(trial, words, found),
        *_selecting(trial, words),
        *_other_modes(trial, words),
        *_one_more_node(trial, words, daemons, namespaces),
    )
    first_of: dict[object, WhatIf] = {}
    for each in tries:
        # Two ways of coming to the same edits are one change; where nothing is edited, its sentence tells.
        first_of.setdefault(each.edits or each.sentence, each)
    return Help(short[0] if short else None, tuple(first_of.values()), tried=True)


class _Words:
    """Puts an outcome that helps into a what-if: its sentence names the whole change."""

    def __init__(self, trial: Trial, pools: Mapping[str, str], path: str) -> None:
        self._trial = trial
        self._pools = pools
        self._path = path

    def pool(self, label: str) -> str:
        """Return a pool's name by the value of its nodes' label."""
        return self._pools.get(label, label)

    def said(self, code: str, change: str, found: Outcome | None, *, told: Callable[[Edit], bool]) -> Iterator[WhatIf]:
        """Yield the change, said without a full stop, if it helps; edits that ``change`` has not ``told`` follow it."""
        if found is None:
            return
        parts = [change, *(_also(edit) for edit in found.edits if not told(edit))]
        whole = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        edits = tuple(msgspec.structs.replace(each, field=f"{self._path}{each.field}") for each in found.edits)
        sentence = f"{whole}: {self.result(found)}."
        yield WhatIf(code, sentence, found.first.chosen or "", found.first.cards, edits, found.pods)

    def result(self, found: Outcome) -> str:
        """Say what an outcome is to all pods."""
        count, before = self._trial.count, self._trial.fitting
        if count == 1:
            return f"it would land on {found.first.chosen}"
        every = "both" if count == 2 else f"all {count}"
        fit = f"{every} pods would fit" if found.pods == count else f"{found.pods} of {count} pods would fit"
        return f"{fit} instead of {before}"


def _also(edit: Edit) -> str:
    """Say one edit in words that can follow others."""
    name = edit.field.rpartition("[")[2].removesuffix("]") if edit.field.endswith("]") else edit.field
    if edit.field.startswith("spec.nodeSelector"):
        if not edit.value:
            return f"do not select {name}={edit.found}"
        return f"select {name}={edit.value}" + (f" instead of {edit.found}" if edit.found else "")
    if edit.field == "spec.hostIPC":
        return "set hostIPC: true" if edit.value else "take hostIPC out"
    if edit.field.endswith(".values"):
        return f"require {MODE_LABEL} in {edit.value} instead of {edit.found}"
    if edit.field.startswith("metadata.labels"):
        return f"label the pod {name}: {edit.value}" if edit.value else f"take the label {name} off the pod"
    return f"set {edit.field} to {edit.value}" if edit.value else f"take {edit.field} out"


def _is_amount(edit: Edit) -> bool:
    return ".resources." in edit.field


# -- Less of what is short


def _smaller(trial: Trial, words: _Words, short: Sequence[LargestFree]) -> Iterator[WhatIf]:
    """The ask with the most of a resource by which all pods fit, or else with what is free of it."""
    for free in short:
        asked = asked_of(trial.ask, free.resource)
        cards = card_count(trial.ask) if free.resource == GPU_MEM else 1
        step = step_of(free.resource, cards)
        most = free.amount * cards // step
        if not asks_once(trial.ask, free.resource) or not 0 < most * step < asked:
            continue
        amount = most * step
        found = trial.asking(asking_less(trial.ask, free.resource, amount))
        # One pod gets no more than is free; of several that are smaller, more get onto one card.
        if found is None or trial.count > 1:
            less, all_fit = _most_for_all(trial, free.resource, step, (asked - 1) // step)
            amount, found = (less, all_fit) if all_fit else (amount, found)
        fewer, now = format_quantity(free.resource, amount), format_quantity(free.resource, asked)
        yield from words.said("smaller", f"Ask for {fewer} of {free.resource} instead of {now}", found, told=_is_amount)


def _most_for_all(trial: Trial, resource: str, step: int, high: int) -> tuple[int, Outcome | None]:
    """Halve down to the most of a resource, at most ``high`` steps, by which all pods fit."""
    low, best, found = 1, 0, None
    while low <= high:
        middle = (low + high) // 2
        outcome = trial.asking(asking_less(trial.ask, resource, middle * step))
        if outcome is not None and outcome.pods == trial.count:
            best, found, low = middle, outcome, middle + 1
        else:
            high = middle - 1
    return best * step, found


# -- Time


def _waiting(trial: Trial, words: _Words) -> Iterator[WhatIf]:
    """The nodes once their terminating pods have ended, as far as cards go."""
    later, ending = [], 0
    for state in trial.states:
        leaving = [holding for holding in state.allocation.holdings if holding.releasing]
        ending += len(leaving)
        later.append(_without(state, leaving) if leaving else state)
    if ending:
        pods = "the terminating pod has" if ending == 1 else f"the {ending} terminating pods have"
        yield from words.said("wait", f"Wait until {pods} ended", trial.on(later), told=_is_amount)


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


def _tolerating(trial: Trial, words: _Words, found: Preview) -> Iterator[WhatIf]:
    ask = trial.ask
    tainted = (
        taint
        for state, verdict in zip(trial.states, found.verdicts, strict=True)
        if any(rejection.code == "taint" for rejection in verdict.rejections)
        for taint in untolerated(ask, state.node.taints, HARD_EFFECTS)
    )
    for taint in _distinct(tainted):
        # Tolerating that a node is away helps nobody.
        if taint.key.startswith(LIFECYCLE):
            continue
        more = Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect)
        written = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        outcome = trial.asking(msgspec.structs.replace(ask, tolerations=(*ask.tolerations, more)))
        yield from words.said("toleration", f"Tolerate the taint {written}", outcome, told=_is_toleration)


def _is_toleration(edit: Edit) -> bool:
    return edit.field.startswith("spec.tolerations")


def _distinct(taints: Iterable[Taint]) -> list[Taint]:
    found = sorted({(taint.key, taint.value, taint.effect) for taint in taints})
    return [Taint(*each) for each in found[:MOST_TRIED]]


def _selecting(trial: Trial, words: _Words) -> Iterator[WhatIf]:
    ask = trial.ask
    for key, old in sorted(ask.node_selector.items()):
        is_pool = key in POOL_LABELS
        code = "pool" if is_pool else "mode" if key == MODE_LABEL else "selector"

        def told(edit: Edit, field: str = f"spec.nodeSelector[{key}]") -> bool:
            return edit.field == field

        values = sorted({state.node.labels[key] for state in trial.states if key in state.node.labels} - {old})
        fitting: list[WhatIf] = []
        for value in values[:MOST_TRIED]:
            after = with_ipc(ask, msgspec.structs.replace(ask, node_selector={**ask.node_selector, key: value}))
            change = f"Select {key}={value} instead of {old}"
            if is_pool:
                change = f"Select pool {words.pool(value)} ({key}={value}) instead of {words.pool(old)}"
            fitting += words.said(code, change, trial.asking(after), told=told)
        yield from fitting
        if not fitting:
            rest = {name: value for name, value in ask.node_selector.items() if name != key}
            after = with_ipc(ask, msgspec.structs.replace(ask, node_selector=rest))
            change = f"Do not select pool {words.pool(old)} ({key}={old})" if is_pool else f"Do not select {key}={old}"
            yield from words.said(code, change, trial.asking(after), told=told)
    if ask.required_terms is not None:
        after = with_ipc(ask, msgspec.structs.replace(ask, required_terms=None))
        change = "Do not require the node affinity"
        yield from words.said("selector", change, trial.asking(after), told=_is_affinity)


def _is_affinity(edit: Edit) -> bool:
    return edit.field.startswith("spec.affinity")


# -- Another mode


def _other_modes(trial: Trial, words: _Words) -> Iterator[WhatIf]:
    """The same pod as one of another mode: its resources, the mode that it binds itself to, and what else it needs."""
    ask = trial.ask
    if not asks_once(ask, GPU_MEM):
        return
    now = _amounts({name: amount for name in GPU_RESOURCES if (amount := limit_of(ask, name))})
    for mode in (Mode.EXCLUSIVE, Mode.CGPU, Mode.SHARE, Mode.MPS, Mode.CORE_MEM, Mode.TOPOLOGY):
        in_mode = [state for state in trial.states if mode_of(state.node) is mode]
        if not in_mode:
            continue
        for limits, count in limits_in(mode, ask, in_mode):
            amounts = _amounts(limits)
            instead = f" instead of {now}" if now != amounts else ""
            spread = f" over {count} cards" if GPU_MEM in limits and count > 1 else ""
            change = f"Ask for {amounts}{spread}{instead} ({MODES[mode].title})"
            for after in bound_to(mode, asking_for(ask, limits, count)):
                options = list(words.said("mode", change, trial.asking(with_ipc(ask, after)), told=_is_amount))
                yield from options
                if options:
                    break


def _amounts(limits: Mapping[str, int]) -> str:
    return " and ".join(f"{amount} of {name}" for name, amount in limits.items())


# -- One more node


def _one_more_node(
    trial: Trial, words: _Words, daemons: Iterable[Pod], namespaces: Collection[str] | None
) -> Iterator[WhatIf]:
    """A node like those of a pool, with the DaemonSet pods that it would carry; the sentence says what was assumed."""
    for more in new_nodes(trial.states, daemons):
        found = trial.on([*trial.states, more.state])
        if found is None:
            continue
        pool = words.pool(more.pool)
        would = f"One more node of pool {pool} would take it"
        if trial.count > 1:
            would = f"With one more node of pool {pool} {words.result(found)}"
        sentence = f"{would}, if made as {more.pattern} is{_carrying(more, namespaces)}."
        yield WhatIf("node", sentence, more.state.node.name, found.first.cards, (), found.pods, pool)


def _carrying(more: NewNode, namespaces: Collection[str] | None) -> str:
    count = len(more.daemons)
    if not count:
        return "; no DaemonSet pods are known that it would carry"
    split = [name.partition("/") for name in more.daemons]
    seen = [name for namespace, _, name in split if namespaces is None or namespace in namespaces][:MOST_NAMED]
    rest = [f"{count - len(seen)} more"] if len(seen) < count else []
    named = f" ({', '.join([*seen, *rest])})" if seen else ""
    return f" with {count} DaemonSet pod{'' if count == 1 else 's'}{named}"
