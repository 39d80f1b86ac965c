"""What an identity may do in a cluster, and which functions of the console that leaves. Pure.

The table is the reason for every rule of docs/rbac; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

Need = tuple[str, str, str]  # verb, API group, resource (with /subresource)


class Grant(msgspec.Struct, frozen=True):
    """One rule of a SelfSubjectRulesReview. ``names``: it is about these objects alone."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def covers(self, need: Need) -> bool:
        """Tell whether this rule allows something without restriction to names."""
        verb, group, resource = need
        plural, _, part = resource.partition("/")
        named = {resource, "*", f"*/{part}" if part else plural}
        return not self.names and (
            bool({verb, "*"} & set(self.verbs))
            and bool({group, "*"} & set(self.groups))
            and bool(named & set(self.resources))
        )


@dataclass(frozen=True, slots=True)
class Function:
    """Something the console does, who needs it, and what it asks of the API server."""

    code: str
    title: str
    level: str  # read, operate, full
    needs: tuple[Need, ...]


def _needs(group: str, resource: str, *verbs: str) -> tuple[Need, ...]:
    return tuple((verb, group, resource) for verb in verbs)


_READ = ("get", "list", "watch")
FUNCTIONS: tuple[Function, ...] = (
    Function("allocation", "See nodes, pods and what every card holds", "read",
             (*_needs("", "nodes", *_READ), *_needs("", "pods", *_READ))),
    Function("workloads", "See jobs and the state of components", "read",
             (*_needs("batch", "jobs", *_READ), *_needs("apps", "daemonsets", *_READ))),
    Function("reports", "Read how cards are linked (topology reports)", "read", _needs("", "configmaps", *_READ)),
    Function("logs", "Read the logs of pods", "read", _needs("", "pods/log", "get")),
    Function("jobs", "Submit and delete jobs", "operate", _needs("batch", "jobs", "create", "delete")),
    Function("modes", "Change modes: label, taint and cordon nodes", "operate", _needs("", "nodes", "patch")),
    Function("evict", "Evict pods from a node that changes its mode", "operate",
             (("create", "", "pods/eviction"), ("delete", "", "pods"))),
    Function("budgets", "Say beforehand which disruption budgets hold an eviction up", "operate",
             _needs("policy", "poddisruptionbudgets", "list")),
    Function("components", "Install and remove components by manifests", "full",
             _needs("apps", "daemonsets", "create", "patch", "delete")),
    Function("releases", "Recognise components that Helm installed", "full", _needs("", "secrets", "list")),
)  # fmt: skip
LEVELS = ("read", "operate", "full")


class Ability(msgspec.Struct, frozen=True):
    """Whether a function works with an identity; ``missing`` are the rights that it lacks, as people write them."""

    code: str
    title: str
    allowed: bool
    missing: tuple[str, ...] = ()


def abilities(grants: Iterable[Grant], *, ask: Callable[[Need], bool] | None = None) -> list[Ability]:
    """Judge every function by the rules of a review; ``ask`` is asked of what an incomplete review does not cover."""
    rules = list(grants)
    known: dict[Need, bool] = {}

    def may(need: Need) -> bool:
        if need not in known:
            covered = any(rule.covers(need) for rule in rules)
            known[need] = covered or (ask is not None and ask(need))
        return known[need]

    found = []
    for function in FUNCTIONS:
        missing = tuple(said(need) for need in function.needs if not may(need))
        found.append(Ability(function.code, function.title, not missing, missing))
    return found


def said(need: Need) -> str:
    """Write a right as people do: ``patch nodes``, ``create jobs.batch``."""
    verb, group, resource = need
    plural, slash, part = resource.partition("/")
    return f"{verb} {plural}{'.' + group if group else ''}{slash}{part}"


def needed(level: str) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the verbs by (group, resource) that a level of use needs; each level includes those before it."""
    levels = LEVELS[: LEVELS.index(level) + 1]
    found: dict[tuple[str, str], set[str]] = {}
    for function in FUNCTIONS:
        if function.level in levels:
            for verb, group, resource in function.needs:
                found.setdefault((group, resource), set()).add(verb)
    return {key: frozenset(verbs) for key, verbs in found.items()}
