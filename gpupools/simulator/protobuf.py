"""Request bodies in Kubernetes' protobuf, which kubectl sends for what it makes itself (create, drain, auth can-i).

Only bodies that come from kubectl's own commands are described, field by field; a field that is not described is
refused, never dropped. Answers are JSON, which such clients take as well.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gpupools.simulator.errors import ApiError, bad_request
from gpupools.simulator.kinds import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

# A field: (JSON name, type). Types: str, int, bool, bytes, time, quantity, or the name of a message below.
# "[]x" is a list of x, "{}x" a map from text to x; "" is read over: status, which no request may write.
Message = Mapping[int, tuple[str, str]]

_META: Message = {
    1: ("name", "str"), 2: ("generateName", "str"), 3: ("namespace", "str"), 4: ("selfLink", "str"),
    5: ("uid", "str"), 6: ("resourceVersion", "str"), 7: ("generation", "int"), 8: ("creationTimestamp", "time"),
    9: ("deletionTimestamp", "time"), 10: ("deletionGracePeriodSeconds", "int"), 11: ("labels", "{}str"),
    12: ("annotations", "{}str"), 13: ("ownerReferences", "[]owner"), 14: ("finalizers", "[]str"),
}  # fmt: skip

_MESSAGES: Mapping[str, Message] = {
    "meta": _META,
    "owner": {
        1: ("kind", "str"), 3: ("name", "str"), 4: ("uid", "str"), 5: ("apiVersion", "str"),
        6: ("controller", "bool"), 7: ("blockOwnerDeletion", "bool"),
    },
    "reference": {
        1: ("kind", "str"), 2: ("namespace", "str"), 3: ("name", "str"), 4: ("uid", "str"),
        5: ("apiVersion", "str"), 6: ("resourceVersion", "str"), 7: ("fieldPath", "str"),
    },
    "localReference": {1: ("name", "str")},
    "ConfigMap": {
        1: ("metadata", "meta"), 2: ("data", "{}str"), 3: ("binaryData", "{}bytes"), 4: ("immutable", "bool"),
    },
    "Secret": {
        1: ("metadata", "meta"), 2: ("data", "{}bytes"), 3: ("type", "str"), 4: ("stringData", "{}str"),
        5: ("immutable", "bool"),
    },
    "Namespace": {1: ("metadata", "meta"), 2: ("spec", "namespaceSpec"), 3: ("status", "")},
    "namespaceSpec": {1: ("finalizers", "[]str")},
    "ServiceAccount": {
        1: ("metadata", "meta"), 2: ("secrets", "[]reference"), 3: ("imagePullSecrets", "[]localReference"),
        4: ("automountServiceAccountToken", "bool"),
    },
    "PriorityClass": {
        1: ("metadata", "meta"), 2: ("value", "int"), 3: ("globalDefault", "bool"), 4: ("description", "str"),
        5: ("preemptionPolicy", "str"),
    },
    "Binding": {1: ("metadata", "meta"), 2: ("target", "reference")},
    "Eviction": {1: ("metadata", "meta"), 2: ("deleteOptions", "DeleteOptions")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "int"), 2: ("preconditions", "preconditions"), 3: ("orphanDependents", "bool"),
        4: ("propagationPolicy", "str"), 5: ("dryRun", "[]str"),
    },
    "preconditions": {1: ("uid", "str"), 2: ("resourceVersion", "str")},
    "SelfSubjectAccessReview": {1: ("metadata", "meta"), 2: ("spec", "access"), 3: ("status", "")},
    "access": {1: ("resourceAttributes", "attributes"), 2: ("nonResourceAttributes", "paths")},
    "attributes": {
        1: ("namespace", "str"), 2: ("verb", "str"), 3: ("group", "str"), 4: ("version", "str"),
        5: ("resource", "str"), 6: ("subresource", "str"), 7: ("name", "str"),
    },
    "paths": {1: ("path", "str"), 2: ("verb", "str")},
    "SelfSubjectRulesReview": {1: ("metadata", "meta"), 2: ("spec", "rulesSpec"), 3: ("status", "")},
    "rulesSpec": {1: ("namespace", "str")},
    "SelfSubjectReview": {1: ("metadata", "meta"), 2: ("status", "")},
    "Job": {1: ("metadata", "meta"), 2: ("spec", "jobSpec"), 3: ("status", "")},
    "jobSpec": {
        1: ("parallelism", "int"), 2: ("completions", "int"), 3: ("activeDeadlineSeconds", "int"),
        6: ("template", "template"), 7: ("backoffLimit", "int"), 8: ("ttlSecondsAfterFinished", "int"),
        9: ("completionMode", "str"), 10: ("suspend", "bool"),
    },
    "template": {1: ("metadata", "meta"), 2: ("spec", "podSpec")},
    "podSpec": {
        2: ("containers", "[]container"), 3: ("restartPolicy", "str"), 4: ("terminationGracePeriodSeconds", "int"),
        6: ("dnsPolicy", "str"), 7: ("nodeSelector", "{}str"), 8: ("serviceAccountName", "str"),
        9: ("serviceAccount", "str"), 10: ("nodeName", "str"), 11: ("hostNetwork", "bool"), 12: ("hostPID", "bool"),
        13: ("hostIPC", "bool"), 16: ("hostname", "str"), 17: ("subdomain", "str"), 19: ("schedulerName", "str"),
        24: ("priorityClassName", "str"),
    },
    "container": {
        1: ("name", "str"), 2: ("image", "str"), 3: ("command", "[]str"), 4: ("args", "[]str"),
        5: ("workingDir", "str"), 7: ("env", "[]variable"), 8: ("resources", "resources"),
        13: ("terminationMessagePath", "str"), 14: ("imagePullPolicy", "str"), 16: ("stdin", "bool"),
        17: ("stdinOnce", "bool"), 18: ("tty", "bool"), 20: ("terminationMessagePolicy", "str"),
    },
    "variable": {1: ("name", "str"), 2: ("value", "str")},
    "resources": {1: ("limits", "{}quantity"), 2: ("requests", "{}quantity")},
    "quantity": {1: ("string", "str")},
    "unknown": {
        1: ("typeMeta", "typeMeta"), 2: ("raw", "bytes"), 3: ("contentEncoding", "str"), 4: ("contentType", "str"),
    },
    "typeMeta": {1: ("apiVersion", "str"), 2: ("kind", "str")},
}  # fmt: skip

# Kinds that come as a whole body.
_BODIES = frozenset(name for name in _MESSAGES if name[0].isupper())


def decode(body: bytes) -> Object:
    """Return the object of a protobuf body as its JSON reads; 415 for a kind not described, 400 for rubbish."""
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        outer = _message("unknown", body[len(_MAGIC) :])
        type_meta = outer.get("typeMeta") or {}
        kind = type_meta.get("kind", "")
        if kind not in _BODIES:
            raise ApiError(
                415,
                "UnsupportedMediaType",
                f"the embedded cluster reads {kind or 'such'} objects as application/json only, not as {MEDIA_TYPE}",
            )
        found = _message(kind, base64.b64decode(outer.get("raw", "")))
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise bad_request(f"the protobuf body cannot be read: {error}") from error
    return {"apiVersion": type_meta.get("apiVersion", ""), "kind": kind, **found}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, number or bytes)."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("it ends early")
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {wire} is not used by Kubernetes' objects")


def _message(name: str, data: bytes) -> Object:
    fields, found = _MESSAGES[name], {}
    for number, raw in _fields(data):
        if number not in fields:
            raise ValueError(f"field {number} of {name} is not known here; send JSON")
        key, type_ = fields[number]
        if not type_:
            continue
        if type_.startswith("[]"):
            found.setdefault(key, []).append(_value(type_[2:], raw))
        elif type_.startswith("{}"):
            pair = _pair(type_[2:], raw)
            found.setdefault(key, {})[pair[0]] = pair[1]
        else:
            value = _value(type_, raw)
            # Go writes empty text and empty structures too; in JSON they are left out.
            if value not in ("", {}, None):
                found[key] = value
    return found


def _pair(type_: str, raw: int | bytes) -> tuple[str, Any]:
    key, value = "", _value(type_, b"")
    for number, inner in _fields(_bytes(raw)):
        if number == 1:
            key = _bytes(inner).decode()
        else:
            value = _value(type_, inner)
    return key, value


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("a number where text was expected")
    return raw


def _value(type_: str, raw: int | bytes) -> Any:
    if type_ in ("int", "bool"):
        if not isinstance(raw, int):
            raise ValueError("text where a number was expected")
        signed = raw - (1 << 64) if raw >= 1 << 63 else raw
        return bool(raw) if type_ == "bool" else signed
    data = _bytes(raw)
    if type_ == "str":
        return data.decode()
    if type_ == "bytes":
        return base64.b64encode(data).decode()
    if type_ == "time":
        seconds = next((value for number, value in _fields(data) if number == 1), 0)
        # The zero time stands for none.
        if not isinstance(seconds, int) or not 0 < seconds < 1 << 40:
            return None
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if type_ == "quantity":
        return _message("quantity", data).get("string", "0")
    return _message(type_, data)
