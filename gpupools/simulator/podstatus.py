"""What a pod's STATUS, READY and RESTARTS columns read as: the one word that the API server makes of many fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpupools.simulator.kinds import Object


def _restartable(pod: Object) -> set[str]:
    """Return the names of sidecars: init containers that keep running."""
    return {
        container["name"]
        for container in pod.get("spec", {}).get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }


def _stopped_word(state: Object) -> str:
    if state.get("reason"):
        return str(state["reason"])
    if state.get("signal"):
        return f"Signal:{state['signal']}"
    return f"ExitCode:{state.get('exitCode', 0)}"


def _init_word(pod: Object) -> str:
    """Return ``Init:...`` while init containers are not done, else an empty string."""
    statuses = pod.get("status", {}).get("initContainerStatuses") or ()
    total = len(pod.get("spec", {}).get("initContainers") or ())
    sidecars = _restartable(pod)
    for index, entry in enumerate(statuses):
        state = entry.get("state") or {}
        stopped, waiting = state.get("terminated"), state.get("waiting")
        if stopped and stopped.get("exitCode", 0) == 0:
            continue
        if entry["name"] in sidecars and entry.get("started"):
            continue
        if stopped:
            return f"Init:{_stopped_word(stopped)}"
        if waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return ""


def status_word(pod: Object) -> str:
    """Return the STATUS column."""
    status = pod.get("status", {})
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    init = _init_word(pod)
    running = False
    if init:
        word = init
    else:
        for entry in reversed(status.get("containerStatuses") or ()):
            state = entry.get("state") or {}
            if (state.get("waiting") or {}).get("reason"):
                word = state["waiting"]["reason"]
            elif state.get("terminated"):
                word = _stopped_word(state["terminated"])
            elif entry.get("ready") and state.get("running") is not None:
                running = True
        if word == "Completed" and running:
            ready = any(
                entry.get("type") == "Ready" and entry.get("status") == "True"
                for entry in status.get("conditions") or ()
            )
            word = "Running" if ready else "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return word


def pod_cells(pod: Object, age: str, since: Callable[[str], str]) -> list[Any]:
    """Return a pod's row; ``since`` words how long ago a time was."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    sidecars = _restartable(pod)
    entries = list(status.get("containerStatuses") or ())
    entries += [e for e in status.get("initContainerStatuses") or () if e["name"] in sidecars]
    total = len(spec.get("containers") or ()) + len(sidecars)
    ready = sum(bool(entry.get("ready")) and (entry.get("state") or {}).get("running") is not None for entry in entries)
    restarts = sum(entry.get("restartCount", 0) for entry in entries)
    ends = [
        entry["lastState"]["terminated"]["finishedAt"]
        for entry in entries
        if ((entry.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
    ]
    restarts_text: Any = f"{restarts} ({since(max(ends))} ago)" if restarts and ends else str(restarts)
    addresses = status.get("podIPs") or ()
    gates = spec.get("readinessGates") or ()
    true = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    met = sum(gate.get("conditionType") in true for gate in gates)
    return [
        pod["metadata"]["name"],
        f"{ready}/{total}",
        status_word(pod),
        restarts_text,
        age,
        (addresses[0].get("ip") if addresses else status.get("podIP")) or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{met}/{len(gates)}" if gates else "<none>",
    ]
