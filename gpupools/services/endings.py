"""Pods that an operation ends, and who has seen them: one rule for all of them. It reads and writes nothing.

Whoever lets pods end names them; a pod that came since is another one, and is named again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from gpupools.errors import Conflict

MOST_NAMED: Final = 20


def name_of(pod: Mapping[str, Any]) -> str:
    """Return how a pod of a blast radius is named by whoever approves that it ends: namespace/name."""
    return f"{pod['namespace']}/{pod['pod']}"


def newcomers(before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of pods that end now and were not in the blast radius of the request, by UID."""
    known = {pod["uid"] for pod in before}
    return [name_of(pod) for pod in now if pod["uid"] not in known]


def check(found: Collection[str], approved: Collection[str], *, said: str) -> None:
    """Raise Conflict (code ``kills-pods``, with ``pods``) when pods end that nobody has named.

    ``said`` is the sentence, with places for {many} ("2 pods") and {named}.
    """
    missing = sorted(set(found) - set(approved))
    if not missing:
        return
    named = ", ".join(missing[:MOST_NAMED]) + (" and more" if len(missing) > MOST_NAMED else "")
    many = "1 pod" if len(missing) == 1 else f"{len(missing)} pods"
    raise Conflict(said.format(many=many, named=named), code="kills-pods", pods=sorted(found))
