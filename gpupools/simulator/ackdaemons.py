"""The DaemonSets of add-ons in the embedded cluster: they come, roll to another version, and go."""

from __future__ import annotations

from gpupools.simulator.addons import CATALOGUE, NAMESPACE, daemonsets
from gpupools.simulator.kinds import Object
from gpupools.simulator.store import Store

VERSION_LABEL = "app.kubernetes.io/version"


def create_daemonsets(store: Store, name: str, *, region: str) -> None:
    """Create the DaemonSets of an add-on that are not there yet."""
    for daemonset in daemonsets(CATALOGUE[name], region=region):
        if store.peek("DaemonSet", NAMESPACE, daemonset["metadata"]["name"]) is None:
            store.create("DaemonSet", daemonset)


def delete_daemonsets(store: Store, name: str) -> None:
    """Delete the DaemonSets of an add-on; their pods follow."""
    for daemon in CATALOGUE[name].daemons:
        if store.peek("DaemonSet", NAMESPACE, daemon.name) is not None:
            store.delete("DaemonSet", NAMESPACE, daemon.name, propagation="Foreground")


def roll_daemonsets(store: Store, name: str, version: str) -> None:
    """Bring the DaemonSets of an add-on to a version: their pods are replaced one after the other."""

    def edit(daemonset: Object) -> None:
        daemonset["metadata"].setdefault("labels", {})[VERSION_LABEL] = version
        template = daemonset["spec"]["template"].setdefault("metadata", {})
        template.setdefault("annotations", {})["ack.aliyun.com/addon-version"] = version

    for daemon in CATALOGUE[name].daemons:
        if store.peek("DaemonSet", NAMESPACE, daemon.name) is not None:
            store.change("DaemonSet", NAMESPACE, daemon.name, edit)


def settled(store: Store, name: str) -> bool:
    """Return whether every DaemonSet of an add-on runs on all the nodes where it shall."""
    for daemon in CATALOGUE[name].daemons:
        found = store.peek("DaemonSet", NAMESPACE, daemon.name)
        if found is None:
            return False
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"].get("generation", 1):
            return False
        desired = status.get("desiredNumberScheduled", 0)
        if min(status.get("numberReady", 0), status.get("updatedNumberScheduled", 0)) < desired:
            return False
    return True


def gone(store: Store, name: str) -> bool:
    """Return whether nothing of an add-on is left."""
    return all(store.peek("DaemonSet", NAMESPACE, daemon.name) is None for daemon in CATALOGUE[name].daemons)
