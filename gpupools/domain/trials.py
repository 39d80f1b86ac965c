"""A pod, or a Job's pods one after the other, tried again with something changed: how many fit then.

A changed ask counts as tried when the manifest with the edits made passes lint and bounds too, as a check of it would.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpupools.domain import lint, placement
from gpupools.domain.edits import Edit, edited, edits_between, written_ask
from gpupools.domain.findings import ERROR
from gpupools.domain.gpus import Ask, Pod
from gpupools.domain.manifests import Manifest, check_confined
from gpupools.domain.verdicts import NodeState, Preview
from gpupools.errors import Invalid


class Outcome(msgspec.Struct, frozen=True):
    """What became of a change: ``pods`` fit, ``first`` is the preview of the pod that did not fit before."""

    pods: int
    first: Preview
    edits: tuple[Edit, ...] = ()


class Trial:
    """One ask, ``count`` times, on some states. ``fitting`` pods fit as it is; ``unfit`` is the next one's preview.

    ``manifest`` is what the ask was read from, if it was from one: then edits are of it as it is written, and count
    only where nothing in it is wrong then. Without one nothing may be wrong that was not wrong before.
    """

    def __init__(
        self,
        ask: Ask,
        states: Sequence[NodeState],
        previews: Sequence[Preview] = (),
        *,
        count: int = 1,
        mates: Sequence[Pod] = (),
        manifest: Manifest | None = None,
    ) -> None:
        self.ask, self.states, self.count = ask, states, count
        self._mates, self._manifest = mates, manifest
        previews = previews or placement.sequence(ask, count, states, mates=mates)
        unfit = placement.first_unfit(previews)
        self.fitting = count if unfit is None else unfit
        self.unfit = None if unfit is None else previews[unfit]
        self._placed = previews[: self.fitting]
        self._known = frozenset() if manifest else _errors(written_ask(ask))

    def taken(self) -> tuple[NodeState, ...]:
        """Return the states once the pods that fit are in their places."""
        fleet = placement.Fleet(self.states)
        for each in self._placed:
            fleet.take(each.chosen or "", self.ask, each.cards)
        return fleet.states

    def on(self, states: Sequence[NodeState]) -> Outcome | None:
        """Try the same pods on other states; None where no more of them fit."""
        return self._outcome(self.ask, states)

    def asking(self, after: Ask) -> Outcome | None:
        """Try another ask in the place of each pod's own; None where no more of them fit, or a check refuses it."""
        if after == self.ask or (found := self._outcome(after, self.states)) is None:
            return None
        edits = edits_between(self.ask, after, self._manifest.pod if self._manifest else None)
        if not self._passes(after, edits):
            return None
        return msgspec.structs.replace(found, edits=edits)

    def _outcome(self, ask: Ask, states: Sequence[NodeState]) -> Outcome | None:
        previews = placement.sequence(ask, self.count, states, mates=self._mates)
        unfit = placement.first_unfit(previews)
        pods = self.count if unfit is None else unfit
        return Outcome(pods, previews[self.fitting]) if pods > self.fitting else None

    def _passes(self, after: Ask, edits: tuple[Edit, ...]) -> bool:
        if self._manifest is None:
            return _errors(written_ask(after)) <= self._known
        try:
            changed = edited(self._manifest, edits)
        except Invalid:
            return False
        # What the edits make must be what was tried, or they are not all of it.
        return changed.ask == after and not _errors(changed)


def _errors(manifest: Manifest) -> frozenset[str]:
    """Return the codes of what a check of a manifest calls an error, wherever its namespace is."""
    said = {each.code for each in lint.lint(manifest, modes_present=None) if each.severity == ERROR}
    return frozenset(said | {f"{each.code} {each.field}" for each in check_confined(manifest, namespaces=None)})
