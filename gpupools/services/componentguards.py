"""What must be known before a component is touched: who depends on it, and whose pods would end. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpupools.domain import allocation as ledger
from gpupools.domain.components import CATALOGUE
from gpupools.domain.diagnosis import Scene, mps_clients
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import Component, Mode
from gpupools.errors import Unreachable
from gpupools.models import Cluster, Role
from gpupools.services import allocation, endings
from gpupools.services.access import Actor


def clients(cluster: Cluster, component: Component) -> tuple[str, ...]:
    """Return the pods (namespace/name) that end when a component's pods do, by the current picture.

    Empty for components whose restart harms nobody. Raises Unreachable as ``client_pods`` does.
    """
    return _names(client_pods(cluster, component))


def client_pods(cluster: Cluster, component: Component) -> list[Pod]:
    """Return the pods that end when a component's pods do, by the current picture.

    Raises Unreachable while nobody has read the cluster: that is not the same as having no clients.
    """
    if not CATALOGUE[component].restart_kills:
        return []
    picture = allocation.current(cluster)
    if picture is None:
        raise Unreachable(
            f"Nobody has read {cluster.name} yet, so it is not known whose pods {component.value} serves.",
            code="no-picture",
        )
    return _clients(component, picture.nodes, picture.pods)


def ending(component: Component, nodes: Iterable[GpuNode], pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return the pods (namespace/name) that end when a component's pods do, among these."""
    return _names(_clients(component, nodes, pods))


def _clients(component: Component, nodes: Iterable[GpuNode], pods: Iterable[Pod]) -> list[Pod]:
    if not CATALOGUE[component].restart_kills:
        return []
    scene = Scene(nodes, pods, (), folds=ledger.fold_all((), ()))
    return [pod for node in scene.modes.get(Mode.MPS, ()) for pod in mps_clients(scene, node.name)]


def _names(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in pods))


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
    said = f"{deed} {component.value} ends {{many}} that compute through it: {{named}}."
    endings.check(found, approved, said=f"{said} An administrator approves that by naming them.")
