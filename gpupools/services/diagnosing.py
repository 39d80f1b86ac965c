"""Looking for what is wrong in a cluster: the rules of diagnosis over the current picture. Nothing is asked of it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gpupools.domain import allocation as ledger
from gpupools.domain.components import NAMESPACE
from gpupools.domain.diagnosis import Diagnosis, Difference, Scene, Severity, diagnose
from gpupools.domain.gpus import Picture, Pod
from gpupools.models import Cluster, Role
from gpupools.services import allocation, drift
from gpupools.services.access import Actor
from gpupools.services.rows import ANOTHER_NAMESPACE


@dataclass(frozen=True, slots=True)
class Report:
    """What is wrong, worst first, and the instant it is true of (seconds since 1970); None: nothing is known yet."""

    taken_at: float | None
    found: tuple[Diagnosis, ...]

    @property
    def errors(self) -> int:
        """How many things do not work."""
        return sum(each.severity is Severity.ERROR for each in self.found)

    @property
    def warnings(self) -> int:
        """How many things soon may not."""
        return sum(each.severity is Severity.WARNING for each in self.found)


def report(actor: Actor, cluster: Cluster, *, node: str = "", pool: str = "") -> Report:
    """Diagnose a cluster, one of its nodes or one of its pools, each named.

    Pods of namespaces that the actor may not see have no name in it. Raises Unreachable when the broker is away.
    """
    actor.require(Role.VIEWER, cluster)
    picture = allocation.current(cluster)
    if picture is None:
        return Report(None, ())
    scene = scene_of(cluster, picture, actor.namespaces(cluster))
    wanted = {node} if node else {name for name, of in scene.pools.items() if of == pool} if pool else None
    found = [each for each in diagnose(scene, nodes=wanted) if not each.message.startswith(ANOTHER_NAMESPACE)]
    if pool:
        found += [each for each in diagnose(scene) if each.pool == pool and not each.node]
    return Report(picture.taken_at, tuple(found))


def scene_of(cluster: Cluster, picture: Picture, namespaces: frozenset[str] | None = None) -> Scene:
    """Lay a picture out for the rules. ``namespaces``: those whose pods may be named; None for all."""
    pods = picture.pods if namespaces is None else tuple(_veiled(pod, namespaces) for pod in picture.pods)
    folds = ledger.fold_all([node for node in picture.nodes if node.is_gpu], pods)
    rows, label = drift.pools_by_id(cluster), drift.pool_label(cluster)
    being_written = drift.writings(cluster)
    changing = set()
    pools: dict[str, str] = {}
    differences: dict[str, tuple[Difference, ...]] = {}
    for node in picture.nodes:
        row = rows.get(node.labels.get(label, ""))
        if row is None:
            continue
        pools[node.name] = row.name
        drifts, under_way = drift.split(drift.drifted(row, [node]), being_written)
        if under_way:
            changing.add(node.name)
        if drifts:
            differences[node.name] = tuple(Difference(each.key, each.wanted, each.found) for each in drifts)
    return Scene(
        picture.nodes,
        pods,
        picture.workloads,
        folds=folds,
        pools=pools,
        differences=differences,
        changing=changing,
        spec=cluster.spec,
    )


def _veiled(pod: Pod, namespaces: frozenset[str]) -> Pod:
    # The pods of components are what the rules are about, and no secret of any namespace.
    if pod.namespace in namespaces or pod.namespace == NAMESPACE:
        return pod
    return msgspec.structs.replace(pod, namespace=ANOTHER_NAMESPACE, name="a pod", message="")
