"""What a mode change would do, before anybody asks for it: the same judgement as a request, and nothing written."""

from __future__ import annotations

from dataclasses import dataclass

from gpupools.domain import plans
from gpupools.domain.plans import Step
from gpupools.models import Cluster, ModeChange, NodePool, Role
from gpupools.services import changefacts, changerules
from gpupools.services.access import Actor

# The rules want a reason from whoever asks; a look needs none.
_ONLY_LOOKING = "-"


@dataclass(frozen=True, slots=True)
class Flight:
    """A change as it would be asked for (an unsaved row), its steps, and how many nodes would leave their mode."""

    change: ModeChange
    steps: tuple[Step, ...]
    leaving: int
    nodes: int


def plan(
    actor: Actor,
    pool: NodePool,
    *,
    target_mode: str,
    target_policy: str | None = None,
    holders: str = ModeChange.Holders.WAIT,
) -> Flight:
    """Say what a change would do, to whom, and in which steps. Raises what ``changes.request`` raises."""
    actor.require(Role.VIEWER, pool.cluster)
    mode, policy, holders, _ = changerules.checked(pool, target_mode, target_policy, holders, _ONLY_LOOKING)
    seen = changefacts.see(pool)
    changerules.check_possible(pool.cluster, seen, mode)
    evict = holders == ModeChange.Holders.EVICT
    leaving = seen.unlike(mode)
    change = ModeChange(
        pool=pool,
        from_policy=pool.policy,
        target_mode=mode.value,
        target_policy=policy.value if policy else "",
        holders=holders,
        **changerules.judged(pool, seen, mode, policy, evict=evict),
    )
    steps = plans.plan(
        None if leaving else mode,
        mode,
        nodes=[node.name for node in leaving or seen.nodes],
        evict=evict,
        owns_nodes=pool.cluster.provider == Cluster.Provider.ACK,
    )
    return Flight(change, steps, len(leaving), len(seen.nodes))
