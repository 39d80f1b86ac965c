"""Where ``kubectl inspect cgpu`` is wrong: what stands in our table in its stead, and what the tool would print.

It knows how the tool reckons; how a table is laid out, inspect.py knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from gpupools.domain.allocation import FORMER_MODE, UNKNOWN_CARD
from gpupools.domain.diagnosis.scene import as_labelled, counted_cards
from gpupools.domain.gpus import GpuNode, Holding, NodeAllocation

TOOL = "kubectl inspect cgpu"
# The tool calls the unit MiB when a card of the first node has more units than this.
MOST_GIB_UNITS = 100
# No card has less memory, so fewer units than this are no MiB.
LEAST_MIB_UNITS = 4096
UNIT_WORDS = {1024: "GiB", 128: "128MiB", 1: "MiB"}
# Heads the column where there is no one unit, or none that can be told.
ANY_UNIT = "units"


def held_before(node: NodeAllocation) -> list[Holding]:
    """Return what pods hold of a node's memory since before it changed its mode."""
    return [each for each in node.unplaced if each.lost == FORMER_MODE and each.memory_units]


def guessed_unit(nodes: Sequence[NodeAllocation]) -> str:
    """Return the unit that the tool names: a guess from the first node."""
    return "MiB" if nodes and _card_units(nodes[0]) > MOST_GIB_UNITS else "GiB" if nodes else ""


def unit(nodes: Sequence[NodeAllocation]) -> str:
    """Return the unit that all nodes count in: detected, or what the tool says where that can be; else "units"."""
    words = {_unit_of(node) for node in nodes if node.gpus}
    return words.pop() if len(words) == 1 else ANY_UNIT if words else guessed_unit(nodes) or ANY_UNIT


def _unit_of(node: NodeAllocation) -> str:
    if node.unit_mib:
        return UNIT_WORDS[node.unit_mib]
    units = _card_units(node)
    return "GiB" if units <= MOST_GIB_UNITS else "MiB" if units >= LEAST_MIB_UNITS else ANY_UNIT


def _card_units(node: NodeAllocation) -> int:
    return node.gpus[0].memory_units if node.gpus else 0


def footnotes(
    shared: Sequence[NodeAllocation],
    former: Sequence[NodeAllocation],
    nodes: Mapping[str, GpuNode],
    *,
    columns: int | None = None,
    namespaces: Collection[str] | None = None,
) -> list[str]:
    """Say in sentences where the table is not the tool's, or the tool's is not the whole truth.

    ``shared`` are the rows that the tool has, ``former`` those that it leaves out. ``columns``: the cards that the
    summary has a column for; None for the details, which head no column with a unit and count all that is claimed.
    Pods are named when they are of ``namespaces`` (None: all).
    """
    return [
        *(_unit_notes(shared) if columns is not None else ()),
        *(note for node in shared for note in _card_notes(node, nodes.get(node.node))),
        *(note for node in shared for note in _stray_notes(node, columns, namespaces)),
        *(_former_note(node, namespaces) for node in former),
    ]


def _unit_notes(nodes: Sequence[NodeAllocation]) -> Iterator[str]:
    """Say what a unit is where the tool would guess another one."""
    guess, found = guessed_unit(nodes), unit(nodes)
    if found == guess:
        return
    by_word: dict[str, list[str]] = {}
    for node in nodes:
        if node.gpus:
            by_word.setdefault(_unit_of(node), []).append(node.node)
    said = f"{TOOL} would print GPU Memory({guess})"
    for word, names in by_word.items():
        where = ", ".join(names)
        if word == ANY_UNIT:
            yield (
                f"Nothing says whether a unit of GPU memory is 1 GiB or 128 MiB on: {where}. {said}, but no card is as "
                "small as that."
            )
        elif word != guess:
            yield f"A unit of GPU memory is {_size(word)} on: {where}. {said}, by how many units the first card has."
    if guess in by_word:
        yield f"A unit of GPU memory is {_size(guess)} on: {', '.join(by_word[guess])}."


def _size(word: str) -> str:
    return "128 MiB" if word == UNIT_WORDS[128] else f"1 {word}"


def _card_notes(node: NodeAllocation, found: GpuNode | None) -> Iterator[str]:
    """Say where cards of a node are not alike, or not there: the tool gives each the same and loses the rest."""
    cards = len(node.gpus)
    if not cards:
        yield f"{node.node} reports {_units(node.memory_units)}, but no cards."
        return
    each, rest = divmod(node.memory_units, cards)
    if found and found.cards_out:
        yield (
            f"{node.node} has {_cards(cards)} of {_units(_card_units(node))}, of which {found.cards_out} "
            f"{'is' if found.cards_out == 1 else 'are'} unhealthy. {TOOL} and ACK's scheduler take each for "
            f"{_units(each)}."
        )
    elif rest:
        yield (
            f"{node.node} reports {_units(node.memory_units)} on {_cards(cards)}: {rest} of them "
            f"{'stands' if rest == 1 else 'stand'} on no card. The cards may not be alike; {TOOL} and ACK's scheduler "
            f"take each for {_units(each)}."
        )
    elif found and not as_labelled(found):
        counted = counted_cards(found)
        yield (
            f"{node.node} reports {_units(each)} for each of {_cards(cards)}, but its labels say "
            f"{f'{_cards(counted)} of ' if counted is not None else ''}{found.card_memory_mib} MiB. The cards may not "
            f"be alike; {TOOL} and ACK's scheduler take each for {_units(each)}."
        )


def _stray_notes(node: NodeAllocation, columns: int | None, namespaces: Collection[str] | None) -> Iterator[str]:
    """Name what is allocated on cards that are not there, and the figures of the tool, which invents such cards."""
    stray = [each for each in node.unplaced if each.lost == UNKNOWN_CARD and each.memory_units]
    if not stray:
        return
    where = ", ".join(f"GPU{index}" for index in sorted(node.strays))
    note = (
        f"{node.node} has {_cards(len(node.gpus))}, but {_units(sum(each.memory_units for each in stray))} are "
        f"allocated on {where}: {_names(stray, namespaces)}"
    )
    if columns is None:
        yield note
        return
    shown = {index: units for index, units in sorted(node.strays.items()) if index < columns}
    claims = [f"{units}/{_card_units(node)} under GPU{index}" for index, units in shown.items()]
    if hidden := sum(node.strays.values()) - sum(shown.values()):
        claims.append(f"{node.memory_units_used - hidden}/{node.memory_units} for the node and count no more of it")
    counted = f"They count in {node.memory_units_used}/{node.memory_units}"
    yield f"{note}. {counted}; {TOOL} would print {' and '.join(claims)}."


def _former_note(node: NodeAllocation, namespaces: Collection[str] | None) -> str:
    """Name what is held since before a node changed its mode: the tool leaves such a node out."""
    held = held_before(node)
    return (
        f"{node.node} is in another mode now; {_units(sum(each.memory_units for each in held))} are still allocated "
        f"from a former one, and count in no sum of the cluster: {_names(held, namespaces)}. {TOOL} would leave the "
        "node out."
    )


def _units(count: int) -> str:
    return f"{count} {'unit' if count == 1 else 'units'}"


def _cards(count: int) -> str:
    return f"{count} {'card' if count == 1 else 'cards'}"


def _names(holdings: Sequence[Holding], namespaces: Collection[str] | None) -> str:
    seen = [each for each in holdings if namespaces is None or each.namespace in namespaces]
    names = [f"{each.namespace}/{each.pod}" for each in seen]
    if hidden := len(holdings) - len(seen):
        names.append(f"{hidden} {'pod' if hidden == 1 else 'pods'} of other namespaces")
    return ", ".join(names)
