"""What a Job's policies say to pods that ended: failures that count or do not, indexes that failed, early success.

Pure functions over a Job's spec, its pods and its status; the controller acts on what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpupools.simulator.kinds import Object
from gpupools.simulator.records import finished

INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"

COUNT, IGNORE, FAIL_JOB, FAIL_INDEX = "Count", "Ignore", "FailJob", "FailIndex"


def verdict(spec: Object, pod: Object) -> tuple[str, str]:
    """Return what the Job's podFailurePolicy wants of a failed pod, and why; ``Count`` where no rule matches."""
    for place, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        action = rule.get("action", COUNT)
        if found := _matching_exit(rule.get("onExitCodes"), pod):
            container, code = found
            why = (
                f"Container {container} for pod {_named(pod)} failed with exit code {code} matching {action} rule "
                f"at index {place}"
            )
            return action, why
        if condition := _matching_condition(rule.get("onPodConditions") or (), pod):
            return action, f"Pod {_named(pod)} has condition {condition} matching {action} rule at index {place}"
    return COUNT, ""


def _named(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _matching_exit(wanted: Object | None, pod: Object) -> tuple[str, int] | None:
    if not wanted:
        return None
    status = pod.get("status") or {}
    for entry in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        code = ((entry.get("state") or {}).get("terminated") or {}).get("exitCode")
        if not code or wanted.get("containerName", entry["name"]) != entry["name"]:
            continue
        if (code in (wanted.get("values") or ())) is (wanted.get("operator") == "In"):
            return str(entry["name"]), int(code)
    return None


def _matching_condition(wanted: Iterable[Object], pod: Object) -> str:
    found = {entry["type"]: entry["status"] for entry in (pod.get("status") or {}).get("conditions") or ()}
    for pattern in wanted:
        if found.get(pattern.get("type", "")) == pattern.get("status", "True"):
            return str(pattern["type"])
    return ""


def counts_as_ended(spec: Object, pod: Object) -> bool:
    """Return whether a pod is counted now: at its end, or on its way out unless its replacement waits for the end."""
    meta = pod["metadata"]
    if finished(pod) or not meta.get("deletionTimestamp"):
        return finished(pod)
    return spec.get("podReplacementPolicy") != "Failed" or not meta.get("deletionGracePeriodSeconds")


def index_of(pod: Object) -> int | None:
    """Return a pod's completion index."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def failures_of(index: int, pods: Iterable[Object]) -> int:
    """Return how often an index has failed, as far as its pods are still there to tell."""
    seen = [
        int((pod["metadata"].get("annotations") or {}).get(INDEX_FAILURES, "0")) + 1
        for pod in pods
        if index_of(pod) == index and (pod.get("status") or {}).get("phase") == "Failed"
    ]
    return max(seen, default=0)


def success(spec: Object, completed: Sequence[int]) -> str:
    """Return why the Job's successPolicy is met, empty while it is not."""
    for place, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or ()):
        among, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        wanted = set(indexes(among)) if among else None
        met = [index for index in completed if wanted is None or index in wanted]
        if len(met) >= (count if count is not None else len(wanted or ()) or 1):
            return f"Matched rules at index {place}"
    return ""


def indexes(text: str) -> list[int]:
    """Read ``0-2,5`` as 0, 1, 2, 5."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def ranges(found: Iterable[int]) -> str:
    """Write 0, 1, 2, 5 as ``0-2,5``."""
    runs: list[list[int]] = []
    for index in sorted(found):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
