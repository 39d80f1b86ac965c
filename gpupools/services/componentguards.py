"""What must be known before a component is touched: who depends on it, and whose pods would end. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpupools.domain import allocation as ledger
from gpupools.domain.components import CATALOGUE
from gpupools.domain.diagnosis import Scene, mps_clients
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import Component, Mode
from gpupools.errors import Conflict, Unreachable
from gpupools.models import Cluster, Role
from gpupools.services import allocation
from gpupools.services.access import Actor


def clients(cluster: Cluster, component: Component) -> tuple[str, ...]:
    """Return the pods (namespace/name) that end when a component's pods do, by the current picture.

    Empty for components whose restart harms nobody. Raises Unreachable while nobody has read the cluster: that is not
    the same as having no clients.
    """
    if not CATALOGUE[component].restart_kills:
        return ()
    picture = allocation.current(cluster)
    if picture is None:
        raise Unreachable(
            f"Nobody has read {cluster.name} yet, so it is not known whose pods {component.value} serves.",
            code="no-picture",
        )
    return ending(component, picture.nodes, picture.pods)


def ending(component: Component, nodes: Iterable[GpuNode], pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return the pods that end when a component's pods do, among these."""
    if not CATALOGUE[component].restart_kills:
        return ()
    scene = Scene(nodes, pods, (), folds=ledger.fold_all((), ()))
    found = [pod for node in scene.modes.get(Mode.MPS, ()) for pod in mps_clients(scene, node.name)]
    return tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in found))


def approve(
    actor: Actor, cluster: Cluster, component: Component, approved: Sequence[str], *, deed: str
) -> tuple[str, ...]:
    """Let a deed pass that ends pods, if an administrator has approved exactly these; return them.

    Raises Conflict (code ``kills-pods``) with the pods that would end and are not approved.
    """
    found = clients(cluster, component)
    check(component, found, approved, deed=deed)
    if found:
        actor.require(Role.ADMIN, cluster)
    return found


def check(component: Component, found: Sequence[str], approved: Sequence[str], *, deed: str) -> None:
    """Raise Conflict (code ``kills-pods``) when pods would end that nobody has approved."""
    if missing := sorted(set(found) - set(approved)):
        named = ", ".join(missing[:20]) + (" and more" if len(missing) > 20 else "")
        raise Conflict(
            f"{deed} {component.value} ends {len(missing)} pods that compute through it: {named}. An administrator "
            "approves that by naming them.",
            code="kills-pods",
            pods=list(found),
        )
