"""What the API offers, told to clients: versions, groups, resources (one by one and aggregated).

Everything is derived from the kinds table.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable

from gpupools.simulator.kinds import KINDS, Kind, Object

# Kinds that are asked, not kept: (group, kind, plural).
_REVIEWS = (
    ("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
)

# Subresources whose request body is of a kind of its own.
_SUBRESOURCE_KINDS = {
    "attach": ("", "", "PodAttachOptions", ("create", "get")),
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "exec": ("", "", "PodExecOptions", ("create", "get")),
    "log": ("", "", "Pod", ("get",)),
    "finalize": ("", "", "Namespace", ("update",)),
    "status": ("", "", "", ("get", "patch", "update")),
}


def version(kubernetes: str) -> Object:
    """Return ``/version`` of a cluster such as ``1.34.3-aliyun.1``."""
    major, minor, *_ = kubernetes.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{kubernetes}",
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "go1.25.0",
        "compiler": "gc",
        "platform": f"linux/{'arm64' if platform.machine() in ('arm64', 'aarch64') else 'amd64'}",
    }


def api_versions(address: str) -> Object:
    """Return ``/api``."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def groups() -> list[str]:
    """Return the named groups that are served, in the API server's kind of order."""
    named = {row.group for row in KINDS.values() if row.group} | {group for group, _, _ in _REVIEWS}
    return sorted(named | {"events.k8s.io"})


def api_group(name: str) -> Object:
    """Return one group; all of ours have version v1 alone."""
    only = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [only], "preferredVersion": only}


def api_group_list() -> Object:
    """Return ``/apis``."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [api_group(name) for name in groups()]}


def rows_of(group: str) -> Iterable[Kind]:
    """Return the kinds of a group."""
    for row in KINDS.values():
        if row.group == group or (group == "events.k8s.io" and row.kind == "Event"):
            yield row


def resource_list(group: str) -> Object | None:
    """Return ``/api/v1`` (group "") or ``/apis/<group>/v1``; None when the group is not served."""
    if group and group not in groups():
        return None
    resources: list[Object] = []
    for row in rows_of(group):
        resources.append(
            {
                "name": row.plural,
                "singularName": row.singular,
                "namespaced": row.namespaced,
                "kind": row.kind,
                "verbs": list(row.verbs),
                **({"shortNames": list(row.short_names)} if row.short_names else {}),
                **({"categories": list(row.categories)} if row.categories else {}),
            }
        )
        for name in row.subresources if group == row.group else ():
            kind_group, kind_version, kind, verbs = _SUBRESOURCE_KINDS[name]
            resources.append(
                {
                    "name": f"{row.plural}/{name}",
                    "singularName": "",
                    "namespaced": row.namespaced,
                    **({"group": kind_group} if kind_group else {}),
                    **({"version": kind_version} if kind_version else {}),
                    "kind": kind or row.kind,
                    "verbs": list(verbs),
                }
            )
    for review_group, kind, plural in _REVIEWS:
        if review_group == group:
            resources.append(
                {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
            )
    api_version = f"{group}/v1" if group else "v1"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


def aggregated(root: str, version_: str) -> Object:
    """Return everything under ``/api`` or ``/apis`` in one answer (apidiscovery.k8s.io)."""
    names = [""] if root == "/api" else groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version_}",
        "metadata": {},
        "items": [_group_discovery(name) for name in names],
    }


def _group_discovery(group: str) -> Object:
    listed = resource_list(group)
    resources: list[Object] = []
    for entry in listed["resources"] if listed else ():
        kind = {"group": entry.get("group", group), "version": entry.get("version", "v1"), "kind": entry["kind"]}
        if "/" in entry["name"]:
            sub = {"subresource": entry["name"].partition("/")[2], "responseKind": kind, "verbs": entry["verbs"]}
            resources[-1].setdefault("subresources", []).append(sub)
            continue
        resource: Object = {
            "resource": entry["name"],
            "responseKind": kind,
            "scope": "Namespaced" if entry["namespaced"] else "Cluster",
            "singularResource": entry["singularName"],
            "verbs": entry["verbs"],
        }
        for key in ("shortNames", "categories"):
            if key in entry:
                resource[key] = entry[key]
        resources.append(resource)
    metadata: Object = {"creationTimestamp": None, **({"name": group} if group else {})}
    return {"metadata": metadata, "versions": [{"version": "v1", "resources": resources, "freshness": "Current"}]}
