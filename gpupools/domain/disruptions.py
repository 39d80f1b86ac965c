"""Disruption budgets (policy/v1) as values, and which of them would hold up the eviction of which pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpupools.domain.gpus import Pod

# Their controller starts such a pod again at once on the same node, cordoned or not; a static pod has no other place.
PINNED_OWNERS = frozenset({"DaemonSet", "Node"})


class _Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()

    def met_by(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return False


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Requirement, ...] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    selector: _Selector | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class _Meta(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class Budget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget as the API server shows it."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def title(self) -> str:
        """Its namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it covers a pod. Without a selector it covers none, with an empty one all of its namespace."""
        selector = self.spec.selector
        if selector is None or namespace != self.metadata.namespace:
            return False
        wanted = selector.match_labels or {}
        return all(labels.get(key) == value for key, value in wanted.items()) and all(
            each.met_by(labels) for each in selector.match_expressions or ()
        )


class BudgetList(msgspec.Struct, frozen=True):
    """One list of budgets."""

    items: tuple[Budget, ...] | None = None


def is_pinned(pod: Pod) -> bool:
    """Tell whether a pod is never evicted: a DaemonSet's or a static one."""
    return pod.owner_kind in PINNED_OWNERS


def budgets_of(pod: Pod, budgets: Iterable[Budget]) -> list[Budget]:
    """Return the budgets that cover a pod; the API server evicts no pod that several cover."""
    return [budget for budget in budgets if budget.selects(pod.namespace, pod.ask.labels)]


def held_up(pods: Sequence[Pod], budgets: Sequence[Budget]) -> list[tuple[Budget, list[Pod]]]:
    """Return the budgets that let fewer of these pods go now than they cover, with those pods."""
    found = []
    for budget in budgets:
        covered = [pod for pod in pods if budget.selects(pod.namespace, pod.ask.labels)]
        if len(covered) > budget.status.disruptions_allowed:
            found.append((budget, covered))
    return found


def sentence(budget: Budget, covered: Sequence[Any]) -> str:
    """Say how many pods a budget lets go now, of how many that the eviction wants."""
    status = budget.status
    allowed = status.disruptions_allowed
    of_them = f"{len(covered)} pod{'s' if len(covered) != 1 else ''}"
    return (
        f"The disruption budget {budget.title} lets {allowed or 'none'} of its {of_them} here go now: it needs "
        f"{status.desired_healthy} healthy pods and has {status.current_healthy}."
    )
