"""Why a pod waits for a node: the scheduler's own words read into reasons, and beside them what the engine says now.

The first is what the cluster said at some time, the second an estimate on the current picture; nothing is asked of
the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpupools.domain import groups, placement, whatifs
from gpupools.domain.gpus import Picture, Pod
from gpupools.domain.meanings import meaning, meaning_of_all
from gpupools.domain.messages import Reason, Unschedulable, read_failed_scheduling
from gpupools.domain.placement import Preview
from gpupools.domain.whatifs import Help
from gpupools.errors import Missing
from gpupools.models import Cluster, Role
from gpupools.services import allocation, drift
from gpupools.services.access import Actor

NO_HELP: Final = Help()


@dataclass(frozen=True, slots=True)
class SaidReason:
    """One counted reason of the scheduler, and what it means for this pod."""

    count: int
    code: str
    text: str
    resource: str
    taint: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Said:
    """What the scheduler said. ``prefilter`` stands for all nodes; ``unread``: its words are of no known form."""

    text: str
    nodes: int = 0
    prefilter: str = ""
    meaning: str = ""
    reasons: tuple[SaidReason, ...] = ()
    victims_missing: int = 0
    not_helpful: int = 0
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why one pod waits. ``said`` None: the scheduler has said nothing yet.

    ``preview`` and ``help`` are the engine's own, true of ``taken_at`` (seconds since 1970). ``agrees``: both give
    the same reasons with the same counts; None where there is nothing to compare. ``scheduler`` is another one than
    Kubernetes' own that the pod asks for: whatever the preview says, only that one places it.
    """

    pod: Pod
    said: Said | None
    preview: Preview
    help: Help
    agrees: bool | None
    taken_at: float
    scheduler: str = ""

    @property
    def meaning(self) -> str:
        """What the preview's reason for all nodes means, where it has one."""
        return meaning_of_all(self.preview.prefilter) if self.preview.prefilter else ""


def look(actor: Actor, cluster: Cluster, namespace: str, name: str) -> Waiting | None:
    """Say why a pod waits for a node; None for one that does not.

    Raises Missing for a pod that is not there, NotAllowed for a namespace out of reach, Unreachable when the broker
    is away.
    """
    actor.require(Role.VIEWER, cluster, namespace)
    picture = allocation.current(cluster)
    pods = picture.pods if picture else ()
    pod = next((each for each in pods if (each.namespace, each.name) == (namespace, name)), None)
    if picture is None or pod is None:
        raise Missing(f"Cluster {cluster.name} has no pod {namespace}/{name} now.", code="no-such-pod")
    return of(pod, picture, namespaces=actor.namespaces(cluster), pools=drift.pool_names(cluster))


def waits(pod: Pod) -> bool:
    """Whether a pod waits for a node."""
    return pod.phase == "Pending" and not pod.node and not pod.terminating


def of(
    pod: Pod, picture: Picture, *, namespaces: frozenset[str] | None, pools: Mapping[str, str] | None = None
) -> Waiting | None:
    """Say why a pod of a picture waits for a node; None for one that does not.

    Names are those of ``namespaces``; ``pools`` gives the names of pools by what their nodes' label says.
    """
    if not waits(pod):
        return None
    states = placement.node_states(picture.nodes, picture.pods)
    mates = [each for each in groups.mates(pod.ask, picture.pods) if each.uid != pod.uid]
    preview = placement.preview(pod.ask, states, mates=mates)
    found = NO_HELP
    if preview.chosen is None:
        found = whatifs.what_would_help(
            pod.ask, states, [preview], mates=mates, daemons=picture.pods, namespaces=namespaces, pools=pools
        )
    said = _said(pod, picture)
    agrees = None if pod.ask.scheduler else _agrees(said, preview)
    return Waiting(pod, said, preview, found, agrees, picture.taken_at, pod.ask.scheduler)


def _said(pod: Pod, picture: Picture) -> Said | None:
    if not pod.message:
        return None
    read = read_failed_scheduling(pod.message)
    if read is None:
        return Said(pod.message, unread=True)
    return Said(
        pod.message,
        read.nodes,
        read.prefilter,
        meaning_of_all(read.prefilter) if read.prefilter else "",
        tuple(_reason(each, pod, picture) for each in read.reasons),
        read.victims_missing,
        read.not_helpful,
    )


def _reason(reason: Reason, pod: Pod, picture: Picture) -> SaidReason:
    return SaidReason(
        reason.count, reason.code, reason.text, reason.resource, reason.taint, meaning(reason, pod.ask, picture.nodes)
    )


def _agrees(said: Said | None, preview: Preview) -> bool | None:
    """Compare by code and resource: releases word the same reason differently."""
    if said is None or said.unread:
        return None
    if preview.chosen is not None:
        return False
    ours = read_failed_scheduling(preview.message)
    return ours is not None and _key(ours) == _key(said)


def _key(read: Unschedulable | Said) -> tuple[int, str, Counter[tuple[str, str]]]:
    counts: Counter[tuple[str, str]] = Counter()
    for each in read.reasons:
        counts[each.code, each.resource] += each.count
    return read.nodes, read.prefilter, counts
