"""What a raw pod spec asks for, as the API server completes it when it stores a pod. It knows no object around it."""

from __future__ import annotations

from collections.abc import Mapping

from gpupools.domain.gpus import (
    AffinityTerm,
    Ask,
    ContainerAsk,
    HostPort,
    PreferredTerm,
    Requirement,
    Toleration,
)
from gpupools.domain.quantities import parse_resources, quantity_text
from gpupools.domain.wire import (
    Affinity,
    ContainerObject,
    NodeAffinity,
    PodSpecObject,
    RequirementObject,
    Resources,
    TermObject,
)

DEFAULT_SCHEDULER = "default-scheduler"
POD_LEVEL = frozenset({"cpu", "memory"})


def ask(spec: PodSpecObject, labels: Mapping[str, str], namespace: str, name: str, *, path: str = "spec") -> Ask:
    """Read what a pod asks for. Limits fill in missing requests, as the API server does when it stores a pod.

    Raises Invalid for a quantity that cannot be read, with its field below ``path``.
    """
    affinity = (spec.affinity or Affinity()).node_affinity or NodeAffinity()
    containers = _containers(spec.containers, f"{path}.containers", on_host=bool(spec.host_network))
    init_containers = _containers(spec.init_containers, f"{path}.initContainers", on_host=bool(spec.host_network))
    return Ask(
        namespace=namespace,
        name=name,
        containers=containers,
        init_containers=init_containers,
        overhead=parse_resources(spec.overhead, field=f"{path}.overhead"),
        labels=dict(labels),
        node_selector=spec.node_selector or {},
        required_terms=(
            None
            if affinity.required is None
            else tuple(_term(term) for term in affinity.required.node_selector_terms or ())
        ),
        preferred_terms=tuple(
            PreferredTerm(p.weight, _term(p.preference or TermObject())) for p in affinity.preferred or ()
        ),
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "") for t in spec.tolerations or ()
        ),
        node_name=spec.node_name or "",
        priority=spec.priority or 0,
        pod_requests=_pod_requests(spec.resources, (*containers, *init_containers), f"{path}.resources"),
        gated=bool(spec.scheduling_gates),
        preempts=spec.preemption_policy != "Never",
        scheduler="" if spec.scheduler_name in (None, DEFAULT_SCHEDULER) else spec.scheduler_name or "",
        host_ipc=bool(spec.host_ipc),
    )


def _pod_requests(resources: Resources | None, containers: tuple[ContainerAsk, ...], path: str) -> dict[str, int]:
    """Return what a pod asks for as a whole: cpu, memory and huge pages, nothing else can be asked so.

    A limit of the pod fills in for its request as the API server has it: where no container says anything either,
    and always for huge pages.
    """
    if resources is None:
        return {}
    limits = parse_resources(resources.limits, field=f"{path}.limits")
    requests = parse_resources(resources.requests, field=f"{path}.requests")
    named = {name for container in containers for name in container.requests if name in POD_LEVEL}
    asked = {name: amount for name, amount in limits.items() if name not in named} | requests
    return {name: amount for name, amount in asked.items() if name in POD_LEVEL or name.startswith("hugepages-")}


def _containers(containers: list[ContainerObject] | None, path: str, *, on_host: bool) -> tuple[ContainerAsk, ...]:
    asks = []
    for index, container in enumerate(containers or ()):
        where = f"{path}[{index}].resources"
        resources = container.resources or Resources()
        limits = parse_resources(resources.limits, field=f"{where}.limits")
        requests = parse_resources(resources.requests, field=f"{where}.requests")
        asks.append(
            ContainerAsk(
                name=container.name or "",
                requests={**limits, **requests},
                limits=limits,
                restartable=container.restart_policy == "Always",
                ports=_host_ports(container, on_host=on_host) if container.ports else (),
                fractions=_fractions(resources),
            )
        )
    return tuple(asks)


def _fractions(resources: Resources) -> dict[str, dict[str, str]]:
    """Return the amounts of extended resources that are no plain digits, as they are written; mostly there are none."""
    limits, requests = (
        {
            name: text
            for name, value in (given or {}).items()
            if "/" in name and not (text := quantity_text(value)).isdigit()
        }
        for given in (resources.limits, resources.requests)
    )
    if not limits and not requests:
        return {}
    return {"limits": limits, "requests": {**limits, **requests}}


def _host_ports(container: ContainerObject, *, on_host: bool) -> tuple[HostPort, ...]:
    """Return the ports of the node that a container takes; in the node's own network that is all its ports."""
    wanted = ((p.host_port or (p.container_port if on_host else 0) or 0, p) for p in container.ports or ())
    return tuple(HostPort(number, p.protocol or "TCP", p.host_ip or "") for number, p in wanted if number > 0)


def _term(term: TermObject) -> AffinityTerm:
    return AffinityTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _requirements(raw: list[RequirementObject] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in raw or ())
