"""What can be done with pods besides writing them: bind to a node, evict, read and follow their logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from gpupools.simulator.disruptions import check_eviction
from gpupools.simulator.errors import ApiError, Cause, bad_request
from gpupools.simulator.kinds import Object
from gpupools.simulator.logs import Line, LogBook
from gpupools.simulator.store import Store
from gpupools.simulator.unknownfields import check_shape
from gpupools.simulator.values import parse_time, stamp
from gpupools.simulator.wire import Request, Response, Stream, Target, encode

TEXT = "text/plain"
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def bind(store: Store, namespace: str, name: str, node: str, annotations: dict[str, str] | None = None) -> Object:
    """Bind a pod to a node, adding annotations in the same write; 409 when it is bound or being deleted."""
    pod = store.stored("Pod", namespace, name).object
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if meta.get("deletionTimestamp"):
        raise _not_bound(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _not_bound(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    others = [entry for entry in status.get("conditions") or () if entry.get("type") != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": stamp(store.now()),
        "observedGeneration": meta.get("generation", 1),
    }
    notes = {"annotations": {**(meta.get("annotations") or {}), **annotations}} if annotations else {}
    return store.write_parts(
        "Pod",
        namespace,
        name,
        metadata=notes,
        spec={**spec, "nodeName": node},
        status={**status, "conditions": [*others, scheduled]},
    ).object


def _not_bound(name: str, why: str) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on pods/binding "{name}": {why}',
        details={"name": name, "kind": "pods/binding"},
    )


class PodVerbs:
    """The pod subresources that are not plain writes."""

    def __init__(self, store: Store, logbook: LogBook) -> None:
        self._store = store
        self._logbook = logbook

    def answer(self, verb: str, request: Request, target: Target) -> Response | Stream:
        """Answer a request to ``binding``, ``eviction`` or ``log``."""
        if target.subresource in ("attach", "exec"):
            # Those are spoken over WebSocket and arrive elsewhere; SPDY, the older way, is not served.
            raise bad_request("Upgrade request required: the embedded cluster serves exec over WebSocket only")
        wanted = "get" if target.subresource == "log" else "create"
        if verb != wanted:
            raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        if target.subresource == "log":
            return self._log(request, target)
        return self._bind(request, target) if target.subresource == "binding" else self._evict(request, target)

    def _bind(self, request: Request, target: Target) -> Response:
        binding = check_shape("Binding", request.object())
        node = (binding.get("target") or {}).get("name", "")
        if not node:
            # The real server gives this one without a reason.
            raise ApiError(500, "", "target.name: Required value")
        annotations = (binding.get("metadata") or {}).get("annotations") or {}
        if request.dry_run:
            self._store.stored("Pod", target.namespace, target.name)
        else:
            bind(self._store, target.namespace, target.name, node, annotations)
        return Response(encode(_SUCCESS), 201)

    def _evict(self, request: Request, target: Target) -> Response:
        eviction = check_shape("Eviction", request.object())
        name = (eviction.get("metadata") or {}).get("name", target.name)
        if name != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = eviction.get("deleteOptions") or {}
        preconditions = options.get("preconditions") or {}
        dry_run = request.dry_run or options.get("dryRun") == ["All"]
        pod = self._store.get("Pod", target.namespace, target.name)
        check_eviction(self._store, pod)
        if not dry_run and not pod["metadata"].get("deletionTimestamp"):
            self._note_disruption(target)
        self._store.delete(
            "Pod",
            target.namespace,
            target.name,
            grace_seconds=options.get("gracePeriodSeconds"),
            propagation=options.get("propagationPolicy") or "",
            uid=preconditions.get("uid") or "",
            version=preconditions.get("resourceVersion") or "",
            dry_run=dry_run,
        )
        return Response(encode(_SUCCESS), 201)

    def _note_disruption(self, target: Target) -> None:
        def edit(pod: Object) -> None:
            conditions = pod.setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [entry for entry in conditions if entry.get("type") != "DisruptionTarget"]
            conditions.append(
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting",
                    "lastTransitionTime": stamp(self._store.now()),
                }
            )

        self._store.change("Pod", target.namespace, target.name, edit, subresource="status")

    def _log(self, request: Request, target: Target) -> Response | Stream:
        pod = self._store.stored("Pod", target.namespace, target.name).object
        _check_log_options(request, target)
        container = container_of(pod, request.query.get("container", ""))
        uid, previous = pod["metadata"]["uid"], request.flag("previous")
        if previous and not self._logbook.has(uid, container, previous=True):
            raise bad_request(f'previous terminated container "{container}" in pod "{target.name}" not found')
        if not self._logbook.has(uid, container):
            self._refuse_unstarted(pod, container)
        timestamps, since = request.flag("timestamps"), self._since(request)
        tail, limit = request.number("tailLines"), request.number("limitBytes")
        lines = [line for line in self._logbook.lines(uid, container, previous=previous) if line[0] >= since]
        skipped = max(0, len(lines) - tail) if tail is not None else 0
        if not request.flag("follow") or previous:
            text = _text(lines[skipped:], timestamps=timestamps)
            return Response(text[:limit] if limit else text, content_type=TEXT)
        return Stream(self._followed(uid, container, len(lines) - skipped, since, timestamps), TEXT)

    def _since(self, request: Request) -> datetime:
        seconds, moment = request.number("sinceSeconds"), request.query.get("sinceTime", "")
        if seconds is not None:
            return self._store.now() - timedelta(seconds=seconds)
        if moment:
            try:
                return parse_time(moment)
            except ValueError:
                raise bad_request(f'sinceTime: Invalid value: "{moment}"') from None
        return datetime.min.replace(tzinfo=self._store.now().tzinfo)

    async def _followed(
        self, uid: str, container: str, shown: int, since: datetime, timestamps: bool
    ) -> AsyncIterator[bytes]:
        """Yield the last ``shown`` lines of what is there, then everything that comes."""
        first = True
        async for lines in self._logbook.follow(uid, container):
            fresh = [line for line in lines if line[0] >= since]
            if first:
                fresh = fresh[len(fresh) - shown :] if shown else []
                first = False
            text = _text(fresh, timestamps=timestamps)
            if text:
                yield text

    def _refuse_unstarted(self, pod: Object, container: str) -> None:
        """Say why a container has no log; return when it has merely printed nothing."""
        name = pod["metadata"]["name"]
        if not pod.get("spec", {}).get("nodeName"):
            # The real server answers this with an empty log as long as nobody follows.
            return
        status = pod.get("status", {})
        entries = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
        for entry in entries:
            waiting = (entry.get("state") or {}).get("waiting")
            if entry["name"] == container and waiting:
                reason = waiting.get("reason", "")
                why = f"waiting to start: {reason}"
                if reason in ("ImagePullBackOff", "ErrImagePull"):
                    why = "waiting to start: trying and failing to pull image"
                raise bad_request(f'container "{container}" in pod "{name}" is {why}')


def container_of(pod: Object, wanted: str) -> str:
    """Return the container whose log is meant; 400 when it is not there, or when there are several to choose from."""
    spec, name = pod.get("spec", {}), pod["metadata"]["name"]
    names = [entry["name"] for entry in spec.get("containers") or ()]
    init = [entry["name"] for entry in spec.get("initContainers") or ()]
    if wanted:
        if wanted not in (*names, *init):
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(names) == 1:
        return str(names[0])
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
    if init:
        text += f" or one of the init containers: [{' '.join(init)}]"
    raise bad_request(text)


def _check_log_options(request: Request, target: Target) -> None:
    """Refuse (422) numbers that cannot be, and two moments to start from."""
    causes: list[Cause] = []
    for field, least, text in (
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ):
        number = request.number(field)
        if number is not None and number < least:
            causes.append(Cause("FieldValueInvalid", field, f"Invalid value: {number}: {text}"))
    if request.query.get("sinceSeconds") and request.query.get("sinceTime"):
        text = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        causes.append(Cause("FieldValueForbidden", "", text))
    if causes:
        said = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
        text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
        details = {"name": target.name, "kind": "PodLogOptions"}
        raise ApiError(422, "Invalid", f'PodLogOptions "{target.name}" is invalid: {text}', causes, details=details)


def _text(lines: list[Line], *, timestamps: bool) -> bytes:
    if not timestamps:
        return "".join(f"{line}\n" for _, line in lines).encode()
    return "".join(f"{at.strftime('%Y-%m-%dT%H:%M:%S.%f')}000Z {line}\n" for at, line in lines).encode()
