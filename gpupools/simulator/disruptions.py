"""Disruption budgets: how many pods of a selection may be evicted now, kept as status and asked at every eviction.

Counted as policy/v1 does it for pods without a scale: ``minAvailable`` as a number. Percentages and ``maxUnavailable``
need an owner that can be scaled, which no kind served here is: such a budget fails safe and allows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpupools.simulator.clock import Clock
from gpupools.simulator.errors import ApiError, Cause
from gpupools.simulator.journal import Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.records import condition_is, set_condition
from gpupools.simulator.selectors import Requirement
from gpupools.simulator.store import Store

KIND = "PodDisruptionBudget"
Key = tuple[str, str]
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


def selected(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet a LabelSelector: none selects nothing, an empty one everything."""
    if selector is None:
        return False
    parts = [Requirement(key, "in", frozenset((value,))) for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        operator = _OPERATORS.get(each.get("operator", ""), "in")
        parts.append(Requirement(each.get("key", ""), operator, frozenset(each.get("values") or ())))
    return all(part.matches(labels) for part in parts)


def counted(store: Store, budget: Object) -> Object:
    """Return the figures of a budget's status as the pods are now."""
    spec, namespace = budget.get("spec") or {}, budget["metadata"]["namespace"]
    pods = [
        pod
        for pod in store.list("Pod", namespace)
        if selected(spec.get("selector"), pod["metadata"].get("labels") or {}) and not _is_over(pod)
    ]
    healthy = sum(_is_healthy(pod) for pod in pods)
    wanted = spec.get("minAvailable")
    knows = isinstance(wanted, int) and not isinstance(wanted, bool)
    desired = wanted if knows else 0
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": len(pods) if knows else 0,
        "disruptionsAllowed": max(0, healthy - desired) if knows and pods else 0,
    }


def check_eviction(store: Store, pod: Object) -> None:
    """Refuse (429) an eviction that a budget does not allow; several budgets over one pod are refused with 500."""
    meta = pod["metadata"]
    if meta.get("deletionTimestamp") or _is_over(pod) or (pod.get("status") or {}).get("phase") == "Pending":
        return
    labels = meta.get("labels") or {}
    budgets = [
        budget
        for budget in store.list(KIND, meta["namespace"])
        if selected((budget.get("spec") or {}).get("selector"), labels)
    ]
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", f"Internal error occurred: {text}")
    for budget in budgets:
        figures = counted(store, budget)
        if figures["disruptionsAllowed"] or _may_go_unhealthy(budget, pod, figures):
            continue
        name, desired, healthy = budget["metadata"]["name"], figures["desiredHealthy"], figures["currentHealthy"]
        text = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        raise ApiError(429, "TooManyRequests", _REFUSED, [Cause("DisruptionBudget", "", text)])


def _may_go_unhealthy(budget: Object, pod: Object, figures: Object) -> bool:
    """A pod that is not ready counts for nothing, so evicting it may be allowed all the same."""
    if _is_healthy(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return bool(0 < figures["desiredHealthy"] <= figures["currentHealthy"])


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_healthy(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and condition_is(pod.get("status") or {}, "Ready")


class DisruptionController:
    """Keeps the status of budgets; keys are (namespace, name)."""

    name = "disruption"
    kinds = ("Pod", KIND)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def keys_of(self, event: Event) -> Iterable[Key]:
        """Name a budget, or the budgets that select a pod."""
        meta = event.object["metadata"]
        if event.kind == KIND:
            return [(meta["namespace"], meta["name"])]
        return [
            (meta["namespace"], budget["metadata"]["name"])
            for budget in self._store.list(KIND, meta["namespace"])
            if selected((budget.get("spec") or {}).get("selector"), meta.get("labels") or {})
        ]

    def all_keys(self) -> Iterable[Key]:
        """Name every budget."""
        return [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in self._store.list(KIND)]

    def reconcile(self, key: Key) -> float | None:
        """Write a budget's figures where they are not so yet."""
        budget = self._store.peek(KIND, *key)
        if budget is None:
            return None
        figures = counted(self._store, budget)
        allowed = figures["disruptionsAllowed"] > 0
        status = {
            **figures,
            "observedGeneration": budget["metadata"].get("generation", 1),
            "conditions": [dict(each) for each in (budget.get("status") or {}).get("conditions") or ()],
        }
        set_condition(
            status, "DisruptionAllowed", "True" if allowed else "False", self._clock.stamp(),
            reason="SufficientPods" if allowed else "InsufficientPods",
        )  # fmt: skip
        self._store.write_parts(KIND, *key, status=status)
        return None
