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
    AffinityTerm,
    Ask,
    ContainerAsk,
    GpuNode,
    HostPort,
    Pod,
    PreferredTerm,
    Requirement,
    Taint,
    Toleration,
    Workload,
)
from gpupools.domain.quantities import parse_resources, quantity_text
from gpupools.domain.wire import (
    Affinity,
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
    NodeAffinity,
    NodeInfo,
    NodeObject,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    PodObject,
    PodSpecObject,
    PodStatus,
    PodTemplate,
    RequirementObject,
    Resources,
    TermObject,
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
POD_LEVEL = frozenset({"cpu", "memory"})


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
        allocatable=parse_resources(status.allocatable, field="status.allocatable"),
        capacity=parse_resources(status.capacity, field="status.capacity"),
        links=links,
        unhealthy=unhealthy,
        instance_type=labels.get("node.kubernetes.io/instance-type", "")
        or labels.get("beta.kubernetes.io/instance-type", ""),
        created_at=meta.creation_timestamp or "",
        kubelet_version=(status.node_info or NodeInfo()).kubelet_version or "",
        owners=_owners(meta.managed_fields or ()),
    )


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

    A matrix that is missing, unreadable or not square is None: ACK then takes the first free cards.
    """
    matrix = _json(data.get("bandwidth", ""), list[list[float]])
    links = None
    if matrix and all(len(row) == len(matrix) for row in matrix):
        links = tuple(tuple(row) for row in matrix)
    devices: dict[str, str] = _json(data.get("devices", ""), dict[str, str]) or {}
    unhealthy = sorted(int(k) for k, v in devices.items() if v != "Healthy" and k.isascii() and k.isdigit())
    return links, tuple(unhealthy)


def _json(text: str, shape: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.DecodeError:  # ValidationError is one too
        return None


def ask(spec: PodSpecObject, labels: Mapping[str, str], namespace: str, name: str, *, path: str = "spec") -> Ask:
    """Read what a pod asks for. Limits fill in missing requests, as the API server does when it stores a pod.

    Raises Invalid for a quantity that cannot be read, with its field below ``path``.
    """
    affinity = (spec.affinity or Affinity()).node_affinity or NodeAffinity()
    containers = _containers(spec.containers, f"{path}.containers", on_host=bool(spec.host_network))
    init_containers = _containers(spec.init_containers, f"{path}.initContainers", on_host=bool(spec.host_network))
    return Ask(
        namespace=namespace,
        name=name,
        containers=containers,
        init_containers=init_containers,
        overhead=parse_resources(spec.overhead, field=f"{path}.overhead"),
        labels=dict(labels),
        node_selector=spec.node_selector or {},
        required_terms=(
            None
            if affinity.required is None
            else tuple(_term(term) for term in affinity.required.node_selector_terms or ())
        ),
        preferred_terms=tuple(
            PreferredTerm(p.weight, _term(p.preference or TermObject())) for p in affinity.preferred or ()
        ),
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "") for t in spec.tolerations or ()
        ),
        node_name=spec.node_name or "",
        priority=spec.priority or 0,
        pod_requests=_pod_requests(spec.resources, (*containers, *init_containers), f"{path}.resources"),
        gated=bool(spec.scheduling_gates),
        preempts=spec.preemption_policy != "Never",
    )


def _pod_requests(resources: Resources | None, containers: tuple[ContainerAsk, ...], path: str) -> dict[str, int]:
    """Return what a pod asks for as a whole: cpu, memory and huge pages, nothing else can be asked so.

    A limit of the pod fills in for its request as the API server has it: where no container says anything either,
    and always for huge pages.
    """
    if resources is None:
        return {}
    limits = parse_resources(resources.limits, field=f"{path}.limits")
    requests = parse_resources(resources.requests, field=f"{path}.requests")
    named = {name for container in containers for name in container.requests if name in POD_LEVEL}
    asked = {name: amount for name, amount in limits.items() if name not in named} | requests
    return {name: amount for name, amount in asked.items() if name in POD_LEVEL or name.startswith("hugepages-")}


def _containers(containers: list[ContainerObject] | None, path: str, *, on_host: bool) -> tuple[ContainerAsk, ...]:
    asks = []
    for index, container in enumerate(containers or ()):
        where = f"{path}[{index}].resources"
        resources = container.resources or Resources()
        limits = parse_resources(resources.limits, field=f"{where}.limits")
        requests = parse_resources(resources.requests, field=f"{where}.requests")
        asks.append(
            ContainerAsk(
                name=container.name or "",
                requests={**limits, **requests},
                limits=limits,
                restartable=container.restart_policy == "Always",
                ports=_host_ports(container, on_host=on_host) if container.ports else (),
                fractions=_fractions(resources),
            )
        )
    return tuple(asks)


def _fractions(resources: Resources) -> dict[str, dict[str, str]]:
    """Return the amounts of extended resources that are no plain digits, as they are written; mostly there are none."""
    limits, requests = (
        {
            name: text
            for name, value in (given or {}).items()
            if "/" in name and not (text := quantity_text(value)).isdigit()
        }
        for given in (resources.limits, resources.requests)
    )
    if not limits and not requests:
        return {}
    return {"limits": limits, "requests": {**limits, **requests}}


def _host_ports(container: ContainerObject, *, on_host: bool) -> tuple[HostPort, ...]:
    """Return the ports of the node that a container takes; in the node's own network that is all its ports."""
    wanted = ((p.host_port or (p.container_port if on_host else 0) or 0, p) for p in container.ports or ())
    return tuple(HostPort(number, p.protocol or "TCP", p.host_ip or "") for number, p in wanted if number > 0)


def _term(term: TermObject) -> AffinityTerm:
    return AffinityTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _requirements(raw: list[RequirementObject] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in raw or ())


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
