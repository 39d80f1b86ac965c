"""What the API server refuses, in its wording: metadata, and the rules of each kind but pods (validationpods.py).

Works on objects whose defaults are filled in; raises one 422 that names everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpupools.simulator import defaults, names
from gpupools.simulator.errors import ApiError, Cause, invalid
from gpupools.simulator.kinds import Kind, Object
from gpupools.simulator.problems import (
    Problems,
    forbidden,
    immutable,
    not_below_zero,
    required,
    shown,
    unsupported,
    wrong,
)
from gpupools.simulator.validationjobs import check_job, check_job_update
from gpupools.simulator.validationpods import check_labels, check_pod, check_pod_update, check_template

ANNOTATIONS_LIMIT_BYTES = 256 * 1024
# Kinds whose names are labels of DNS, not subdomains.
_LABEL_NAMED = frozenset(("Namespace",))


def check_create(row: Kind, obj: Object) -> None:
    """Raise 422 when a new object breaks rules."""
    problems = Problems()
    _check_metadata(row, obj, problems)
    checker = _CHECKS.get(row.kind)
    if checker is not None:
        checker(obj, problems)
    _raise(row, obj, problems)


def check_update(row: Kind, new: Object, old: Object, subresource: str) -> None:
    """Raise 422 when a changed object breaks rules, or changes what may not change."""
    problems = Problems()
    _check_metadata(row, new, problems)
    if not subresource:
        checker = _UPDATE_CHECKS.get(row.kind)
        if checker is not None:
            checker(new, old, problems)
    _raise(row, new, problems)


def _raise(row: Kind, obj: Object, problems: Problems) -> None:
    if problems.causes:
        raise _invalid(row, obj, problems.causes)


def _invalid(row: Kind, obj: Object, causes: list[Cause]) -> ApiError:
    name = obj["metadata"].get("name")
    return invalid(row, name if isinstance(name, str) else "", causes)


def _check_metadata(row: Kind, obj: Object, problems: Problems) -> None:
    meta = obj["metadata"]
    name = meta.get("name")
    if not name:
        problems.add(required("metadata.name", "name or generateName is required"))
    elif not isinstance(name, str):
        problems.add(wrong("metadata.name", name, "must be a string"))
    else:
        found = names.label_problems(name) if row.kind in _LABEL_NAMED else names.subdomain_problems(name)
        problems.extend(wrong("metadata.name", name, text) for text in found)
    check_labels(meta.get("labels"), "metadata.labels", problems)
    notes = meta.get("annotations")
    if notes is not None and not isinstance(notes, dict):
        problems.add(wrong("metadata.annotations", notes, "must be a map"))
    elif notes:
        for key in notes:
            texts = names.key_problems(str(key).lower())
            problems.extend(wrong("metadata.annotations", key, text) for text in texts)
        size = sum(len(str(key).encode()) + len(str(value).encode()) for key, value in notes.items())
        if size > ANNOTATIONS_LIMIT_BYTES:
            text = f"Too long: may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes"
            problems.add(Cause("FieldValueTooLong", "metadata.annotations", text))
    _check_owners(meta.get("ownerReferences") or (), problems)
    _check_finalizers(meta.get("finalizers") or [], problems)


_STANDARD_FINALIZERS = ("foregroundDeletion", "kubernetes", "orphan")


def _check_owners(owners: Iterable[Object], problems: Problems) -> None:
    where, controllers = "metadata.ownerReferences", []
    for owner in owners:
        for field, text in (
            ("apiVersion", "version must not be empty"),
            ("kind", "kind must not be empty"),
            ("name", "name must not be empty"),
            ("uid", "uid must not be empty"),
        ):
            if not owner.get(field):
                problems.add(wrong(f"{where}.{field}", owner.get(field) or "", text))
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            problems.add(wrong(where, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        text = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        problems.add(wrong(where, list(owners), text))


def _check_finalizers(finalizers: list[str], problems: Problems) -> None:
    where = "metadata.finalizers"
    for finalizer in finalizers:
        problems.extend(wrong(where, finalizer, text) for text in names.key_problems(finalizer))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        problems.add(wrong(where, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            problems.add(wrong(f"{where}[{index}]", finalizer, text))


def _map(holder: Any, key: str) -> Object:
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _check_daemonset(daemonset: Object, problems: Problems) -> None:
    spec = _map(daemonset, "spec")
    selector = spec.get("selector")
    template = _map(spec, "template")
    labels = _map(_map(template, "metadata"), "labels")
    if selector is None:
        problems.add(required("spec.selector"))
    else:
        wanted = _map(selector, "matchLabels")
        if not wanted and not _map(spec, "selector").get("matchExpressions"):
            problems.add(wrong("spec.selector", selector, "empty selector is invalid for daemonset"))
        elif any(labels.get(key) != value for key, value in wanted.items()):
            text = "`selector` does not match template `labels`"
            problems.add(wrong("spec.template.metadata.labels", labels, text))
    check_template(template, "spec.template", problems, restart=("Always",))
    not_below_zero(spec.get("minReadySeconds"), "spec.minReadySeconds", problems)
    strategy = _map(spec, "updateStrategy").get("type")
    if strategy not in ("RollingUpdate", "OnDelete"):
        problems.add(unsupported("spec.updateStrategy.type", strategy, ("RollingUpdate", "OnDelete")))
    elif strategy == "RollingUpdate":
        _check_rolling(_map(_map(spec, "updateStrategy"), "rollingUpdate"), problems)


def _check_rolling(rolling: Object, problems: Problems) -> None:
    where = "spec.updateStrategy.rollingUpdate"
    for field in ("maxUnavailable", "maxSurge"):
        value = rolling.get(field)
        if isinstance(value, str) and not names.is_percent(value):
            text = (
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex"
            )
            problems.add(wrong(f"{where}.{field}", value, f"{text} used for validation is '[0-9]+%')"))
        elif isinstance(value, int) and value < 0:
            problems.add(wrong(f"{where}.{field}", value, "must be greater than or equal to 0"))
    out, more = rolling.get("maxUnavailable") not in (0, "0%"), rolling.get("maxSurge") not in (0, "0%", None)
    if out and more:
        problems.add(wrong(f"{where}.maxSurge", rolling["maxSurge"], "may not be set when maxUnavailable is non-zero"))
    elif not out and not more:
        problems.add(required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def _check_daemonset_update(daemonset: Object, old: Object, problems: Problems) -> None:
    _check_daemonset(daemonset, problems)
    selector = _map(daemonset, "spec").get("selector")
    if selector != _map(old, "spec").get("selector"):
        problems.add(immutable("spec.selector", selector))


def _check_node(node: Object, problems: Problems) -> None:
    taints = _map(node, "spec").get("taints") or []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        # Where the API server says that they are.
        path = f"metadata.taints[{index}]"
        key, effect, value = taint.get("key", ""), taint.get("effect", ""), taint.get("value", "")
        problems.extend(wrong(f"{path}.key", key, text) for text in names.key_problems(key))
        problems.extend(wrong(f"{path}.value", value, text) for text in names.value_problems(value))
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        if not effect:
            problems.add(required(f"{path}.effect"))
        elif effect not in effects:
            problems.add(unsupported(f"{path}.effect", effect, effects))
        if (key, effect) in seen:
            text = f"Duplicate value: {shown(taint)}: taints must be unique by key and effect pair"
            problems.add(Cause("FieldValueDuplicate", path, text))
        seen.add((key, effect))


def _check_node_update(node: Object, old: Object, problems: Problems) -> None:
    _check_node(node, problems)
    before = _map(old, "spec")
    for field in ("providerID", "podCIDR"):
        now = _map(node, "spec").get(field)
        if before.get(field) and now != before[field]:
            problems.add(forbidden(f"spec.{field}", "node updates may not change it once it is set"))


def _check_config_map(config_map: Object, problems: Problems) -> None:
    data, binary = _map(config_map, "data"), _map(config_map, "binaryData")
    for field, found in (("data", data), ("binaryData", binary)):
        for key in found:
            texts = list(names.config_key_problems(key))
            problems.extend(wrong(f"{field}[{key}]", key, text) for text in texts)
    for key in sorted(data.keys() & binary.keys()):
        problems.add(wrong(f"data[{key}]", key, "duplicate of key present in binaryData"))
    if _size(data) + _size(binary) > _DATA_LIMIT_BYTES:
        problems.add(Cause("FieldValueTooLong", "", f"Too long: may not be more than {_DATA_LIMIT_BYTES} bytes"))


_DATA_LIMIT_BYTES = 1024 * 1024
# Types of Secrets and the keys that they cannot do without.
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _size(data: Object) -> int:
    return sum(len(str(value).encode()) for value in data.values())


def _check_secret(secret: Object, problems: Problems) -> None:
    data = _map(secret, "data")
    for key in data:
        problems.extend(wrong(f"data[{key}]", key, text) for text in names.config_key_problems(key))
    if _size(data) * 3 // 4 > _DATA_LIMIT_BYTES:
        text = f"Too long: may not be more than {_DATA_LIMIT_BYTES} bytes"
        problems.add(Cause("FieldValueTooLong", "data", text))
    for key in _SECRET_KEYS.get(secret.get("type", ""), ()):
        if key not in data:
            problems.add(required(f"data[{key}]"))


def _check_lease(lease: Object, problems: Problems) -> None:
    spec = _map(lease, "spec")
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        problems.add(wrong("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        problems.add(wrong("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))


_USER_PRIORITY_LIMIT = 1_000_000_000
_POLICIES = ("Never", "PreemptLowerPriority")


def _check_priority_class(priority_class: Object, problems: Problems) -> None:
    name, value = str(priority_class["metadata"].get("name", "")), priority_class.get("value", 0)
    if name.startswith("system-"):
        if defaults.BORN_PRIORITIES.get(name) != value:
            text = "priority class names with 'system-' prefix are reserved for system use only"
            problems.add(forbidden("metadata.name", f"{text}. error: {name} is not a known system priority class"))
    elif isinstance(value, int) and value > _USER_PRIORITY_LIMIT:
        text = f"maximum allowed value of a user defined priority is {_USER_PRIORITY_LIMIT}"
        problems.add(forbidden("value", text))
    policy = priority_class.get("preemptionPolicy")
    if policy not in _POLICIES:
        problems.add(unsupported("preemptionPolicy", policy, _POLICIES))


def _check_immutable_data(new: Object, old: Object, problems: Problems) -> None:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        problems.add(forbidden("immutable", "field is immutable when `immutable` is set"))
    for field in ("data", "binaryData"):
        if new.get(field) != old.get(field):
            problems.add(forbidden(field, "field is immutable when `immutable` is set"))


def _check_config_map_update(new: Object, old: Object, problems: Problems) -> None:
    _check_config_map(new, problems)
    _check_immutable_data(new, old, problems)


def _check_secret_update(new: Object, old: Object, problems: Problems) -> None:
    _check_secret(new, problems)
    if new.get("type") != old.get("type"):
        problems.add(immutable("type", new.get("type")))
    _check_immutable_data(new, old, problems)


def _check_priority_class_update(new: Object, old: Object, problems: Problems) -> None:
    if new.get("value") != old.get("value"):
        problems.add(forbidden("value", "may not be changed in an update."))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        problems.add(immutable("preemptionPolicy", new.get("preemptionPolicy")))


def _check_event(event: Object, problems: Problems) -> None:
    namespace, about = event["metadata"].get("namespace"), _map(event, "involvedObject").get("namespace", "")
    # What is about nothing in a namespace belongs into default.
    if (about or "default") != namespace:
        problems.add(wrong("involvedObject.namespace", about, "does not match event.namespace"))


def _check_budget(budget: Object, problems: Problems) -> None:
    spec = _map(budget, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        problems.add(wrong("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "IfHealthyBudget", "AlwaysAllow"):
        problems.add(unsupported("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget")))


_CHECKS: dict[str, Callable[[Object, Problems], None]] = {
    "ConfigMap": _check_config_map,
    "DaemonSet": _check_daemonset,
    "Event": _check_event,
    "Job": check_job,
    "Lease": _check_lease,
    "Node": _check_node,
    "Pod": check_pod,
    "PodDisruptionBudget": _check_budget,
    "PriorityClass": _check_priority_class,
    "Secret": _check_secret,
}

_UPDATE_CHECKS: dict[str, Callable[[Object, Object, Problems], None]] = {
    "ConfigMap": _check_config_map_update,
    "DaemonSet": _check_daemonset_update,
    "Job": check_job_update,
    "Lease": lambda new, _, problems: _check_lease(new, problems),
    "Node": _check_node_update,
    "Pod": check_pod_update,
    "PodDisruptionBudget": lambda new, _, problems: _check_budget(new, problems),
    "PriorityClass": _check_priority_class_update,
    "Secret": _check_secret_update,
}
