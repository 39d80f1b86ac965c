"""YAML text -> a checked Job or Pod: what it is called, where it goes, what it asks for.

Shape and confinement only; whether it is wise is lint's business, where it would land is placement's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from gpupools.domain import objects, yamltext
from gpupools.domain.fieldcheck import wrong_types
from gpupools.domain.gpus import Ask
from gpupools.domain.modes import MODE_LABEL
from gpupools.errors import FieldError, Invalid

KINDS = {"Job": "batch/v1", "Pod": "v1"}
MOST_PODS = 1000
MOST_ERRORS = 50
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Manifest(msgspec.Struct, frozen=True):
    """A Job or Pod that was read. ``ask`` is what each of its pods asks for; ``parallelism`` how many run at once."""

    kind: str
    namespace: str
    name: str
    raw: dict[str, Any]
    ask: Ask
    parallelism: int
    completions: int
    yaml: str

    @property
    def pod(self) -> dict[str, Any]:
        """The raw pod: the object itself, or a Job's template."""
        return self.raw if self.kind == "Pod" else self.raw["spec"]["template"]

    @property
    def pod_path(self) -> str:
        """Where the pod stands in the YAML, for messages."""
        return "" if self.kind == "Pod" else "spec.template."


def selects_mode(ask: Ask) -> str | None:
    """Return the value of ``ack.node.gpu.schedule`` that a pod binds itself to by selector or affinity, if just one."""
    if MODE_LABEL in ask.node_selector:
        return ask.node_selector[MODE_LABEL]
    found: set[str] = set()
    for term in ask.required_terms or ():
        values = [
            expression.values
            for expression in term.expressions
            if expression.key == MODE_LABEL and expression.operator == "In"
        ]
        if len(values) != 1 or len(values[0]) != 1:
            return None
        found.add(values[0][0])
    return found.pop() if len(found) == 1 else None


def parse(text: str, *, max_bytes: int, default_namespace: str = "default") -> Manifest:
    """Read a Job or Pod. Raises Invalid; field paths are ``yaml`` for the text and ``yaml:<path>`` inside it."""
    raw = yamltext.load(text, max_bytes=max_bytes)
    kind, version = raw.get("kind"), raw.get("apiVersion")
    if kind not in KINDS:
        raise _wrong("kind", "Only Jobs and Pods can be submitted here.", kind, " or ".join(KINDS), code="wrong-kind")
    if version != KINDS[kind]:
        raise _wrong("apiVersion", f"A {kind} has apiVersion {KINDS[kind]}.", version, KINDS[kind])
    metadata = _mapping(raw, "metadata")
    spec = _mapping(raw, "spec")
    _check_types(kind, raw)
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise _wrong("metadata.name", "The object needs a name, so that it is never sent twice.", name, "a DNS name")
    longest = 63 if kind == "Job" else 253
    if len(name) > longest:
        raise _wrong(
            "metadata.name",
            f"The name of a {kind} has at most {longest} characters, and this one has {len(name)}.",
            name,
            f"at most {longest} characters",
        )
    if not _DNS_NAME.fullmatch(name) or ".." in name:
        raise _wrong(
            "metadata.name",
            "A name is made of lower-case letters, digits, '-' and '.', and starts and ends with a letter or digit.",
            name,
            "a DNS name",
        )
    namespace = metadata.get("namespace", default_namespace)
    if not isinstance(namespace, str) or not _DNS_LABEL.fullmatch(namespace) or len(namespace) > 63:
        raise _wrong("metadata.namespace", "This is not the name of a namespace.", namespace, "a DNS label")
    parallelism = completions = 1
    pod, path = raw, ""
    if kind == "Job":
        pod, path = _mapping(spec, "template", "spec."), "spec.template."
        _mapping(pod, "spec", path)
        parallelism = _count(spec, "parallelism", 1)
        completions = _count(spec, "completions", parallelism)
    _check_shape(raw.get("metadata"), _METADATA, "metadata")
    _check_shape(pod, _POD, path.removesuffix("."))
    containers = pod["spec"].get("containers")
    if not isinstance(containers, list) or not containers:
        raise _wrong(f"{path}spec.containers", "A pod needs at least one container.", containers, "a list")
    ask = _ask(pod, path, namespace=namespace, name=name)
    return Manifest(kind, namespace, name, raw, ask, parallelism, completions, text)


def _check_types(kind: str, raw: Mapping[str, Any]) -> None:
    """Refuse values that the API server cannot read as what their field holds, all of them at once."""
    errors = [replace(error, field=f"yaml:{error.field}") for error in wrong_types(kind, raw)]
    if len(errors) == 1:
        raise Invalid(errors[0].message, code=errors[0].code, errors=errors)
    if errors:
        raise Invalid("Some values have another type than their fields.", code="invalid", errors=errors[:MOST_ERRORS])


# Where rules look inside: a dict stands for a mapping with these fields, a list for a list of what it holds.
_METADATA: dict[str, Any] = {"labels": {}, "annotations": {}}
_CONTAINER: dict[str, Any] = {
    "env": [{}],
    "ports": [{}],
    "resources": {"limits": {}, "requests": {}},
    "securityContext": {"capabilities": {}},
}
_POD: dict[str, Any] = {
    "metadata": _METADATA,
    "spec": {"initContainers": [_CONTAINER], "containers": [_CONTAINER], "securityContext": {}, "volumes": [{}]},
}


def _check_shape(value: object, shape: dict[str, Any] | list[Any], path: str) -> None:
    """Refuse what is no mapping, or no list, where Kubernetes has one; what is left out or null is neither."""
    if isinstance(shape, list):
        if not isinstance(value, list):
            raise _wrong(path, f"'{path}' is not a list.", value, "a list")
        for position, item in enumerate(value):
            _check_shape(item, shape[0], f"{path}[{position}]")
        return
    if not isinstance(value, dict):
        raise _wrong(path, f"'{path}' is not a mapping.", value, "a mapping")
    for key, inner in shape.items():
        if value.get(key) is not None:
            _check_shape(value[key], inner, f"{path}.{key}" if path else key)


def _ask(pod: Mapping[str, Any], path: str, *, namespace: str, name: str) -> Ask:
    metadata = pod.get("metadata") or {}
    whole = {"metadata": {**metadata, "namespace": namespace, "name": name}, "spec": pod["spec"]}
    try:
        value = objects.convert("Pod", whole)
    except Invalid as error:
        first = error.errors[0]
        sentence = first.message.removeprefix(f"{first.field}: ")
        raise _wrong(path + first.field, sentence, first.found or "another type", first.allowed) from None
    return value.ask  # type: ignore[union-attr]  # convert("Pod") gives a Pod


def _wrong(path: str, message: str, found: object, allowed: str, *, code: str = "invalid") -> Invalid:
    text = "" if found is None else str(found)[:80]
    return Invalid.field(f"yaml:{path}", message, code=code, found=text or "nothing", allowed=allowed)


def _mapping(parent: Mapping[str, Any], key: str, path: str = "") -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        raise _wrong(f"{path}{key}", f"'{path}{key}' is missing or is not a mapping.", value, "a mapping")
    return value


def _count(spec: Mapping[str, Any], key: str, default: int) -> int:
    value = spec.get(key, default)
    allowed = f"0 to {MOST_PODS}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(f"spec.{key}", f"'{key}' is a whole number.", value, allowed)
    if value < 0:
        raise _wrong(f"spec.{key}", f"'{key}' cannot be less than 0.", value, allowed)
    if value > MOST_PODS:
        raise _wrong(f"spec.{key}", f"'{key}' is more than the {MOST_PODS} that the console takes.", value, allowed)
    return value


# What a submission may not do. ACK's allocation annotations are the scheduler's to write: forged ones would put a
# pod onto cards that were never given to it.
_FORBIDDEN_ANNOTATIONS = (
    "scheduler.framework.gpushare.",
    "gpushare.alibabacloud.com/",
    "gputopology.alibabacloud.com/allocation",
    "ALIYUN_COM_GPU_MEM_",
    "topology.kubernetes.io/gpu-",
    "gpupools.internal/",
)
_ALLOWED_VOLUMES = {
    "name", "emptyDir", "configMap", "secret", "persistentVolumeClaim", "downwardAPI", "projected", "ephemeral",
}  # fmt: skip


def check_confined(manifest: Manifest, *, namespaces: frozenset[str] | None) -> list[FieldError]:
    """Return what the manifest does beyond its own pod and its granted namespaces; None means every namespace.

    ``hostIPC`` is let through only where the pod binds itself to mode mps, whose clients need it.
    """
    errors: list[FieldError] = []
    spec, path = manifest.pod["spec"], f"yaml:{manifest.pod_path}spec"

    def refuse(where: str, message: str, found: object, allowed: str = "") -> None:
        errors.append(FieldError(where, message, code="confined", found=str(found)[:80], allowed=allowed))

    if namespaces is not None and manifest.namespace not in namespaces:
        refuse(
            "yaml:metadata.namespace",
            "You have no grant for this namespace.",
            manifest.namespace,
            ", ".join(sorted(namespaces)) or "no namespace",
        )
    if spec.get("hostIPC") and selects_mode(manifest.ask) != "mps":
        refuse(
            f"{path}.hostIPC",
            "hostIPC is only for pods of mode mps.",
            True,
            f"nodeSelector {MODE_LABEL}: mps",
        )
    for key in ("hostNetwork", "hostPID"):
        if spec.get(key):
            refuse(
                f"{path}.{key}",
                f"{key} is not allowed: a job shares no namespace with its node.",
                True,
                "false",
            )
    if spec.get("nodeName"):
        refuse(
            f"{path}.nodeName",
            "nodeName goes around the scheduler and its ledger.",
            spec["nodeName"],
            "nodeSelector",
        )
    if spec.get("schedulerName") not in (None, "", "default-scheduler"):
        refuse(f"{path}.schedulerName", "Another scheduler does not keep the GPU ledger.", spec["schedulerName"],
               "default-scheduler")  # fmt: skip
    for key in ("serviceAccountName", "serviceAccount"):
        if spec.get(key) not in (None, "", "default"):
            refuse(f"{path}.{key}", "Jobs run as the namespace's default service account.", spec[key], "default")
    if str(spec.get("priorityClassName", "")).startswith("system-"):
        refuse(f"{path}.priorityClassName", "System priorities are for system pods.", spec["priorityClassName"])
    if spec.get("ephemeralContainers"):
        refuse(f"{path}.ephemeralContainers", "Ephemeral containers cannot be submitted.", "present")
    for position, volume in enumerate(_list(spec, "volumes")):
        kinds = sorted(set(volume) - _ALLOWED_VOLUMES)
        if kinds:
            refuse(
                f"{path}.volumes[{position}].{kinds[0]}",
                f"Volumes of kind {kinds[0]} are not allowed.",
                kinds[0],
                ", ".join(sorted(_ALLOWED_VOLUMES - {"name"})),
            )
    pod_security = spec.get("securityContext") or {}
    if isinstance(pod_security, dict) and pod_security.get("sysctls"):
        refuse(
            f"{path}.securityContext.sysctls",
            "Kernel settings of the node are not a job's to change.",
            "present",
        )
    for group in ("initContainers", "containers"):
        for position, container in enumerate(_list(spec, group)):
            errors.extend(_container_errors(container, f"{path}.{group}[{position}]"))
    metadata = manifest.pod.get("metadata") or {}
    for where, owner in (
        ("yaml:metadata", manifest.raw["metadata"]),
        (f"yaml:{manifest.pod_path}metadata", metadata),
    ):
        for key in owner.get("annotations") or {}:
            if key.startswith(_FORBIDDEN_ANNOTATIONS):
                refuse(
                    f"{where}.annotations.{key}",
                    "This annotation is the scheduler's or the console's to write.",
                    key,
                )
        for key in ("ownerReferences", "finalizers"):
            if owner.get(key):
                refuse(f"{where}.{key}", f"{key} cannot be submitted.", "present")
    return list({error.field: error for error in errors}.values())


def _list(spec: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = spec.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _container_errors(container: Mapping[str, Any], path: str) -> list[FieldError]:
    security = container.get("securityContext")
    security = security if isinstance(security, dict) else {}
    errors = []

    def refuse(where: str, message: str, found: object, allowed: str = "") -> None:
        errors.append(FieldError(f"{path}.{where}", message, code="confined", found=str(found)[:80], allowed=allowed))

    for key in ("privileged", "allowPrivilegeEscalation"):
        if security.get(key):
            refuse(f"securityContext.{key}", f"{key} is not allowed.", "true", "false")
    capabilities = security.get("capabilities")
    if isinstance(capabilities, dict) and capabilities.get("add"):
        refuse("securityContext.capabilities.add", "Added capabilities are not allowed.", capabilities["add"])
    if security.get("procMount") not in (None, "Default"):
        refuse("securityContext.procMount", "procMount is not allowed.", security["procMount"], "Default")
    for position, port in enumerate(_list(container, "ports")):
        if port.get("hostPort"):
            refuse(f"ports[{position}].hostPort", "Ports of the node are not a job's to take.", port["hostPort"])
    return errors
