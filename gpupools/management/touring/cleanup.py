"""Leaving somebody's cluster as it was found: pods gone, pools gone, components gone, labels put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from gpupools import clusters
from gpupools.clusters import kubeconfig
from gpupools.clusters.port import Kubernetes
from gpupools.domain.gpus import GpuNode, Taint
from gpupools.errors import ConsoleError
from gpupools.management.touring.client import Refusal, wait_for
from gpupools.management.touring.ground import POOL_SECONDS, Ground
from gpupools.management.touring.report import Failed

OPERATION = "tour-cleanup"
Thing = TypeVar("Thing")


def reach(text: str, context: str) -> Kubernetes:
    """Open the cluster by the kubeconfig that was given on the command line; raises Invalid or Unreachable."""
    # The person named this file themselves, so a cluster on this machine is fine.
    return clusters.connect(kubeconfig.parse(text, context=context, allow_loopback=True, timeout_seconds=15.0))


def remember(kubernetes: Kubernetes, names: tuple[str, ...]) -> dict[str, GpuNode]:
    """Read the named nodes as they are before the tour; raise Failed for one that is not there."""
    found = {name: kubernetes.node(name) for name in names}
    missing = [name for name, node in found.items() if node is None]
    if missing:
        raise Failed(f"this cluster has no node {', '.join(missing)}")
    return {name: node for name, node in found.items() if node is not None}


def clean_up(ground: Ground, kubernetes: Kubernetes, before: Mapping[str, GpuNode]) -> None:
    """Undo what the tour did, each part even where another failed; then compare labels with those remembered."""
    with ground.report.step("clean up: submissions"):
        _each(ground.submissions, ground.delete_submission)
    with ground.report.step("clean up: node pools"):
        _each(ground.pools.items(), lambda item: _delete_pool(ground, *item))
    with ground.report.step("clean up: components"):
        _each(reversed(ground.installed), lambda name: _uninstall(ground, name))
    with ground.report.step("clean up: labels put back") as step:
        _each(before.items(), lambda item: _put_back(kubernetes, *item))
        step.detail = f"{len(before)} nodes carry the labels and taints that they had"


def _each(things: Iterable[Thing], undo: Callable[[Thing], None]) -> None:
    """Undo all of them, and only then say which did not go."""
    failures = []
    for thing in things:
        try:
            undo(thing)
        except (Failed, Refusal, ConsoleError) as failure:
            failures.append(str(failure))
    if failures:
        raise Failed("; ".join(failures))


def _delete_pool(ground: Ground, name: str, pool: int) -> None:
    body = {"force": True, "reason": "Tour: its nodes go back as they were."}
    _ask(ground, f"node-pools/{pool}/delete/", body, target=name)

    def gone() -> bool:
        try:
            return ground.operator.get(f"node-pools/{pool}/")["state"] == "gone"
        except Refusal as refusal:
            return refusal.status == 404

    held, _ = wait_for(gone, seconds=POOL_SECONDS, what=bool)
    if not held:
        raise Failed(f"pool {name} was not deleted")


def _ask(ground: Ground, path: str, body: Mapping[str, object], *, target: str) -> None:
    """Ask for what may need a second person by this console's policy; be that person where it does."""

    def waiting() -> Any:
        query = {"cluster__name": ground.cluster, "target": target, "state": "pending"}
        return next(ground.admin.rows("operation-requests/", **query), None)

    ground.operator.post(path, body, landed=lambda: waiting() or {})
    if (request := waiting()) is not None:
        where = f"operation-requests/{request['id']}/"
        pods = [f"{pod['namespace']}/{pod['pod']}" for pod in request["blast_radius"]["pods"]]
        ground.admin.post(
            f"{where}approve/",
            {"reason": "Tour: approved by a second person.", "approved_pods": pods},
            landed=lambda: row if (row := ground.admin.get(where))["state"] == "approved" else None,
        )


def _uninstall(ground: Ground, name: str) -> None:
    path = f"clusters/{ground.cluster}/components/{name}/uninstall/"
    _ask(ground, path, {"reason": "Tour: put back."}, target=name)
    held, row = wait_for(
        lambda: ground.admin.get(f"clusters/{ground.cluster}/components/{name}/"),
        seconds=POOL_SECONDS,
        what=lambda row: row["state"] == "absent",
    )
    if not held:
        raise Failed(f"{name} is {row['state']}: {row['detail']}")


def _put_back(kubernetes: Kubernetes, name: str, old: GpuNode) -> None:
    now = kubernetes.node(name)
    if now is None:
        raise Failed(f"node {name} is gone")
    changed: dict[str, str | None] = {
        key: old.labels.get(key) for key in {*old.labels, *now.labels} if old.labels.get(key) != now.labels.get(key)
    }
    remove = [taint for taint in now.taints if taint not in old.taints and not _of_lifecycle(taint)]
    add = [taint for taint in old.taints if taint not in now.taints and not _of_lifecycle(taint)]
    if changed or remove or add:
        kubernetes.label_node(name, labels=changed, taints_add=add, taints_remove=remove, op_id=OPERATION)
    if now.unschedulable != old.unschedulable:
        kubernetes.cordon(name, unschedulable=old.unschedulable, op_id=OPERATION)
    after = kubernetes.node(name)
    if after is None or after.labels != old.labels:
        raise Failed(f"node {name} does not carry the labels that it had")


def _of_lifecycle(taint: Taint) -> bool:
    """Tell whether a taint is Kubernetes' own word on a node's state, which comes and goes by itself."""
    return taint.key.startswith("node.kubernetes.io/")
