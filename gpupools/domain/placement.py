"""Where a pod would land: filter, score and choose, with every rejection and its reason.

Preview and the embedded cluster's scheduler call the same functions. It knows no cluster; nodes come as states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gpupools.domain.asks import limit_of
from gpupools.domain.devices import free_topology_cards, judge
from gpupools.domain.filters import filters_of, matches_term, untolerated
from gpupools.domain.gpus import Ask, Pod
from gpupools.domain.groups import Group, Seat, group_of, incomplete, seats, too_big
from gpupools.domain.messages import GATED, Tally, failed_scheduling
from gpupools.domain.modes import TOPOLOGY_GPU, PlacementPolicy
from gpupools.domain.states import node_state, node_states, take
from gpupools.domain.topology import CardSet, alternatives
from gpupools.domain.validation import ack_problems, invalid_text, validate_ask
from gpupools.domain.verdicts import NodeState, Preview, Rejection, Verdict
from gpupools.domain.wishes import PLACEMENT_LABELS, prefilter, wish

__all__ = [
    "Fleet",
    "NodeState",
    "Preview",
    "Rejection",
    "Verdict",
    "card_alternatives",
    "first_unfit",
    "node_state",
    "node_states",
    "preview",
    "sequence",
    "take",
    "validate_ask",
]

# kube-scheduler's weights of the two preferences that a pod can state.
AFFINITY_WEIGHT = 2
TAINT_WEIGHT = 3
SOFT_EFFECTS = frozenset({"PreferNoSchedule"})
UNFIT = -1


def preview(
    ask: Ask,
    states: Sequence[NodeState],
    *,
    whole_card_policy: PlacementPolicy = PlacementPolicy.BINPACK,
    mates: Sequence[Pod] = (),
) -> Preview:
    """Return where a pod would land, and each node's verdict.

    Order of checks: what the API server and ACK call invalid, PreFilter, kube-scheduler's filters on every node,
    ACK's cards. Of the nodes that fit, the one with the best score is chosen; equal nodes by name.
    On a real cluster other scores count too, so among several nodes the chosen one is a best guess.
    ``mates`` are the live pods of its topology group that exist already, without itself.
    """
    return sequence(ask, 1, states, whole_card_policy=whole_card_policy, mates=mates)[0]


def sequence(
    ask: Ask,
    count: int,
    states: Sequence[NodeState],
    *,
    whole_card_policy: PlacementPolicy = PlacementPolicy.BINPACK,
    mates: Sequence[Pod] = (),
) -> list[Preview]:
    """Return the previews of ``count`` equal pods that are placed one after the other.

    Once one does not fit, none of the rest does: they share its preview. Pods of a topology group are placed
    together, with the group's pods that wait already (``mates``) before them.
    """
    if count <= 0:
        return []
    fleet = Fleet(states, whole_card_policy=whole_card_policy)
    group = group_of(ask.labels) if limit_of(ask, TOPOLOGY_GPU) else None
    if group is not None:
        return _together(ask, count, fleet, group, mates)
    previews: list[Preview] = []
    while len(previews) < count:
        previews.append(fleet.preview(ask) if len(previews) == count - 1 else fleet.place(ask))
        if previews[-1].chosen is None:
            break
    return previews + previews[-1:] * (count - len(previews))


def _together(ask: Ask, count: int, fleet: Fleet, group: Group, mates: Sequence[Pod]) -> list[Preview]:
    """Place the pods of a group: ``count`` new ones after those of its mates that are on no node yet."""
    first = fleet.preview(ask)
    if first.problems or first.prefilter:
        return [first] * count
    if reason := incomplete(group, len(mates) + count):
        message = failed_scheduling((), nodes=len(fleet.states), prefilter=reason, preempts=ask.preempts)
        return [Preview(message=message, prefilter=reason)] * count
    if first.chosen is None:
        return [first] * count
    waiting = sum(1 for mate in mates if not mate.node)
    open_states = [state for state, verdict in zip(fleet.states, first.verdicts, strict=True) if verdict.fits]
    hosting = frozenset(mate.node for mate in mates if mate.node)
    taken = seats(wish(ask), open_states, waiting + count, hosting=hosting)
    if not taken:
        return [Preview(verdicts=first.verdicts, message=too_big(group))] * count
    previews = []
    for seat in taken:
        previews.append(_seated(fleet.preview(ask), seat))
        fleet.take(seat.node, ask, seat.cards)
    return previews[waiting:]


def _seated(found: Preview, seat: Seat) -> Preview:
    """Put the plan's node and cards into what the nodes said to a single pod."""
    verdicts = tuple(
        msgspec.structs.replace(verdict, cards=seat.cards, tie_set=seat.cards) if verdict.node == seat.node else verdict
        for verdict in found.verdicts
    )
    return Preview(seat.node, seat.cards, (seat.node,), seat.cards, verdicts)


def card_alternatives(ask: Ask, states: Iterable[NodeState], found: Preview) -> tuple[CardSet, ...]:
    """Return which cards of the chosen node other measures would take than ACK's; only for topology nodes."""
    wanted = limit_of(ask, TOPOLOGY_GPU)
    state = next((each for each in states if each.node.name == found.chosen), None)
    if state is None or not wanted:
        return ()
    return alternatives(state.node.links, [gpu.index for gpu in free_topology_cards(state)], wanted)


def first_unfit(previews: Sequence[Preview]) -> int | None:
    """Return which pod of a sequence is the first that does not fit, counted from 0; None when all fit."""
    return next((number for number, each in enumerate(previews) if each.chosen is None), None)


def _refused(ask: Ask, nodes: int) -> Preview | None:
    """Return the preview of an ask that no node is asked about."""
    problems = (*validate_ask(ask), *ack_problems(ask))
    if problems:
        return Preview(message=invalid_text(ask.name, problems), problems=problems)
    if ask.gated:
        return Preview(message=GATED, prefilter=GATED)
    if reason := prefilter(wish(ask)):
        message = failed_scheduling((), nodes=nodes, prefilter=reason, preempts=ask.preempts)
        return Preview(message=message, prefilter=reason)
    return None


class Fleet:
    """The states of a cluster, changed one node at a time while pods are placed one after the other.

    Equal asks are the same question: what a node answered stands until its state changes, so that the next pod of
    a kind costs as much as the nodes that changed meanwhile. The answers are those of ``preview``.
    """

    def __init__(
        self, states: Iterable[NodeState], *, whole_card_policy: PlacementPolicy = PlacementPolicy.BINPACK
    ) -> None:
        self._states = list(states)
        self._where = {state.node.name: position for position, state in enumerate(self._states)}
        self._policy = whole_card_policy
        self._changes: list[int] = []
        self._questions: dict[bytes, _Question] = {}

    @property
    def states(self) -> tuple[NodeState, ...]:
        """The states as they are now, in the order given."""
        return tuple(self._states)

    def put(self, state: NodeState) -> None:
        """Take a new state in the stead of a node's old one."""
        position = self._where[state.node.name]
        self._states[position] = state
        self._changes.append(position)

    def preview(self, ask: Ask) -> Preview:
        """Return where a pod would land now."""
        key = _key(ask)
        question = self._questions.get(key)
        if question is None:
            if refused := _refused(ask, len(self._states)):
                return refused
            question = self._questions[key] = _Question(ask, self._states, self._policy)
            question.heard = len(self._changes)
        elif question.heard < len(self._changes):
            question.ask_again(self._states, set(self._changes[question.heard :]))
            question.heard = len(self._changes)
        return question.answer(self._states)

    def place(self, ask: Ask) -> Preview:
        """Return where a pod would land now, and let it take its place there."""
        found = self.preview(ask)
        if found.chosen is not None:
            self.take(found.chosen, ask, found.cards)
        return found

    def take(self, node: str, ask: Ask, cards: Sequence[int]) -> None:
        """Let a pod take its place on these cards of a node."""
        self.put(take(self._states[self._where[node]], ask, cards))


_encoder = msgspec.msgpack.Encoder(order="deterministic")


def _key(ask: Ask) -> bytes:
    """Return what makes two asks the same question: neither the pod's name nor labels that no rule reads."""
    labels = {key: value for key, value in ask.labels.items() if key in PLACEMENT_LABELS}
    return _encoder.encode(msgspec.structs.replace(ask, name="", namespace="", labels=labels))


class _Question:
    """One kind of ask and what every node said to it. ``heard`` is for its fleet: how many changes it knows of."""

    def __init__(self, ask: Ask, states: Sequence[NodeState], policy: PlacementPolicy) -> None:
        self.heard = 0
        self._tally: Tally | None = None  # of the reasons, from the first time that no node fits
        self._wanted = wish(ask)
        self._checks = filters_of(self._wanted)
        whole = self._wanted.whole_cards and not self._wanted.shares
        self._emptiest = bool(whole) and policy is PlacementPolicy.SPREAD
        self._verdicts = [self._verdict(state) for state in states]
        self._ranks = [_rank(verdict) for verdict in self._verdicts]
        self._prefers = bool(ask.preferred_terms) or any(_is_softly_tainted(state) for state in states)

    def ask_again(self, states: Sequence[NodeState], positions: Iterable[int]) -> None:
        """Ask the nodes that changed."""
        for position in positions:
            old = self._verdicts[position]
            self._verdicts[position] = verdict = self._verdict(states[position])
            if self._tally is not None:
                self._tally.add(old, times=-1)
                self._tally.add(verdict)
            self._ranks[position] = _rank(verdict)
            self._prefers = self._prefers or _is_softly_tainted(states[position])

    def _verdict(self, state: NodeState) -> Verdict:
        for check in self._checks:
            if rejections := check(self._wanted, state):
                return Verdict(state.node.name, False, rejections)
        verdict = judge(self._wanted, state)
        if self._emptiest and verdict.fits:
            return msgspec.structs.replace(verdict, score=100 - verdict.score)
        return verdict

    def answer(self, states: Sequence[NodeState]) -> Preview:
        """Rank the nodes that fit and choose; with none, word the failure."""
        verdicts, ranks = self._verdicts, self._ranks
        top = max(ranks, default=UNFIT)
        if top == UNFIT:
            return Preview(verdicts=tuple(verdicts), message=self._text())
        if self._prefers and (points := self._preferences(states)):
            verdicts = list(verdicts)
            for position, point in points.items():
                verdicts[position] = msgspec.structs.replace(verdicts[position], preference=point)
            ranks = [_rank(verdict) for verdict in verdicts]
            top = max(ranks)
        tied = sorted([verdicts[position].node for position, rank in enumerate(ranks) if rank == top])
        chosen = next(v for v, rank in zip(verdicts, ranks, strict=True) if rank == top and v.node == tied[0])
        return Preview(
            chosen=chosen.node,
            cards=chosen.cards,
            tie_nodes=tuple(tied),
            tie_cards=chosen.tie_set,
            verdicts=tuple(verdicts),
        )

    def _text(self) -> str:
        if self._tally is None:
            self._tally = Tally()
            for verdict in self._verdicts:
                self._tally.add(verdict)
        return self._tally.text(len(self._verdicts), preempts=self._wanted.ask.preempts)

    def _preferences(self, states: Sequence[NodeState]) -> dict[int, int]:
        """Return what preferred affinity and soft taints add to nodes, as kube-scheduler scales and weighs them."""
        ask, points = self._wanted.ask, {}
        fitting = [position for position, rank in enumerate(self._ranks) if rank != UNFIT]
        if ask.preferred_terms:
            weights = {
                position: sum(p.weight for p in ask.preferred_terms if matches_term(p.term, states[position].node))
                for position in fitting
            }
            most = max(weights.values())
            points = {
                position: AFFINITY_WEIGHT * (100 * w // most) for position, w in weights.items() if w and most > 0
            }
        if any(_is_softly_tainted(states[position]) for position in fitting):
            counts = {
                position: len(untolerated(ask, states[position].node.taints, SOFT_EFFECTS)) for position in fitting
            }
            most = max(counts.values())
            for position, count in counts.items():
                gain = 100 - 100 * count // most if most else 100
                points[position] = points.get(position, 0) + TAINT_WEIGHT * gain
        return points


def _is_softly_tainted(state: NodeState) -> bool:
    return any(taint.effect in SOFT_EFFECTS for taint in state.node.taints)


def _rank(verdict: Verdict) -> int:
    return int(verdict.score) + verdict.preference if verdict.fits else UNFIT
