"""The Job controller: makes a Job's pods, counts how they ended, and says when the Job is over.

A pod carries a finalizer until it is counted, so that a deleted pod is never counted twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpupools.simulator.clock import Clock, parse_stamp
from gpupools.simulator.errors import ApiError
from gpupools.simulator.journal import DELETED, Event
from gpupools.simulator.kinds import Object
from gpupools.simulator.records import (
    NORMAL,
    WARNING,
    Recorder,
    condition_is,
    controller_of,
    finished,
    owner_reference,
    ready,
    set_condition,
)
from gpupools.simulator.store import Store

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
_FIRST_BACKOFF_SECONDS = 10.0
_LAST_BACKOFF_SECONDS = 360.0
_RETRY_SECONDS = 5.0  # after the API server refused a pod
_BURST = 500  # pods made in one go

_JOB, _STRAY = "job", "stray"

Key = tuple[str, str, str]


class JobController:
    """Reconciles one Job at a time. Keys are ("job", namespace, name), and ("stray", namespace, name) for a pod
    that still carries the finalizer though its Job is gone.
    """

    name = "job-controller"
    kinds = ("Job", "Pod")

    def __init__(self, store: Store, clock: Clock, recorder: Recorder) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder

    def keys_of(self, event: Event) -> Iterable[Key]:
        """Name the Job itself, or the Job that owns the pod, and pods that lost their Job."""
        meta = event.object["metadata"]
        if event.kind == "Job":
            gone: Iterable[tuple[str, Object]] = ()
            if event.type == DELETED:
                gone = self._store.dependents(meta["uid"])
            strays = [(_STRAY, meta["namespace"], obj["metadata"]["name"]) for kind, obj in gone if kind == "Pod"]
            return [(_JOB, meta["namespace"], meta["name"]), *strays]
        owner = controller_of(event.object)
        if owner and owner["kind"] == "Job":
            return [(_JOB, meta["namespace"], owner["name"])]
        return [(_STRAY, meta["namespace"], meta["name"])] if TRACKING in (meta.get("finalizers") or ()) else []

    def all_keys(self) -> Iterable[Key]:
        """Name every Job, and every pod that waits to be counted."""
        return [
            *((_JOB, job["metadata"]["namespace"], job["metadata"]["name"]) for job in self._store.list("Job")),
            *(
                (_STRAY, pod["metadata"]["namespace"], pod["metadata"]["name"])
                for pod in self._store.list("Pod")
                if TRACKING in (pod["metadata"].get("finalizers") or ())
            ),
        ]

    def _let_go(self, namespace: str, name: str) -> None:
        """Take the finalizer off a pod whose Job is gone: nobody counts it any more."""
        pod = self._store.peek("Pod", namespace, name)
        if pod is None:
            return
        owner = controller_of(pod)
        job = self._store.peek("Job", namespace, owner["name"]) if owner and owner["kind"] == "Job" else None
        if job is None or (owner and job["metadata"]["uid"] != owner["uid"]):
            _release(self._store, [pod])

    def reconcile(self, key: Key) -> float | None:
        """Bring one Job's pods and status up to date."""
        what, namespace, name = key
        if what == _STRAY:
            self._let_go(namespace, name)
            return None
        job = self._store.peek("Job", namespace, name)
        if job is None:
            return None
        pods = [obj for kind, obj in self._store.dependents(job["metadata"]["uid"]) if kind == "Pod"]
        status: dict[str, Any] = {**(job.get("status") or {})}
        over = condition_is(status, "Complete") or condition_is(status, "Failed")
        suspended = bool(job["spec"].get("suspend"))
        if job["metadata"].get("deletionTimestamp"):
            _release(self._store, pods)
            return None
        self._count(job, pods, status, counting=not over and not suspended)
        if over:
            return self._after_the_end(job)
        status.setdefault("conditions", [])
        status["conditions"] = [dict(condition) for condition in status["conditions"]]
        again = None
        if suspended:
            self._suspend(job, pods, status)
        else:
            again = self._drive(job, pods, status)
        self._write(job, status)
        return again

    # Counting

    def _count(self, job: Object, pods: list[Object], status: dict[str, Any], *, counting: bool) -> None:
        """Move ended pods from the finalizer's care into the status's numbers, written before they are let go."""
        ended = [pod for pod in pods if TRACKING in (pod["metadata"].get("finalizers") or ()) and _counts_as_ended(pod)]
        if not ended:
            return
        if counting:
            indexes = set(_indexes(status.get("completedIndexes", "")))
            for pod in ended:
                if (pod.get("status") or {}).get("phase") == "Succeeded":
                    index = _index_of(pod)
                    if index is not None and index in indexes:
                        continue
                    if index is not None:
                        indexes.add(index)
                    status["succeeded"] = status.get("succeeded", 0) + 1
                else:
                    status["failed"] = status.get("failed", 0) + 1
            if indexes:
                status["completedIndexes"] = _ranges(indexes)
            self._write(job, status)
        _release(self._store, ended)

    # The three ways of a Job

    def _suspend(self, job: Object, pods: list[Object], status: dict[str, Any]) -> None:
        for pod in pods:
            if not finished(pod) and not pod["metadata"].get("deletionTimestamp"):
                self._delete(job, pod)
        if not condition_is(status, "Suspended"):
            self._recorder.event(job, NORMAL, "Suspended", "Job suspended", component=self.name)
        stamp = self._clock.stamp()
        set_condition(
            status, "Suspended", "True", stamp, reason="JobSuspended", message="Job suspended", lastProbeTime=stamp
        )
        status.pop("startTime", None)
        status.update(active=0, ready=0, terminating=0)

    def _drive(self, job: Object, pods: list[Object], status: dict[str, Any]) -> float | None:
        spec, stamp = job["spec"], self._clock.stamp()
        if condition_is(status, "Suspended"):
            set_condition(
                status, "Suspended", "False", stamp, reason="JobResumed", message="Job resumed", lastProbeTime=stamp
            )
            self._recorder.event(job, NORMAL, "Resumed", "Job resumed", component=self.name)
        status.setdefault("startTime", stamp)
        active = [pod for pod in pods if not finished(pod) and not pod["metadata"].get("deletionTimestamp")]
        succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
        again = None
        if why := self._failure(job, active, failed, status["startTime"]):
            self._end(job, active, status, "Failed", *why)
            active = []
        elif self._complete(spec, active, succeeded):
            message = "Reached expected number of succeeded pods"
            self._end(job, active, status, "Complete", "CompletionsReached", message)
            active = []
        else:
            active, again = self._fill(job, pods, active, status)
        status["active"] = len(active)
        status["ready"] = sum(1 for pod in active if ready(pod))
        status["terminating"] = sum(1 for pod in pods if pod["metadata"].get("deletionTimestamp") and not finished(pod))
        status["uncountedTerminatedPods"] = {}
        return again

    def _complete(self, spec: Object, active: list[Object], succeeded: int) -> bool:
        completions = spec.get("completions")
        if completions is None:
            # A work queue: one success means that the work is done, once the others have ended too.
            return succeeded > 0 and not active
        return bool(succeeded >= completions)

    def _failure(self, job: Object, active: list[Object], failed: int, start: str) -> tuple[str, str] | None:
        spec = job["spec"]
        limit = spec.get("backoffLimit", 6)
        restarts = 0
        if spec["template"]["spec"].get("restartPolicy") == "OnFailure":
            restarts = sum(
                container.get("restartCount", 0)
                for pod in active
                for container in (pod.get("status") or {}).get("containerStatuses") or ()
            )
        if failed > limit or (restarts and restarts > limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and self._clock.simulated_seconds_since(start) >= deadline:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def _end(
        self, job: Object, active: list[Object], status: dict[str, Any], type_: str, reason: str, message: str
    ) -> None:
        stamp = self._clock.stamp()
        for pod in active:
            self._delete(job, pod)
        set_condition(status, type_, "True", stamp, reason=reason, message=message, lastProbeTime=stamp)
        if type_ == "Complete":
            status["completionTime"] = stamp
            self._recorder.event(job, NORMAL, "Completed", "Job completed", component=self.name)
        else:
            self._recorder.event(job, WARNING, reason, message, component=self.name)

    def _fill(
        self, job: Object, pods: list[Object], active: list[Object], status: dict[str, Any]
    ) -> tuple[list[Object], float | None]:
        """Make or remove pods until as many run as shall; returns the active ones and when to look again."""
        spec = job["spec"]
        succeeded = status.get("succeeded", 0)
        wanted = spec.get("parallelism", 1)
        completions = spec.get("completions")
        if completions is not None:
            wanted = min(wanted, completions - succeeded)
        elif succeeded:
            wanted = len(active)
        for pod in active[max(0, wanted) :]:
            self._delete(job, pod)
        active = active[: max(0, wanted)]
        deadline = self._until_deadline(spec, status["startTime"])
        if len(active) >= wanted:
            return active, deadline
        wait = self._backoff(pods, status)
        if wait > 0:
            return active, wait if deadline is None else min(wait, deadline)
        free_indexes = self._free_indexes(spec, active, status)
        for _ in range(min(wanted - len(active), _BURST)):
            made = self._make(job, next(free_indexes) if free_indexes is not None else None)
            if made is None:
                return active, _RETRY_SECONDS
            active = [*active, made]
        return active, deadline

    def _until_deadline(self, spec: Object, start: str) -> float | None:
        if spec.get("activeDeadlineSeconds") is None:
            return None
        return max(0.05, float(spec["activeDeadlineSeconds"]) - self._clock.simulated_seconds_since(start))

    def _backoff(self, pods: list[Object], status: dict[str, Any]) -> float:
        """Return the simulated seconds to wait before replacing failed pods: 10, 20, 40 ... since the last failure."""
        failed = status.get("failed", 0)
        times = [_ended_at(pod) for pod in pods if (pod.get("status") or {}).get("phase") == "Failed"]
        if not failed or not times:
            return 0.0
        delay = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2 ** min(failed - 1, 10))
        return float(delay - self._clock.simulated_seconds_since(max(times, key=parse_stamp)))

    def _free_indexes(self, spec: Object, active: list[Object], status: dict[str, Any]) -> Iterator[int] | None:
        if spec.get("completionMode") != "Indexed":
            return None
        taken = {_index_of(pod) for pod in active} | set(_indexes(status.get("completedIndexes", "")))
        return iter([index for index in range(spec.get("completions", 0)) if index not in taken])

    # Pods

    def _make(self, job: Object, index: int | None) -> Object | None:
        meta, template = job["metadata"], job["spec"]["template"]
        template_meta = template.get("metadata") or {}
        names = {
            "batch.kubernetes.io/controller-uid": meta["uid"],
            "batch.kubernetes.io/job-name": meta["name"],
            "controller-uid": meta["uid"],
            "job-name": meta["name"],
        }
        spec = template["spec"]
        annotations = dict(template_meta.get("annotations") or {})
        prefix = meta["name"]
        if index is not None:
            names[INDEX] = annotations[INDEX] = str(index)
            prefix = f"{meta['name']}-{index}"
            env = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
            containers = [{**container, "env": [*container.get("env", ()), env]} for container in spec["containers"]]
            spec = {**spec, "hostname": prefix, "containers": containers}
        pod = {
            "metadata": {
                "generateName": f"{prefix[:57]}-",
                "namespace": meta["namespace"],
                "labels": {**(template_meta.get("labels") or {}), **names},
                **({"annotations": annotations} if annotations else {}),
                "ownerReferences": [owner_reference(job)],
                "finalizers": [TRACKING],
            },
            "spec": spec,
        }
        try:
            made = self._store.create("Pod", pod)
        except ApiError as error:
            self._recorder.event(job, WARNING, "FailedCreate", f"Error creating: {error.message}", component=self.name)
            return None
        self._recorder.event(
            job, NORMAL, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}", component=self.name
        )
        return made

    def _delete(self, job: Object, pod: Object) -> None:
        meta = pod["metadata"]
        self._store.delete("Pod", meta["namespace"], meta["name"])
        _release(self._store, [pod])
        self._recorder.event(job, NORMAL, "SuccessfulDelete", f"Deleted pod: {meta['name']}", component=self.name)

    def _after_the_end(self, job: Object) -> float | None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None:
            return None
        ends = (c["lastTransitionTime"] for c in job["status"]["conditions"] if c["type"] in ("Complete", "Failed"))
        left = ttl - self._clock.simulated_seconds_since(next(ends))
        if left > 0:
            return float(left)
        self._store.delete("Job", *_key(job), propagation="Foreground")
        return None

    def _write(self, job: Object, status: dict[str, Any]) -> None:
        def edit(current: Object) -> None:
            current["status"] = status

        self._store.change("Job", *_key(job), edit, subresource="status")


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _release(store: Store, pods: Iterable[Object]) -> None:
    """Take the tracking finalizer off pods; those that wait to be deleted are gone then."""
    for pod in pods:
        meta = pod["metadata"]
        current = store.peek("Pod", meta["namespace"], meta["name"])
        if current is None or current["metadata"]["uid"] != meta["uid"]:
            continue
        if TRACKING in (current["metadata"].get("finalizers") or ()):

            def edit(obj: Object) -> None:
                obj["metadata"]["finalizers"].remove(TRACKING)

            store.change("Pod", meta["namespace"], meta["name"], edit)


def _counts_as_ended(pod: Object) -> bool:
    """A pod on its way out counts as failed at once, as it may never come to say so itself."""
    return finished(pod) or bool(pod["metadata"].get("deletionTimestamp"))


def _index_of(pod: Object) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def _ended_at(pod: Object) -> str:
    times = [
        state["terminated"]["finishedAt"]
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        if "terminated" in (state := container.get("state") or {})
    ]
    return max(times, key=parse_stamp) if times else str(pod["metadata"]["creationTimestamp"])


def _indexes(text: str) -> list[int]:
    """Read ``0-2,5`` as 0, 1, 2, 5."""
    indexes: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.extend(range(int(first), int(last or first) + 1))
    return indexes


def _ranges(indexes: Iterable[int]) -> str:
    """Write 0, 1, 2, 5 as ``0-2,5``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
