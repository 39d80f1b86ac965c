"""Where the objects that the console writes live in the Kubernetes API. It knows paths, not requests."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from gpupools.errors import Invalid

_CORE, _RBAC = "v1", "rbac.authorization.k8s.io/v1"
# kind -> (version, plural, whether it lives in a namespace): what people submit and what the catalogue ships.
KINDS: Mapping[str, tuple[str, str, bool]] = {
    "Node": (_CORE, "nodes", False),
    "Namespace": (_CORE, "namespaces", False),
    "Pod": (_CORE, "pods", True),
    "ConfigMap": (_CORE, "configmaps", True),
    "Service": (_CORE, "services", True),
    "ServiceAccount": (_CORE, "serviceaccounts", True),
    "Job": ("batch/v1", "jobs", True),
    "DaemonSet": ("apps/v1", "daemonsets", True),
    "Deployment": ("apps/v1", "deployments", True),
    "Role": (_RBAC, "roles", True),
    "RoleBinding": (_RBAC, "rolebindings", True),
    "ClusterRole": (_RBAC, "clusterroles", False),
    "ClusterRoleBinding": (_RBAC, "clusterrolebindings", False),
}


def segment(text: str) -> str:
    """Quote one part of a path; a name with a slash or dots must not climb out of it."""
    if text in {"", ".", ".."}:
        raise Invalid.field("name", "An object in a cluster has a name.", found=text, allowed="a name")
    return quote(text, safe="")


def collection(kind: str, namespace: str, api_version: str = "") -> str:
    """Return the path of all objects of a kind in a namespace. Raises Invalid for a kind that is never written."""
    if kind not in KINDS:
        raise Invalid.field("kind", f"The console does not write objects of kind {kind[:60]!r}.", found=kind[:60],
                            allowed=", ".join(KINDS))  # fmt: skip
    version, plural, namespaced = KINDS[kind]
    if api_version not in {"", version}:
        raise Invalid.field("apiVersion", f"A {kind} is of {version}.", found=api_version[:60], allowed=version)
    root = f"/api/{version}" if version == _CORE else f"/apis/{version}"
    return f"{root}/namespaces/{segment(namespace)}/{plural}" if namespaced else f"{root}/{plural}"


def single(kind: str, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object, or of a part of it such as ``log``."""
    path = f"{collection(kind, namespace)}/{segment(name)}"
    return f"{path}/{subresource}" if subresource else path
