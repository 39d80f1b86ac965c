"""Helm releases as they lie in a cluster: one secret per revision, sh.helm.release.v1.<release>.v<revision>. Pure."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable

import msgspec

SECRET_TYPE = "helm.sh/release.v1"  # noqa: S105  # the type of a secret
_NAME = re.compile(r"sh\.helm\.release\.v1\.(?P<name>[a-z0-9]([a-z0-9.-]*[a-z0-9])?)\.v(?P<revision>[1-9][0-9]{0,8})")
MOST_BYTES = 4 * 1024 * 1024  # of one release unpacked; what is larger keeps its name and loses its version


class HelmRelease(msgspec.Struct, frozen=True):
    """One release at its latest revision. ``status``: deployed, failed, pending-upgrade, uninstalling, ..."""

    name: str
    revision: int
    status: str = ""
    chart: str = ""
    version: str = ""


class _Chart(msgspec.Struct):
    class Metadata(msgspec.Struct):
        name: str = ""
        version: str = ""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class _Body(msgspec.Struct):
    chart: _Chart = msgspec.field(default_factory=_Chart)


def release(secret_name: str, *, status: str = "", payload: str = "") -> HelmRelease | None:
    """Read a release from its secret; None when the name is no release's. What cannot be unpacked has no version."""
    found = _NAME.fullmatch(secret_name)
    if found is None:
        return None
    chart = _chart(payload)
    return HelmRelease(found["name"], int(found["revision"]), status, chart.name, chart.version)


def latest(releases: Iterable[HelmRelease]) -> dict[str, HelmRelease]:
    """Keep the latest revision of each release, by name."""
    found: dict[str, HelmRelease] = {}
    for each in releases:
        if each.name not in found or found[each.name].revision < each.revision:
            found[each.name] = each
    return found


def _chart(payload: str) -> _Chart.Metadata:
    """Unpack what Helm keeps: base64 by Kubernetes around base64 by Helm around gzip around JSON."""
    try:
        packed = base64.b64decode(base64.b64decode(payload, validate=True), validate=True)
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(packed, MOST_BYTES)
        if not text or unpacker.unconsumed_tail:
            return _Chart.Metadata()
        return msgspec.json.decode(text, type=_Body).chart.metadata
    except (binascii.Error, ValueError, zlib.error, msgspec.DecodeError):
        return _Chart.Metadata()
