"""The kubelets of all nodes: they admit bound pods, give them their cards, run their containers and report on them.

A pod's run lives in memory; after a restart of the cluster it is taken up again from the stored status and log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpupools.domain import objects
from gpupools.domain.annotations import ASSIGNED, TOPOLOGY_ALLOCATION
from gpupools.domain.asks import limit_of
from gpupools.domain.gpus import Pod
from gpupools.domain.modes import GPU_MEM, MODE_LABEL
from gpupools.domain.quantities import parse_quantity
from gpupools.simulator.addons import MPS_CONTROL
from gpupools.simulator.cards import DEVICE_RESOURCES, Grant, all_cards, grant, wants_cards
from gpupools.simulator.clock import Clock, parse_stamp
from gpupools.simulator.containers import stamp
from gpupools.simulator.errors import ApiError, bad_request
from gpupools.simulator.faults import Fault, Faults, NodeDown, StuckPod
from gpupools.simulator.hardware import hardware_of_node
from gpupools.simulator.journal import DELETED, Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.logs import LogBook
from gpupools.simulator.machines import machine_id_of
from gpupools.simulator.nodes import has_kubelet
from gpupools.simulator.podbuilder import PodBuilder, daemon_of
from gpupools.simulator.podruns import STOP_SECONDS, PodRun
from gpupools.simulator.podverbs import container_of
from gpupools.simulator.programs import Situation
from gpupools.simulator.records import NORMAL, WARNING, Recorder, condition_is, finished, ready
from gpupools.simulator.store import Store

Key = tuple[str, str]


class Kubelet:
    """Reconciles one bound pod at a time; keys are (namespace, name)."""

    name = "kubelet"
    kinds = ("Pod", "Node")

    def __init__(
        self, store: Store, clock: Clock, recorder: Recorder, logs: LogBook, faults: Faults, *, unit_mib: int = 1024
    ) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._logs = logs
        self._faults = faults
        self._unit_mib = unit_mib
        self._builder = PodBuilder(store, clock, recorder, logs)
        self._runs: dict[str, PodRun] = {}
        self._uids: dict[Key, str] = {}
        self._on_node: dict[str, set[str]] = {}

    def keys_of(self, event: Event) -> Iterable[Key]:
        """Name a bound pod, and all pods of a node that came, went or became ready."""
        meta = event.object["metadata"]
        if event.kind == "Pod":
            if daemon_of(event.object) == MPS_CONTROL:
                return [_key(pod) for pod in self._store.pods_on(event.object["spec"].get("nodeName", ""))]
            return [(meta["namespace"], meta["name"])] if event.object["spec"].get("nodeName") else []
        was_ready = event.previous is not None and _node_ready(event.previous.object)
        if event.type == DELETED or _node_ready(event.object) != was_ready:
            return [_key(pod) for pod in self._store.pods_on(meta["name"])]
        return []

    def all_keys(self) -> Iterable[Key]:
        """Name every bound pod."""
        return [_key(pod) for pod in self._store.list("Pod") if pod["spec"].get("nodeName")]

    def reconcile(self, key: Key) -> float | None:
        """Let one pod go on, and store what became of it."""
        pod = self._store.peek("Pod", *key)
        uid = pod["metadata"]["uid"] if pod else ""
        if self._uids.get(key, uid) != uid:
            self._forget(key)
        if pod is None or not pod["spec"].get("nodeName"):
            return None
        node = self._store.peek("Node", "", pod["spec"]["nodeName"])
        if node is None:
            # Nobody is left to end it: what the pod garbage collector does for pods of a node that is gone.
            self._store.delete("Pod", *key, grace_seconds=0)
            return None
        if not has_kubelet(node) or self._dead(node["metadata"]["name"]):
            return None
        self._uids[key] = uid
        if finished(pod):
            self._finish(pod)
            return None
        now = self._clock.now()
        run = self._runs.get(uid)
        if run is None:
            if (
                not _node_ready(node)
                and not pod["spec"].get("hostNetwork")
                and not pod["metadata"].get("deletionTimestamp")
            ):
                return 1.0
            run = self._admit(pod, node, now)
            if run is None:
                return None
        if pod["metadata"].get("deletionTimestamp"):
            return self._stop(pod, run, now)
        self._follow_mps(pod, run, node, now)
        limit = _deadline(pod, run, self._clock.speed)
        if limit is not None and now >= limit:
            self._fail_for_deadline(pod, run, now)
            return None
        run.advance(now)
        self._report(pod, run, now)
        due = min((moment for moment in (run.next_deadline(now), limit) if moment is not None), default=None)
        return None if due is None else max(0.0, (due - self._clock.now()).total_seconds() * self._clock.speed)

    def keys_of_fault(self, fault: Fault) -> Iterable[Key]:
        """Name the pods that a fault which begins or ends concerns."""
        if isinstance(fault, NodeDown):
            return [_key(pod) for pod in self._store.pods_on(fault.node)]
        return [(fault.namespace, fault.pod)] if isinstance(fault, StuckPod) else []

    def situation(self, namespace: str, name: str, container: str) -> Situation:
        """Return what a running container can see, for exec; raise as the API server does when there is none."""
        pod = self._store.stored("Pod", namespace, name).object
        wanted = container_of(pod, container)
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {name} does not have a host assigned")
        if self._dead(pod["spec"]["nodeName"]):
            raise ApiError(500, "InternalError", f"error dialing backend: dial tcp {_host(pod)}:10250: i/o timeout")
        run = self._runs.get(pod["metadata"]["uid"])
        running = next((c for c in run.containers if c.name == wanted and c.running), None) if run else None
        if run is None or running is None or running.started is None:
            message = f'unable to upgrade connection: container not found ("{wanted}")'
            raise ApiError(500, "InternalError", message)
        return run.situations[wanted](self._clock.now())

    def _dead(self, node: str) -> bool:
        down = self._faults.node_down(node)
        return down is not None and down.how == "unreachable"

    def _follow_mps(self, raw: Object, run: PodRun, node: Object, now: datetime) -> None:
        """Clients of the MPS control daemon die with it: when its pod restarts, goes or is replaced."""
        mode = (node["metadata"].get("labels") or {}).get(MODE_LABEL, "")
        if run.grant is None or mode != "mps" or not limit_of(run.asked, GPU_MEM):
            return
        daemon = next(
            (pod for pod in self._store.pods_on(run.node) if daemon_of(pod) == MPS_CONTROL and ready(pod)), None
        )
        known, run.mps_daemon = run.mps_daemon, daemon["metadata"]["uid"] if daemon else ""
        if known == run.mps_daemon or not known:
            return
        words = "CUDA error 805: MPS client failed to connect to the MPS control daemon or the MPS server"
        for container in run.main:
            container.crash(now, words, 1)

    # Beginning

    def _admit(self, raw: Object, node: Object, now: datetime) -> PodRun | None:
        """Take a pod in: check its devices, give it cards and an address, prepare its containers."""
        pod = objects.convert("Pod", raw)
        assert isinstance(pod, Pod)  # noqa: S101  # convert returns by kind
        started = (raw.get("status") or {}).get("startTime")
        if not started and (problem := self._device_problem(pod, node)):
            self._refuse(raw, now, problem)
            return None
        given = self._grant(pod, node)
        run = PodRun(
            uid=pod.uid,
            node=node["metadata"]["name"],
            asked=pod.ask,
            node_ip=_address(node),
            pod_ip=self._pod_ip(raw, node),
            admitted=parse_stamp(started) if started else now,
            speed=self._clock.speed,
            grant=given,
        )
        hardware = hardware_of_node(node)
        if daemon_of(raw) and hardware is not None:
            run.node_cards = all_cards(hardware, machine_id_of(node))
        self._runs[pod.uid] = run
        self._on_node.setdefault(run.node, set()).add(pod.uid)
        self._builder.build(raw, pod, run)
        if given is not None and not given.failed:
            self._mark_assigned(raw)
        return run

    def _device_problem(self, pod: Pod, node: Object) -> str:
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        if not wants_cards(pod):
            return ""
        others = [self._runs[uid].asked for uid in self._on_node.get(node["metadata"]["name"], ()) if uid != pod.uid]
        for resource in DEVICE_RESOURCES:
            wanted = limit_of(pod.ask, resource)
            if not wanted:
                continue
            taken = sum(limit_of(other, resource) for other in others)
            available = max(0, parse_quantity(allocatable.get(resource, "0")) - taken)
            if wanted > available:
                return (
                    f"Pod was rejected: Allocate failed due to requested number of devices unavailable for {resource}. "
                    f"Requested: {wanted}, Available: {available}, which is unexpected"
                )
        return ""

    def _refuse(self, raw: Object, now: datetime, problem: str) -> None:
        def edit(pod: Object) -> None:
            pod["status"] = {
                **pod.get("status", {}),
                "phase": "Failed",
                "reason": "UnexpectedAdmissionError",
                "message": problem,
                "startTime": stamp(now),
            }

        self._store.change("Pod", *_key(raw), edit, subresource="status")
        self._recorder.event(
            raw, WARNING, "UnexpectedAdmissionError", problem, component="kubelet", host=raw["spec"]["nodeName"]
        )

    def _grant(self, pod: Pod, node: Object) -> Grant | None:
        hardware = hardware_of_node(node)
        if hardware is None or not hardware.cards or not wants_cards(pod):
            return None
        hardware = replace(hardware, unit_mib=self._unit_mib)
        runs = [self._runs[uid] for uid in self._on_node.get(node["metadata"]["name"], ())]
        taken = {
            index for run in runs if run.grant is not None for index, units in run.grant.units.items() if not units
        }
        mode = (node["metadata"].get("labels") or {}).get(MODE_LABEL, "")
        return grant(pod, hardware=hardware, machine_id=machine_id_of(node), mode=mode, taken=taken)

    def _pod_ip(self, raw: Object, node: Object) -> str:
        known = (raw.get("status") or {}).get("podIP")
        if known:
            return str(known)
        if raw["spec"].get("hostNetwork"):
            return _address(node)
        prefix = (node["spec"].get("podCIDR") or "10.64.0.0/24").rsplit(".", 1)[0]
        used = {self._runs[uid].pod_ip for uid in self._on_node.get(node["metadata"]["name"], ())}
        return next(ip for number in range(2, 255) if (ip := f"{prefix}.{number}") not in used)

    def _mark_assigned(self, raw: Object) -> None:
        """What the device plugin writes once it found the allocation that the scheduler made."""
        notes = raw["metadata"].get("annotations") or {}
        changes: dict[str, str] = {}
        if notes.get(ASSIGNED) == "false":
            changes[ASSIGNED] = "true"
        if document := notes.get(TOPOLOGY_ALLOCATION):
            read = json.loads(document)
            if read.get("assigned") is False:
                changes[TOPOLOGY_ALLOCATION] = json.dumps({**read, "assigned": True}, separators=(",", ":"))
        if changes:
            self._store.write_parts("Pod", *_key(raw), metadata={"annotations": {**notes, **changes}})

    def _report(self, raw: Object, run: PodRun, now: datetime) -> None:
        """Store the pod's status when it changed."""
        current = self._store.peek("Pod", *_key(raw))
        if current is None:
            return
        status = run.status(current.get("status") or {}, now)
        if status != current.get("status"):
            self._store.write_parts("Pod", *_key(raw), status=status)

    # Ending

    def _fail_for_deadline(self, raw: Object, run: PodRun, now: datetime) -> None:
        """End a pod that was active for longer than it says that it may be."""
        run.kill(now, code=137)
        words = {
            "reason": "DeadlineExceeded",
            "message": "Pod was active on the node longer than the specified deadline",
        }
        status = {**run.status(raw.get("status") or {}, now), "phase": "Failed", **words}
        self._store.write_parts("Pod", *_key(raw), status=status)
        self._recorder.event(raw, NORMAL, "DeadlineExceeded", words["message"], component="kubelet", host=run.node)
        self._release(run)

    def _stop(self, raw: Object, run: PodRun, now: datetime) -> float | None:
        """End a pod that is being deleted, at the latest when its grace is over."""
        meta = raw["metadata"]
        last = parse_stamp(meta["deletionTimestamp"])
        if run.stopping_at is None:
            for container in run.containers:
                if container.running:
                    message = f"Stopping container {container.name}"
                    self._recorder.event(raw, NORMAL, "Killing", message, component="kubelet", host=run.node)
            soon = now + timedelta(seconds=STOP_SECONDS / self._clock.speed)
            run.stopping_at = last if _ignores_signals(raw) else min(soon, last)
        stop_at = min(run.stopping_at, last)
        if self._faults.stuck(*_key(raw)):
            return None
        if now < stop_at:
            run.advance(now)
            return max(0.01, (stop_at - now).total_seconds() * self._clock.speed)
        run.kill(now, code=137 if stop_at >= last and _ignores_signals(raw) else 143)
        self._report(raw, run, now)
        self._release(run)
        current = self._store.peek("Pod", *_key(raw))
        if current is not None and current["metadata"]["uid"] == run.uid:
            self._store.delete("Pod", *_key(raw), grace_seconds=0)
        return None

    def _finish(self, raw: Object) -> None:
        """Give back what an ended pod held; let it go when it is being deleted."""
        run = self._runs.get(raw["metadata"]["uid"])
        if run is not None:
            self._release(run)
        if raw["metadata"].get("deletionTimestamp"):
            self._store.delete("Pod", *_key(raw), grace_seconds=0)

    def _release(self, run: PodRun) -> None:
        self._runs.pop(run.uid, None)
        self._on_node.get(run.node, set()).discard(run.uid)

    def _forget(self, key: Key) -> None:
        """Forget a pod that is gone, with its log."""
        uid = self._uids.pop(key)
        if uid in self._runs:
            self._release(self._runs[uid])
        self._logs.forget(uid)


def _key(pod: Object) -> Key:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _deadline(pod: Object, run: PodRun, speed: float) -> datetime | None:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else run.admitted + timedelta(seconds=seconds / speed)


def _host(pod: Object) -> str:
    return str((pod.get("status") or {}).get("hostIP", ""))


def _node_ready(node: Object) -> bool:
    return condition_is(node.get("status") or {}, "Ready")


def _address(node: Object) -> str:
    addresses: list[dict[str, Any]] = (node.get("status") or {}).get("addresses") or []
    return next((str(a["address"]) for a in addresses if a["type"] == "InternalIP"), "")


def _ignores_signals(pod: Object) -> bool:
    """Whether a pod's program catches the signal to end: it then gets its whole grace."""
    words = (word for container in pod["spec"]["containers"] for word in container.get("command") or ())
    return any("trap" in word.split() for word in words)
