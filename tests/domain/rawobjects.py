"""Short ways to write nodes and pods as the Kubernetes API gives them: JSON objects, amounts as texts."""

from __future__ import annotations

import json

from gpupools.domain import objects, placement

MEM, COUNT, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "aliyun.com/gpu-core.percentage"
WHOLE, TOPOLOGY = "nvidia.com/gpu", "aliyun.com/gpu"
ALLOCATION = "scheduler.framework.gpushare.allocation"


def raw_node(name="n1", resources=None, *, labels=None, taints=None, cordoned=False, **base):
    """A node with 8 cpus, 32 GiB and room for 110 pods, and without any condition."""
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"} | base | (resources or {})
    spec = {"taints": taints or [], "unschedulable": cordoned}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def exclusive(name="n1", cards=4, **more):
    """A node that gives its cards out whole."""
    return raw_node(name, {WHOLE: str(cards)}, **more)


def shared(name="n1", cards=4, units=15, *, labels=None, **more):
    """A cgpu node."""
    resources = {MEM: str(cards * units), COUNT: str(cards)}
    return raw_node(name, resources, labels={"ack.node.gpu.schedule": "cgpu"} | (labels or {}), **more)


def box(limits=None, requests=None, **more):
    """A container."""
    resources = {"limits": limits or {}, "requests": requests or {}}
    return {"name": "c", "image": "i", "resources": resources, **more}


def raw_pod(name="p", *containers, on="", phase="Running", annotations=None, labels=None, **spec):
    """A pod; with ``on`` it is bound to that node."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {"containers": list(containers) or [box()], "nodeName": on, **spec},
        "status": {"phase": phase if on else "Pending"},
    }


def allocated(*per_container):
    """The annotation of a shared pod: one ``{card: units}`` for each container."""
    return {
        ALLOCATION: json.dumps({str(n): {str(card): u for card, u in c.items()} for n, c in enumerate(per_container)})
    }


def seen(pod, *nodes, pods=()):
    """What the engine says to a raw pod on raw nodes."""
    states = placement.node_states(
        [objects.convert("Node", node) for node in nodes], [objects.convert("Pod", each) for each in pods]
    )
    return placement.preview(objects.convert("Pod", pod).ask, states)


def refusal(nodes, reasons, *, resolvable=0):
    """The scheduler's text when ``resolvable`` of the nodes could have been freed by evictions."""
    counts = {
        "No preemption victims found for incoming pod": resolvable,
        "Preemption is not helpful for scheduling": nodes - resolvable,
    }
    said = ", ".join(sorted(f"{count} {text}" for text, count in counts.items() if count))
    head = f"0/{nodes} nodes are available: "
    return f"{head}{reasons}. no new claims to deallocate, preemption: {head}{said}."
