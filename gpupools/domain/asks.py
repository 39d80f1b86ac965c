"""Arithmetic over what a pod asks for: the scheduler's node-level request and ACK's card-level one.

It knows no node. Units as in ``gpus``: cpu in millicores, memory in bytes, GPU memory in units of a card.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpupools.domain.gpus import Ask, ContainerAsk, HostPort
from gpupools.domain.modes import GPU_CORE, GPU_MEM
from gpupools.domain.quantities import integer

SHARE_COUNT_LABEL = "aliyun.com/gpu-count"  # on a pod: its share is spread evenly over that many cards
WHOLE_DEVICE_LABEL = "ack.gpushare.placement"
WHOLE_DEVICE = "require-whole-device"
SHARE_RESOURCES = (GPU_MEM, GPU_CORE)


def limit_of(ask: Ask, resource: str) -> int:
    """Return the sum of a resource's limits over the main containers: all that ACK's card ledgers look at."""
    return sum(container.limits.get(resource, 0) for container in ask.containers)


def effective_requests(ask: Ask) -> dict[str, int]:
    """Return what kube-scheduler counts for a pod on its node.

    Main containers and sidecars run together; each init container runs alone beside the sidecars that were
    started before it, so the larger of the two counts per resource. What the pod asks for as a whole replaces that;
    the pod's overhead comes on top.
    """
    total: dict[str, int] = {}
    for container in ask.containers:
        _add(total, container.requests)
    if ask.init_containers:
        _raise_to_init(total, ask.init_containers)
    total.update(ask.pod_requests)
    _add(total, ask.overhead)
    return total


def _raise_to_init(total: dict[str, int], init_containers: tuple[ContainerAsk, ...]) -> None:
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        if container.restartable:
            _add(sidecars, container.requests)
            moment = sidecars
        else:
            moment = dict(sidecars)
            _add(moment, container.requests)
        for resource, value in moment.items():
            peak[resource] = max(peak.get(resource, 0), value)
    _add(total, sidecars)
    for resource, value in peak.items():
        total[resource] = max(total.get(resource, 0), value)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, value in more.items():
        total[resource] = total.get(resource, 0) + value


def card_count(ask: Ask) -> int:
    """Return over how many cards a shared ask is spread: its label, 1 without one or with an unusable one."""
    return max(1, integer(ask.labels.get(SHARE_COUNT_LABEL, "")) or 1)


def host_ports(ask: Ask) -> tuple[HostPort, ...]:
    """Return the ports of the node that a pod takes while it runs: its containers' and its sidecars'."""
    ports = [port for container in ask.containers for port in container.ports]
    ports += [port for container in ask.init_containers if container.restartable for port in container.ports]
    return tuple(ports)
