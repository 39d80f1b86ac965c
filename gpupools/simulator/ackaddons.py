"""Add-ons of the embedded ACK: what its OpenAPI knows, what is installed, and the tasks that change it.

Free of HTTP; what a task does to a cluster is in ackdaemons.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpupools.simulator import ackrules
from gpupools.simulator.ackdaemons import create_daemonsets
from gpupools.simulator.ackrules import AckError, Body
from gpupools.simulator.ackstate import AckState, Record
from gpupools.simulator.acktasks import Tasks
from gpupools.simulator.addons import CATALOGUE, PRO_ONLY, Addon
from gpupools.simulator.fleet import Fleet
from gpupools.simulator.store import Store


class Addons:
    """The add-on operations of the OpenAPI."""

    def __init__(self, store: Store, state: AckState, tasks: Tasks, plan: Fleet) -> None:
        self._store = store
        self._state = state
        self._tasks = tasks
        self._plan = plan

    def install_at_birth(self, name: str) -> None:
        """Have an add-on installed from the start."""
        create_daemonsets(self._store, name, region=self._plan.cluster.region)
        self._state.addons[name] = {"name": name, "version": CATALOGUE[name].version, "state": "active", "config": ""}
        self._state.touch()

    def known(self, name: str) -> Addon:
        """Return an add-on of the catalogue; 404 when this cluster's OpenAPI does not know it."""
        if name not in CATALOGUE or name in self._plan.addon_not_found:
            raise AckError(404, "AddonNotFound", f"The addon {name} is not found.")
        return CATALOGUE[name]

    def catalogue(self) -> list[Addon]:
        """Return the add-ons that this cluster's OpenAPI knows."""
        return [addon for name, addon in CATALOGUE.items() if name not in self._plan.addon_not_found]

    def install(self, wanted: Sequence[Body]) -> Record:
        """InstallClusterAddons: one task for all that is listed. A cluster that is not Pro takes no sharing."""
        works: list[Record] = []
        for entry in wanted:
            name = str(entry.get("name") or "")
            self.known(name)
            if name in PRO_ONLY and ".pro" not in self._plan.cluster.spec:
                spec = self._plan.cluster.spec
                raise AckError(400, "AddonNotSupported", f"The addon {name} needs a Pro cluster, not {spec}.")
            if not entry.get("version"):
                raise ackrules.missing("version")
            if name in self._state.addons:
                raise AckError(400, "AddonAlreadyExist", f"The addon {name} is installed already.")
            config = entry.get("config") or ""
            record = {"name": name, "version": entry["version"], "state": "updating", "config": config}
            works.append({"stage": f"install_{name}", "kind": "install", "addon": name, "record": record})
        if not works:
            raise ackrules.missing("body")
        for work in works:
            self._state.addons[work["addon"]] = work["record"]
        return self._start("cluster_addon_install", works)

    def uninstall(self, wanted: Sequence[Body]) -> Record:
        """UnInstallClusterAddons."""
        names = [str(entry.get("name") or "") for entry in wanted]
        if not names:
            raise ackrules.missing("addons")
        for name in names:
            self._installed(name)
        for name in names:
            self._state.addons[name]["state"] = "deleting"
        works = [{"stage": f"uninstall_{name}", "kind": "uninstall", "addon": name} for name in names]
        return self._start("cluster_addon_uninstall", works)

    def upgrade(self, wanted: Sequence[Body]) -> Record:
        """UpgradeClusterAddons: the DaemonSets roll, pod by pod; what runs through a daemon dies with its pod."""
        works: list[Record] = []
        for entry in wanted:
            name = str(entry.get("component_name") or "")
            record = self._installed(name)
            version = str(entry.get("next_version") or "")
            if not version:
                raise ackrules.missing("next_version")
            if version == record["version"]:
                raise ackrules.invalid(f"The addon {name} has version {version} already.")
            if record["state"] != "active":
                raise AckError(409, "AddonStateConflict", f"The addon {name} is {record['state']}.")
            config = entry.get("config") or ""
            works.append({
                "stage": f"upgrade_{name}", "kind": "upgrade", "addon": name, "version": version, "config": config,
            })  # fmt: skip
        if not works:
            raise ackrules.missing("body")
        for work in works:
            self._state.addons[work["addon"]]["state"] = "upgrading"
        return self._start("cluster_addon_upgrade", works)

    def configure(self, name: str, body: Body) -> None:
        """ModifyClusterAddon: the configuration, a JSON string, is kept; nothing here reads it."""
        self._installed(name)["config"] = str(body.get("config") or "")
        self._state.touch()

    def _installed(self, name: str) -> Record:
        record = self._state.addons.get(name)
        if record is None:
            raise AckError(404, "AddonNotFound", f"The addon {name} is not installed.")
        return record

    def _start(self, task_type: str, works: list[Record]) -> Record:
        return self._tasks.start(task_type, works, target_id=self._state.cluster_id, target_type="cluster")
