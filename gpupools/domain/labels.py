"""What may stand in a pool's name, free labels and taints: Kubernetes syntax first, then ACK's own refusals.

Mode and policy are typed fields elsewhere, so their keys are not free here. Pure; errors are values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpupools.domain.gpus import Taint
from gpupools.domain.modes import (
    ACK_POOL_LABEL,
    MAX_PODS_LABEL,
    MODE_LABEL,
    OP_LABEL,
    PLACEMENT_LABEL,
    POOL_LABEL,
)
from gpupools.errors import FieldError

MOST_LABELS = 20  # ACK's limit for a node pool
LONGEST_KEY = 64  # ACK's too; Kubernetes alone would allow a longer prefix
LONGEST_POOL_NAME = 63
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# Prefixes that the node-pool API refuses in label keys and values.
ACK_REFUSES = ("aliyun", "acs:", "http://", "https://")

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_POOL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_TYPED = {
    MODE_LABEL: "Choose the scheduling mode in its own field.",
    PLACEMENT_LABEL: "Choose the placement policy in its own field.",
    "cgpu": "This is an older way to turn sharing on and off: choose the scheduling mode in its own field.",
    "gpushare": "This is an older way to turn sharing on: choose the scheduling mode in its own field.",
}
_ACKS = "ACK writes this label by itself and goes by it."
_KUBELETS = "The node writes this label about itself; another value would send pods to the wrong machines."
_RESERVED = {
    POOL_LABEL: "The console tells by this label which nodes are in which pool.",
    OP_LABEL: "The console finds its own operations again by this label.",
    ACK_POOL_LABEL: "ACK tells by this label which nodes are in which node pool.",
    "node.alibabacloud.com/nodepool-id": "ACK tells by this label which nodes are in which node pool.",
    "alibabacloud.com/ecs-instance-id": "ACK tells by this label which machine a node is.",
    "node.alibabacloud.com/instance-charge-type": _ACKS,
    "node.alibabacloud.com/spot-strategy": _ACKS,
    "ack.aliyun.com": _ACKS,
    "goatscaler.io/managed": "ACK's autoscaler tells by this label which nodes are its own.",
    **dict.fromkeys(
        (
            "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type",
            "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "beta.kubernetes.io/os",
            "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type",
            "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
        ),
        _KUBELETS,
    ),
}  # fmt: skip
_CARD_PREFIX = "aliyun.accelerator/"
_CARDS = "ACK finds out what cards a machine has and writes this label when it joins; it is shown here, and not set."


def check_pool_name(name: str) -> list[FieldError]:
    """Check a node pool's name: it is a label value on plain Kubernetes, so a DNS label of at most 63."""
    if _POOL_NAME.fullmatch(name) and len(name) <= LONGEST_POOL_NAME:
        return []
    return [
        FieldError(
            "name",
            "A node pool's name has lower-case letters, digits and '-', and starts and ends with a letter or digit.",
            code="bad-name",
            found=name[:80],
            allowed=f"1 to {LONGEST_POOL_NAME} characters of a-z, 0-9 and '-'",
        )
    ]


def key_problem(key: str) -> str:
    """Say what is wrong with the syntax of a label or taint key, or nothing (Kubernetes' qualified name)."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not _PREFIX.fullmatch(prefix) or len(prefix) > 253):
        return "The part before '/' must be a lower-case DNS name."
    if not _NAME.fullmatch(name) or len(name) > 63:
        return "A key is up to 63 letters, digits, '-', '_' or '.', and starts and ends with a letter or digit."
    return ""


def value_problem(value: str) -> str:
    """Say what is wrong with the syntax of a label or taint value, or nothing."""
    if value and (not _NAME.fullmatch(value) or len(value) > 63):
        return "A value is at most 63 letters, digits, '-', '_' or '.', and starts and ends with a letter or digit."
    return ""


def _refused_by_ack(text: str) -> str:
    return next((prefix for prefix in ACK_REFUSES if text.startswith(prefix)), "")


def check_labels(labels: Mapping[str, str], *, field: str = "labels") -> list[FieldError]:
    """Check free labels of a node pool. Field paths are ``labels.<key>``.

    The refused prefixes and the limit of 20 are ACK's (node pool API); they hold on every provider, so that a
    pool's labels can move between clusters.
    """
    errors = []
    if len(labels) > MOST_LABELS:
        errors.append(
            FieldError(
                field,
                f"A node pool has at most {MOST_LABELS} labels.",
                code="too-many",
                found=str(len(labels)),
                allowed=f"at most {MOST_LABELS}",
            )
        )
    for key, value in labels.items():
        path = f"{field}.{key}"
        if key.startswith(_CARD_PREFIX):
            errors.append(FieldError(path, _CARDS, code="read-only", found=key))
        elif prefix := _refused_by_ack(key):
            errors.append(
                FieldError(
                    path,
                    f"ACK refuses label keys that start with '{prefix}'.",
                    code="refused-prefix",
                    found=key,
                    allowed="a key that does not start with " + ", ".join(ACK_REFUSES),
                )
            )
        elif key in _TYPED:
            errors.append(FieldError(path, _TYPED[key], code="typed-elsewhere", found=f"{key}={value}"))
        elif key in _RESERVED:
            errors.append(FieldError(path, _RESERVED[key], code="reserved", found=key))
        elif problem := key_problem(key):
            errors.append(FieldError(path, problem, code="bad-key", found=key, allowed="[prefix/]name"))
        elif len(key) > LONGEST_KEY:
            allowed = f"at most {LONGEST_KEY} characters"
            errors.append(FieldError(path, "ACK refuses a key this long.", code="too-long", found=key, allowed=allowed))
        elif key == MAX_PODS_LABEL and not value.isdecimal():
            message = "ACK's scheduler takes no pod on a node where this is not a whole number."
            errors.append(FieldError(path, message, code="bad-value", found=value[:80], allowed="0 or more pods"))
        if prefix := _refused_by_ack(value):
            errors.append(
                FieldError(
                    path,
                    f"ACK refuses label values that start with '{prefix}'.",
                    code="refused-prefix",
                    found=value,
                    allowed="a value that does not start with " + ", ".join(ACK_REFUSES),
                )
            )
        elif problem := value_problem(value):
            errors.append(FieldError(path, problem, code="bad-value", found=value[:80], allowed="up to 63 characters"))
    return errors


def check_taints(taints: Iterable[Taint], *, field: str = "taints") -> list[FieldError]:
    """Check a node pool's taints. Field paths are ``taints.<position>.<part>``; a (key, effect) pair stands once."""
    errors = []
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(taints):
        path = f"{field}.{position}"
        if prefix := _refused_by_ack(taint.key):
            message = f"ACK refuses taint keys that start with '{prefix}'."
            errors.append(FieldError(f"{path}.key", message, code="refused-prefix", found=taint.key))
        elif problem := key_problem(taint.key):
            errors.append(FieldError(f"{path}.key", problem, code="bad-key", found=taint.key, allowed="[prefix/]name"))
        elif len(taint.key) > LONGEST_KEY:
            allowed = f"at most {LONGEST_KEY} characters"
            message = "ACK refuses a key this long."
            errors.append(FieldError(f"{path}.key", message, code="too-long", found=taint.key, allowed=allowed))
        if prefix := _refused_by_ack(taint.value):
            message = f"ACK refuses taint values that start with '{prefix}'."
            errors.append(FieldError(f"{path}.value", message, code="refused-prefix", found=taint.value[:80]))
        elif problem := value_problem(taint.value):
            errors.append(FieldError(f"{path}.value", problem, code="bad-value", found=taint.value[:80]))
        if taint.effect not in EFFECTS:
            errors.append(
                FieldError(
                    f"{path}.effect",
                    "This taint effect does not exist.",
                    code="unknown",
                    found=taint.effect,
                    allowed=", ".join(EFFECTS),
                )
            )
        if (taint.key, taint.effect) in seen:
            errors.append(
                FieldError(
                    path,
                    "This key and effect stand here twice.",
                    code="twice",
                    found=f"{taint.key}:{taint.effect}",
                )
            )
        seen.add((taint.key, taint.effect))
    return errors
