"""What the ACK OpenAPI accepts in node-pool bodies, and how it refuses: code, sentence, HTTP status.

Pure checks over decoded JSON; the limits are those of the API's own parameter descriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpupools.domain.labels import ACK_REFUSES, EFFECTS, MOST_LABELS, key_problem, value_problem
from gpupools.simulator.hardware import hardware_of

LONGEST_KEY, LONGEST_VALUE = 64, 128
MOST_INSTANCE_TYPES = 10
MOST_NODES = 500  # that one call may ask for
CHARGE_TYPES = ("PostPaid", "PrePaid")
SCALING_TYPES = ("cpu", "gpu", "gpushare", "spot")

Body = Mapping[str, Any]


class AckError(Exception):
    """An answer other than success, as the gateway words it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def invalid(message: str) -> AckError:
    """400: a parameter cannot be accepted."""
    return AckError(400, "InvalidParameter", message)


def missing(name: str) -> AckError:
    """400: a parameter has to be there."""
    return AckError(400, "MissingParameter", f"The parameter {name} is required.")


def section(body: Body, name: str) -> dict[str, Any]:
    """Return an object of the body, empty when it is not there."""
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise invalid(f"The parameter {name} must be an object.")
    return dict(value)


def labels(config: Body) -> list[dict[str, str]] | None:
    """Return the checked labels of a kubernetes_config, None when it says nothing about labels."""
    if config.get("labels") is None:
        return None
    listed = _objects(config["labels"], "kubernetes_config.labels")
    if len(listed) > MOST_LABELS:
        raise invalid(f"At most {MOST_LABELS} labels can be set, not {len(listed)}.")
    checked: dict[str, str] = {}
    for entry in listed:
        key, value = str(entry.get("key") or ""), str(entry.get("value") or "")
        _check_text("label", key, value)
        if key in checked:
            raise invalid(f"The label {key} is given twice.")
        checked[key] = value
    return [{"key": key, "value": value} for key, value in checked.items()]


def taints(config: Body) -> list[dict[str, str]] | None:
    """Return the checked taints of a kubernetes_config, None when it says nothing about taints."""
    if config.get("taints") is None:
        return None
    checked = []
    for entry in _objects(config["taints"], "kubernetes_config.taints"):
        key, value = str(entry.get("key") or ""), str(entry.get("value") or "")
        effect = str(entry.get("effect") or "")
        _check_text("taint", key, value)
        if effect not in EFFECTS:
            raise invalid(f"The effect {effect!r} of taint {key} is none of {', '.join(EFFECTS)}.")
        checked.append({"key": key, "value": value, "effect": effect})
    return checked


def _check_text(what: str, key: str, value: str) -> None:
    for kind, text in (("key", key), ("value", value)):
        prefix = next((prefix for prefix in ACK_REFUSES if text.startswith(prefix)), "")
        if prefix:
            raise invalid(f"The {what} {kind} {text!r} is invalid: it must not start with {prefix}.")
    if not key or len(key) > LONGEST_KEY or key_problem(key):
        raise invalid(f"The {what} key {key[:100]!r} is invalid.")
    if len(value) > LONGEST_VALUE or value_problem(value):
        raise invalid(f"The {what} value {value[:100]!r} is invalid.")


def instance_types(group: Body, *, required: bool) -> list[str] | None:
    """Return the checked instance types of a scaling_group."""
    listed = group.get("instance_types")
    if not listed:
        if required:
            raise missing("scaling_group.instance_types")
        return None
    if not isinstance(listed, list) or len(listed) > MOST_INSTANCE_TYPES:
        raise invalid(f"scaling_group.instance_types takes 1 to {MOST_INSTANCE_TYPES} instance types.")
    for name in listed:
        if hardware_of(str(name)) is None:
            raise AckError(
                400, "InvalidInstanceType.NotSupported", f"The instance type {name} is not supported in this zone."
            )
    return [str(name) for name in listed]


def size(group: Body) -> int | None:
    """Return the checked desired size of a scaling_group."""
    value = group.get("desired_size")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_NODES:
        raise invalid(f"scaling_group.desired_size must be a number from 0 to {MOST_NODES}.")
    return value


def auto_scaling(body: Body) -> dict[str, Any]:
    """Return the checked auto_scaling of a body: its bounds, and the wanted size between them."""
    wanted = section(body, "auto_scaling")
    if not _flag(wanted):
        return wanted
    least, most = wanted.get("min_instances", 0), wanted.get("max_instances", 0)
    if not isinstance(least, int) or not isinstance(most, int) or not 0 <= least <= most or most < 1:
        raise invalid(f"auto_scaling.min_instances ({least}) and auto_scaling.max_instances ({most}) are no bounds.")
    if (kind := wanted.get("type")) is not None and kind not in SCALING_TYPES:
        raise invalid(f"auto_scaling.type must be one of {', '.join(SCALING_TYPES)}.")
    wished = size(section(body, "scaling_group"))
    if wished is not None and not least <= wished <= most:
        raise invalid(f"scaling_group.desired_size ({wished}) is not between {least} and {most}.")
    return wanted


def _flag(wanted: Body) -> bool:
    value = wanted.get("enable")
    if value is not None and not isinstance(value, bool):
        raise invalid("auto_scaling.enable must be a boolean.")
    return bool(value)


def new_pool(body: Body) -> None:
    """Check what a new node pool must have."""
    name = section(body, "nodepool_info").get("name")
    if not name or not isinstance(name, str):
        raise missing("nodepool_info.name")
    if len(name) > 63:
        raise invalid("nodepool_info.name must have 1 to 63 characters.")
    group = section(body, "scaling_group")
    if not group.get("vswitch_ids"):
        raise missing("scaling_group.vswitch_ids")
    instance_types(group, required=True)
    if group.get("instance_charge_type") not in CHARGE_TYPES:
        raise invalid(f"scaling_group.instance_charge_type must be one of {', '.join(CHARGE_TYPES)}.")
    size(group)
    auto_scaling(body)


def _objects(value: Any, name: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise invalid(f"{name} must be a list of objects.")
    return value
