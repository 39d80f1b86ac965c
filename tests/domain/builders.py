"""Short ways to make the nodes and pods of a test, so that each row shows only what matters."""

from __future__ import annotations

import json

import msgspec

from gpupools.domain.gpus import Ask, ContainerAsk, GpuNode, HostPort, Pod

LABEL_OF_MODE = {"exclusive": "default"}
MEM, COUNT, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "aliyun.com/gpu-core.percentage"
WHOLE, TOPOLOGY = "nvidia.com/gpu", "aliyun.com/gpu"
ROOM = {"cpu": 64_000, "memory": 256 * 1024**3, "pods": 110}


def a_node(name="n1", mode="cgpu", cards=4, units=15, *, policy=None, labels=None, resources=None, **fields):
    """A node of a mode with its resources, and plenty of everything else."""
    own = {}
    if mode in {"cgpu", "share", "mps", "core_mem"}:
        own = {MEM: cards * units, COUNT: cards} | ({CORE: 100 * cards} if mode == "core_mem" else {})
    elif mode == "topology":
        own = {TOPOLOGY: cards}
    elif mode == "exclusive":
        own = {WHOLE: cards}
    marks = {"ack.node.gpu.schedule": LABEL_OF_MODE.get(mode, mode)} if mode else {}
    if policy:
        marks["ack.node.gpu.placement"] = policy
    allocatable = ROOM | own | (resources or {})
    return GpuNode(
        name=name,
        uid=f"uid-{name}",
        labels=marks | (labels or {}),
        allocatable=allocatable,
        capacity=fields.pop("capacity", allocatable),
        **fields,
    )


def container(name="main", *, restartable=False, **limits):
    """A container whose limits are its requests: mem, core, whole, topology, count, cpu (millicores)."""
    names = {"mem": MEM, "core": CORE, "whole": WHOLE, "topology": TOPOLOGY, "count": COUNT}
    resources = {names.get(key, key): value for key, value in limits.items()}
    return ContainerAsk(name=name, requests=resources, limits=resources, restartable=restartable)


def with_port(number, **limits):
    """A container that takes a port of its node."""
    return msgspec.structs.replace(container(**limits), ports=(HostPort(number),))


def an_ask(*containers, name="p", init=(), **fields):
    """An ask of one container by keyword (mem=4), or of the containers given."""
    limits = {key: fields.pop(key) for key in ("mem", "core", "whole", "topology", "count", "cpu") if key in fields}
    return Ask(name=name, containers=containers or (container(**limits),), init_containers=tuple(init), **fields)


def v2(*per_container):
    """The current annotation: one ``{card: units}`` per container."""
    return json.dumps({str(i): {str(card): n for card, n in cards.items()} for i, cards in enumerate(per_container)})


def a_pod(name="p", *containers, on="n1", at=None, core_at=None, annotations=None, label_count=None, **fields):
    """A running pod: ``at`` is what its annotation says, as one ``{card: units}`` or a list per container."""
    limits = {key: fields.pop(key) for key in ("mem", "core", "whole", "topology", "count", "cpu") if key in fields}
    init = fields.pop("init", ())
    notes = dict(annotations or {})
    if at is not None:
        notes["scheduler.framework.gpushare.allocation"] = v2(*(at if isinstance(at, list) else [at]))
    if core_at is not None:
        notes["gpushare.alibabacloud.com/core-percentage"] = v2(core_at)
    labels = {"aliyun.com/gpu-count": str(label_count)} if label_count is not None else {}
    namespace = fields.pop("namespace", "default")
    return Pod(
        uid=fields.pop("uid", f"uid-{namespace}-{name}"),
        namespace=namespace,
        name=name,
        ask=an_ask(*containers, name=name, init=init, namespace=namespace, labels=labels, node_name=on, **limits),
        node=on,
        phase=fields.pop("phase", "Running"),
        annotations=notes,
        **fields,
    )


def filled(*units, on="n1", prefix="used"):
    """Running pods that hold so many units of card 0, 1, ..."""
    return [a_pod(f"{prefix}-{card}", mem=held, at={card: held}, on=on) for card, held in enumerate(units) if held]
