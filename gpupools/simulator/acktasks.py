"""Tasks of the embedded ACK: small records of work that is done step by step and looked at again.

Nothing of a task lives outside its record, so a restart in the middle goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable

from gpupools.simulator.ackdaemons import create_daemonsets, delete_daemonsets, gone, roll_daemonsets, settled
from gpupools.simulator.ackmachines import Machines
from gpupools.simulator.ackrules import AckError
from gpupools.simulator.ackstate import AckState, Record
from gpupools.simulator.clock import Clock
from gpupools.simulator.faults import Faults, TaskFail
from gpupools.simulator.store import Store

_ADDON_SECONDS = 3.0  # an add-on's chart is rendered and applied
_LABELS_SECONDS = 0.3  # per node
_LOOK_AGAIN_SECONDS = 1.0

Key = tuple[str, str]  # ("task", id) or ("machine", instance id)


def nobody(key: Key) -> None:
    """Before the loops run there is nobody to wake: they look at everything when they start."""


class Tasks:
    """Starts tasks and takes them further."""

    def __init__(
        self, store: Store, clock: Clock, state: AckState, machines: Machines, faults: Faults, *, region: str
    ) -> None:
        self._faults = faults
        self._store = store
        self._clock = clock
        self._state = state
        self._machines = machines
        self._region = region
        self.wake: Callable[[Key], None] = nobody

    def start(self, task_type: str, works: list[Record], *, target_id: str, target_type: str) -> Record:
        """Start a task; it is worked on from the next turn of the loop on."""
        task = self._state.new_task(task_type, works, target_id=target_id, target_type=target_type)
        self.wake(("task", task["task_id"]))
        return task

    def get(self, task_id: str) -> Record:
        """Return a task; 404 when there is none."""
        found = self._state.tasks.get(task_id)
        if found is None:
            raise AckError(404, "ErrorTaskNotFound", f"The task {task_id} does not exist.")
        return found

    def cancel(self, task_id: str) -> None:
        """End a task: what is done stays, what is not begun is not done."""
        task = self.get(task_id)
        if task["state"] not in ("running", "paused"):
            raise AckError(400, "TaskNotRunning", f"The task {task_id} is {task['state']}.")
        self._finish(task, "fail", {"code": "TaskCanceled", "message": "The task was cancelled."})

    def pause(self, task_id: str) -> None:
        """Do nothing more for a task until it is resumed."""
        self._turn(task_id, "running", "paused", "TaskNotRunning")

    def resume(self, task_id: str) -> None:
        """Go on with a paused task."""
        self._turn(task_id, "paused", "running", "TaskNotPaused")
        self.wake(("task", task_id))

    def _turn(self, task_id: str, old: str, new: str, refusal: str) -> None:
        task = self.get(task_id)
        if task["state"] != old:
            raise AckError(400, refusal, f"The task {task_id} is {task['state']}.")
        task.update(state=new, updated=self._clock.stamp())
        self._tell(task, "Normal", task["task_type"], f"The task is {new}.")
        self._state.touch()

    def doing(self, pool_id: str) -> str:
        """Return what the running tasks do to a pool: scaling, removing or updating; active without any."""
        words = {"running": "scaling", "gone": "removing"}
        for task in self._state.tasks.values():
            if task["state"] == "running" and task["target"]["id"] == pool_id:
                work = task["works"][min(task["position"], len(task["works"]) - 1)]
                return words.get(work.get("want", ""), "updating")
        return "active"

    def advance(self, task_id: str) -> float | None:
        """Do as much of a task as can be done now; return when to look again."""
        task = self._state.tasks.get(task_id)
        if task is None or task["state"] != "running":
            return None
        while task["position"] < len(task["works"]):
            work, stage = task["works"][task["position"]], task["stages"][task["position"]]
            if stage["state"] == "initial":
                stage.update(state="running", start_time=self._clock.stamp())
                work["since"] = self._clock.micro_stamp()
                self._tell(task, "Normal", stage["name"], f"Stage {stage['name']} started.")
            if (fault := self._faults.hit(TaskFail, lambda fault: _hits(fault, task))) is not None:
                self._finish(task, "fail", {"code": fault.code, "message": fault.message})
                return None
            self._fail_nodes(task, work)
            again = self._work(task, work)
            task["updated"] = self._clock.stamp()
            self._state.touch()
            if again is not None:
                return again
            if failed := work.get("failed"):
                self._finish(task, "fail", failed)
                return None
            stage.update(state="success", end_time=self._clock.stamp())
            task["position"] += 1
        self._finish(task, "success", {})
        return None

    def _finish(self, task: Record, state: str, error: dict[str, str]) -> None:
        if state == "fail" and task["position"] < len(task["stages"]):
            task["stages"][task["position"]].update(state="fail", end_time=self._clock.stamp())
        if state == "fail":
            self._give_up_addons(task)
            self._give_up_machines(task)
        task.update(state=state, error=error, updated=self._clock.stamp())
        self._tell(task, "Normal" if state == "success" else "Warning", task["task_type"], f"The task ended: {state}.")
        self._state.touch()

    def _give_up_addons(self, task: Record) -> None:
        """An add-on whose installation failed is not installed, though a part of it may be there."""
        for work in task["works"]:
            record = self._state.addons.get(work.get("addon", ""))
            if record is not None and work["kind"] == "install" and record["state"] == "updating":
                del self._state.addons[work["addon"]]
            elif record is not None and record["state"] == "upgrading":
                record["state"] = "active"

    def _fail_nodes(self, task: Record, work: Record) -> None:
        """Let a work of machines fail for those that a fault names, before any of them is done."""
        if work["kind"] not in ("machines", "labels") or "failed" in work:
            return
        work["failed"] = {}
        for machine_id in work["machines"]:
            node = self._state.machines.get(machine_id, {}).get("node_name", "")

            def meant(fault: TaskFail, node: str = node) -> bool:
                return fault.node == node and fault.task_type in ("", task["task_type"])

            if node and (fault := self._faults.hit(TaskFail, meant)) is not None:
                work["failed"] = {"code": fault.code, "message": fault.message}
                task["results"][machine_id] = "failed"
                self._machines.give_up(machine_id)

    def _give_up_machines(self, task: Record) -> None:
        """What a failed task had begun with machines of a pool and not ended is not done."""
        if task["task_type"] in ("nodepool_remove_nodes", "nodepool_attach"):
            for machine_id, result in task["results"].items():
                if result == "initial":
                    self._machines.give_up(machine_id)

    def _tell(self, task: Record, level: str, action: str, message: str) -> None:
        timestamp = int(self._clock.now().timestamp() * 1000)
        event = {"level": level, "reason": action, "action": action, "message": message}
        task["events"].append({**event, "source": "ack", "timestamp": timestamp})

    def _work(self, task: Record, work: Record) -> float | None:
        """Do a part of one work; None when it is done, else when to look again."""
        passed = self._clock.simulated_seconds_since(work["since"])
        match work["kind"]:
            case "wait":
                return None if passed >= work["seconds"] else work["seconds"] - passed
            case "machines":
                return self._watch_machines(task, work)
            case "labels":
                return self._push_labels(task, work)
            case "install":
                return self._install(work, passed)
            case "upgrade":
                return self._upgrade(work, passed)
            case "uninstall":
                return self._uninstall(work)
            case "delete-pool":
                self._state.pools.pop(work["pool"], None)
        return None

    def _watch_machines(self, task: Record, work: Record) -> float | None:
        left = 0
        for machine_id in work["machines"]:
            if task["results"].get(machine_id) == "failed":
                continue
            state = self._state.machines.get(machine_id, {}).get("state", "gone")
            there = state == "running" if work["want"] == "running" else state in ("gone", "detached")
            # A machine that was asked to join and was removed meanwhile will not join any more.
            there = there or (work["want"] == "running" and state in ("gone", "detached", "removing"))
            task["results"][machine_id] = "success" if there else "initial"
            if not there:
                left += 1
                self.wake(("machine", machine_id))
        return _LOOK_AGAIN_SECONDS if left else None

    def _push_labels(self, task: Record, work: Record) -> float | None:
        """Write the pool's labels and taints to one node after the other."""
        pool = self._state.pools.get(task["target"]["id"])
        failed = {machine_id for machine_id, result in task["results"].items() if result == "failed"}
        rest = [machine_id for machine_id in work["machines"] if machine_id not in {*work["done"], *failed}]
        if pool is None or not rest:
            return None
        self._machines.write_labels(rest[0], pool["kubernetes_config"])
        work["done"].append(rest[0])
        task["results"][rest[0]] = "success"
        return _LABELS_SECONDS if len(rest) > 1 else None

    def _install(self, work: Record, passed: float) -> float | None:
        name = work["addon"]
        if not work.get("created"):
            if passed < _ADDON_SECONDS:
                return _ADDON_SECONDS - passed
            create_daemonsets(self._store, name, region=self._region)
            work["created"] = True
        if not settled(self._store, name):
            return _LOOK_AGAIN_SECONDS
        self._state.addons[name]["state"] = "active"
        return None

    def _uninstall(self, work: Record) -> float | None:
        delete_daemonsets(self._store, work["addon"])
        if not gone(self._store, work["addon"]):
            return _LOOK_AGAIN_SECONDS
        self._state.addons.pop(work["addon"], None)
        return None

    def _upgrade(self, work: Record, passed: float) -> float | None:
        name = work["addon"]
        if not work.get("created"):
            if passed < _ADDON_SECONDS:
                return _ADDON_SECONDS - passed
            roll_daemonsets(self._store, name, work["version"])
            work["created"] = True
            return _LOOK_AGAIN_SECONDS
        if not settled(self._store, name):
            return _LOOK_AGAIN_SECONDS
        self._state.addons[name].update(version=work["version"], state="active")
        if work["config"]:
            self._state.addons[name]["config"] = work["config"]
        return None


def _hits(fault: TaskFail, task: Record) -> bool:
    """Whether a task is the one that shall fail, and has come as far as it shall."""
    if fault.node or fault.task_type not in ("", task["task_type"]):
        return False
    done = list(task["results"].values()).count("success")
    done += sum(1 for work in task["works"] if work.get("created"))
    if not any(work["kind"] in ("labels", "machines", "install", "upgrade") for work in task["works"]):
        done = int(task["position"])
    return done >= fault.after
