"""An ask worked out once for all nodes: what the node and the cards must have, and what fails before any node."""

from __future__ import annotations

from dataclasses import dataclass

from gpupools.domain.asks import (
    SHARE_COUNT_LABEL,
    SHARE_RESOURCES,
    WHOLE_DEVICE,
    WHOLE_DEVICE_LABEL,
    card_count,
    effective_requests,
    host_ports,
    limit_of,
)
from gpupools.domain.gpus import AffinityTerm, Ask, HostPort
from gpupools.domain.modes import EXCLUSIVE_GPU, GPU_CORE, GPU_MEM, TOPOLOGY_GPU
from gpupools.domain.quantities import CPU, integer, is_integer

TOPOLOGY_GROUP_LABEL = "gputopology.alibabacloud.com/pod-group"
TOPOLOGY_REPLICA_LABEL = "gputopology.alibabacloud.com/replica"
TOPOLOGY_TTL_LABEL = "gputopology.alibabacloud.com/ttl"
GANG_LABEL = "pod-group.scheduling.sigs.k8s.io/name"
GANG_SIZE_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"
NODE_NAME_FIELD = "metadata.name"

# The labels of a pod that any rule of placement reads.
PLACEMENT_LABELS = frozenset(
    {
        SHARE_COUNT_LABEL,
        WHOLE_DEVICE_LABEL,
        TOPOLOGY_GROUP_LABEL,
        TOPOLOGY_REPLICA_LABEL,
        TOPOLOGY_TTL_LABEL,
        GANG_LABEL,
        GANG_SIZE_LABEL,
    }
)

# kube-scheduler looks at these first, then at everything else.
_FIRST = {CPU: 0, "memory": 1, "ephemeral-storage": 2}


@dataclass(frozen=True, slots=True)
class Wish:
    """What an ask needs. ``requests`` is the node-level need without zeros, in kube-scheduler's order.

    ``memory_units`` and ``core_percent`` are per card, on each of ``cards`` cards; ``whole_cards`` and
    ``topology_cards`` count cards. ``node_names`` limits the nodes by matchFields, None when it does not.
    """

    ask: Ask
    requests: tuple[tuple[str, int], ...]
    memory_units: int
    core_percent: int
    cards: int
    whole_cards: int
    topology_cards: int
    whole_device: bool
    node_names: frozenset[str] | None
    ports: tuple[HostPort, ...]

    @property
    def shares(self) -> bool:
        """Whether the pod asks for part of a card."""
        return bool(self.memory_units or self.core_percent)


def wish(ask: Ask) -> Wish:
    """Work out an ask. Its share is divided by the label's number of cards; ``prefilter`` says if that is whole."""
    needs = effective_requests(ask)
    ordered = sorted(needs.items(), key=lambda item: (_FIRST.get(item[0], 3), item[0]))
    count = card_count(ask)
    return Wish(
        ask=ask,
        requests=tuple((name, amount) for name, amount in ordered if amount > 0),
        memory_units=limit_of(ask, GPU_MEM) // count,
        core_percent=limit_of(ask, GPU_CORE) // count,
        cards=count,
        whole_cards=max(0, needs.get(EXCLUSIVE_GPU, 0)),
        topology_cards=limit_of(ask, TOPOLOGY_GPU),
        whole_device=ask.labels.get(WHOLE_DEVICE_LABEL) == WHOLE_DEVICE,
        node_names=_node_names(ask.required_terms),
        ports=host_ports(ask),
    )


def _node_names(terms: tuple[AffinityTerm, ...] | None) -> frozenset[str] | None:
    """Return the names that required terms leave over; None when some term does not name nodes."""
    if not terms:
        return None
    union: set[str] = set()
    for term in terms:
        named = [set(field.values) for field in term.fields if field.key == NODE_NAME_FIELD and field.operator == "In"]
        if not named:
            return None
        union |= set.intersection(*named)
    return frozenset(union)


def prefilter(wanted: Wish) -> str:
    """Return the reason that stands for all nodes at once, as ACK's and Kubernetes' PreFilter words it; or nothing."""
    if wanted.node_names is not None and not wanted.node_names:
        return "pod affinity terms conflict"
    return _share_prefilter(wanted.ask) or _topology_prefilter(wanted.ask)


def _share_prefilter(ask: Ask) -> str:
    asked = [
        {name: container.limits[name] for name in SHARE_RESOURCES if container.limits.get(name)}
        for container in ask.containers
    ]
    sharing = [resources for resources in asked if resources]
    if not sharing:
        return ""
    if any(resources.keys() != sharing[0].keys() for resources in sharing):
        return "The requested gpu resource types should be consistent for all containers"
    if ask.labels.get(WHOLE_DEVICE_LABEL, WHOLE_DEVICE) != WHOLE_DEVICE:
        return f"Invalid value of pod label {WHOLE_DEVICE_LABEL}:only support [{WHOLE_DEVICE}]"
    label = ask.labels.get(SHARE_COUNT_LABEL)
    if label is None:
        return ""
    count = integer(label)
    if count is None:
        return (
            f"failed to parse request device count from pod label {SHARE_COUNT_LABEL},"
            f'reason: strconv.Atoi: parsing "{label}": '
            + ("value out of range" if is_integer(label) else "invalid syntax")
        )
    if count < 0:
        return f"request device count must be large than 0,but got {count}"
    for resources in sharing:
        for name, amount in resources.items():
            if count and amount % count:
                return f"invalid replica for resource {name},because {amount} / {count} = {amount / count:.1f}"
    return ""


def _topology_prefilter(ask: Ask) -> str:
    if not limit_of(ask, TOPOLOGY_GPU):
        return ""
    gang, group = GANG_LABEL in ask.labels, TOPOLOGY_GROUP_LABEL in ask.labels
    if gang and group:
        return "gang group label and gpu topology group label cannot appear together"
    if gang and TOPOLOGY_TTL_LABEL in ask.labels:
        return f"should not set label {TOPOLOGY_TTL_LABEL} when gang group label is enabled"
    replica = integer(ask.labels.get(TOPOLOGY_REPLICA_LABEL, ""))
    if group and replica is not None and replica <= 0:
        return f"invalid replica {replica},it should great than 0"
    return ""
