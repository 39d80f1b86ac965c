"""The Job controller: makes a Job's pods, counts how they ended, and says when the Job is over.

A pod carries a finalizer until it is counted, so that a deleted pod is never counted twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpupools.simulator import jobpolicies as policies
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
# What a Job is on its way to, until the last of its pods is gone -> the end that it comes to then.
_ENDS = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
_FIRST_BACKOFF_SECONDS = 10.0
_LAST_BACKOFF_SECONDS = 360.0
_RETRY_SECONDS = 5.0  # after the API server refused a pod
_BURST = 500  # pods made in one go

_JOB, _STRAY = "job", "stray"
_INDEX_SETS = ("completedIndexes", "failedIndexes")

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
        status["conditions"] = [dict(condition) for condition in status.get("conditions") or ()]
        self._count(job, pods, status, counting=not over and not suspended)
        if over:
            return self._after_the_end(job)
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
        spec = job["spec"]
        tracked = [pod for pod in pods if TRACKING in (pod["metadata"].get("finalizers") or ())]
        ended = [pod for pod in tracked if policies.counts_as_ended(spec, pod)]
        if not ended:
            return
        if counting:
            done, failed = (set(policies.indexes(status.get(name, ""))) for name in _INDEX_SETS)
            for pod in ended:
                index = policies.index_of(pod)
                if (pod.get("status") or {}).get("phase") == "Succeeded":
                    if index is not None and index in done:
                        continue
                    if index is not None:
                        done.add(index)
                    status["succeeded"] = status.get("succeeded", 0) + 1
                elif self._count_failure(spec, pod, status) and index is not None and index not in done:
                    failed.add(index)
            for name, found in zip(_INDEX_SETS, (done, failed), strict=True):
                if found or name in status:
                    status[name] = policies.ranges(found)
            self._write(job, status)
        _release(self._store, ended)

    def _count_failure(self, spec: Object, pod: Object, status: dict[str, Any]) -> bool:
        """Count a failed pod as the Job's policy wants it; return whether its index has failed for good."""
        action, why = policies.verdict(spec, pod)
        if action == policies.IGNORE:
            return False
        status["failed"] = status.get("failed", 0) + 1
        if action == policies.FAIL_JOB and not _on_its_way(status):
            self._say(status, "FailureTarget", "PodFailurePolicy", why)
        limit = spec.get("backoffLimitPerIndex")
        if limit is None:
            return False
        failures = int((pod["metadata"].get("annotations") or {}).get(policies.INDEX_FAILURES, "0")) + 1
        return action == policies.FAIL_INDEX or failures > limit

    # The three ways of a Job

    def _suspend(self, job: Object, pods: list[Object], status: dict[str, Any]) -> None:
        for pod in pods:
            if not finished(pod) and not pod["metadata"].get("deletionTimestamp"):
                self._delete(job, pod)
        if not condition_is(status, "Suspended"):
            self._recorder.event(job, NORMAL, "Suspended", "Job suspended", component=self.name)
        self._say(status, "Suspended", "JobSuspended", "Job suspended")
        status.pop("startTime", None)
        status.update(active=0, ready=0, terminating=0)

    def _drive(self, job: Object, pods: list[Object], status: dict[str, Any]) -> float | None:
        spec = job["spec"]
        if condition_is(status, "Suspended"):
            self._say(status, "Suspended", "JobResumed", "Job resumed", value="False")
            self._recorder.event(job, NORMAL, "Resumed", "Job resumed", component=self.name)
        status.setdefault("startTime", self._clock.stamp())
        active = [pod for pod in pods if not finished(pod) and not pod["metadata"].get("deletionTimestamp")]
        again = None
        if not _on_its_way(status):
            if why := self._failure(job, active, status):
                self._say(status, "FailureTarget", *why)
            elif why := self._success(spec, active, status):
                self._say(status, "SuccessCriteriaMet", *why)
        if _on_its_way(status):
            self._end(job, active, status)
            active = []
        else:
            active, again = self._fill(job, pods, active, status)
        status["active"] = len(active)
        status["ready"] = sum(1 for pod in active if ready(pod))
        status["terminating"] = sum(1 for pod in pods if pod["metadata"].get("deletionTimestamp") and not finished(pod))
        status["uncountedTerminatedPods"] = {}
        return again

    def _say(self, status: dict[str, Any], type_: str, reason: str, message: str, *, value: str = "True") -> None:
        stamp = self._clock.stamp()
        set_condition(status, type_, value, stamp, reason=reason, message=message, lastProbeTime=stamp)

    def _success(self, spec: Object, active: list[Object], status: dict[str, Any]) -> tuple[str, str] | None:
        if why := policies.success(spec, policies.indexes(status.get("completedIndexes", ""))):
            return "SuccessPolicy", why
        completions, succeeded = spec.get("completions"), status.get("succeeded", 0)
        # A work queue: one success means that the work is done, once the others have ended too.
        done = succeeded > 0 and not active if completions is None else succeeded >= completions
        return ("CompletionsReached", "Reached expected number of succeeded pods") if done else None

    def _failure(self, job: Object, active: list[Object], status: dict[str, Any]) -> tuple[str, str] | None:
        spec = job["spec"]
        limit = spec.get("backoffLimit", 6)
        restarts = 0
        if spec["template"]["spec"].get("restartPolicy") == "OnFailure":
            restarts = sum(
                container.get("restartCount", 0)
                for pod in active
                for container in (pod.get("status") or {}).get("containerStatuses") or ()
            )
        if status.get("failed", 0) > limit or (restarts and restarts > limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and self._clock.simulated_seconds_since(status["startTime"]) >= deadline:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        failed_indexes = len(policies.indexes(status.get("failedIndexes", "")))
        most = spec.get("maxFailedIndexes")
        if most is not None and failed_indexes > most:
            return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        if failed_indexes and failed_indexes + status.get("succeeded", 0) >= spec.get("completions", 0):
            return "FailedIndexes", "Job has failed indexes"
        return None

    def _end(self, job: Object, active: list[Object], status: dict[str, Any]) -> None:
        """Delete what still runs; the Job ends with the last of its pods."""
        for pod in active:
            self._delete(job, pod)
        left = [obj for kind, obj in self._store.dependents(job["metadata"]["uid"]) if kind == "Pod"]
        if any(not finished(pod) for pod in left):
            return
        aim = next(entry for entry in status["conditions"] if entry["type"] in _ENDS and entry["status"] == "True")
        type_, reason, message = _ENDS[aim["type"]], aim["reason"], aim["message"]
        self._say(status, type_, reason, message)
        if type_ == "Complete":
            status["completionTime"] = self._clock.stamp()
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
            wanted = min(wanted, completions - succeeded - len(policies.indexes(status.get("failedIndexes", ""))))
        elif succeeded:
            wanted = len(active)
        for pod in active[max(0, wanted) :]:
            self._delete(job, pod)
        active = active[: max(0, wanted)]
        deadline = self._until_deadline(spec, status["startTime"])
        if spec.get("podReplacementPolicy") == "Failed":
            # Those on their way out are replaced only when they are gone.
            wanted -= sum(1 for pod in pods if pod["metadata"].get("deletionTimestamp") and not finished(pod))
        if len(active) >= wanted:
            return active, deadline
        wait = self._backoff(pods, status)
        if wait > 0:
            return active, wait if deadline is None else min(wait, deadline)
        free_indexes = self._free_indexes(spec, active, status)
        for _ in range(min(wanted - len(active), _BURST)):
            index = next(free_indexes, None) if free_indexes is not None else None
            if free_indexes is not None and index is None:
                break
            made = self._make(job, index, pods)
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
        taken = {policies.index_of(pod) for pod in active}
        for name in _INDEX_SETS:
            taken |= set(policies.indexes(status.get(name, "")))
        return iter([index for index in range(spec.get("completions", 0)) if index not in taken])

    # Pods

    def _make(self, job: Object, index: int | None, pods: list[Object]) -> Object | None:
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
            names[policies.INDEX] = annotations[policies.INDEX] = str(index)
            if job["spec"].get("backoffLimitPerIndex") is not None:
                annotations[policies.INDEX_FAILURES] = str(policies.failures_of(index, pods))
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


def _on_its_way(status: dict[str, Any]) -> bool:
    return any(condition_is(status, type_) for type_ in _ENDS)


def _ended_at(pod: Object) -> str:
    times = [
        state["terminated"]["finishedAt"]
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        if "terminated" in (state := container.get("state") or {})
    ]
    return max(times, key=parse_stamp) if times else str(pod["metadata"]["creationTimestamp"])
