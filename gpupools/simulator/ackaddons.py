"""Installing and removing add-ons in the embedded cluster: their DaemonSets come, their DaemonSets go."""

from __future__ import annotations

from gpupools.simulator.addons import CATALOGUE, NAMESPACE, daemonsets
from gpupools.simulator.store import Store


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


def settled(store: Store, name: str) -> bool:
    """Return whether every DaemonSet of an add-on runs on all the nodes where it shall."""
    for daemon in CATALOGUE[name].daemons:
        found = store.peek("DaemonSet", NAMESPACE, daemon.name)
        if found is None:
            return False
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"].get("generation", 1):
            return False
        if status.get("numberReady", 0) < status.get("desiredNumberScheduled", 0):
            return False
    return True


def gone(store: Store, name: str) -> bool:
    """Return whether nothing of an add-on is left."""
    return all(store.peek("DaemonSet", NAMESPACE, daemon.name) is None for daemon in CATALOGUE[name].daemons)
