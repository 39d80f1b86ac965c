"""The columns that ``kubectl get`` shows: Table answers per kind, cell by cell as the API server prints them.

Pure functions over objects and the present time; what a pod's status reads as is in podstatus.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpupools.simulator.kinds import Object
from gpupools.simulator.podstatus import pod_cells
from gpupools.simulator.values import parse_time

Cells = list[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; a ``wide`` one is shown with ``-o wide`` alone."""

    name: str
    type: str = "string"
    format: str = ""
    wide: bool = False
    description: str = ""

    def definition(self) -> Object:
        """Return the ``columnDefinitions`` entry."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": 1 if self.wide else 0,
        }


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl shows it: 45s, 3m12s, 17m, 5h, 3d4h, 200d, 2y10d."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        rest = whole % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    if days < 365 * 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def age(text: str | None, now: datetime) -> str:
    """Return how long ago a time was, ``<unknown>`` without one."""
    return human_duration((now - parse_time(text)).total_seconds()) if text else "<unknown>"


def _age_of(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _selector_text(selector: Object | None) -> str:
    if not selector:
        return "<none>"
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or ():
        key, values = term.get("key", ""), ",".join(sorted(term.get("values") or ()))
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append(words.get(term.get("operator", ""), f"!{key}"))
    return ",".join(parts) or "<none>"


def _containers(obj: Object) -> tuple[str, str]:
    found = obj.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or ()
    return ",".join(c.get("name", "") for c in found), ",".join(c.get("image", "") for c in found)


def _node(obj: Object, now: datetime) -> Cells:
    status, labels = obj.get("status", {}), obj["metadata"].get("labels") or {}
    ready = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    words = ["Ready" if ready[0].get("status") == "True" else "NotReady"] if ready else ["Unknown"]
    if obj.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = {key[len(prefix) :] for key in labels if key.startswith(prefix) and key != prefix}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    addresses = {entry.get("type"): entry.get("address") for entry in reversed(status.get("addresses") or ())}
    info = status.get("nodeInfo") or {}
    return [
        obj["metadata"]["name"],
        ",".join(words),
        ",".join(sorted(roles)) or "<none>",
        _age_of(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _job(obj: Object, now: datetime) -> Cells:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    succeeded = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    elif spec.get("parallelism", 0) > 1:
        completions = f"{succeeded}/1 of {spec['parallelism']}"
    else:
        completions = f"{succeeded}/1"
    duration = ""
    if status.get("startTime"):
        end = parse_time(status["completionTime"]) if status.get("completionTime") else now
        duration = human_duration((end - parse_time(status["startTime"])).total_seconds())
    names, images = _containers(obj)
    return [
        obj["metadata"]["name"],
        _job_status(obj),
        completions,
        duration,
        _age_of(obj, now),
        names,
        images,
        _selector_text(spec.get("selector")),
    ]


def _job_status(obj: Object) -> str:
    true = {
        entry.get("type") for entry in obj.get("status", {}).get("conditions") or () if entry.get("status") == "True"
    }
    if "Complete" in true:
        return "Complete"
    if "Failed" in true:
        return "Failed"
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if "Suspended" in true:
        return "Suspended"
    if "FailureTarget" in true:
        return "FailureTarget"
    return "SuccessCriteriaMet" if "SuccessCriteriaMet" in true else "Running"


def _daemonset(obj: Object, now: datetime) -> Cells:
    status = obj.get("status", {})
    selector = obj.get("spec", {}).get("template", {}).get("spec", {}).get("nodeSelector") or {}
    names, images = _containers(obj)
    return [
        obj["metadata"]["name"],
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>",
        _age_of(obj, now),
        names,
        images,
        _selector_text(obj.get("spec", {}).get("selector")),
    ]


def _event(obj: Object, now: datetime) -> Cells:
    involved, source, series = obj.get("involvedObject", {}), obj.get("source", {}), obj.get("series") or {}
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    count = series.get("count") or obj.get("count") or 1
    kind = (involved.get("kind") or "").lower()
    component, host = source.get("component") or obj.get("reportingComponent", ""), source.get("host", "")
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{involved.get('name', '')}" if involved.get("name") else kind,
        involved.get("fieldPath", ""),
        ", ".join(part for part in (component, host) if part),
        (obj.get("message") or "").strip(),
        age(first, now),
        count,
        obj["metadata"]["name"],
    ]


def _named(*middle: Callable[[Object], Any]) -> Callable[[Object, datetime], Cells]:
    """Return a row of name, some cells, age."""
    return lambda obj, now: [obj["metadata"]["name"], *(cell(obj) for cell in middle), _age_of(obj, now)]


_NAME, _AGE = Column("Name", format="name"), Column("Age")
_TEMPLATE = (Column("Containers", wide=True), Column("Images", wide=True), Column("Selector", wide=True))

TABLES: dict[str, tuple[tuple[Column, ...], Callable[[Object, datetime], Cells]]] = {
    "Node": (
        (
            _NAME, Column("Status"), Column("Roles"), _AGE, Column("Version"),
            Column("Internal-IP", wide=True), Column("External-IP", wide=True), Column("OS-Image", wide=True),
            Column("Kernel-Version", wide=True), Column("Container-Runtime", wide=True),
        ),
        _node,
    ),
    "Pod": (
        (
            _NAME, Column("Ready"), Column("Status"), Column("Restarts"), _AGE, Column("IP", wide=True),
            Column("Node", wide=True), Column("Nominated Node", wide=True), Column("Readiness Gates", wide=True),
        ),
        lambda obj, now: pod_cells(obj, _age_of(obj, now), lambda text: age(text, now)),
    ),
    "Job": ((_NAME, Column("Status"), Column("Completions"), Column("Duration"), _AGE, *_TEMPLATE), _job),
    "DaemonSet": (
        (
            _NAME, Column("Desired", "integer"), Column("Current", "integer"), Column("Ready", "integer"),
            Column("Up-to-date", "integer"), Column("Available", "integer"), Column("Node Selector"), _AGE,
            *_TEMPLATE,
        ),
        _daemonset,
    ),
    "Event": (
        (
            Column("Last Seen"), Column("Type"), Column("Reason"), Column("Object"),
            Column("Subobject", wide=True), Column("Source", wide=True), Column("Message"),
            Column("First Seen", wide=True), Column("Count", "integer", wide=True),
            Column("Name", format="name", wide=True),
        ),
        _event,
    ),
    "Namespace": (
        (_NAME, Column("Status"), _AGE),
        _named(lambda obj: obj.get("status", {}).get("phase", "")),
    ),
    "ConfigMap": (
        (_NAME, Column("Data", "integer"), _AGE),
        _named(lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())),
    ),
    "Secret": (
        (_NAME, Column("Type"), Column("Data", "integer"), _AGE),
        _named(lambda obj: obj.get("type", ""), lambda obj: len(obj.get("data") or ())),
    ),
    "ServiceAccount": (
        (_NAME, Column("Secrets", "integer"), _AGE),
        _named(lambda obj: len(obj.get("secrets") or ())),
    ),
    "Lease": (
        (_NAME, Column("Holder"), _AGE),
        _named(lambda obj: obj.get("spec", {}).get("holderIdentity") or ""),
    ),
    "PodDisruptionBudget": (
        (
            _NAME, Column("Min Available"), Column("Max Unavailable"), Column("Allowed Disruptions", "integer"), _AGE,
        ),
        lambda obj, now: [
            obj["metadata"]["name"],
            str(obj.get("spec", {}).get("minAvailable", "N/A")),
            str(obj.get("spec", {}).get("maxUnavailable", "N/A")),
            obj.get("status", {}).get("disruptionsAllowed", 0),
            _age_of(obj, now),
        ],
    ),
    "PriorityClass": (
        (_NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), _AGE, Column("PreemptionPolicy")),
        lambda obj, now: [
            obj["metadata"]["name"],
            obj.get("value", 0),
            bool(obj.get("globalDefault")),
            _age_of(obj, now),
            obj.get("preemptionPolicy", ""),
        ],
    ),
}  # fmt: skip


def columns(kind: str) -> list[Object]:
    """Return the column definitions of a kind."""
    return [column.definition() for column in TABLES[kind][0]]


def row(kind: str, obj: Object, now: datetime, *, embed: Object | None) -> Object:
    """Return one row: its cells and, unless None, the object to embed."""
    found: Object = {"cells": TABLES[kind][1](obj, now)}
    if embed is not None:
        found["object"] = embed
    return found
