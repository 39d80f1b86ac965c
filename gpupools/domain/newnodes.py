"""One more node of a pool, as it would be once it is in order: empty but for the DaemonSet pods that it would carry.

It is made after a node that the pool has. A pool without nodes, or one whose nodes differ, tells nothing better.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gpupools.domain.gpus import AffinityTerm, Ask, GpuNode, Pod
from gpupools.domain.modes import ACK_POOL_LABEL, POOL_LABEL
from gpupools.domain.placement import preview
from gpupools.domain.states import node_state, take
from gpupools.domain.verdicts import NodeState

POOL_LABELS = (ACK_POOL_LABEL, POOL_LABEL)
# Kubernetes puts these on nodes that are away or under pressure: a new node has none of them for long.
LIFECYCLE = "node.kubernetes.io/"
HOSTNAME_LABEL = "kubernetes.io/hostname"
DAEMON_SET = "DaemonSet"
NAME = "one-more-node"


class NewNode(msgspec.Struct, frozen=True):
    """A node that a pool could have more: made as ``pattern`` is, with ``daemons`` (namespace/DaemonSet) on it."""

    pool: str
    pattern: str
    state: NodeState
    daemons: tuple[str, ...] = ()


def new_nodes(states: Sequence[NodeState], daemons: Iterable[Pod]) -> Iterator[NewNode]:
    """Yield one more node of each pool with GPU nodes, by the pool's name.

    ``daemons`` are the pods that DaemonSets have anywhere: one of each set is asked whether it would go to the new
    node, by its selector, affinity and tolerations, and what it asks for is then taken of the node.
    """
    sets = _by_set(daemons)
    for pool, node in sorted(_patterns(states).items()):
        state = node_state(_fresh(node), ())
        carried = []
        for name, pods in sorted(sets.items()):
            # Sets differ from node to node while they are rolled out: the pattern's own pod is the nearest.
            pod = min(pods, key=lambda pod: (pod.node != node.name, pod.name))
            ask = _unbound(pod.ask)
            seen = preview(ask, [state])
            if seen.chosen is not None:
                state = take(state, ask, seen.cards)
                carried.append(name)
        yield NewNode(pool, node.name, state, tuple(carried))


def _by_set(daemons: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in daemons:
        if pod.owner_kind == DAEMON_SET:
            found.setdefault(f"{pod.namespace}/{pod.owner_name}", []).append(pod)
    return found


def _unbound(ask: Ask) -> Ask:
    """Return a daemon pod's ask as its template has it: the controller binds each pod to its node by name."""
    terms = None
    if ask.required_terms is not None:
        terms = tuple(AffinityTerm(term.expressions) for term in ask.required_terms if term.expressions)
    return msgspec.structs.replace(ask, node_name="", required_terms=terms or None)


def _patterns(states: Sequence[NodeState]) -> dict[str, GpuNode]:
    """Return a GPU node of each pool to make another one like it: the first by name of those in good health."""
    found: dict[str, GpuNode] = {}
    for state in sorted(states, key=lambda state: (bool(state.node.unhealthy), state.node.name)):
        pool = next((state.node.labels[key] for key in POOL_LABELS if state.node.labels.get(key)), "")
        if pool and state.node.is_gpu:
            found.setdefault(pool, state.node)
    return found


def _fresh(node: GpuNode) -> GpuNode:
    """Return a node of the same make as it is when it joins: empty, healthy and open."""
    return msgspec.structs.replace(
        node,
        name=NAME,
        uid="",
        labels={key: value for key, value in node.labels.items() if key != HOSTNAME_LABEL},
        taints=tuple(taint for taint in node.taints if not taint.key.startswith(LIFECYCLE)),
        unschedulable=False,
        ready=True,
        unhealthy=(),
    )
