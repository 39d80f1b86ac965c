"""Carrying components into a cluster and out of it: by the add-on API where it knows them, else as DaemonSets.

One probe or one call per run; applying and deleting our DaemonSets may be repeated, installing an add-on is
looked for before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from django.utils import timezone

from gpupools import clusters
from gpupools.clusters.port import AddonProvider, Kubernetes
from gpupools.domain.components import CATALOGUE, NAMESPACE, AddonSeen, ComponentVerdict, verdict
from gpupools.domain.gpus import Workload
from gpupools.domain.modes import OP_LABEL, Component
from gpupools.errors import Conflict, Refused
from gpupools.models import Push
from gpupools.services import components, pushes
from gpupools.services.credentials import connection_of
from gpupools.services.gateways import kubernetes_of
from gpupools.services.pushes import Again, Done, Outcome

MANIFESTS: Final = Path(__file__).resolve().parent.parent / "catalogue" / "components"
TASK_SECONDS: Final = 1.0
READY_SECONDS: Final = 2.0
# After this the operation ends as it stands: images may be slow or missing, and the page shows what is not ready.
LONGEST_WAIT: Final = timedelta(minutes=10)
NOT_AN_ADDON: Final = "addon-not-found"


def manifests(name: Component, *, image_prefix: str) -> list[dict[str, Any]]:
    """Return the DaemonSets of a component, with their images in the registry that was named."""
    text = (MANIFESTS / f"{name.value}.yaml").read_text(encoding="utf-8")
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for document in documents:
        for container in document["spec"]["template"]["spec"]["containers"]:
            container["image"] = f"{image_prefix}/{container['image']}"
    return documents


def install(push: Push) -> Outcome:
    """Install once, then wait until the DaemonSets are ready on the nodes that they match."""
    name = Component(push.payload["component"])
    addons = clusters.addons(connection_of(push.cluster))
    if not push.learned.get("asked"):
        return _ask(push, name, addons)
    if push.learned.get("task_id") and addons is not None and (waiting := _task(push, addons)) is not None:
        return waiting
    with kubernetes_of(push.cluster) as kubernetes:
        found = _verdict(name, kubernetes, addons)
    if found.state == "failed":
        raise Refused(found.detail)
    if found.state != "installed" and timezone.now() - push.created_at < LONGEST_WAIT:
        return Again(
            READY_SECONDS,
            detail=found.detail,
            write=lambda: components.store(push.cluster, found, moving=components.INSTALL),
        )
    return Done(found.detail, write=lambda: components.store(push.cluster, found))


def uninstall(push: Push) -> Outcome:
    """Uninstall the add-on, or delete the DaemonSets that we made; what others installed is theirs to remove."""
    name = Component(push.payload["component"])
    if pools := components.dependents(push.cluster, name):
        raise Conflict(f"{', '.join(pools)} depend on {name.value} by now.", code="in-use", pools=list(pools))
    addons = clusters.addons(connection_of(push.cluster))
    if push.learned.get("task_id") and addons is not None and (waiting := _task(push, addons)) is not None:
        return waiting
    with kubernetes_of(push.cluster) as kubernetes:
        if addons is not None and (state := _addon_state(addons, name)):
            if state == "deleting" or push.learned.get("asked"):
                return Again(TASK_SECONDS, detail="the add-on is being removed")
            pushes.hold(push)
            return Again(TASK_SECONDS, {"asked": True, "task_id": addons.uninstall(name).task_id})
        left = _daemonsets(name, kubernetes.workloads())
        if foreign := sorted(each.name for each in left if OP_LABEL not in each.annotations):
            if push.learned.get("asked") and timezone.now() - push.created_at < LONGEST_WAIT:
                return Again(TASK_SECONDS, detail="the add-on's DaemonSets are being removed")
            raise Refused(
                f"{', '.join(foreign)} in {NAMESPACE} were not installed by the console (perhaps by Helm or the ACK "
                "console): uninstall them where they were installed."
            )
        for each in left:
            kubernetes.delete("DaemonSet", NAMESPACE, each.name)
    if left:
        return Again(TASK_SECONDS, detail="the DaemonSets are being removed")
    absent = ComponentVerdict(name.value, "absent", detail=CATALOGUE[name].without_it)
    return Done("uninstalled", write=lambda: components.store(push.cluster, absent))


def failed(push: Push, error: str) -> None:
    """Show the failure until the next check says what is there; the overview keeps showing the sentence."""
    components.store(push.cluster, ComponentVerdict(push.payload["component"], "failed", detail=error))


def _ask(push: Push, name: Component, addons: AddonProvider | None) -> Outcome:
    prefix = push.payload["image_prefix"]
    if addons is not None and push.learned.get("by") != "manifests":
        if _addon_state(addons, name):
            return Again(0, {"asked": True, "task_id": ""}, detail="the add-on is there already")
        pushes.hold(push)
        try:
            started = addons.install(name)
        except Refused as error:
            if error.code != NOT_AN_ADDON:
                raise
            if not prefix:
                raise Refused(
                    f"ACK's API has no add-on {name.value} for this cluster. Install it on the Cloud-native AI Suite "
                    "page of the ACK console, or here from manifests by naming a registry with its images.",
                    code=NOT_AN_ADDON,
                ) from error
            return Again(0, {"by": "manifests"}, detail="not an add-on here")
        return Again(TASK_SECONDS, {"asked": True, "task_id": started.task_id})
    if not prefix:
        raise Refused("The manifests of this component need a registry for their images.")
    with kubernetes_of(push.cluster) as kubernetes:
        # Applying over somebody else's objects would make them ours, to be removed with ours.
        if foreign := sorted(
            each.name for each in _daemonsets(name, kubernetes.workloads()) if OP_LABEL not in each.annotations
        ):
            raise Refused(
                f"{', '.join(foreign)} in {NAMESPACE} are there already and were not installed by the console (perhaps "
                "by Helm or the ACK console): complete or remove them where they were installed.",
                code="installed-elsewhere",
            )
        for manifest in manifests(name, image_prefix=prefix):
            kubernetes.apply(manifest, op_id=str(push.op_id))
    return Again(READY_SECONDS, {"asked": True, "task_id": "", "by": "manifests"})


def _task(push: Push, addons: AddonProvider) -> Again | None:
    task = addons.task(push.learned["task_id"])
    if task.state == "fail":
        raise Refused(task.message or "The provider says that the task failed, without a reason.")
    return None if task.state == "success" else Again(TASK_SECONDS, detail="the provider's task is running")


def _addon_state(addons: AddonProvider, name: Component) -> str:
    return next((each.state or "active" for each in addons.addons() if each.name == name), "")


def _verdict(name: Component, kubernetes: Kubernetes, addons: AddonProvider | None) -> ComponentVerdict:
    seen = [AddonSeen(each.name, each.version, each.state) for each in addons.addons()] if addons else []
    return verdict(name, kubernetes.workloads(), seen)


def _daemonsets(name: Component, workloads: Iterable[Workload]) -> list[Workload]:
    ours = {daemonset.name for daemonset in CATALOGUE[name].daemonsets}
    return [
        each for each in workloads if each.kind == "DaemonSet" and each.namespace == NAMESPACE and each.name in ours
    ]
