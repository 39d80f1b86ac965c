"""THE reader of raw Kubernetes objects: from the structs of ``wire`` to the values that the rules work on.

Clusters decode bytes with these structs and the embedded cluster's scheduler converts its own dicts;
this module knows neither of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gpupools.domain.cgpupolicy import POLICY_VARIABLE
from gpupools.domain.gpus import (
    GpuNode,
    Pod,
    Taint,
    Workload,
)
from gpupools.domain.podspecs import ask
from gpupools.domain.quantities import integer, parse_resources
from gpupools.domain.wire import (
    ConfigMapObject,
    ContainerObject,
    ContainerStates,
    ContainerStatus,
    DaemonContainerObject,
    DaemonSetObject,
    DaemonSetStatus,
    DaemonTemplate,
    JobObject,
    JobSpec,
    JobStatus,
    ManagedFields,
    Metadata,
    NodeInfo,
    NodeObject,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    PodObject,
    PodSpecObject,
    PodStatus,
    PodTemplate,
    Quantities,
)
from gpupools.errors import Invalid

__all__ = [
    "ConfigMapObject",
    "DaemonSetObject",
    "JobObject",
    "NodeObject",
    "PodObject",
    "PodSpecObject",
    "ask",
    "convert",
    "daemonset",
    "gpu_node",
    "job",
    "pod",
    "read",
    "topology_node",
    "topology_report",
]


KUBELET = "kubelet"
MOST_LINKED_CARDS = 32  # beyond, the sets of cards are too many to look at


def gpu_node(node: NodeObject, *, topology: Mapping[str, str] | None = None) -> GpuNode:
    """Read a node. ``topology`` is the ``data`` of its topology ConfigMap, where it has one."""
    meta, spec, status = node.metadata, node.spec or NodeSpec(), node.status or NodeStatus()
    labels = meta.labels or {}
    links, unhealthy = topology_report(topology) if topology else (None, ())
    said = [c.status for c in status.conditions or () if c.type == "Ready"]
    return GpuNode(
        name=meta.name or "",
        uid=meta.uid or "",
        labels=labels,
        annotations=meta.annotations or {},
        taints=tuple(Taint(t.key, t.value or "", t.effect or "") for t in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        ready="True" in said,
        silent=not said,
        ip=next((a.address for a in status.addresses or () if a.type == "InternalIP"), ""),
        allocatable=_reported(status.allocatable, "status.allocatable"),
        capacity=_reported(status.capacity, "status.capacity"),
        links=links,
        unhealthy=unhealthy,
        instance_type=labels.get("node.kubernetes.io/instance-type", "")
        or labels.get("beta.kubernetes.io/instance-type", ""),
        created_at=meta.creation_timestamp or "",
        kubelet_version=(status.node_info or NodeInfo()).kubelet_version or "",
        boot_id=(status.node_info or NodeInfo()).boot_id or "",
        owners=_owners(meta.managed_fields or ()),
    )


def _reported(amounts: Quantities | None, field: str) -> dict[str, int]:
    """Read what a node reports; less than nothing, which no API server keeps, is nothing."""
    read = parse_resources(amounts, field=field)
    return read if min(read.values(), default=0) >= 0 else {name: max(0, amount) for name, amount in read.items()}


def _owners(entries: Iterable[ManagedFields]) -> dict[str, tuple[str, str]]:
    """Return who wrote which label (or the taints) last, and when; what the kubelet itself keeps is left out."""
    owners: dict[str, tuple[str, str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.time or ""):
        if entry.subresource or entry.fields_v1 is None or entry.manager == KUBELET:
            continue
        who = (entry.manager or "", entry.time or "")
        labels = (entry.fields_v1.metadata.labels if entry.fields_v1.metadata else None) or {}
        owners |= {key.removeprefix("f:"): who for key in labels if key.startswith("f:")}
        if entry.fields_v1.spec is not None and entry.fields_v1.spec.taints is not None:
            owners["taints"] = who
    return owners


def topology_node(report: ConfigMapObject) -> str:
    """Return the node that a topology ConfigMap is about, empty when it does not say."""
    return (report.metadata.labels or {}).get("nodename", "") or (report.data or {}).get("nodeName", "")


def topology_report(
    data: Mapping[str, str],
) -> tuple[tuple[tuple[float, ...], ...] | None, tuple[int, ...]]:
    """Read ACK's topology report: the bandwidth matrix and the indexes that are not called ``Healthy``.

    A matrix that is missing, unreadable, not square or of more cards than one machine links is None: ACK then takes
    the first free cards.
    """
    matrix = _json(data.get("bandwidth", ""), list[list[float]])
    links = None
    if matrix and len(matrix) <= MOST_LINKED_CARDS and all(len(row) == len(matrix) for row in matrix):
        links = tuple(tuple(row) for row in matrix)
    devices: dict[str, str] = _json(data.get("devices", ""), dict[str, str]) or {}
    sick = (integer(key) for key, state in devices.items() if state != "Healthy")
    return links, tuple(sorted(card for card in sick if card is not None and card >= 0))


def _json(text: str, shape: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.DecodeError:  # ValidationError is one too
        return None


def pod(raw: PodObject) -> Pod:
    """Read a pod with what it asks for and the best reason that its status gives."""
    meta, spec, status = raw.metadata, raw.spec or PodSpecObject(), raw.status or PodStatus()
    namespace, name = meta.namespace or "default", meta.name or ""
    owner = _owner(meta)
    reason, message = _reason(status)
    containers = spec.containers or ()
    statuses = [*(status.init_container_statuses or ()), *(status.container_statuses or ())]
    return Pod(
        uid=meta.uid or "",
        namespace=namespace,
        name=name,
        ask=ask(spec, meta.labels or {}, namespace, name),
        node=spec.node_name or "",
        phase=status.phase or "Pending",
        terminating=bool(meta.deletion_timestamp),
        annotations=meta.annotations or {},
        owner_kind=owner.kind,
        owner_name=owner.name,
        created_at=meta.creation_timestamp or "",
        started_at=status.start_time or "",
        reason=reason,
        message=message,
        restarts=sum(s.restart_count or 0 for s in statuses),
        ready=any(c.type == "Ready" and c.status == "True" for c in status.conditions or ()),
        containers=tuple(c.name or "" for c in containers),
        image=(containers[0].image or "") if containers else "",
    )


def _owner(meta: Metadata) -> OwnerReference:
    owners = meta.owner_references or ()
    controlling = (owner for owner in owners if owner.controller)
    return next(controlling, owners[0] if owners else OwnerReference())


def _reason(status: PodStatus) -> tuple[str, str]:
    """Pick reason and message: the pod's own, the scheduler's, or those of the first ailing container."""
    if status.reason or status.message:
        return status.reason or "", status.message or ""
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason or "", condition.message or ""
    init_done = [s for s in status.init_container_statuses or () if not _exited_well(s)]
    ended: tuple[str, str] = ("", "")
    for container in (*init_done, *(status.container_statuses or ())):
        state = container.state or ContainerStates()
        if state.waiting and state.waiting.reason:
            return state.waiting.reason, state.waiting.message or ""
        if state.terminated and (not ended[0] or state.terminated.exit_code):
            code = state.terminated.exit_code or 0
            words = state.terminated.message or (f"exit code {code}" if code else "")
            ended = (state.terminated.reason or "", words)
    return ended


def _exited_well(container: ContainerStatus) -> bool:
    terminated = (container.state or ContainerStates()).terminated
    return terminated is not None and not terminated.exit_code


def job(raw: JobObject) -> Workload:
    """Read a Job. ``wanted`` is its completions, or its parallelism where it has no number of completions."""
    meta, spec, status = raw.metadata, raw.spec or JobSpec(), raw.status or JobStatus()
    ended = next((c for c in status.conditions or () if c.type in {"Complete", "Failed"} and c.status == "True"), None)
    running = "suspended" if spec.suspend else "active"
    wanted = spec.completions if spec.completions is not None else spec.parallelism
    return Workload(
        kind="Job",
        wanted=1 if wanted is None else wanted,
        active=status.active or 0,
        ready=status.ready or 0,
        succeeded=status.succeeded or 0,
        failed=status.failed or 0,
        state=ended.type.lower() if ended else running,
        reason=(ended.reason or "") if ended else "",
        message=(ended.message or "") if ended else "",
        **_common(meta, spec.template),
    )


def daemonset(raw: DaemonSetObject) -> Workload:
    """Read a DaemonSet: ``wanted`` and ``active`` are the desired and current numbers of scheduled pods."""
    meta, status = raw.metadata, raw.status or DaemonSetStatus()
    return Workload(
        kind="DaemonSet",
        wanted=status.desired_number_scheduled or 0,
        active=status.current_number_scheduled or 0,
        ready=status.number_ready or 0,
        observed=(status.observed_generation or 0) >= (meta.generation or 0),
        policy=_policy(raw.spec.template if raw.spec else None),
        **_common(meta, raw.spec.template if raw.spec else None),
    )


def _policy(template: DaemonTemplate | None) -> str:
    containers = (template.spec.containers if template and template.spec else None) or ()
    variables = (variable for container in containers for variable in container.env or ())
    return next((each.value or "" for each in variables if each.name == POLICY_VARIABLE), "")


def _common(meta: Metadata, template: PodTemplate | DaemonTemplate | None) -> dict[str, Any]:
    spec = (template.spec if template else None) or PodSpecObject()
    containers: Iterable[ContainerObject | DaemonContainerObject] = spec.containers or ()
    return {
        "namespace": meta.namespace or "default",
        "name": meta.name or "",
        "uid": meta.uid or "",
        "created_at": meta.creation_timestamp or "",
        "labels": meta.labels or {},
        "annotations": meta.annotations or {},
        "node_selector": spec.node_selector or {},
        "image": next((c.image or "" for c in containers), ""),
    }


def read(raw: Mapping[str, Any], shape: type[Any], *, path: str = "") -> Any:
    """Convert a plain dict into one of the structs; raise Invalid with the field that has the wrong type."""
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        field = f"{path}{where.removesuffix('`')}".lstrip(".") or "object"
        raise Invalid.field(field, f"{field}: {message}.", code="type") from None
    except UnicodeEncodeError:
        raise Invalid.field("object", "object: A key is no Unicode text.", code="type") from None


def convert(kind: str, raw: Mapping[str, Any]) -> GpuNode | Pod | Workload:
    """Read a Node, Pod, Job or DaemonSet from a dict; raise Invalid for a wrong type and another kind."""
    match kind:
        case "Node":
            return gpu_node(read(raw, NodeObject))
        case "Pod":
            return pod(read(raw, PodObject))
        case "Job":
            return job(read(raw, JobObject))
        case "DaemonSet":
            return daemonset(read(raw, DaemonSetObject))
        case _:
            raise Invalid.field(
                "kind",
                f"Objects of kind {kind!r} are not read.",
                found=kind,
                allowed="Node, Pod, Job, DaemonSet",
            )
