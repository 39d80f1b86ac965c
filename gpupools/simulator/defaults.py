"""What the API server fills in when a manifest leaves it out, and what it computes itself.

In place, on private copies, and twice does no more than once. What is wrong with an object is validation's.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from gpupools.domain.messages import GATED
from gpupools.simulator import amounts
from gpupools.simulator.errors import bad_request, forbidden
from gpupools.simulator.kinds import Kind, Object

# Priority classes that every cluster is born with.
BORN_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_UNREACHABLE_SECONDS = 300
_TRIGGERS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

# Name of a priority class -> the class, None when there is none; "" -> the class that is the global default.
PriorityOf = Callable[[str], Object | None]


def for_create(row: Kind, obj: Object, priority_of: PriorityOf) -> None:
    """Fill the defaults of a new object."""
    for_any(row, obj)
    creator = _CREATORS.get(row.kind)
    if creator is not None:
        creator(obj)
    if row.kind == "Pod":
        _admit_pod(row, obj, priority_of)


def for_update(row: Kind, new: Object, old: Object) -> None:
    """Fill the defaults of a replaced object."""
    for_any(row, new)
    if row.kind == "DaemonSet" and new["spec"].get("template") != old["spec"].get("template"):
        notes = new["metadata"].setdefault("annotations", {})
        before = (old["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "1")
        notes[_TEMPLATE_GENERATION] = str(int(before) + 1)


def for_any(row: Kind, obj: Object) -> None:
    """Fill what every write fills."""
    filler = _FILLERS.get(row.kind)
    if filler is None:
        return
    try:
        filler(obj)
    except amounts.BadAmount as error:
        text = f'{row.kind} in version "{row.version}" cannot be handled as a {row.kind}: {error}'
        raise bad_request(text) from error


def _dict(holder: Any, key: str) -> Object:
    """Return the map at a key, {} when it is missing or of another type (which validation then names)."""
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _dicts(holder: Any, key: str) -> Iterator[Object]:
    found = holder.get(key) if isinstance(holder, dict) else None
    for item in found if isinstance(found, list) else ():
        if isinstance(item, dict):
            yield item


def pod_spec(spec: Any) -> None:
    """Fill the defaults of a pod's spec, of its own or in a template."""
    if not isinstance(spec, dict):
        return
    for key, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for key in ("initContainers", "containers"):
        for container in _dicts(spec, key):
            _container(container)
    for volume in _dicts(spec, "volumes"):
        _volume(volume)


def _container(container: Object) -> None:
    image = str(container.get("image") or "")
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    always = not image.partition("@")[2] and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if always else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    amounts.tidy_container(container)
    for port in _dicts(container, "ports"):
        port.setdefault("protocol", "TCP")
    for variable in _dicts(container, "env"):
        reference = _dict(_dict(variable, "valueFrom"), "fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")


def _volume(volume: Object) -> None:
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
    for source, field, value in (
        ("configMap", "defaultMode", 420),
        ("secret", "defaultMode", 420),
        ("projected", "defaultMode", 420),
        ("hostPath", "type", ""),
    ):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault(field, value)
    empty = _dict(volume, "emptyDir")
    if "sizeLimit" in empty:
        empty["sizeLimit"] = amounts.canonical(empty["sizeLimit"])


def _fill_pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    pod_spec(spec)
    if isinstance(spec, dict):
        spec.setdefault("enableServiceLinks", True)


def _create_pod(pod: Object) -> None:
    spec = _dict(pod, "spec")
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    tolerations = spec.setdefault("tolerations", [])
    for key in _TRIGGERS if isinstance(tolerations, list) else ():
        if not any(_tolerates(entry, key) for entry in _dicts(spec, "tolerations")):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _UNREACHABLE_SECONDS,
                }
            )
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if isinstance(spec, dict) and spec.get("schedulingGates"):
        # Of a gated pod the API server itself says so: no scheduler looks at it before its gates are gone.
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": GATED,
            }
        ]


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


def _admit_pod(row: Kind, pod: Object, priority_of: PriorityOf) -> None:
    """Give the pod the number of its priority class."""
    spec = _dict(pod, "spec")
    name = spec.get("priorityClassName") or ""
    found = priority_of(name)
    if found is None and name:
        why = f"no PriorityClass with name {name} was found"
        raise forbidden(row, pod["metadata"].get("name", ""), why)
    priority = found.get("value", 0) if found else 0
    if spec.get("priority") not in (None, priority):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden(row, pod["metadata"].get("name", ""), why)
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", (found or {}).get("preemptionPolicy", "PreemptLowerPriority"))
    if found and not name:
        spec["priorityClassName"] = found["metadata"]["name"]


def qos_class(spec: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort: from cpu and memory alone, cards do not count."""
    asked, guaranteed = False, True
    for key in ("initContainers", "containers"):
        for container in _dicts(spec, key):
            resources = _dict(container, "resources")
            requests, limits = _dict(resources, "requests"), _dict(resources, "limits")
            for name in ("cpu", "memory"):
                asked = asked or requests.get(name, "0") != "0" or limits.get(name, "0") != "0"
                if limits.get(name, "0") == "0" or requests.get(name) != limits.get(name):
                    guaranteed = False
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _fill_template(obj: Object) -> None:
    template = _dict(obj, "spec").setdefault("template", {})
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        pod_spec(template.setdefault("spec", {}))


def _fill_job(job: Object) -> None:
    job.setdefault("spec", {})
    spec = _dict(job, "spec")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    replaced = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replaced)
    _fill_template(job)


def _create_job(job: Object) -> None:
    """Label the Job's pods with its uid, and select them by it."""
    job["status"] = {}
    spec, meta = _dict(job, "spec"), job["metadata"]
    template = _dict(spec, "template")
    own = _dict(template, "metadata")
    if not meta.get("labels") and own.get("labels"):
        meta["labels"] = dict(own["labels"])
    if not template or spec.get("manualSelector"):
        return
    uid, name = meta["uid"], meta.get("name", "")
    labels = own.setdefault("labels", {})
    if isinstance(labels, dict):
        labels |= {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
    # A selector that the manifest brings along is refused by validation.
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _fill_daemonset(daemonset: Object) -> None:
    daemonset.setdefault("spec", {})
    spec = _dict(daemonset, "spec")
    strategy = spec.setdefault("updateStrategy", {})
    if isinstance(strategy, dict):
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    _fill_template(daemonset)


def _create_daemonset(daemonset: Object) -> None:
    daemonset["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = "1"
    daemonset["status"] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }


def _create_namespace(namespace: Object) -> None:
    meta = namespace["metadata"]
    meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta.get("name", "")
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _fill_node(node: Object) -> None:
    node.setdefault("spec", {})
    status = _dict(node, "status")
    amounts.tidy(status.get("capacity"))
    amounts.tidy(status.get("allocatable"))
    if _dict(node, "spec").get("unschedulable") is False:
        del node["spec"]["unschedulable"]


_NODE_INFO = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
    "machineID", "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip


def _create_node(node: Object) -> None:
    status = node.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status.setdefault("nodeInfo", dict.fromkeys(_NODE_INFO, ""))


def taint_newcomer(node: Object) -> None:
    """Keep pods off a node of a client's until it says that it is ready, as admission does."""
    taints = node["spec"].setdefault("taints", [])
    if not any((taint.get("key"), taint.get("effect")) == (_TRIGGERS[0], "NoSchedule") for taint in taints):
        taints.append({"key": _TRIGGERS[0], "effect": "NoSchedule"})


def _fill_secret(secret: Object) -> None:
    secret["type"] = secret.get("type") or "Opaque"
    plain = secret.pop("stringData", None)
    if isinstance(plain, dict):
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        secret["data"] = {**_dict(secret, "data"), **encoded}


def _fill_priority_class(priority_class: Object) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


_FILLERS: dict[str, Callable[[Object], None]] = {
    "DaemonSet": _fill_daemonset,
    "Job": _fill_job,
    "Node": _fill_node,
    "Pod": _fill_pod,
    "PriorityClass": _fill_priority_class,
    "Secret": _fill_secret,
}

_CREATORS: dict[str, Callable[[Object], None]] = {
    "DaemonSet": _create_daemonset,
    "Job": _create_job,
    "Namespace": _create_namespace,
    "Node": _create_node,
    "Pod": _create_pod,
}
