"""Rules about pods that wait for a node: what keeps each node in their reach from taking them.

The answers are the engine's on the current picture; the scheduler's own words are read where the engine finds room.
Nothing is concluded from a part of a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpupools.domain.diagnosis import asks
from gpupools.domain.diagnosis.scene import Diagnosis, Scene, Severity, counted, name_of
from gpupools.domain.gpus import Pod
from gpupools.domain.groups import group_of
from gpupools.domain.meanings import meaning
from gpupools.domain.messages import GATED, Reason, read_failed_scheduling
from gpupools.domain.modes import EXCLUSIVE_GPU, GPU_CORE, GPU_MEM, GPU_RESOURCES, MAX_PODS_LABEL, TOPOLOGY_GPU
from gpupools.domain.quantities import format_quantity
from gpupools.domain.verdicts import NodeState, Preview, Rejection, Verdict
from gpupools.domain.wishes import Wish, wish

OUT_OF_REACH = frozenset({"unschedulable", "name", "taint", "affinity"})
CARD, PORTS, PODS, GROUP = "card", "ports", "pods", "group"
MOST_NODES = 3
NOT_ASKED = "no-node-takes-it"  # the engine was not: too many wait
_WHOLE = (EXCLUSIVE_GPU, TOPOLOGY_GPU)
# What is short -> the diagnosis' code and scenario.
_CODES = {
    GPU_MEM: ("insufficient-memory", 8),
    GPU_CORE: ("insufficient-compute", 8),
    EXCLUSIVE_GPU: ("insufficient-cards", 8),
    TOPOLOGY_GPU: ("insufficient-cards", 8),
    GROUP: ("insufficient-cards", 8),
    CARD: ("no-card-has-room", 9),
    PORTS: ("port-taken", 0),
    PODS: ("too-many-pods", 0),
    MAX_PODS_LABEL: ("cards-have-their-pods", 0),
}
_OTHER = ("insufficient-other", 0)
_SHARE_FIX = "Ask for less, wait for pods to end, or add nodes to a pool of that mode."
_FIXES = {
    CARD: "Ask for at most what one card has left, wait, or place by binpack so that cards stay whole.",
    PORTS: "Do without the port of the node, or wait for the pod that has it.",
    PODS: "Wait for pods to end, or add nodes.",
    MAX_PODS_LABEL: f"Wait for pods to end, or raise {MAX_PODS_LABEL} on the nodes.",
}


def waits(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    """8, 9 and what has no number: a pod that no node takes, and which want of the nodes in its reach it is."""
    if pod.node or pod.finished or pod.terminating or pod.message.startswith("binding rejected"):
        return
    if pod.ask.scheduler:
        yield _say(
            pod, "another-scheduler", 0, f"{name_of(pod)} waits for the scheduler {pod.ask.scheduler}.",
            "Kubernetes' own scheduler, which keeps ACK's ledger of cards, does not look at it.",
            "See whether that scheduler runs; for cards that ACK shares, leave schedulerName out.",
            severity=Severity.INFO,
        )  # fmt: skip
        return
    if not pod.message or _is_told_of_its_ask(pod, scene):
        return
    found = scene.answer(pod)
    if found is None:
        yield from _as_said(pod, scene)
    elif found.prefilter == GATED:
        return  # not yet: whoever set the gates has a plan
    elif found.prefilter or found.problems:
        # A group that is not whole is told of as a group.
        if group_of(pod.ask.labels) is None or found.problems:
            yield _say(
                pod, "fits-nowhere", 0, f"{name_of(pod)} waits, and as it is written it fits nowhere.",
                (found.prefilter or found.message)[:300], "Change its manifest: no room that comes free helps it.",
            )  # fmt: skip
    elif found.chosen is None:
        yield _unplaced(pod, scene, found)
    else:
        yield from _with_room(pod, scene, found.chosen)


def _is_told_of_its_ask(pod: Pod, scene: Scene) -> bool:
    """Whether a rule about its manifest gives the reason already."""
    return any(each.severity is Severity.ERROR for rule in asks.RULES for each in rule(pod, scene))


def _unplaced(pod: Pod, scene: Scene, found: Preview) -> Diagnosis:
    wanted = wish(pod.ask)
    mine = [verdict for verdict in found.verdicts if scene.nodes[verdict.node].is_gpu]
    reach = [verdict for verdict in mine if not _codes(verdict) & OUT_OF_REACH]
    offering = [verdict for verdict in reach if _offers(verdict, wanted, scene)]
    asked_for = " and ".join(_gpu_names(wanted))
    if not reach:
        return _say(
            pod, "no-node-in-reach", 0, f"{name_of(pod)} waits: no node with GPUs is in its reach.",
            _kept_away(pod, scene, mine) or "The cluster has no node with GPUs.",
            "Change its node selector, affinity or tolerations, or uncordon the nodes.",
        )  # fmt: skip
    if not offering:
        modes = Counter(node.declared.value if (node := scene.nodes[each.node]).declared else "?" for each in reach)
        there = ", ".join(f"{counted(count, 'node')} in mode {mode}" for mode, count in sorted(modes.items()))
        away = _kept_away(pod, scene, [each for each in mine if each not in reach])
        return _say(
            pod, "wrong-resource", 14, f"{name_of(pod)} waits: no node in its reach gives {asked_for} in its mode.",
            f"In its reach: {there}." + (f" Out of it: {away}" if away else ""),
            "Ask for the resource of the mode whose nodes it selects, or select nodes of another mode.",
        )  # fmt: skip
    wants = Counter(want for verdict in offering for want in _wants(verdict))
    if not wants:
        wants[GROUP] = len(offering)
    most = max(wants, key=lambda want: (wants[want], _is_hopeless(want, offering), want in _CODES, want))
    if wants[CARD] and most == GPU_MEM:
        most = CARD  # a node with less in all has no card with so much either
    code, scenario = _CODES.get(most, _OTHER)
    shared = {GPU_MEM, CARD} if most == CARD else {most}
    if sum(not _wants(each).isdisjoint(shared) for each in offering) == len(offering) or most == GROUP:
        message = f"{name_of(pod)} waits: {_nobody_has(most, wanted)}."
    else:
        said = ", ".join(f"{_named(want)} on {count} of {len(offering)}" for want, count in wants.most_common())
        message = f"{name_of(pod)} waits: what it asks for is short on every node in its reach: {said}."
    return _say(pod, code, scenario, message, _left(offering, wanted, scene), _FIXES.get(most, _SHARE_FIX))


def _with_room(pod: Pod, scene: Scene, node: str) -> Iterator[Diagnosis]:
    """Say of a pod that waits where the engine finds room what the scheduler finds amiss, if that is still so."""
    read = read_failed_scheduling(pod.message)
    if read is None or read.prefilter or any(reason.code == "other" for reason in read.reasons):
        yield _say(
            pod, "waits-for-other", 0, f"{name_of(pod)} waits for something else than room: {node} has that.",
            pod.message[:300], "Read its words: volumes, spreading, pod affinity or a plugin of the cluster.",
        )  # fmt: skip
    else:
        yield _say(
            pod, "room-now", 22, f"{name_of(pod)} waits, and by the estimate {node} has room for it now.",
            pod.message[:300], "The scheduler looks again by itself, within five minutes at most.",
            severity=Severity.INFO,
        )  # fmt: skip


def _as_said(pod: Pod, scene: Scene) -> Iterator[Diagnosis]:
    read = read_failed_scheduling(pod.message)
    reasons = read.reasons if read else ()
    said = " ".join(meaning(each, pod.ask, scene.gpu_nodes) for each in reasons)
    yield _say(
        pod, NOT_ASKED, 0, f"{name_of(pod)} waits: the scheduler found no node for it.",
        said or pod.message[:300], "See the pod's own page for what each node says.",
    )  # fmt: skip


def _codes(verdict: Verdict) -> set[str]:
    return {rejection.code for rejection in verdict.rejections}


def _gpu_names(wanted: Wish) -> list[str]:
    return [name for name, _ in wanted.requests if name in GPU_RESOURCES]


def _offers(verdict: Verdict, wanted: Wish, scene: Scene) -> bool:
    """Whether a node gives, free or not, all GPU resources that are asked for."""
    allocatable = scene.nodes[verdict.node].allocatable
    return "mode" not in _codes(verdict) and all(allocatable.get(name, 0) > 0 for name in _gpu_names(wanted))


def _wants(verdict: Verdict) -> set[str]:
    """Return what a node is short of."""
    return {_want(rejection) for rejection in verdict.rejections}


def _want(rejection: Rejection) -> str:
    if rejection.code == "device":
        return CARD if rejection.resource else MAX_PODS_LABEL
    return rejection.resource or rejection.code


def _is_hopeless(want: str, verdicts: Sequence[Verdict]) -> bool:
    """Whether every node has less of it in all than is asked for."""
    return all(any(_want(each) == want and each.unresolvable for each in verdict.rejections) for verdict in verdicts)


def _nobody_has(want: str, wanted: Wish) -> str:
    if want == CARD:
        core = f" and {wanted.core_percent}% of its compute" if wanted.core_percent else ""
        each = f"{counted(wanted.memory_units, 'memory unit')}{core}"
        if wanted.whole_device:
            return f"no shared card in its reach is empty and of just {each}"
        if wanted.cards > 1:
            return f"no node in its reach has {each} left on each of {wanted.cards} cards"
        return f"nodes in its reach may have room in all, but no single card has {each} left"
    if want == MAX_PODS_LABEL:
        return "the cards in its reach have as many pods as their nodes allow, or that label cannot be read"
    if want == PORTS:
        return "the port that it wants is taken on every node in its reach"
    if want == PODS:
        return "the nodes in its reach carry as many pods as they may"
    if want == GROUP:
        return "the nodes in its reach have no room for its whole group"
    amount = dict(wanted.requests).get(want, 0)
    if want in _WHOLE:
        return f"no node in its reach has {counted(amount, 'card')} left"
    if want == GPU_MEM:
        return f"no node in its reach has {counted(amount, 'memory unit')} left"
    if want == GPU_CORE:
        return f"no node in its reach has {amount}% of compute left"
    return f"no node in its reach has {format_quantity(want, amount)} of {want} left"


def _named(want: str) -> str:
    return {GPU_MEM: "memory of cards", CARD: "room on one card", GPU_CORE: "compute of cards"}.get(want, want)


def _left(verdicts: Sequence[Verdict], wanted: Wish, scene: Scene) -> str:
    """Say what the nodes have left that come nearest."""
    lines = sorted((_left_on(scene.state(each.node), each, wanted) for each in verdicts), key=lambda pair: pair[0])
    text = "; ".join(line for _, line in lines[:MOST_NODES])
    return f"{text}; and {len(lines) - MOST_NODES} more nodes." if len(lines) > MOST_NODES + 1 else f"{text}."


def _left_on(state: NodeState, verdict: Verdict, wanted: Wish) -> tuple[tuple[int, ...], str]:
    node, said, rank = state.node, [], []
    if wanted.shares:
        best, whole = max(0, *state.rooms, 0), max(0, node.memory_units - state.requested.get(GPU_MEM, 0))
        sick = " while another card is sick" if node.cards_out else ""
        said.append(f"{best} on its emptiest card{sick}, {whole} in all")
        rank += [-best, -whole]
        if wanted.core_percent:
            core = max(0, *state.core_rooms, 0)
            said.append(f"at most {core}% of a card's compute")
            rank.append(-core)
    for name in _WHOLE:
        if dict(wanted.requests).get(name):
            total = node.allocatable.get(name, 0)
            free = max(0, total - state.requested.get(name, 0))
            said.append(f"{free} of {counted(total, 'card')} free")
            rank.append(-free)
    said += [
        f"{format_quantity(each.resource, each.free)} of {each.resource}"
        for each in verdict.rejections
        if each.code == "insufficient" and each.resource not in {*GPU_RESOURCES, PODS}
    ]
    return (len(verdict.rejections), *rank), f"{node.name}: {', '.join(said)}"


def _kept_away(pod: Pod, scene: Scene, verdicts: Sequence[Verdict]) -> str:
    """Say what keeps a pod from nodes, by reason."""
    by_code: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_code.setdefault(verdict.rejections[0].code, []).append(verdict)
    return " ".join(
        f"{counted(len(found), 'node')}: "
        + meaning(
            Reason(len(found), code, found[0].rejections[0].reason), pod.ask, [scene.nodes[each.node] for each in found]
        )
        for code, found in sorted(by_code.items())
    )


def _say(
    pod: Pod, code: str, scenario: int, message: str, evidence: str, fix: str, *, severity: Severity = Severity.WARNING
) -> Diagnosis:
    return Diagnosis(code, scenario, severity, message, evidence, fix, pods=(name_of(pod),))


RULES = (waits,)
