"""THE table of kinds that the embedded cluster serves: names, scope, subresources, selectable fields.

Everything else (discovery, routing, store, columns) reads this table; a kind that is not here does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# A Kubernetes object as decoded JSON.
Object = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its names in URLs and manifests, its scope, and what its objects have.

    ``field_labels`` are the paths that a fieldSelector may name besides metadata.name and metadata.namespace;
    ``counts_generation``: a change outside metadata and status raises metadata.generation.
    """

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    field_labels: tuple[str, ...] = ()
    counts_generation: bool = False
    verbs: tuple[str, ...] = ALL_VERBS

    @property
    def api_version(self) -> str:
        """``v1`` or ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``pods`` or ``jobs.batch``, as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def kind_and_group(self) -> str:
        """``Pod`` or ``Job.batch``, as validation errors name it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource, isolated from writes to the object itself."""
        return "status" in self.subresources


_TABLE = (
    Kind(
        "", "v1", "nodes", "Node", "node", ("no",), namespaced=False, subresources=("status",),
        field_labels=("spec.unschedulable",),
    ),
    Kind(
        "", "v1", "namespaces", "Namespace", "namespace", ("ns",), namespaced=False,
        subresources=("finalize", "status"), field_labels=("status.phase",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    Kind(
        "", "v1", "pods", "Pod", "pod", ("po",),
        subresources=("attach", "binding", "eviction", "exec", "log", "status"),
        categories=("all",), counts_generation=True,
        field_labels=(
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
            "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
        ),
    ),
    Kind("", "v1", "configmaps", "ConfigMap", "configmap", ("cm",)),
    Kind("", "v1", "secrets", "Secret", "secret", field_labels=("type",)),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", "serviceaccount", ("sa",)),
    Kind(
        "", "v1", "events", "Event", "event", ("ev",),
        field_labels=(
            "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
            "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
            "reason", "reportingComponent", "source", "type",
        ),
    ),
    Kind(
        "batch", "v1", "jobs", "Job", "job", subresources=("status",), categories=("all",),
        field_labels=("status.successful",), counts_generation=True,
    ),
    Kind(
        "apps", "v1", "daemonsets", "DaemonSet", "daemonset", ("ds",), subresources=("status",),
        categories=("all",), counts_generation=True,
    ),
    Kind("coordination.k8s.io", "v1", "leases", "Lease", "lease"),
    Kind(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "poddisruptionbudget", ("pdb",),
        subresources=("status",), counts_generation=True,
    ),
    Kind(
        "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", "priorityclass", ("pc",),
        namespaced=False, counts_generation=True,
    ),
)  # fmt: skip

# Kind name -> row. Names are unique among what is served.
KINDS: Mapping[str, Kind] = {row.kind: row for row in _TABLE}

# (group, version, plural) -> row, as URLs name them.
BY_RESOURCE: Mapping[tuple[str, str, str], Kind] = {(row.group, row.version, row.plural): row for row in _TABLE}
