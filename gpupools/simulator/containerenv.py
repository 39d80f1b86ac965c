"""The environment of a container: what the image, the pod, config maps, secrets and the device plugin put there."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from gpupools.simulator.kinds import Object
from gpupools.simulator.store import Store

_REFERENCE = re.compile(r"\$\(([A-Za-z_]\w*)\)")


def environment(
    store: Store, pod: Object, container: Mapping[str, Any], *, node_ip: str, pod_ip: str, devices: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment that a container's program sees; the device plugin's part wins over the pod's."""
    namespace = pod["metadata"]["namespace"]
    env = {
        "PATH": "/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
        "KUBERNETES_SERVICE_HOST": "172.16.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        if reference := source.get("configMapRef"):
            env |= {f"{prefix}{key}": value for key, value in _config(store, namespace, reference["name"]).items()}
        if reference := source.get("secretRef"):
            env |= {f"{prefix}{key}": value for key, value in _secret(store, namespace, reference["name"]).items()}
    for entry in container.get("env") or ():
        value = entry.get("value", "")
        if source := entry.get("valueFrom"):
            value = _from_source(store, pod, source, node_ip=node_ip, pod_ip=pod_ip)
        env[entry["name"]] = _REFERENCE.sub(lambda found: env.get(found[1], found[0]), value)
    return {**env, **devices}


def _from_source(store: Store, pod: Object, source: Mapping[str, Any], *, node_ip: str, pod_ip: str) -> str:
    meta = pod["metadata"]
    if field := source.get("fieldRef"):
        known = {
            "metadata.name": meta["name"],
            "metadata.namespace": meta["namespace"],
            "metadata.uid": meta["uid"],
            "spec.nodeName": pod["spec"].get("nodeName", ""),
            "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
            "status.hostIP": node_ip,
            "status.podIP": pod_ip,
        }
        path = field["fieldPath"]
        found = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
        return str((meta.get(found[1]) or {}).get(found[2], "") if found else known.get(path, ""))
    if reference := source.get("configMapKeyRef"):
        return _config(store, meta["namespace"], reference["name"]).get(reference["key"], "")
    if reference := source.get("secretKeyRef"):
        return _secret(store, meta["namespace"], reference["name"]).get(reference["key"], "")
    return ""


def _config(store: Store, namespace: str, name: str) -> dict[str, str]:
    found = store.peek("ConfigMap", namespace, name)
    return dict(found.get("data") or {}) if found else {}


def _secret(store: Store, namespace: str, name: str) -> dict[str, str]:
    found = store.peek("Secret", namespace, name)
    data = (found.get("data") or {}) if found else {}
    return {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in data.items()}
