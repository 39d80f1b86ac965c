"""Rules about what the cluster said of a pod: why it was not bound, why it was not admitted, why it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpupools.domain.diagnosis.asks import TOPOLOGY_GROUP_LABEL
from gpupools.domain.diagnosis.scene import Diagnosis, Scene, Severity, counted, name_of
from gpupools.domain.gpus import Pod
from gpupools.domain.modes import GPU_MEM

GROUP_SIZE_LABEL = "gputopology.alibabacloud.com/replica"
# What a container's or kubelet's words give away: (part of the text, code, scenario, sentence, fix).
_WORDS = (
    (
        "no-gpu-has-", "no-card-was-assigned", 19,
        "was started without a card: the device plugin found no pod with an allocation that fits.",
        "See that ack-ai-installer is whole: its scheduler part writes allocations. Then delete the pod.",
    ),
    (
        "invalid replica for resource", "memory-does-not-divide", 12,
        "asks for memory that does not divide over its cards.",
        "Ask for a multiple of the number of cards.",
    ),
    (
        "Failed to initialize NVML", "nvml-after-reload", 29,
        "lost its card: NVML cannot be initialised any more.",
        "A `systemctl daemon-reload` on the node does this to shared pods (Ubuntu 22.04, RHEL 9.3, Alinux 3): restart "
        "the pod, and keep from reloading while such pods run.",
    ),
    (
        "CUDA_ERROR_MPS", "mps-fault", 33,
        "was told by the MPS daemon that it cannot go on.",
        "See that the pod has hostIPC and the daemon runs; one client's fault ends all on the card, so restart them "
        "together.",
    ),
)  # fmt: skip


def unbound(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """A node was chosen, cards perhaps reserved, and the bind failed: the scheduler tries again by itself."""
    if pod.node or not pod.message.startswith("binding rejected"):
        return
    yield _pending(
        pod, "bind-failed", 0, f"{name_of(pod)} waits: the scheduler chose a node and could not bind the pod to it.",
        pod.message[:300],
        "It tries again by itself; until then the pod may carry an allocation of a node that it never got to. If this "
        "stays, read the scheduler's log, then delete the pod so that a new one is made.",
    )  # fmt: skip


def admission(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """21: the kubelet did not admit the pod, since the plugin was away or cards changed their identity."""
    if pod.reason == "UnexpectedAdmissionError":
        yield Diagnosis(
            "admission-error", 21, Severity.ERROR,
            f"The kubelet of {pod.node} did not admit {name_of(pod)}.", pod.message[:300],
            "The device plugin was restarting, or cards changed: first see that the plugin's pod on the node is ready, "
            "then delete this pod so that a new one is made.",
            pod.node, pods=(name_of(pod),),
        )  # fmt: skip


def words(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """12, 19, 29, 33: faults that a container's or the scheduler's words give away."""
    for part, code, scenario, sentence, fix in _WORDS:
        if part in pod.message:
            yield Diagnosis(
                code, scenario, Severity.ERROR, f"{name_of(pod)} {sentence}", pod.message[:300], fix, pod.node,
                pods=(name_of(pod),),
            )  # fmt: skip


def several_containers(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """18: the plugin is asked per container, and the ledger counts per pod."""
    sharing = [container.name for container in pod.ask.containers if GPU_MEM in container.limits]
    if len(sharing) > 1 and not pod.ready and pod.reason and not pod.finished and pod.node:
        yield Diagnosis(
            "several-containers", 18, Severity.WARNING,
            f"{name_of(pod)} shares a card among {len(sharing)} containers and does not start.",
            f"{', '.join(sharing)}: {pod.reason} {pod.message}".strip()[:300],
            "Plugins other than ACK's mix such containers up: give the memory to one container, or make several pods.",
            pod.node, pods=(name_of(pod),),
        )  # fmt: skip


def groups(scene: Scene) -> Iterator[Diagnosis]:
    """23: a topology group whose pods are not as many as its label says starts none of them."""
    members: dict[tuple[str, str], list[Pod]] = {}
    for pod in scene.pods:
        group = pod.ask.labels.get(TOPOLOGY_GROUP_LABEL, "")
        if group and not pod.finished:
            members.setdefault((pod.namespace, group), []).append(pod)
    for (namespace, group), pods in sorted(members.items()):
        sizes = {pod.ask.labels.get(GROUP_SIZE_LABEL, "") for pod in pods}
        waiting = [pod for pod in pods if not pod.node]
        if waiting and sizes != {str(len(pods))}:
            ending = sum(pod.terminating for pod in pods)
            yield Diagnosis(
                "topology-group-size", 23, Severity.ERROR,
                f"The topology group {namespace}/{group} waits: it has {counted(len(pods), 'pod')} and says "
                f"{' and '.join(sorted(sizes))}.",
                f"{counted(len(waiting), 'pod')} without a node, {ending} of {len(pods)} on the way out.",
                f"Make the label {GROUP_SIZE_LABEL} the number of pods, and let pods that are ending go first.",
                pods=tuple(name_of(pod) for pod in pods),
            )  # fmt: skip


def _pending(pod: Pod, code: str, scenario: int, message: str, evidence: str, fix: str) -> Diagnosis:
    return Diagnosis(code, scenario, Severity.WARNING, message, evidence, fix, pods=(name_of(pod),))


RULES: tuple[Callable[[Pod, Scene], Iterator[Diagnosis]], ...] = (
    unbound,
    admission,
    words,
    several_containers,
)
CLUSTER_RULES = (groups,)
