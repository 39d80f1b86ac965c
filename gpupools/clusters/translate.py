"""Bytes of the Kubernetes API -> domain values; the structs themselves are ``domain.objects``.

One object that cannot be read is counted and left out, never a reason to lose a whole list. It knows no network.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gpupools.domain import objects, wire
from gpupools.domain.gpus import GpuNode, Pod, Workload
from gpupools.domain.reports import CardReport, card_report
from gpupools.errors import ConsoleError

_log = logging.getLogger(__name__)


Value = GpuNode | Pod | Workload | CardReport


@dataclass(frozen=True, slots=True)
class Kind:
    """Where objects of a kind are listed, and how they are read."""

    name: str
    path: str
    shape: type[Any]
    convert: Callable[[Any], Value]
    query: tuple[tuple[str, str], ...] = ()


# One kind of report has a label, the others only a name: all ConfigMaps of the namespace are looked at.
REPORTS = "ConfigMap"
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("Node", "/api/v1/nodes", wire.NodeObject, objects.gpu_node),
        Kind("Pod", "/api/v1/pods", wire.PodObject, objects.pod),
        Kind("Job", "/apis/batch/v1/jobs", wire.JobObject, objects.job),
        Kind("DaemonSet", "/apis/apps/v1/daemonsets", wire.DaemonSetObject, objects.daemonset),
        Kind(REPORTS, "/api/v1/namespaces/kube-system/configmaps", wire.ConfigMapObject, card_report),
    )
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One object as the server showed it: identity, version, value."""

    uid: str
    version: str
    place: tuple[str, str]  # namespace and name; unique at any one time
    value: Value


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. ``unreadable`` holds the UIDs of objects that are there and could not be read."""

    seen: tuple[Seen, ...]
    version: str
    next_page: str
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.

    ``seen`` is None when the object could not be read, and for BOOKMARK and ERROR; ``uid`` is known even then.
    """

    type: str
    uid: str = ""
    version: str = ""
    seen: Seen | None = None
    code: int = 0
    message: str = ""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Identity(msgspec.Struct):
    metadata: wire.Metadata = wire.Metadata()
    code: int | None = None
    message: str | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_DECODERS = {name: msgspec.json.Decoder(kind.shape) for name, kind in KINDS.items()}
_LISTS = msgspec.json.Decoder(_List)
_EVENTS = msgspec.json.Decoder(_Event)
_IDENTITIES = msgspec.json.Decoder(_Identity)


def page(kind: Kind, data: bytes) -> Page:
    """Read one page of a list. Raises msgspec.DecodeError when the answer is no list at all."""
    answer = _LISTS.decode(data)
    seen: list[Seen] = []
    unreadable: list[str] = []
    for raw in answer.items or ():
        entry = _read(kind, raw)
        if entry is None:
            unreadable.append(_identity(raw).uid or "")
        else:
            seen.append(entry)
    meta = answer.metadata
    return Page(tuple(seen), meta.resource_version or "", meta.continue_ or "", tuple(unreadable))


def one(kind: Kind, data: bytes) -> Seen | None:
    """Read one object; None when it cannot be read."""
    return _read(kind, data)


def event(kind: Kind, line: bytes) -> Event:
    """Read one line of a watch. Raises msgspec.DecodeError when it is no event at all."""
    raw = _EVENTS.decode(line)
    if raw.type in {"ERROR", "BOOKMARK"}:
        control = _IDENTITIES.decode(raw.object)
        version = control.metadata.resource_version or ""
        return Event(raw.type, version=version, code=control.code or 0, message=control.message or "")
    seen = _read(kind, raw.object)
    if seen is None:
        meta = _identity(raw.object)
        return Event(raw.type, uid=meta.uid or "", version=meta.resource_version or "")
    return Event(raw.type, uid=seen.uid, version=seen.version, seen=seen)


def _read(kind: Kind, raw: msgspec.Raw | bytes) -> Seen | None:
    try:
        thing = _DECODERS[kind.name].decode(raw)
        meta: wire.Metadata = thing.metadata
        value = kind.convert(thing)
    except (msgspec.DecodeError, ConsoleError, ValueError) as error:
        meta = _identity(raw)
        # The message of a decoding error names the field and the type found there, never the value.
        _log.warning("skipped a %s that cannot be read: %s/%s: %s", kind.name, meta.namespace, meta.name, error)
        return None
    place = (meta.namespace or "", meta.name or "")
    # A server that gives no UID is no Kubernetes; the place then has to do.
    return Seen(meta.uid or "/".join(place), meta.resource_version or "", place, value)


def _identity(raw: msgspec.Raw | bytes) -> wire.Metadata:
    try:
        return _IDENTITIES.decode(raw).metadata
    except msgspec.DecodeError:
        return wire.Metadata()
