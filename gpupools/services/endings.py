"""Pods that an operation ends, and who has seen them: one rule for all of them. It reads and writes nothing.

Whoever lets pods end names them; a pod that came since is another one, and is named again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from gpupools.errors import Conflict

MOST_NAMED: Final = 20


def name_of(pod: Mapping[str, Any]) -> str:
    """Return how a pod of a blast radius is named by whoever approves that it ends: namespace/name."""
    return f"{pod['namespace']}/{pod['pod']}"


def newcomers(before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of pods that end now and were not in the blast radius that somebody has seen."""
    return [name_of(pod) for pod in strangers(before, now)]


def strangers(
    before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]], alive: Collection[str] | None = None
) -> list[Mapping[str, Any]]:
    """Return the pods that end now and that nobody has seen, by UID. ``alive``: UIDs that have not ended; else ``now``.

    A pod that stands in for one of the same owner that has ended is no newcomer: no more of that owner's pods end than
    were shown. Otherwise a pool with short-lived pods could never be approved.
    """
    seen, present = list(before), list(now)
    known = {pod["uid"] for pod in seen}
    here = {pod["uid"] for pod in present} if alive is None else alive
    replaced = Counter(_owner_of(pod) for pod in seen if pod["owner"] and pod["uid"] not in here)
    came = []
    for pod in present:
        if pod["uid"] in known:
            continue
        if replaced[_owner_of(pod)] > 0:
            replaced[_owner_of(pod)] -= 1
            continue
        came.append(pod)
    return came


def _owner_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    return pod["namespace"], pod["owner"]


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
