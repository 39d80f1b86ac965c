"""Builds the containers of a pod that a node took in: environment, program, restart policy, image, logs.

It fills a PodRun; who lets it run and stores what becomes of it is the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from gpupools.domain.gpus import Pod
from gpupools.domain.quantities import parse_quantity
from gpupools.simulator.addons import ALL_DAEMONS
from gpupools.simulator.clock import Clock
from gpupools.simulator.containerenv import environment
from gpupools.simulator.containers import Container
from gpupools.simulator.kinds import Object
from gpupools.simulator.logs import LogBook
from gpupools.simulator.podruns import PodRun
from gpupools.simulator.programs import Situation, program
from gpupools.simulator.records import Recorder, controller_of
from gpupools.simulator.shell import Step
from gpupools.simulator.store import Store


class PodBuilder:
    """Makes containers for the kubelets of all nodes; images stay on their node."""

    def __init__(self, store: Store, clock: Clock, recorder: Recorder, logs: LogBook) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._logs = logs
        self._images: dict[str, set[str]] = {}

    def build(self, raw: Object, pod: Pod, run: PodRun) -> None:
        """Give a run its containers, taken up from the stored status where there is one."""
        spec, status = raw["spec"], raw.get("status") or {}
        for place, kind, listed in (
            (run.init, "initContainerStatuses", spec.get("initContainers") or ()),
            (run.main, "containerStatuses", spec["containers"]),
        ):
            saved = {entry["name"]: entry for entry in status.get(kind) or ()}
            for index, declared in enumerate(listed):
                container = self._container(raw, pod, run, declared, index, init=place is run.init)
                place.append(container)
                if declared["name"] in saved and status.get("startTime"):
                    printed = len(self._logs.lines(run.uid, declared["name"]))
                    container.restore(saved[declared["name"]], printed)

    def _container(self, raw: Object, pod: Pod, run: PodRun, declared: Object, index: int, *, init: bool) -> Container:
        policy = raw["spec"].get("restartPolicy", "Always")
        sidecar = init and declared.get("restartPolicy") == "Always"
        uid, asks = run.uid, pod.ask.init_containers if init else pod.ask.containers
        devices = run.grant.env(pod, asks[index]) if run.grant is not None else {}
        env = environment(self._store, raw, declared, node_ip=run.node_ip, pod_ip=run.pod_ip, devices=devices)

        daemon = daemon_of(raw)

        def situation(started: datetime) -> Situation:
            return Situation(
                image=declared["image"],
                command=tuple(declared.get("command") or ()),
                args=tuple(declared.get("args") or ()),
                env=env,
                cards=run.visible_cards(by_daemon=bool(daemon), granted=bool(devices)),
                started=started,
                may_end=policy != "Always",
                memory_limit_bytes=_memory_limit(declared),
                daemon=daemon,
            )

        def start(started: datetime) -> Iterator[Step]:
            return program(situation(started))

        run.situations[declared["name"]] = situation

        def restart_after(code: int) -> bool:
            if init and not sidecar:
                return code != 0 and policy != "Never"
            return sidecar or policy == "Always" or (policy == "OnFailure" and code != 0)

        failed = run.grant.failed if run.grant is not None and devices else ""
        return Container(
            name=declared["name"],
            image=declared["image"],
            pod_uid=uid,
            pod_name=f"{raw['metadata']['name']}_{raw['metadata']['namespace']}",
            speed=self._clock.speed,
            start_program=start,
            restart_after=restart_after,
            images=self._images.setdefault(run.node, set()),
            tell=self._teller(raw, run.node),
            open_log=lambda name: self._logs.start(uid, name),
            print_line=lambda name, line, at: self._logs.write(uid, name, line or "\n", at),
            close_log=lambda name: self._logs.end(uid, name),
            start_error=_start_error(failed),
            pull_policy=declared.get("imagePullPolicy", "IfNotPresent"),
            is_init=init,
            sidecar=sidecar,
        )

    def _teller(self, raw: Object, node: str) -> Callable[[str, str, str], None]:
        def tell(kind: str, reason: str, message: str) -> None:
            self._recorder.event(raw, kind, reason, message, component="kubelet", host=node)

        return tell


def daemon_of(pod: Object) -> str:
    """Return the name of the GPU DaemonSet that a pod belongs to, empty for any other pod."""
    owner = controller_of(pod)
    return str(owner["name"]) if owner and owner["kind"] == "DaemonSet" and owner["name"] in ALL_DAEMONS else ""


def _memory_limit(declared: Object) -> int:
    limit = ((declared.get("resources") or {}).get("limits") or {}).get("memory")
    return parse_quantity(limit) if limit else 0


def _start_error(failed: str) -> str:
    if not failed:
        return ""
    return (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        "unable to start container process: error during container init: error running prestart hook: "
        f"nvidia-container-cli: device error: {failed}: unknown"
    )
