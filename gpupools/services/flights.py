"""What a mode change would do, before anybody asks for it: the same judgement as a request, and nothing written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpupools.domain import plans
from gpupools.domain.routes import Step
from gpupools.models import ModeChange, NodePool, Role
from gpupools.services import changefacts, changequeue, changerules
from gpupools.services.access import Actor

# The rules want a reason from whoever asks; a look needs none.
_ONLY_LOOKING = "-"


@dataclass(frozen=True, slots=True)
class Flight:
    """A change as it would be asked for (an unsaved row), its steps, and how many nodes would leave their mode.

    ``holding``: how many pods hold cards of its nodes, hit or not.
    """

    change: ModeChange
    steps: tuple[Step, ...]
    leaving: int
    nodes: int
    holding: int = 0

    @property
    def changes_nothing(self) -> bool:
        """Whether pool and nodes are as the change would make them."""
        return not (self.leaving or self.change.diff["pool"] or self.change.diff["nodes"] or self.change.target_pool)

    @property
    def seconds(self) -> int:
        """What the steps usually take, without those that wait for pods or for a person."""
        return sum(step.expected_seconds for step in self.steps)


def plan(actor: Actor, pool: NodePool, **wishes: Any) -> Flight:
    """Say what a change would do, to whom, and in which steps. Takes and raises what ``changes.request`` does."""
    actor.require(Role.VIEWER, pool.cluster)
    wish = changerules.checked(pool, **wishes, reason=_ONLY_LOOKING)
    seen = changefacts.see(pool, wish.node_names)
    changerules.check_possible(wish, seen)
    change = ModeChange(
        pool=pool,
        from_policy=pool.policy,
        target_mode=wish.mode.value,
        target_policy=wish.policy.value if wish.policy else "",
        holders=wish.holders,
        way=wish.way.value,
        batch_size=wish.batch,
        node_names=list(wish.node_names),
        target_pool=wish.home if wish.home.pk != pool.pk else None,
        rule=changerules.rule_for(wish, seen),
        **changerules.judged(wish, seen),
    )
    steps = changequeue.measured(changerules.steps_of(wish, seen))
    return Flight(change, steps, len(changerules.leaving_of(wish, seen)), len(seen.nodes), _holding(seen))


def _holding(seen: changefacts.Seen) -> int:
    return len(plans.holders(seen.nodes, seen.pods))
