"""Live checks of one node: does it report what its mode declares? The vendor's *verify* steps, by exact keys.

Each check is yes, no or unknown, with what was found, what was expected, and what to do. Pure.
"""

from __future__ import annotations

import msgspec

from gpupools.domain.allocation import CARDS_OUT
from gpupools.domain.gpus import GpuNode, NodeAllocation
from gpupools.domain.modes import (
    CARD_COUNT_LABEL,
    CARD_MEMORY_LABEL,
    CARD_NAME_LABEL,
    EXCLUSIVE_GPU,
    GPU_COUNT,
    GPU_MEM,
    MODE_LABEL,
    MODES,
    Mode,
)


class Check(msgspec.Struct, frozen=True):
    """One verdict: ``ok`` is None when it cannot be known.

    ``title`` says what should be so, ``wrong`` the same where it is not.
    """

    code: str
    title: str
    ok: bool | None
    found: str
    expected: str
    fix: str = ""
    wrong: str = ""

    @property
    def sentence(self) -> str:
        """What is the case: the title where it holds or is not known, else what is wrong."""
        return self.title if self.ok is not False else self.wrong


def node_checks(node: GpuNode, allocation: NodeAllocation | None = None) -> list[Check]:
    """Check a node of a cluster. Not a GPU node: no checks. Resource keys are matched exactly, never by prefix."""
    if not node.is_gpu:
        return []
    checks = [_label(node)]
    mode = node.declared
    if mode is not None and not MODES[mode].read_only:
        checks += [_reported(node, mode, name) for name in MODES[mode].resources]
        if MODES[mode].shared:
            checks.append(_cards(node))
        checks.append(_others_zero(node, mode))
        checks.append(_healthy(node, mode))
        if MODES[mode].shared:
            checks.append(_plausible(node))
    checks.append(_card_labels(node))
    checks.append(_ready(node))
    # Cards that are out are told of by the check of their health, and the ledger has no pod wrong for it.
    if allocation is not None and (warned := [each for each in allocation.warnings if each.code != CARDS_OUT]):
        checks.append(
            Check("ledger", "The ledger of cards is clean", False,
                  "; ".join(warning.message for warning in warned), "no warnings",
                  "Look at the pods that the warnings name.")
        )  # fmt: skip
    return [msgspec.structs.replace(check, wrong=_wrong(check)) for check in checks]


_WRONG = {
    "mode-label": "The declared mode is none that is known",
    "others-zero": "Resources of other modes are reported too",
    "healthy": "Cards are unhealthy",
    "plausible": "Memory per card is not plausible",
    "card-labels": "The node has another number of cards than when it joined",
    "ready": "The node is not Ready",
    "ledger": "The ledger of cards has warnings",
}


def _wrong(check: Check) -> str:
    _, reports, resource = check.code.partition("reports:")
    return f"{resource} is not reported" if reports else _WRONG[check.code]


def _label(node: GpuNode) -> Check:
    value = node.labels.get(MODE_LABEL)
    allowed = ", ".join(facts.label_value for facts in MODES.values())
    if value is None:
        reports = node.allocatable.get(EXCLUSIVE_GPU, 0) > 0
        return Check(
            "mode-label", "Mode is declared", True if reports else None,
            f"no label {MODE_LABEL}", f"{MODE_LABEL} is one of {allowed}",
            "" if reports else "Without the label a node is exclusive, but newer clusters need 'default' written: "
            "set the mode of its pool.",
        )  # fmt: skip
    return Check(
        "mode-label", "Mode is declared", node.declared is not None, f"{MODE_LABEL}={value}", f"one of {allowed}",
        "" if node.declared else "Set the mode of its pool to a known one.",
    )  # fmt: skip


def _reported(node: GpuNode, mode: Mode, resource: str) -> Check:
    count = node.allocatable.get(resource)
    needs = " and ".join(MODES[mode].components)
    return Check(
        f"reports:{resource}", f"{resource} is reported", bool(count),
        "absent" if count is None else str(count), "above 0",
        "" if count else f"Mode {mode.value} needs {needs}: install it, and see that its pod on this node is Running.",
    )  # fmt: skip


def _cards(node: GpuNode) -> Check:
    count = node.allocatable.get(GPU_COUNT)
    units = node.memory_units
    return Check(
        f"reports:{GPU_COUNT}", f"{GPU_COUNT} is reported", bool(count) if units else None,
        "absent" if count is None else str(count), "above 0",
        "" if count or not units else "Memory without a card count: shared scheduling skips this node. "
        "Restart the device plugin's pod on it.",
    )  # fmt: skip


def _others_zero(node: GpuNode, mode: Mode) -> Check:
    wrong = {name: node.allocatable[name] for name in MODES[mode].zero_resources if node.allocatable.get(name)}
    return Check(
        "others-zero", "Other modes' resources are 0", not wrong,
        ", ".join(f"{name}={count}" for name, count in sorted(wrong.items())) or "all 0 or absent", "all 0 or absent",
        "Two device plugins report at once, or a switch is not finished: see which plugin pods run on this node."
        if wrong else "",
    )  # fmt: skip


def _healthy(node: GpuNode, mode: Mode) -> Check:
    short = {
        name: (node.allocatable.get(name, 0), node.capacity[name])
        for name in MODES[mode].resources
        if node.capacity.get(name, 0) > node.allocatable.get(name, 0)
    }
    broken = ", ".join(f"card {index}" for index in node.unhealthy)
    found = ", ".join(f"{name}: {have} of {all_} allocatable" for name, (have, all_) in sorted(short.items()))
    return Check(
        "healthy", "All cards are healthy", not short and not broken, found or broken or "all allocatable",
        "allocatable equals capacity",
        "The plugin took a card out (an XID error does this) and does not put it back without a restart."
        if short or broken else "",
    )  # fmt: skip


def _plausible(node: GpuNode) -> Check:
    title, expected = "Memory per card is plausible", "a card's MiB divided by 1024, 128 or 1"
    memory_mib, cards = node.card_memory_mib, node.shared_cards
    if not memory_mib or not cards or not node.memory_units:
        return Check("plausible", title, None, f"{CARD_MEMORY_LABEL} or the resources are missing", expected)
    units = node.per_card(GPU_MEM)
    ok = units in {memory_mib // 1024, memory_mib // 128, memory_mib}
    return Check(
        "plausible", title, ok, f"{units} units for {memory_mib} MiB", expected,
        "" if ok else "The first card's size counts for all: see whether the cards of this node differ, "
        "or whether ECC was switched.",
    )  # fmt: skip


def _card_labels(node: GpuNode) -> Check:
    missing = [key for key in (CARD_NAME_LABEL, CARD_MEMORY_LABEL, CARD_COUNT_LABEL) if key not in node.labels]
    cards = node.shared_cards or node.whole_cards
    counted = node.labels.get(CARD_COUNT_LABEL, "")
    if missing:
        return Check(
            "card-labels", "Card model is known", None, f"missing: {', '.join(missing)}",
            "written by ACK at join", "Jobs that name a card model cannot come here.",
        )  # fmt: skip
    ok = not cards or counted == str(cards)
    return Check(
        "card-labels", "Card model is known", ok, f"{counted} x {node.card_model}",
        f"{cards} card{'' if cards == 1 else 's'}" if cards else "as many as the node reports",
        "" if ok else "The node reports another number of cards than it had when it joined.",
    )  # fmt: skip


def _ready(node: GpuNode) -> Check:
    return Check(
        "ready", "The node is Ready", node.ready, "Ready" if node.ready else "NotReady", "Ready",
        "" if node.ready else "Its kubelet does not answer: numbers are the last known ones.",
    )  # fmt: skip
