"""What the API server refuses in pods and pod templates, in its wording; resources above all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpupools.simulator import amounts, names
from gpupools.simulator.kinds import Object
from gpupools.simulator.problems import (
    Problems,
    absent,
    duplicate,
    forbidden,
    required,
    unsupported,
    wrong,
)

_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage"))
_RESTART = ("Always", "OnFailure", "Never")
_PULL = ("Always", "IfNotPresent", "Never")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)

_CHECKED_APART = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def check_labels(labels: Any, field: str, problems: Problems) -> None:
    """Check a map of labels, also where it is a selector."""
    if labels is None:
        return
    if not isinstance(labels, dict):
        problems.add(wrong(field, labels, "must be a map"))
        return
    for key, value in labels.items():
        problems.extend(wrong(field, key, text) for text in names.key_problems(key))
        if not isinstance(value, str):
            problems.add(wrong(field, value, "must be a string"))
            continue
        problems.extend(wrong(field, value, text) for text in names.value_problems(value))


def check_pod(pod: Object, problems: Problems) -> None:
    """Check a new pod."""
    check_spec(_map(pod, "spec"), "spec", problems, restart=_RESTART)


def check_template(
    template: Object,
    field: str,
    problems: Problems,
    *,
    restart: Sequence[str],
    required_text: bool = False,
) -> None:
    """Check a pod template; Jobs word a restart policy that they do not take as a missing one."""
    check_labels(_map(template, "metadata").get("labels"), f"{field}.labels", problems)
    check_spec(_map(template, "spec"), f"{field}.spec", problems, restart=_RESTART)
    policy = _map(template, "spec").get("restartPolicy", "Always")
    if policy in restart or policy not in _RESTART:
        return
    path = f"{field}.spec.restartPolicy"
    if required_text:
        problems.add(required(path, "valid values: " + ", ".join(f'"{word}"' for word in restart)))
    else:
        problems.add(unsupported(path, policy, restart))


def check_spec(spec: Object, field: str, problems: Problems, *, restart: Sequence[str]) -> None:
    """Check a pod's spec."""
    volumes = _check_volumes(spec, field, problems)
    containers = _list(spec, "containers")
    if not containers:
        problems.add(required(f"{field}.containers"))
    seen: set[str] = set()
    for key in ("containers", "initContainers"):
        for index, container in enumerate(_list(spec, key)):
            _check_container(container, f"{field}.{key}[{index}]", problems, seen, volumes)
    policy = spec.get("restartPolicy")
    if policy not in restart:
        problems.add(unsupported(f"{field}.restartPolicy", policy, restart))
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        problems.add(wrong(f"{field}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"))
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and deadline < 1:
        text = "must be between 1 and 2147483647, inclusive"
        problems.add(wrong(f"{field}.activeDeadlineSeconds", deadline, text))
    check_labels(spec.get("nodeSelector"), f"{field}.nodeSelector", problems)
    node = spec.get("nodeName")
    if node:
        problems.extend(wrong(f"{field}.nodeName", node, text) for text in names.subdomain_problems(str(node)))
    _check_node_affinity(_map(_map(spec, "affinity"), "nodeAffinity"), f"{field}.affinity.nodeAffinity", problems)
    _check_tolerations(_list(spec, "tolerations"), f"{field}.tolerations", problems)


def _map(holder: Any, key: str) -> Object:
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _list(holder: Any, key: str) -> list[Object]:
    found = holder.get(key) if isinstance(holder, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _check_volumes(spec: Object, field: str, problems: Problems) -> set[str]:
    known: set[str] = set()
    for index, volume in enumerate(_list(spec, "volumes")):
        path, name = f"{field}.volumes[{index}]", volume.get("name", "")
        if not name:
            problems.add(required(f"{path}.name"))
            continue
        problems.extend(wrong(f"{path}.name", name, text) for text in names.label_problems(name))
        if name in known:
            problems.add(duplicate(f"{path}.name", name))
        known.add(name)
        host_path = volume.get("hostPath")
        if isinstance(host_path, dict) and not host_path.get("path"):
            problems.add(required(f"{path}.hostPath.path"))
        if len(volume) > 2:
            problems.add(forbidden(f"{path}.{sorted(volume.keys() - {'name'})[1]}", _ONE_SOURCE))
    return known


_ONE_SOURCE = "may not specify more than 1 volume type"


def _check_container(container: Object, path: str, problems: Problems, seen: set[str], volumes: set[str]) -> None:
    name = container.get("name", "")
    if not name:
        problems.add(required(f"{path}.name"))
    else:
        problems.extend(wrong(f"{path}.name", name, text) for text in names.label_problems(str(name)))
        if name in seen:
            problems.add(duplicate(f"{path}.name", name))
        seen.add(name)
    if not container.get("image"):
        problems.add(required(f"{path}.image"))
    elif str(container["image"]).strip() != container["image"]:
        text = "must not have leading or trailing whitespace"
        problems.add(wrong(f"{path}.image", container["image"], text))
    policy = container.get("imagePullPolicy")
    if policy not in _PULL:
        problems.add(unsupported(f"{path}.imagePullPolicy", policy, _PULL))
    for index, variable in enumerate(_list(container, "env")):
        if not variable.get("name"):
            problems.add(required(f"{path}.env[{index}].name"))
        elif variable.get("value") and variable.get("valueFrom"):
            text = "may not be specified when `value` is not empty"
            problems.add(wrong(f"{path}.env[{index}].valueFrom", "", text))
    for index, mount in enumerate(_list(container, "volumeMounts")):
        where = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            problems.add(required(f"{where}.name"))
        elif mount["name"] not in volumes:
            problems.add(absent(f"{where}.name", mount["name"]))
        if not mount.get("mountPath"):
            problems.add(required(f"{where}.mountPath"))
    for index, port in enumerate(_list(container, "ports")):
        number = port.get("containerPort")
        if number is None:
            problems.add(required(f"{path}.ports[{index}].containerPort"))
        elif not isinstance(number, int) or not 1 <= number <= 65535:
            text = "must be between 1 and 65535, inclusive"
            problems.add(wrong(f"{path}.ports[{index}].containerPort", number, text))
    _check_resources(_map(container, "resources"), f"{path}.resources", problems)


def _check_resources(resources: Object, path: str, problems: Problems) -> None:
    """Limits first, then requests; an extended resource is whole, limited, and asked for as it is limited."""
    limits, requests = _map(resources, "limits"), _map(resources, "requests")
    for name, value in limits.items():
        _check_amount(name, value, f"{path}.limits[{name}]", problems)
    for name, value in requests.items():
        _check_amount(name, value, f"{path}.requests[{name}]", problems)
        overcommit = not amounts.is_extended(name) and not name.startswith("hugepages-")
        if name not in limits:
            if not overcommit:
                text = "Limit must be set for non overcommitable resources"
                problems.add(required(f"{path}.limits", text))
            continue
        asked, limit = amounts.amount(value), amounts.amount(limits[name])
        if asked != limit and not overcommit:
            text = f"must be equal to {name} limit of {limits[name]}"
            problems.add(wrong(f"{path}.requests", value, text))
        elif asked > limit:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            problems.add(wrong(f"{path}.requests", value, text))


def _check_amount(name: str, value: str, path: str, problems: Problems) -> None:
    problems.extend(wrong(path, name, text) for text in names.key_problems(name))
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        problems.add(wrong(path, name, "must be a standard resource type or fully qualified"))
        problems.add(wrong(path, name, "must be a standard resource for containers"))
    exact = amounts.amount(value)
    if exact < 0:
        problems.add(wrong(path, value, "must be greater than or equal to 0"))
    if amounts.is_extended(name) and exact.denominator != 1:
        problems.add(wrong(path, value, "must be an integer"))


def _check_node_affinity(affinity: Object, path: str, problems: Problems) -> None:
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    if needed in affinity:
        terms = _list(_map(affinity, needed), "nodeSelectorTerms")
        where = f"{path}.{needed}.nodeSelectorTerms"
        if not terms:
            problems.add(required(where, "must have at least one node selector term"))
        for index, term in enumerate(terms):
            _check_expressions(_list(term, "matchExpressions"), f"{where}[{index}].matchExpressions", problems)
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, entry in enumerate(_list(affinity, preferred)):
        where, weight = f"{path}.{preferred}[{index}]", entry.get("weight", 0)
        if not isinstance(weight, int) or not 1 <= weight <= 100:
            problems.add(wrong(f"{where}.weight", weight, "must be in the range 1-100"))
        expressions = _list(_map(entry, "preference"), "matchExpressions")
        _check_expressions(expressions, f"{where}.preference.matchExpressions", problems)


def _check_expressions(expressions: Iterable[Object], path: str, problems: Problems) -> None:
    for index, expression in enumerate(expressions):
        where, operator = f"{path}[{index}]", expression.get("operator", "")
        values = expression.get("values") or []
        key = str(expression.get("key", ""))
        problems.extend(wrong(f"{where}.key", key, text) for text in names.key_problems(key))
        if operator in ("In", "NotIn") and not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            problems.add(required(f"{where}.values", text))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            problems.add(forbidden(f"{where}.values", text))
        elif operator in ("Gt", "Lt") and len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            problems.add(required(f"{where}.values", text))
        elif operator not in _OPERATORS:
            problems.add(wrong(f"{where}.operator", operator, "not a valid selector operator"))


def _check_tolerations(tolerations: Iterable[Object], path: str, problems: Problems) -> None:
    for index, toleration in enumerate(tolerations):
        where = f"{path}[{index}]"
        key, operator = str(toleration.get("key", "")), toleration.get("operator", "")
        value, effect = str(toleration.get("value", "")), toleration.get("effect", "")
        if key:
            problems.extend(wrong(f"{where}.key", key, text) for text in names.key_problems(key))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            problems.add(wrong(f"{where}.operator", operator, text))
        if operator in ("", "Equal"):
            texts = names.value_problems(value)
            problems.extend(wrong(f"{where}.operator", value, text) for text in texts)
        elif operator == "Exists":
            if value:
                text = "value must be empty when `operator` is 'Exists'"
                problems.add(wrong(f"{where}.operator", toleration, text))
        else:
            problems.add(unsupported(f"{where}.operator", operator, ("Equal", "Exists")))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            problems.add(wrong(f"{where}.effect", effect, text))
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        if effect and effect not in effects:
            problems.add(unsupported(f"{where}.effect", effect, effects))


def check_pod_update(pod: Object, old: Object, problems: Problems) -> None:
    """Check a pod's change: its images, its deadline, more tolerations and fewer gates, nothing else."""
    new, before = _map(pod, "spec"), _map(old, "spec")
    if new == before:
        return
    if _fixed(new) != _fixed(before):
        problems.add(forbidden("spec", _MAY_CHANGE))
    kept = before.get("tolerations") or []
    if any(entry not in (new.get("tolerations") or []) for entry in kept):
        text = "existing toleration can not be modified except its tolerationSeconds"
        problems.add(forbidden("spec.tolerations", text))
    gates = {gate.get("name") for gate in _list(before, "schedulingGates")}
    for index, gate in enumerate(_list(new, "schedulingGates")):
        if (name := gate.get("name")) not in gates:
            text = f"only deletion is allowed, but found new scheduling gate '{name}'"
            problems.add(forbidden(f"spec.schedulingGates[{index}].name", text))
    for key in ("containers", "initContainers"):
        for index, container in enumerate(_list(new, key)):
            if not container.get("image"):
                problems.add(required(f"spec.{key}[{index}].image"))


def _fixed(spec: Object) -> Object:
    """Return what of a pod's spec may never change."""
    fixed = {key: value for key, value in spec.items() if key not in _CHECKED_APART}
    for key in ("containers", "initContainers"):
        if key in fixed:
            fixed[key] = [
                {name: value for name, value in container.items() if name not in ("image", "imagePullPolicy")}
                for container in _list(spec, key)
            ]
    return fixed
