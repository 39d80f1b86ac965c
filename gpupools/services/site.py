"""Where a step of a mode change works: the change, its nodes as they are now, and what is kept before each call.

It knows what the nodes shall be in the end (or, on the way back, what they were); the steps know how to get there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from gpupools.domain import plans
from gpupools.domain.gpus import GpuNode
from gpupools.domain.modes import MODE_LABEL, Mode, PlacementPolicy, mode_of_label
from gpupools.domain.routes import Way
from gpupools.errors import Conflict
from gpupools.models import ChangeStep, Cluster, ModeChange, NodePool, Push
from gpupools.services import pushes
from gpupools.services.changefacts import Seen, is_member, node_changes
from gpupools.services.drift import says_the_same
from gpupools.services.gateways import Kubernetes, PoolProvider

LOOK_AGAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The step is done."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The step is not done; look again after ``seconds``."""

    detail: str
    seconds: float = LOOK_AGAIN_SECONDS


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person must look before the change may go on."""

    note: str


Result = Finished | Waiting | Stopped


@dataclass(slots=True)
class Site:
    """One step of one change, with the cluster opened and looked at. ``seen`` holds all nodes of the change."""

    push: Push
    change: ModeChange
    step: ChangeStep
    kubernetes: Kubernetes
    provider: PoolProvider
    seen: Seen

    @property
    def pool(self) -> NodePool:
        """The pool that the nodes of the change were in."""
        return self.change.pool

    @property
    def home(self) -> NodePool:
        """The pool that the nodes shall be in when all is done; on the way back, the one they came from."""
        return self.change.pool if self.step.is_rollback else self.change.target_pool or self.change.pool

    @property
    def away(self) -> NodePool:
        """The pool that nodes leave: the other one where there are two."""
        return (self.change.target_pool or self.change.pool) if self.step.is_rollback else self.change.pool

    @property
    def mode(self) -> Mode:
        """The mode that the pool shall have in the end."""
        if self.step.is_rollback:
            return Mode(self.change.from_mode) if self.change.from_mode else Mode.EXCLUSIVE
        return Mode(self.change.target_mode)

    @property
    def policy(self) -> PlacementPolicy | None:
        """The card choice that goes with ``mode``."""
        return plans.policy_of(self.change.from_policy if self.step.is_rollback else self.change.target_policy)

    @property
    def is_ack(self) -> bool:
        """Whether machines are the provider's."""
        return self.pool.cluster.provider == Cluster.Provider.ACK

    @property
    def nodes(self) -> list[GpuNode]:
        """The nodes of this step's batch; all of the change's without one."""
        if not self.step.node_names:
            return list(self.seen.nodes)
        named = {self.name_now(name) for name in self.step.node_names}
        return [node for node in self.seen.nodes if node.name in named]

    def name_now(self, name: str) -> str:
        """Return what a node is called since its machine joined anew."""
        return str(self.change.remembered.get("renamed", {}).get(name, name))

    def goal(self, node: GpuNode) -> Mode:
        """Return the mode that a node shall be in: on the way back, the one that it was found in."""
        if not self.step.is_rollback or self.is_ack:
            return self.mode
        found = self.change.diff.get("facts", {}).get("nodes", {}).get(node.uid)
        return (mode_of_label(found["mode"] or None) if found else None) or self.mode

    def leaving(self) -> list[GpuNode]:
        """Return the nodes of this step that are still in another mode."""
        return [node for node in self.nodes if node.declared is not self.goal(node)]

    def closing(self) -> list[GpuNode]:
        """Return the nodes of this step that must be cordoned and free: those that leave their mode or their pool."""
        if not self.is_by_machine:
            return self.leaving()
        return [node for node in self.nodes if not (self.is_renewed(node) or self.has_stayed(node))]

    @property
    def is_by_machine(self) -> bool:
        """Whether nodes go out of a pool and into one with their machines."""
        return self.change.steps.filter(kind="remove", is_rollback=self.step.is_rollback).exists()

    def is_renewed(self, node: GpuNode) -> bool:
        """Tell whether a node has joined anew, where it shall be, since its machine was taken out by this change.

        One that was moved and has come back since is not: it is to be moved again.
        """
        before = self.change.remembered.get(self.key("uids"), {})
        if node.uid in before.values() or node.name not in {self.name_now(name) for name in before}:
            return False
        if self.home.pk == self.away.pk:
            return node.declared is self.goal(node)
        return not is_member(self.away, node)

    def has_stayed(self, node: GpuNode) -> bool:
        """Tell whether, on the way back, a node is one that never left: there is nothing to bring back of it."""
        return self.step.is_rollback and node.uid in self.change.remembered.get("uids", {}).values()

    def key(self, what: str) -> str:
        """Return the name under which facts of this direction are remembered."""
        return f"{what}_back" if self.step.is_rollback else what

    def due(self, node: GpuNode) -> list[plans.LabelChange]:
        """Return the mode's labels that are still to be written to a node."""
        if self.is_ack:
            # A node gets what its pool says, and a pool may leave out what ACK takes for granted.
            changes = node_changes(self.pool, node, self.mode, self.policy)
            return [each for each in changes if each.old or not says_the_same(node, each.key, each.new, None)]
        if not self.step.is_rollback:
            return node_changes(self.pool, node, self.mode, self.policy)
        changed: list[dict[str, Any]] = self.change.diff["nodes"]
        rows: list[dict[str, str]] = next((each["labels"] for each in changed if each["node"] == node.name), [])
        old = {row["key"]: row["old"] for row in rows if row["key"] in plans.MODE_KEYS}
        if MODE_LABEL in old:
            # Taking the label off would not bring exclusive back; ``default`` does.
            old[MODE_LABEL] = old[MODE_LABEL] or "default"
        return [
            plans.LabelChange(key, node.labels.get(key, ""), value)
            for key, value in sorted(old.items())
            if node.labels.get(key, "") != value
        ]

    def is_strange(self, node: GpuNode) -> bool:
        """Tell whether a node is still to be put into the pool that it shall be in, by label."""
        if self.is_ack or is_member(self.home, node):
            return False
        # Back to where it came from: out of every pool, if it was in none.
        return not (self.step.is_rollback and self.change.way == Way.JOIN)

    def op_id(self, what: str) -> str:
        """Return the id of one call of this step: the same when the call is tried again."""
        return str(uuid.uuid5(self.push.op_id, f"{self.step.kind}:{self.step.position}:{what}"))

    def ours(self) -> set[str]:
        """Return the nodes that this change has cordoned."""
        return set(self.change.remembered.get("ours", ()))

    def remember(self, **facts: Any) -> None:
        """Keep facts on the change before anything depends on them; stop when it was moved or taken over meanwhile."""
        remembered = {**self.change.remembered, **facts}
        is_news = remembered != self.change.remembered
        row = ModeChange.objects.filter(pushes.is_held(self.push), pk=self.change.pk, state=self.change.state)
        if not row.update(remembered=remembered):
            raise pushes.LostLease()
        self.change.remembered = remembered
        if is_news:
            pushes.note_progress(self.push)

    def learn(self, **facts: Any) -> None:
        """Keep facts on the step before anything waits on them; stop when another worker has taken it over."""
        learned = {**self.step.learned, **facts}
        if not ChangeStep.objects.filter(pushes.is_held(self.push), pk=self.step.pk).update(learned=learned):
            raise pushes.LostLease()
        is_news, self.step.learned = learned != self.step.learned, learned
        if is_news:
            pushes.note_progress(self.push)

    def overdue(self, limit: timedelta) -> bool:
        """Tell whether the step has run for longer than that."""
        return self.step.started_at is not None and timezone.now() - self.step.started_at > limit

    def wait(self, detail: str, limit: timedelta, seconds: float = LOOK_AGAIN_SECONDS) -> Waiting:
        """Wait on, unless the step has waited for too long: then the change fails with what is missing."""
        if self.overdue(limit):
            minutes = int(limit.total_seconds() // 60)
            raise Conflict(f"After {minutes} minutes still: {detail}", code="step-overdue")
        return Waiting(detail, seconds)


def listed(items: Iterable[str], *, most: int = 5) -> str:
    """Return names for a sentence, cut after a few."""
    found = list(items)
    more = len(found) - most
    return ", ".join(found[:most]) + (f" and {more} more" if more > 0 else "")


def cut(text: str, longest: int = 900) -> str:
    """Cut a sentence to what a step's row holds."""
    return text if len(text) <= longest else f"{text[:longest]}…"
