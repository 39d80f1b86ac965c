"""What ConfigMaps of ``kube-system`` say of a node's cards: links, and which of them must get no pod.

Three writers, three shapes: the topology plugin, ACK's health check, and the open-source extender. It knows no pod.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import msgspec

from gpupools.domain import yamltext
from gpupools.domain.gpus import MOST_CARDS, GpuNode
from gpupools.domain.modes import MODE_LABEL
from gpupools.domain.objects import topology_node, topology_report
from gpupools.domain.quantities import integer
from gpupools.domain.wire import ConfigMapObject
from gpupools.errors import Invalid

TOPOLOGY_SUFFIX = "-gputopo-report"
HEALTH_SUFFIX = "-device-status"
EXTENDER_PREFIX = "unhealthy-gpu-"
MOST_BYTES = 64 * 1024


class CardReport(msgspec.Struct, frozen=True, gc=False):
    """What one ConfigMap says of the cards of ``node``; empty for a ConfigMap that is no such report."""

    node: str = ""
    links: tuple[tuple[float, ...], ...] | None = None
    unhealthy: tuple[int, ...] = ()


def card_report(raw: ConfigMapObject) -> CardReport:
    """Read a ConfigMap. What cannot be read says nothing: a card is sick only when somebody says so."""
    name, data = raw.metadata.name or "", raw.data or {}
    if name.endswith(TOPOLOGY_SUFFIX) or (raw.metadata.labels or {}).get(MODE_LABEL) == "topology":
        links, unhealthy = topology_report(data)
        return CardReport(topology_node(raw) or name.removesuffix(TOPOLOGY_SUFFIX), links, unhealthy)
    if name.endswith(HEALTH_SUFFIX):
        return CardReport(name.removesuffix(HEALTH_SUFFIX), None, _sick_devices(data.get("devices", "")))
    if name.startswith(EXTENDER_PREFIX):
        return CardReport(name.removeprefix(EXTENDER_PREFIX), None, _indexes(data.get("gpus", "").split(",")))
    return CardReport()


def _sick_devices(text: str) -> tuple[int, ...]:
    """Read ACK's list of ``{deviceId, deviceType: gpu, healthy: false}``, as YAML or as JSON."""
    inner = textwrap.indent(text.removeprefix("---\n"), " ")
    try:
        found = yamltext.load(f"devices:\n{inner}", max_bytes=MOST_BYTES)["devices"]
    except Invalid:
        return ()
    devices: list[Any] = found if isinstance(found, list) else []
    return _indexes(
        str(device.get("deviceId", ""))
        for device in devices
        if isinstance(device, dict) and device.get("deviceType", "gpu") == "gpu" and _is_no(device.get("healthy"))
    )


def _is_no(value: object) -> bool:
    # The programs that read this list take YAML's old words for false too.
    return value is False or (isinstance(value, str) and value.lower() in {"false", "no", "off"})


def _indexes(texts: Iterable[str]) -> tuple[int, ...]:
    found = {number for text in texts if (number := integer(text.strip())) is not None}
    return tuple(sorted(number for number in found if 0 <= number < MOST_CARDS))


def with_reports(node: GpuNode, reports: Iterable[CardReport]) -> GpuNode:
    """Return the node with its links and with every card that one of its reports calls sick."""
    links, sick = node.links, set(node.unhealthy)
    for report in reports:
        links = report.links or links
        sick.update(report.unhealthy)
    unhealthy = tuple(sorted(sick))
    if (links, unhealthy) == (node.links, node.unhealthy):
        return node
    return msgspec.structs.replace(node, links=links, unhealthy=unhealthy)


def by_node(reports: Iterable[CardReport]) -> dict[str, list[CardReport]]:
    """Group reports by the node that they are about."""
    found: dict[str, list[CardReport]] = {}
    for report in reports:
        if report.node:
            found.setdefault(report.node, []).append(report)
    return found
