"""What tests of placement ask of the engine, and the words that they expect."""

from __future__ import annotations

from gpupools.domain.gpus import AffinityTerm, Requirement
from gpupools.domain.placement import node_states, preview
from tests.domain.builders import a_pod, an_ask

MODEL = "aliyun.accelerator/nvidia_name"
ROOM_MESSAGE = "node(s) didn't have enough device resources to allocate"
VICTIMS = "No preemption victims found for incoming pod"
HOPELESS = "Preemption is not helpful for scheduling"


def see(ask, *nodes, pods=()):
    return preview(ask, node_states(nodes, pods))


def reason_of(seen):
    """The FailedScheduling text without its preemption part."""
    return seen.message.split(" no new claims")[0]


def labelled(count, **limits):
    return an_ask(**limits, labels={"aliyun.com/gpu-count": str(count)})


def core_mem_pods():
    held = [(5, 80), (9, 20)]
    return [
        a_pod(f"p{card}", mem=mem, core=core, at={card: mem}, core_at={card: core})
        for card, (mem, core) in enumerate(held)
    ]


def term(*expressions, fields=()):
    return AffinityTerm(tuple(Requirement(*e) for e in expressions), tuple(Requirement(*f) for f in fields))
