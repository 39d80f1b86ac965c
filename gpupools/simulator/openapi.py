"""The OpenAPI documents of the embedded cluster, as much of them as kubectl reads: what it validates, and explains.

Made from the kinds table and the schema; no descriptions, and parts that the schema does not look into stay open.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gpupools.simulator.discovery import groups, rows_of
from gpupools.simulator.kinds import Object
from gpupools.simulator.schema import STRUCTS

_PREFIX = "io.k8s.embedded."
_TYPES: dict[str, Object] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "[]byte": {"type": "string", "format": "byte"},
    "Time": {"type": "string", "format": "date-time"},
    "Quantity": {"type": "string"},
    "IntOrString": {"type": "string", "format": "int-or-string"},
    "any": {"type": "object"},
    "object": {"type": "object"},
}


def index() -> Object:
    """Return ``/openapi/v3``: where each group's document is."""
    paths = {"api/v1": "/openapi/v3/api/v1"}
    paths |= {f"apis/{name}/v1": f"/openapi/v3/apis/{name}/v1" for name in groups()}
    return {"paths": {key: {"serverRelativeURL": url} for key, url in paths.items()}}


@lru_cache(maxsize=32)
def document(group: str) -> Object | None:
    """Return a group's document, None for a group that is not served.

    It says that writes can be validated here (``fieldValidation``), so that kubectl does not fetch the whole schema
    to do it itself. It names no patch types, hence kubectl merges with the types that it is built with.
    """
    if group and group not in groups():
        return None
    prefix = f"/apis/{group}/v1" if group else "/api/v1"
    checked = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}]
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for row in rows_of(group):
        of_kind = {"group": group, "version": "v1", "kind": row.kind}
        where = f"{prefix}/namespaces/{{namespace}}/{row.plural}" if row.namespaced else f"{prefix}/{row.plural}"
        operation = {"x-kubernetes-group-version-kind": of_kind, "parameters": checked, "responses": {}}
        paths[where] = {"post": {**operation, "x-kubernetes-action": "post"}}
        paths[f"{where}/{{name}}"] = {
            "put": {**operation, "x-kubernetes-action": "put"},
            "patch": {**operation, "x-kubernetes-action": "patch"},
        }
        _add_struct(row.kind, schemas)
        root = schemas[_PREFIX + row.kind]
        root["x-kubernetes-group-version-kind"] = [of_kind]
        root["properties"] = {"apiVersion": _TYPES["string"], "kind": _TYPES["string"], **root["properties"]}
    info = {"title": "Kubernetes", "version": "unversioned"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _add_struct(name: str, schemas: dict[str, Any]) -> None:
    """Add a struct and everything that it is made of."""
    if _PREFIX + name in schemas:
        return
    properties: dict[str, Any] = {}
    schemas[_PREFIX + name] = {"type": "object", "properties": properties}
    for field, type_ in STRUCTS[name].items():
        properties[field] = _schema_of(type_, schemas)


def _schema_of(type_: str, schemas: dict[str, Any]) -> Object:
    if type_ in _TYPES:
        return _TYPES[type_]
    if type_.startswith("[]"):
        return {"type": "array", "items": _schema_of(type_[2:], schemas)}
    if type_.startswith("map["):
        return {"type": "object", "additionalProperties": _schema_of(type_[4:-1], schemas)}
    _add_struct(type_, schemas)
    return {"allOf": [{"$ref": f"#/components/schemas/{_PREFIX}{type_}"}]}
