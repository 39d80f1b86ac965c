"""What is known of a manifest before it is sent: where its pods would land, and with what more of them would.

Read from one picture; it asks no cluster and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpupools.domain import groups, placement, whatifs
from gpupools.domain.findings import ERROR, Finding, refusal
from gpupools.domain.gpus import Picture
from gpupools.domain.manifests import Manifest
from gpupools.domain.meanings import meaning_of_all
from gpupools.domain.placement import Preview
from gpupools.domain.topology import CardSet
from gpupools.domain.whatifs import Help

NO_HELP: Final = Help()
SUSPENDED: Final = "It is suspended and makes no pods before it is resumed; this is where they would land now."


@dataclass(frozen=True, slots=True)
class Checked:
    """A manifest that may be sent, what lint says, and where its pods would land by the numbers of ``taken_at``.

    ``preview`` is the first pod's, ``previews`` each pod's in turn; both are an *estimate* for that instant, not a
    reservation, and None and empty while no numbers are known or no pods are made (``unknown`` then says why).
    ``note`` says what the preview takes for granted, ``help`` how more of the pods would fit; ``alternatives`` are
    other choices of cards on a topology node.
    """

    manifest: Manifest
    findings: tuple[Finding, ...]
    preview: Preview | None
    previews: tuple[Preview, ...]
    taken_at: float | None
    unknown: str = ""
    help: Help = NO_HELP
    alternatives: tuple[CardSet, ...] = ()
    note: str = ""

    @property
    def first_unfit(self) -> int | None:
        """Which pod is the first that does not fit, counted from 0; None when all do, or nothing is known."""
        return placement.first_unfit(self.previews)

    @property
    def unfit(self) -> Preview | None:
        """What every node says to the first pod that does not fit, by then."""
        return None if self.first_unfit is None else self.previews[self.first_unfit]

    @property
    def meaning(self) -> str:
        """What the preview's reason for all nodes means, where it has one."""
        return meaning_of_all(self.preview.prefilter) if self.preview and self.preview.prefilter else ""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the manifest from being sent."""
        return tuple(each for each in self.findings if each.severity == ERROR)

    @property
    def refused(self) -> str:
        """Who does not do as the manifest is written, as a sentence; empty when it has no errors."""
        return refusal(self.errors)


def previewed(
    manifest: Manifest,
    findings: tuple[Finding, ...],
    picture: Picture,
    namespaces: frozenset[str] | None,
    pools: Mapping[str, str],
) -> Checked:
    """Place the pods one after the other, and try out with what more of them would fit."""
    count = min(manifest.parallelism, manifest.completions)
    if not count:
        none = "parallelism" if not manifest.parallelism else "completions"
        return Checked(manifest, findings, None, (), picture.taken_at, f"It makes no pods: its {none} is 0.")
    ask, states = manifest.ask, placement.node_states(picture.nodes, picture.pods)
    mates = groups.mates(ask, picture.pods)
    previews = placement.sequence(ask, count, states, mates=mates)
    found = whatifs.what_would_help(
        ask,
        states,
        previews,
        count=count,
        mates=mates,
        manifest=manifest,
        daemons=picture.pods,
        namespaces=namespaces,
        pools=pools,
    )
    others = placement.card_alternatives(ask, states, previews[0])
    note = SUSPENDED if manifest.kind == "Job" and manifest.raw["spec"].get("suspend") is True else ""
    return Checked(manifest, findings, previews[0], tuple(previews), picture.taken_at, "", found, others, note)
