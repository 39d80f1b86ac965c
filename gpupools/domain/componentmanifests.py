"""Manifests of a component that an administrator uploads: which are taken, and why others are not. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpupools.domain import yamltext
from gpupools.domain.components import CATALOGUE, NAMESPACE
from gpupools.domain.modes import Component
from gpupools.errors import FieldError, Invalid

FIELD = "manifests"
MOST_DOCUMENTS = 40
IN_NAMESPACE = ("DaemonSet", "Deployment", "ConfigMap", "Service", "ServiceAccount", "Role", "RoleBinding")
IN_CLUSTER = ("ClusterRole", "ClusterRoleBinding")
_SEPARATOR = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)


def parse(text: str, component: Component, *, max_bytes: int) -> list[dict[str, Any]]:
    """Read the documents of an upload. Raises Invalid on ``manifests`` or ``manifests[<number>]``, counted from 1.

    Everything lies in kube-system, where the component's own DaemonSets are looked for; one of these must be there,
    and none of another component.
    """
    if (size := len(text.encode(errors="replace"))) > max_bytes:
        raise Invalid.field(
            FIELD,
            "The manifests are too large.",
            code="too-large",
            found=f"{size} bytes",
            allowed=f"at most {max_bytes} bytes",
        )
    parts = [part for part in _SEPARATOR.split(text) if _says_something(part)]
    if not parts or len(parts) > MOST_DOCUMENTS:
        raise Invalid.field(
            FIELD, "There are too few or too many documents.", code="count", found=str(len(parts)),
            allowed=f"1 to {MOST_DOCUMENTS} documents",
        )  # fmt: skip
    documents: list[dict[str, Any]] = []
    errors: list[FieldError] = []
    for number, part in enumerate(parts, 1):
        document = yamltext.load(part, max_bytes=max_bytes, field=f"{FIELD}[{number}]")
        errors += _check(document, f"{FIELD}[{number}]")
        documents.append(document)
    if not errors:
        errors = _check_daemonsets(documents, component)
    if errors:
        raise Invalid("These manifests cannot be applied as this component.", errors=errors)
    return documents


def identity(document: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return kind, namespace (empty in the cluster) and name of a checked document."""
    kind = str(document["kind"])
    return kind, "" if kind in IN_CLUSTER else NAMESPACE, str(document["metadata"]["name"])


def _says_something(part: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in part.splitlines())


def _check(document: Mapping[str, Any], field: str) -> list[FieldError]:
    kind, metadata = document.get("kind"), document.get("metadata")
    allowed = ", ".join((*IN_NAMESPACE, *IN_CLUSTER))
    if kind not in (*IN_NAMESPACE, *IN_CLUSTER):
        return [FieldError(f"{field}.kind", "Objects of this kind are not part of a component.", "kind",
                           str(kind)[:60], allowed)]  # fmt: skip
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return [FieldError(f"{field}.metadata.name", "An object has a name.", "required", allowed="a name")]
    if kind in IN_NAMESPACE and metadata.get("namespace") != NAMESPACE:
        found = str(metadata.get("namespace", ""))[:60]
        return [FieldError(f"{field}.metadata.namespace", "Components live in kube-system.", "namespace", found,
                           NAMESPACE)]  # fmt: skip
    return []


def _check_daemonsets(documents: list[dict[str, Any]], component: Component) -> list[FieldError]:
    mine = {daemonset.name for daemonset in CATALOGUE[component].daemonsets}
    others = {each.name for facts in CATALOGUE.values() for each in facts.daemonsets} - mine
    there = [identity(document)[2] for document in documents if document["kind"] == "DaemonSet"]
    if foreign := sorted(set(there) & others):
        return [FieldError(FIELD, f"{', '.join(foreign)} belongs to another component.", "foreign", ", ".join(foreign))]
    if not set(there) & mine:
        return [FieldError(FIELD, "None of the component's DaemonSets is among them.", "no-daemonset",
                           ", ".join(there)[:200] or "no DaemonSet", ", ".join(sorted(mine)))]  # fmt: skip
    return []
