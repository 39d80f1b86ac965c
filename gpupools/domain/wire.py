"""Raw Kubernetes objects as structs with only the fields that the rules need; ``objects`` makes values of them.

Lenient as the API demands: unknown fields are ignored, missing and null ones have a default. It knows no rule.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

# As wide as the API has them: what is wider comes from no API server, and fits into nothing that is made of it.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Quantities = dict[str, str | int | float | None]


class Raw(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of the raw structs: camelCase names on the wire."""


class OwnerReference(Raw, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Raw, frozen=True):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    resource_version: str | None = None
    generation: Int64 | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class Condition(Raw, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


# -- Node


class TaintObject(Raw, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str | None = None


class NodeSpec(Raw, frozen=True):
    taints: list[TaintObject] | None = None
    unschedulable: bool | None = None


class NodeAddress(Raw, frozen=True):
    type: str = ""
    address: str = ""


class NodeInfo(Raw, frozen=True):
    kubelet_version: str | None = None
    boot_id: str | None = msgspec.field(default=None, name="bootID")


class NodeStatus(Raw, frozen=True):
    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[Condition] | None = None
    addresses: list[NodeAddress] | None = None
    node_info: NodeInfo | None = None


class OwnedMetadata(msgspec.Struct, frozen=True, gc=False):
    labels: dict[str, Any] | None = msgspec.field(default=None, name="f:labels")


class OwnedSpec(msgspec.Struct, frozen=True, gc=False):
    taints: Any = msgspec.field(default=None, name="f:taints")


class OwnedFields(msgspec.Struct, frozen=True, gc=False):
    metadata: OwnedMetadata | None = msgspec.field(default=None, name="f:metadata")
    spec: OwnedSpec | None = msgspec.field(default=None, name="f:spec")


class ManagedFields(Raw, frozen=True):
    manager: str | None = None
    time: str | None = None
    subresource: str | None = None
    fields_v1: OwnedFields | None = None


class NodeMetadata(Metadata, frozen=True):
    managed_fields: list[ManagedFields] | None = None


class NodeObject(Raw, frozen=True):
    metadata: NodeMetadata = NodeMetadata()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ConfigMapObject(Raw, frozen=True):
    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None


# -- Pod


class Resources(Raw, frozen=True):
    limits: Quantities | None = None
    requests: Quantities | None = None


class PortObject(Raw, frozen=True):
    container_port: Int32 | None = None
    host_port: Int32 | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class ContainerObject(Raw, frozen=True):
    name: str | None = None
    image: str | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[PortObject] | None = None


class TolerationObject(Raw, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class RequirementObject(Raw, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class TermObject(Raw, frozen=True):
    match_expressions: list[RequirementObject] | None = None
    match_fields: list[RequirementObject] | None = None


class PreferredTermObject(Raw, frozen=True):
    weight: Int32 = 0
    preference: TermObject | None = None


class RequiredTerms(Raw, frozen=True):
    node_selector_terms: list[TermObject] | None = None


class NodeAffinity(Raw, frozen=True):
    required: RequiredTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredTermObject] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Raw, frozen=True):
    node_affinity: NodeAffinity | None = None


class GateObject(Raw, frozen=True):
    name: str = ""


class PodSpecObject(Raw, frozen=True):
    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[TolerationObject] | None = None
    overhead: Quantities | None = None
    priority: Int32 | None = None
    host_network: bool | None = None
    resources: Resources | None = None
    scheduling_gates: list[GateObject] | None = None
    preemption_policy: str | None = None
    scheduler_name: str | None = None
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")


class ContainerState(Raw, frozen=True):
    reason: str | None = None
    message: str | None = None
    exit_code: Int32 | None = None


class ContainerStates(Raw, frozen=True):
    waiting: ContainerState | None = None
    terminated: ContainerState | None = None


class ContainerStatus(Raw, frozen=True):
    restart_count: Int32 | None = None
    state: ContainerStates | None = None


class PodStatus(Raw, frozen=True):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class PodObject(Raw, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpecObject | None = None
    status: PodStatus | None = None


# -- Job, DaemonSet


class PodTemplate(Raw, frozen=True):
    metadata: Metadata | None = None
    spec: PodSpecObject | None = None


class JobSpec(Raw, frozen=True):
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    suspend: bool | None = None
    template: PodTemplate | None = None


class JobStatus(Raw, frozen=True):
    active: Int32 | None = None
    ready: Int32 | None = None
    succeeded: Int32 | None = None
    failed: Int32 | None = None
    conditions: list[Condition] | None = None


class JobObject(Raw, frozen=True):
    metadata: Metadata = Metadata()
    spec: JobSpec | None = None
    status: JobStatus | None = None


class EnvObject(Raw, frozen=True):
    name: str | None = None
    value: str | None = None


class DaemonContainerObject(Raw, frozen=True):
    image: str | None = None
    env: list[EnvObject] | None = None


class DaemonPodSpec(Raw, frozen=True):
    # A shape of its own: pods come by the thousand, and nobody reads their environment.
    containers: list[DaemonContainerObject] | None = None
    node_selector: dict[str, str] | None = None


class DaemonTemplate(Raw, frozen=True):
    spec: DaemonPodSpec | None = None


class DaemonSetSpec(Raw, frozen=True):
    template: DaemonTemplate | None = None


class DaemonSetStatus(Raw, frozen=True):
    observed_generation: Int64 | None = None
    desired_number_scheduled: Int32 | None = None
    current_number_scheduled: Int32 | None = None
    number_ready: Int32 | None = None
    number_unavailable: Int32 | None = None


class DaemonSetObject(Raw, frozen=True):
    metadata: Metadata = Metadata()
    spec: DaemonSetSpec | None = None
    status: DaemonSetStatus | None = None
