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
from gpupools.domain import componentmanifests
from gpupools.domain.components import CATALOGUE, NAMESPACE, AddonSeen, ComponentVerdict, verdict
from gpupools.domain.gpus import Workload
from gpupools.domain.modes import OP_LABEL, Component
from gpupools.errors import Conflict, Refused
from gpupools.models import Push
from gpupools.services import componentguards, components, pushes
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


def upgrade(push: Push) -> Outcome:
    """Upgrade or configure an add-on, or apply manifests anew; then wait as after an installation."""
    name = Component(push.payload["component"])
    addons = clusters.addons(connection_of(push.cluster))
    if push.learned.get("asked"):
        return install(push)
    with kubernetes_of(push.cluster) as kubernetes:
        _guard(push, name, kubernetes, "Upgrading")
    if addons is None or not _addon_state(addons, name):
        if not push.payload.get("image_prefix", "") and not push.payload.get("documents", []):
            raise Refused(
                f"{name.value} is no add-on here. Name the registry of the new images, or upload new manifests; what "
                "Helm installed is upgraded by Helm."
            )
        return _apply(push, name)
    pushes.hold(push)
    version = push.payload["version"] or addons.newest(name)
    config = push.payload["config"]
    started = addons.upgrade(name, version, config=config)
    if not started.task_id and config:
        addons.configure(name, config)
    return Again(TASK_SECONDS, {"asked": True, "task_id": started.task_id})


def uninstall(push: Push) -> Outcome:
    """Uninstall the add-on, or delete the DaemonSets that we made; what others installed is theirs to remove."""
    name = Component(push.payload["component"])
    if pools := components.dependents(push.cluster, name):
        raise Conflict(f"{', '.join(pools)} depend on {name.value} by now.", code="in-use", pools=list(pools))
    addons = clusters.addons(connection_of(push.cluster))
    if push.learned.get("task_id") and addons is not None and (waiting := _task(push, addons)) is not None:
        return waiting
    with kubernetes_of(push.cluster) as kubernetes:
        if not push.learned.get("asked"):
            _guard(push, name, kubernetes, "Uninstalling")
        if addons is not None and (state := _addon_state(addons, name)):
            if state == "deleting" or push.learned.get("asked"):
                return Again(TASK_SECONDS, detail="the add-on is being removed")
            if state in {"updating", "upgrading"}:
                return Again(TASK_SECONDS, detail="an operation of the add-on's own has to end first")
            pushes.hold(push)
            return Again(TASK_SECONDS, {"asked": True, "task_id": addons.uninstall(name).task_id})
        left = _daemonsets(name, kubernetes.workloads())
        if foreign := sorted(each.name for each in left if OP_LABEL not in each.annotations):
            if push.learned.get("asked") and timezone.now() - push.created_at < LONGEST_WAIT:
                return Again(TASK_SECONDS, detail="the add-on's DaemonSets are being removed")
            if name.value in kubernetes.helm_releases(NAMESPACE):
                raise Refused(
                    f"Helm installed {name.value}: run `helm uninstall {name.value} --namespace {NAMESPACE}`, and this "
                    "page will show that it is gone.",
                    code="by-helm",
                )
            raise Refused(
                f"{', '.join(foreign)} in {NAMESPACE} were not installed by the console (perhaps by Helm or the ACK "
                "console): uninstall them where they were installed."
            )
        for each in left:
            kubernetes.delete("DaemonSet", NAMESPACE, each.name)
        for kind, namespace, label in _uploaded(push) if left else ():
            kubernetes.delete(kind, namespace, label)
    if left:
        return Again(TASK_SECONDS, detail="the DaemonSets are being removed")
    absent = ComponentVerdict(name.value, "absent", detail=CATALOGUE[name].without_it)
    return Done("uninstalled", write=lambda: components.store(push.cluster, absent))


def failed(push: Push, error: str) -> None:
    """Show the failure until the next check says what is there; the overview keeps showing the sentence."""
    components.store(push.cluster, ComponentVerdict(push.payload["component"], "failed", detail=error))


def _ask(push: Push, name: Component, addons: AddonProvider | None) -> Outcome:
    prefix = push.payload.get("image_prefix", "")
    if addons is not None and not push.payload.get("documents", []) and push.learned.get("by") != "manifests":
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
    return _apply(push, name)


def _apply(push: Push, name: Component) -> Outcome:
    documents, prefix = push.payload.get("documents", []), push.payload.get("image_prefix", "")
    if not documents and not prefix:
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
        wanted = documents or manifests(name, image_prefix=prefix)
        for manifest in wanted:  # all of it is refused before any of it is written
            kubernetes.rehearse(manifest)
        for manifest in wanted:
            kubernetes.apply(manifest, op_id=str(push.op_id))
    return Again(READY_SECONDS, {"asked": True, "task_id": "", "by": "manifests"})


def _guard(push: Push, name: Component, kubernetes: Kubernetes, deed: str) -> None:
    """Look again, in the cluster itself, whose pods would end: others may have come since somebody approved."""
    if CATALOGUE[name].restart_kills:
        found = componentguards.ending(name, kubernetes.nodes(), kubernetes.pods())
        componentguards.check(name, found, push.payload.get("approved_pods", []), deed=deed)


def _uploaded(push: Push) -> list[tuple[str, str, str]]:
    """Return what else uploaded manifests brought, the last ones that were applied."""
    last = (
        Push.objects.filter(
            cluster=push.cluster,
            target=push.target,
            kind__in=(components.INSTALL, components.UPGRADE),
            state=Push.State.DONE,
        )
        .order_by("-pk")
        .first()
    )
    documents = last.payload.get("documents", ()) if last else ()
    return [identity for document in documents if (identity := componentmanifests.identity(document))[0] != "DaemonSet"]


def _task(push: Push, addons: AddonProvider) -> Again | None:
    task = addons.task(push.learned["task_id"])
    if task.state == "fail":
        raise Refused(task.message or "The provider says that the task failed, without a reason.")
    return None if task.state == "success" else Again(TASK_SECONDS, detail="the provider's task is running")


def _addon_state(addons: AddonProvider, name: Component) -> str:
    return next((each.state or "active" for each in addons.addons() if each.name == name), "")


def _verdict(name: Component, kubernetes: Kubernetes, addons: AddonProvider | None) -> ComponentVerdict:
    seen = [AddonSeen(each.name, each.version, each.state) for each in addons.addons()] if addons else []
    return verdict(name, kubernetes.workloads(), seen, kubernetes.helm_releases(NAMESPACE))


def _daemonsets(name: Component, workloads: Iterable[Workload]) -> list[Workload]:
    ours = {daemonset.name for daemonset in CATALOGUE[name].daemonsets}
    return [
        each for each in workloads if each.kind == "DaemonSet" and each.namespace == NAMESPACE and each.name in ours
    ]
