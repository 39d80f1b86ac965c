"""kube-scheduler's node filters: unschedulable, node name, taints, affinity, ports, resources. Yes or why not.

Each filter returns the rejections of one node, none when it passes. It knows no card.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from gpupools.domain.gpus import AffinityTerm, Ask, GpuNode, HostPort, Requirement, Taint, Toleration
from gpupools.domain.modes import GPU_RESOURCES
from gpupools.domain.quantities import integer
from gpupools.domain.verdicts import NodeState, Rejection
from gpupools.domain.wishes import NODE_NAME_FIELD, Wish

UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
NOT_READY_TAINT = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
EVERY_ADDRESS = frozenset({"", "0.0.0.0"})  # noqa: S104  # compared with, never bound
PODS = "pods"
EMPTY_TERM = "a term that is empty and matches no node"

Rejections = tuple[Rejection, ...]
PASSED: Rejections = ()


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers a taint: an empty effect is all, an empty key with Exists is all."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case "Gt" | "Lt":
            found, bound = integer(taint.value), integer(toleration.value)
            if found is None or bound is None:
                return False
            return found > bound if toleration.operator == "Gt" else found < bound
        case _:
            return False


def untolerated(ask: Ask, taints: Iterable[Taint], effects: frozenset[str] = HARD_EFFECTS) -> list[Taint]:
    """Return the taints with one of these effects that the pod does not tolerate."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in ask.tolerations)
    ]


_LABEL_VALUE = re.compile(r"(?:(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LONGEST_VALUE = 63


@lru_cache(maxsize=1024)
def _can_match(requirement: Requirement) -> bool:
    """Whether the scheduler can read a requirement that holds for missing labels; one that it cannot never matches."""
    values = requirement.values
    if requirement.operator == "NotIn":
        return bool(values) and all(len(v) <= _LONGEST_VALUE and _LABEL_VALUE.fullmatch(v) for v in values)
    return not values


def matches_requirement(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a requirement; NotIn and DoesNotExist also hold for a missing label.

    A requirement that is wrong in itself (no values, one too many) holds for no node, and so does its term.
    """
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return (value is None or value not in requirement.values) and _can_match(requirement)
        case "Exists":
            return value is not None and _can_match(requirement)
        case "DoesNotExist":
            return value is None and _can_match(requirement)
        case "Gt" | "Lt":
            found = integer(value or "")
            bound = integer(requirement.values[0]) if len(requirement.values) == 1 else None
            if found is None or bound is None:
                return False
            return found > bound if requirement.operator == "Gt" else found < bound
        case _:
            return False


def matches_term(term: AffinityTerm, node: GpuNode) -> bool:
    """Whether a node meets all of a term; an empty term matches nothing."""
    if not term.expressions and not term.fields:
        return False
    return all(matches_requirement(requirement, node.labels) for requirement in term.expressions) and all(
        _matches_field(requirement, node) for requirement in term.fields
    )


def _matches_field(requirement: Requirement, node: GpuNode) -> bool:
    """A field takes In and NotIn with exactly one value; the name is the only field of a node that has one."""
    if len(requirement.values) != 1 or requirement.operator not in {"In", "NotIn"}:
        return False
    found = node.name if requirement.key == NODE_NAME_FIELD else ""
    return (found == requirement.values[0]) is (requirement.operator == "In")


def matches_affinity(ask: Ask, node: GpuNode) -> bool:
    """Whether nodeSelector and required affinity both let the pod onto the node."""
    labels = node.labels
    for key, value in ask.node_selector.items():
        if labels.get(key) != value:
            return False
    return ask.required_terms is None or any(matches_term(term, node) for term in ask.required_terms)


def explained(ask: Ask, node: GpuNode) -> dict[str, str]:
    """Name, by the code of a rejection, the taints that are not tolerated and the labels that do not match.

    The scheduler's sentences only say that there are some.
    """
    taints = _taints(node)
    wrong = [
        f"{key}={value} {_found(key, node)}"
        for key, value in ask.node_selector.items()
        if node.labels.get(key) != value
    ]
    if ask.required_terms is not None and not any(matches_term(term, node) for term in ask.required_terms):
        wrong += dict.fromkeys(said for term in ask.required_terms for said in _failing(term, node)) or [EMPTY_TERM]
    found = {
        "taint": ", ".join(
            f"{each.key}={each.value}:{each.effect}" if each.value else f"{each.key}:{each.effect}"
            for each in untolerated(ask, taints)
        ),
        "affinity": "; ".join(wrong),
    }
    return {code: text for code, text in found.items() if text}


def _failing(term: AffinityTerm, node: GpuNode) -> Iterator[str]:
    """Say of each requirement of a term that a node does not meet what was found there."""
    for each in term.expressions:
        if not matches_requirement(each, node.labels):
            yield f"{each.key} {each.operator} {', '.join(each.values)}".strip() + f" {_found(each.key, node)}"
    for each in term.fields:
        if not _matches_field(each, node):
            yield f"{each.key} {each.operator} {', '.join(each.values)}".strip() + f" (found {node.name})"


def _taints(node: GpuNode) -> tuple[Taint, ...]:
    return node.taints if node.ready or node.silent else (*node.taints, NOT_READY_TAINT)


def _found(key: str, node: GpuNode) -> str:
    return f"(found {node.labels[key]})" if key in node.labels else "(not there)"


def named_by_affinity(wanted: Wish, state: NodeState) -> Rejections:
    """matchFields on metadata.name shrink the nodes before any filter looks at them."""
    if wanted.node_names is None or state.node.name in wanted.node_names:
        return PASSED
    reason = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    return (Rejection(state.node.name, "affinity", reason, unresolvable=True),)


def schedulable(wanted: Wish, state: NodeState) -> Rejections:
    """A cordoned node takes only pods that tolerate its cordon."""
    if not state.node.unschedulable or not untolerated(wanted.ask, (UNSCHEDULABLE_TAINT,)):
        return PASSED
    return (Rejection(state.node.name, "unschedulable", "node(s) were unschedulable", unresolvable=True),)


def right_name(wanted: Wish, state: NodeState) -> Rejections:
    """A pod that names its node goes nowhere else."""
    if wanted.ask.node_name in {"", state.node.name}:
        return PASSED
    return (Rejection(state.node.name, "name", "node(s) didn't match the requested node name", unresolvable=True),)


def tolerated_taints(wanted: Wish, state: NodeState) -> Rejections:
    """NoSchedule and NoExecute taints need a toleration.

    A node that is not ready counts as tainted even in the moment before the node controller writes the taint.
    """
    node = state.node
    if not node.taints and (node.ready or node.silent):
        return PASSED
    taints = _taints(node)
    if not untolerated(wanted.ask, taints):
        return PASSED
    return (Rejection(node.name, "taint", "node(s) had untolerated taint(s)", unresolvable=True),)


def matching_labels(wanted: Wish, state: NodeState) -> Rejections:
    """NodeSelector and required node affinity."""
    if matches_affinity(wanted.ask, state.node):
        return PASSED
    reason = "node(s) didn't match Pod's node affinity/selector"
    return (Rejection(state.node.name, "affinity", reason, unresolvable=True),)


def free_ports(wanted: Wish, state: NodeState) -> Rejections:
    """A port of the node can be had once per protocol and address; no address stands for all of them."""
    if not wanted.ports or not any(_collide(port, taken) for port in wanted.ports for taken in state.ports):
        return PASSED
    return (Rejection(state.node.name, "ports", "node(s) didn't have free ports for the requested pod ports"),)


def _collide(one: HostPort, other: HostPort) -> bool:
    if (one.port, one.protocol) != (other.port, other.protocol):
        return False
    return one.ip == other.ip or one.ip in EVERY_ADDRESS or other.ip in EVERY_ADDRESS


def enough_resources(wanted: Wish, state: NodeState) -> Rejections:
    """Every requested resource must be free on the node as a whole: the one filter that gives several reasons."""
    requested, allocatable = state.requested, state.node.allocatable
    room = allocatable.get(PODS)
    short = PASSED
    if room is not None and state.pods >= room:
        short = (Rejection(state.node.name, "insufficient", "Too many pods", PODS, 1),)
    for resource, asked in wanted.requests:
        total = allocatable.get(resource, 0)
        free = total - requested.get(resource, 0)
        if asked > free:
            short = (*short, _insufficient(state, resource, asked, free, total))
    return short


def _insufficient(state: NodeState, resource: str, asked: int, free: int, total: int) -> Rejection:
    foreign = not total and resource in GPU_RESOURCES and state.node.is_gpu
    code = "mode" if foreign else "insufficient"
    reason = f"Insufficient {resource}"
    return Rejection(state.node.name, code, reason, resource, asked, max(0, free), 0, asked > total)


Filter = Callable[[Wish, NodeState], Rejections]

# The order of kube-scheduler; a node's reasons are those of the first filter that it fails.
NODE_FILTERS: tuple[Filter, ...] = (
    named_by_affinity,
    schedulable,
    right_name,
    tolerated_taints,
    matching_labels,
    free_ports,
    enough_resources,
)


def filters_of(wanted: Wish) -> tuple[Filter, ...]:
    """Return the filters that can reject this ask at all, in their order."""
    ask = wanted.ask
    idle: set[Filter] = set()
    if wanted.node_names is None:
        idle.add(named_by_affinity)
    if not ask.node_name:
        idle.add(right_name)
    if not ask.node_selector and ask.required_terms is None:
        idle.add(matching_labels)
    if not wanted.ports:
        idle.add(free_ports)
    return tuple(check for check in NODE_FILTERS if check not in idle)
