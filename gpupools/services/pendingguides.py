"""What whoever decides on a change must know: what moved since the request, and which pods came.

It looks by the same functions as an approval does, and writes nothing.
"""

from __future__ import annotations

from gpupools.domain import plans
from gpupools.domain.changes import State
from gpupools.errors import Unreachable
from gpupools.models import ModeChange
from gpupools.services import changefacts, changerules, changes
from gpupools.services.changefacts import Seen
from gpupools.services.endings import MOST_NAMED
from gpupools.services.guidance import Advice, Guidance
from gpupools.services.site import listed

_AGAIN = Advice("ask-again", "Reject or withdraw it, and ask again for what is to be done as things stand now.")


def guide(change: ModeChange) -> Guidance:
    """Return what moved since a change was asked for; nothing for one that does not wait for a decision."""
    if change.state != State.PENDING:
        return Guidance()
    try:
        seen = changefacts.see(change.pool, change.node_names)
    except Unreachable as error:
        said = "Nobody can approve before it answers: what moved since the request is not known."
        wait = (Advice("wait-for-cluster", said),)
        return Guidance("The cluster does not say how it is now", str(error), True, blocks=True, advice=wait)
    came = _came(change, seen)
    if moved := tuple(changes.what_moved(change, seen)):
        headline = "Something moved since the request: it cannot be approved any more"
        why = " ".join(moved)
        return Guidance(headline, why, True, blocks=True, moved=moved, newcomers=came, advice=(_AGAIN,))
    if not came:
        return Guidance()
    many = "1 pod holds" if len(came) == 1 else f"{len(came)} pods hold"
    headline = f"{many} cards that nobody had seen at the request: {listed(came[:MOST_NAMED])}"
    fate = "evict them too" if change.holders == ModeChange.Holders.EVICT else "wait for them too"
    said = f"Once approved it pauses at its first step, and an administrator decides whether to {fate}."
    return Guidance(headline, newcomers=came, advice=(Advice("decide-newcomers", said), _AGAIN))


def _came(change: ModeChange, seen: Seen) -> tuple[str, ...]:
    leaving = changerules.leaving_of(changerules.wish_of(change), seen)
    came = changefacts.newcomers(change, plans.holders(leaving, seen.pods), seen.pods)
    return tuple(f"{pod.namespace}/{pod.name}" for pod in came)
