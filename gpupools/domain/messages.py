"""kube-scheduler's FailedScheduling text: written byte for byte as release 1.36 does, read back in every wording.

Writing takes verdicts; reading gives counted reasons with the codes of ``Rejection``. It knows no node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from gpupools.domain.verdicts import Verdict

NO_NODES = "no nodes available to schedule pods"
GATED = "Scheduling is blocked due to non-empty scheduling gates"
NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def failed_scheduling(verdicts: Sequence[Verdict], *, nodes: int, prefilter: str = "", preempts: bool = True) -> str:
    """Return the text for a pod that fits on none of ``nodes`` nodes.

    A reason of ``prefilter`` stands alone and makes every node unresolvable. Each node counts once for each of
    its reasons, so counts can add up to more than the number of nodes. A pod that never ``preempts`` is not asked.
    """
    if prefilter:
        return _worded(prefilter, nodes, nodes, preempts=preempts) if nodes else NO_NODES
    tally = Tally()
    for verdict in verdicts:
        tally.add(verdict)
    return tally.text(nodes, preempts=preempts)


class Tally:
    """The reasons of a fleet's verdicts, counted, so that one node's new verdict does not mean to count all again."""

    def __init__(self) -> None:
        self._reasons: dict[str, int] = {}
        self._hopeless = 0

    def add(self, verdict: Verdict, *, times: int = 1) -> None:
        """Count a verdict, or with ``times`` -1 take it out again."""
        hopeless = False
        for rejection in verdict.rejections:
            self._reasons[rejection.reason] = self._reasons.get(rejection.reason, 0) + times
            hopeless = hopeless or rejection.unresolvable
        if hopeless:
            self._hopeless += times

    def text(self, nodes: int, *, preempts: bool = True) -> str:
        """Return the text for a pod that fits on none of ``nodes`` nodes."""
        return _worded(_phrases(self._reasons), self._hopeless, nodes, preempts=preempts) if nodes else NO_NODES


def _worded(reasons: str, hopeless: int, nodes: int, *, preempts: bool) -> str:
    none = f"0/{nodes} nodes are available"
    said = f"{none}: {_phrases({NO_VICTIMS: nodes - hopeless, NOT_HELPFUL: hopeless})}" if preempts else NEVER_PREEMPTS
    return f"{none}: {reasons}. no new claims to deallocate, preemption: {said}."


def _phrases(counts: Mapping[str, int]) -> str:
    """Sort the counted phrases as text: ten nodes stand before two."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items() if count))


# -- Reading back


class Reason(msgspec.Struct, frozen=True):
    """One counted reason of a message: ``code`` as in ``Rejection`` ("other" for a sentence that nobody knows).

    ``resource`` is what is short, ``taint`` the taint that old releases name as ``key: value``.
    """

    count: int
    code: str
    text: str
    resource: str = ""
    taint: str = ""


class Unschedulable(msgspec.Struct, frozen=True):
    """A FailedScheduling text, read. ``prefilter`` is the reason that stands for all nodes at once.

    ``victims_missing`` and ``not_helpful`` count nodes in the sentence on preemption; both are 0 where an old
    release says nothing of it. ``preemption`` keeps what else that sentence says.
    """

    nodes: int
    reasons: tuple[Reason, ...] = ()
    prefilter: str = ""
    victims_missing: int = 0
    not_helpful: int = 0
    preemption: str = ""


_HEAD = re.compile(r"0/(?P<nodes>[0-9]+) nodes are available: ?(?P<rest>.*)", re.DOTALL)
# The sentence on preemption, which 1.20 and before do not have; newer releases put resource claims before it.
_PREEMPTION = re.compile(
    r"[.,]? (?:(?:still not schedulable|no new claims to deallocate), )?preemption: (?P<said>.*)\Z",
    re.DOTALL,
)
_NEXT_REASON = re.compile(r", (?=[0-9]+ [^ ])")
_ONE = re.compile(r"(?P<count>[0-9]+) (?P<text>.*)", re.DOTALL)
_SHORT = re.compile(r"(?:Insufficient|Not enough) (?P<resource>\S+)")
_TAINTS = (
    re.compile(r"node\(s\) had untolerated taint(?:\(s\))?(?: \{(?P<taint>.*)\})?", re.DOTALL),
    re.compile(r"node\(s\) had taints? (?:\{(?P<taint>.*)\}, )?that the pod didn't tolerate", re.DOTALL),
)
_BEFORE_1_10 = re.compile(
    r"No nodes are available that match all of the (?:following )?predicates:+ (?P<rest>.*)", re.DOTALL
)
_OLD_REASON = re.compile(r"(?P<text>[^,()]+(?:\(s\)[^,()]*)?) \((?P<count>[0-9]+)\)")

# Sentences by code, of all releases; a text that begins so has the code.
_SENTENCES: tuple[tuple[str, str], ...] = (
    ("node(s) were unschedulable", "unschedulable"),
    ("node(s) were not ready", "taint"),
    ("node(s) didn't match Pod's node affinity", "affinity"),
    ("node(s) didn't match node selector", "affinity"),
    ("node(s) didn't satisfy plugin(s) [NodeAffinity]", "affinity"),
    ("node(s) didn't satisfy plugin NodeAffinity", "affinity"),
    ("MatchNodeSelector", "affinity"),
    ("node(s) didn't match the requested node name", "name"),
    ("node(s) didn't match the requested hostname", "name"),
    ("node(s) didn't have free ports for the requested pod ports", "ports"),
    ("PodFitsHostPorts", "ports"),
    ("PodToleratesNodeTaints", "taint"),
    ("Too many pods", "insufficient"),
    ("node(s) didn't have enough device resources to allocate", "device"),
    ("Pod's RequireWholeGPU is true and not available devices can be fully occupied by it", "device"),
    ("The number of pods per gpu device has reached the maximum allowed", "device"),
    ("node(s) had an invalid value of label", "device"),
    ("Insufficient GPU Memory in one device", "device"),
    ("node(s) owns gpu resources are not matched that pod requests", "mode"),
    ("none(s) should have at least one resource in", "mode"),
    ("reqeust resources must include", "mode"),
    ("invalid reqeust for gpushare resources", "mode"),
    ("not enough gpus with topology on the node", "topology"),
)
_OLD_EXTENDER = re.compile(r"The node .* is not for GPU share, need skip")


def read_failed_scheduling(text: str) -> Unschedulable | None:
    """Read the text of a FailedScheduling event or of a PodScheduled condition, of old and new releases.

    None for a text that is none, such as the error of a plugin.
    """
    text = text.strip()
    if text in {NO_NODES, f"{NO_NODES}."}:
        return Unschedulable(0)
    if text == GATED:
        return Unschedulable(0, prefilter=GATED)
    if old := _BEFORE_1_10.fullmatch(text):
        found = [_reason(int(each["count"]), each["text"].strip()) for each in _OLD_REASON.finditer(old["rest"])]
        return Unschedulable(0, tuple(found)) if found else None
    head = _HEAD.fullmatch(text)
    if head is None:
        return None
    nodes, rest = int(head["nodes"]), head["rest"]
    missing = not_helpful = 0
    said = ""
    if preemption := _PREEMPTION.search(rest):
        rest = rest[: preemption.start()]
        said = preemption["said"]
        missing, not_helpful, said = _preemption(said)
    rest = rest.removesuffix(".")
    parts = [_ONE.fullmatch(part) for part in _NEXT_REASON.split(rest)]
    if all(parts):
        reasons = tuple(_reason(int(part["count"]), part["text"]) for part in parts if part)
        return Unschedulable(nodes, reasons, "", missing, not_helpful, said)
    return Unschedulable(nodes, (), rest, missing, not_helpful, said)


def _preemption(said: str) -> tuple[int, int, str]:
    """Return the nodes without victims, those where preemption does not help, and whatever else is said."""
    head = _HEAD.fullmatch(said)
    if head is None:
        return 0, 0, said.rstrip(".")
    missing = not_helpful = 0
    others = []
    for part in _NEXT_REASON.split(head["rest"].removesuffix(".")):
        one = _ONE.fullmatch(part)
        if one and one["text"].startswith("No preemption victims found for incoming pod"):
            missing += int(one["count"])
        elif one and one["text"].startswith(NOT_HELPFUL):
            not_helpful += int(one["count"])
        else:
            others.append(part)
    return missing, not_helpful, ", ".join(others)


def _reason(count: int, text: str) -> Reason:
    if short := _SHORT.fullmatch(text):
        return Reason(count, "insufficient", text, resource=short["resource"])
    for form in _TAINTS:
        if taint := form.fullmatch(text):
            return Reason(count, "taint", text, taint=_taint(taint["taint"] or ""))
    for sentence, code in _SENTENCES:
        if text.startswith(sentence):
            return Reason(count, code, text, resource="pods" if text == "Too many pods" else "")
    if _OLD_EXTENDER.fullmatch(text):
        return Reason(count, "mode", text)
    return Reason(count, "other", text)


def _taint(text: str) -> str:
    """A taint without a value is written ``key: ``; what is kept is ``key``."""
    return text.strip().removesuffix(":")
