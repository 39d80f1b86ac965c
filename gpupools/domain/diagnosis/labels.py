"""Rules about what a node declares: its labels against its pool, its machine, its cards and its cluster."""

from __future__ import annotations

from collections.abc import Iterator

from gpupools.domain.diagnosis.scene import (
    Diagnosis,
    Scene,
    Severity,
    as_labelled,
    counted,
    counted_cards,
    shared_units,
)
from gpupools.domain.gpus import GpuNode
from gpupools.domain.modes import GPU_MEM, MODE_LABEL, MODES, PLACEMENT_LABEL, Mode

RESTORE_OR_ADOPT = (
    "Restore what the pool wants, or let the pool adopt what the node carries, on the pool's page of nodes; "
    "where a mode changes by it, a second person decides."
)
_OLD_LABELS = ("cgpu", "gpushare")
_ISOLATED = {Mode.CGPU, Mode.CORE_MEM}
_VIRTUAL = ("ecs.vgn", "ecs.sgn")  # instance families with a part of a card


def differs_from_pool(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """2: the pool was changed, and this node was not."""
    found = [each for each in scene.differences.get(node.name, ()) if each.key in {MODE_LABEL, PLACEMENT_LABEL}]
    if found:
        said = "; ".join(
            f"{each.key} is {each.found or 'not there'}, wanted {each.wanted or 'nothing'}" for each in found
        )
        yield Diagnosis(
            "pool-not-synced",
            2,
            Severity.WARNING,
            f"{node.name} does not carry the mode of its pool {scene.pools.get(node.name, '')}.",
            said,
            RESTORE_OR_ADOPT,
            node.name,
            scene.pools.get(node.name, ""),
        )


def label_removed(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """3: the label was taken off, which does not make a node exclusive again."""
    if MODE_LABEL in node.labels or any(node.labels.get(key) == "true" for key in _OLD_LABELS):
        return
    if units := shared_units(node):
        yield Diagnosis(
            "label-removed",
            3,
            Severity.ERROR,
            f"{node.name} has no mode label and still shares its cards.",
            f"{GPU_MEM}={units} without {MODE_LABEL}.",
            f"Write {MODE_LABEL}=default (mode exclusive); taking the label off restores nothing.",
            node.name,
        )


def unknown_mode(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """1: the label has a value that no plugin selects."""
    if node.declared is None:
        yield Diagnosis(
            "unknown-mode",
            1,
            Severity.ERROR,
            f"The mode of {node.name} is none that ACK knows.",
            f"{MODE_LABEL}={node.labels.get(MODE_LABEL, '')}",
            "Set its pool's mode to one of the six; a label value is written exactly, in lower case.",
            node.name,
        )


def unsupported_machine(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """28: the isolation module does not work on machines with a part of a card, nor outside ECS."""
    if node.declared not in _ISOLATED or not node.instance_type:
        return
    virtual = node.instance_type.startswith(_VIRTUAL)
    if virtual or (scene.spec and not node.instance_type.startswith("ecs.")):
        yield Diagnosis(
            "unsupported-machine",
            28,
            Severity.ERROR,
            f"cGPU does not support the machine of {node.name}.",
            f"Its instance type is {node.instance_type}"
            + (", which has a part of a card (vGPU)." if virtual else ", which is no ECS instance."),
            "Use instances of families gn6, gn7, gn8 or ebmgn for cgpu and core_mem; here, exclusive or share.",
            node.name,
        )


def mixed_cards(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """34: what is reported is not what the cards of the label add up to; the first card decides for all."""
    if as_labelled(node):
        return
    yield Diagnosis(
        "implausible-cards",
        34,
        Severity.WARNING,
        f"The cards of {node.name} are not what the node reports.",
        f"{counted(shared_units(node), 'unit')} on {counted(node.shared_cards, 'card')}, but the labels say "
        f"{_labelled(counted_cards(node))} of {node.card_memory_mib} MiB.",
        "The plugin takes every card for the first one's like: keep one model to a node, and see whether ECC was "
        "switched since it joined.",
        node.name,
    )


def _labelled(cards: int | None) -> str:
    return "cards" if cards is None else counted(cards, "card")


def same_model_differs(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """35: nodes with the same cards report different totals."""
    mine = node.per_card(GPU_MEM)
    if not mine:
        return
    # Units of 128 MiB are eight times as many; that is a setting of the plugin and no fault of a card.
    others = scene.fullest_of_model.get(node.card_model, ())
    larger = next(((units, name) for units, name in others if mine < units < 2 * mine), None)
    if larger:
        units, name = larger
        yield Diagnosis(
            "same-model-differs",
            35,
            Severity.WARNING,
            f"The cards of {node.name} have less memory than others of the same model.",
            f"{counted(mine, 'unit')} a card here, {units} on {name}; both are {node.card_model}.",
            "ECC takes part of a card's memory: set it alike on all nodes (nvidia-smi -e), then restart them.",
            node.name,
        )


def not_pro(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """41: sharing and topology need a Pro cluster."""
    if scene.spec and ".pro" not in scene.spec and node.declared and MODES[node.declared].needs_pro:
        yield Diagnosis(
            "not-pro",
            41,
            Severity.ERROR,
            f"{node.name} is in mode {node.declared.value}, which ACK offers on Pro clusters only.",
            f"The cluster is {scene.spec}.",
            "Move the cluster to Pro in the ACK console, or set the pool's mode to exclusive.",
            node.name,
        )


def placement_without_effect(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """42: the choice of cards means something on shared nodes alone."""
    if PLACEMENT_LABEL in node.labels and node.declared and not MODES[node.declared].shared:
        yield Diagnosis(
            "placement-without-effect",
            42,
            Severity.INFO,
            f"The label {PLACEMENT_LABEL} on {node.name} has no effect.",
            f"{PLACEMENT_LABEL}={node.labels[PLACEMENT_LABEL]} in mode {node.declared.value}.",
            "Take it off, or choose a shared mode: only there do several pods meet on a card.",
            node.name,
        )


def away(node: GpuNode, scene: Scene) -> Iterator[Diagnosis]:
    """Not in ACK's list, and the reason for many of the others: the kubelet does not answer."""
    if not node.ready:
        yield Diagnosis(
            "node-not-ready",
            0,
            Severity.ERROR,
            f"{node.name} is not Ready: its numbers are the last that its kubelet told.",
            "The condition Ready is not True.",
            "See whether the machine runs and reaches the API server.",
            node.name,
        )


def mixed_pool(scene: Scene) -> Iterator[Diagnosis]:
    """4: nodes of one pool in different modes."""
    for pool, every in sorted(scene.by_pool.items()):
        # Half done, a change under way leaves a pool mixed by design.
        nodes = [node for node in every if node.name not in scene.changing]
        modes: dict[str, list[str]] = {}
        for node in nodes:
            word = node.declared.value if node.declared else node.labels.get(MODE_LABEL, "")
            modes.setdefault(word, []).append(node.name)
        if len(modes) > 1:
            yield Diagnosis(
                "pool-mixed",
                4,
                Severity.WARNING,
                f"The nodes of pool {pool} are in different modes.",
                "; ".join(f"{mode}: {', '.join(names[:5])}" for mode, names in sorted(modes.items())),
                f"{RESTORE_OR_ADOPT} Or move nodes that were labelled by hand into a pool of their mode.",
                pool=pool,
            )


RULES = (
    away,
    differs_from_pool,
    label_removed,
    unknown_mode,
    unsupported_machine,
    mixed_cards,
    same_model_differs,
    not_pro,
    placement_without_effect,
)
CLUSTER_RULES = (mixed_pool,)
