"""kube-scheduler's FailedScheduling text, byte for byte as release 1.36 writes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpupools.domain.verdicts import Verdict

NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def failed_scheduling(verdicts: Sequence[Verdict], *, nodes: int, prefilter: str = "") -> str:
    """Return the text for a pod that fits on none of ``nodes`` nodes.

    A reason of ``prefilter`` stands alone and makes every node unresolvable. Each node counts once for each of
    its reasons, so counts can add up to more than the number of nodes.
    """
    if not nodes:
        return NO_NODES
    if prefilter:
        reasons, hopeless = prefilter, nodes
    else:
        reasons = _counted(rejection.reason for verdict in verdicts for rejection in verdict.rejections)
        hopeless = sum(any(r.unresolvable for r in verdict.rejections) for verdict in verdicts)
    preemption = _counted([NO_VICTIMS] * (nodes - hopeless) + [NOT_HELPFUL] * hopeless)
    none = f"0/{nodes} nodes are available"
    return f"{none}: {reasons}. no new claims to deallocate, preemption: {none}: {preemption}."


def _counted(reasons: Iterable[str]) -> str:
    """Count equal reasons and sort the phrases as text: ten nodes stand before two."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
