"""The steps of a mode change that a person carries out: waiting for a word, and what can be seen of the work itself.

A word alone is not believed: nodes that show no sign of it are named, and only a second word goes over that.
"""

from __future__ import annotations

from typing import Final

from gpupools.domain import routes
from gpupools.domain.gpus import GpuNode
from gpupools.models import ChangeStep
from gpupools.services import pushes
from gpupools.services.site import Finished, Result, Site, Waiting, cut, listed

PERSON_SECONDS: Final = 15.0
_NOT_SEEN: Final = {
    routes.RESTART: "not restarted since this step began",
    routes.READD: "not left the cluster and joined anew: the same node as before",
}


def by_hand(site: Site) -> Result:
    """Wait until a person says that it is done and the nodes show it; what is missing is said by name.

    A node has restarted when its boot id is another one than when the step began, and has joined anew when its UID is.
    A node that reports no boot id can show nothing. A second confirmation goes on over what is not seen.
    """
    if "boots" not in site.step.learned:
        # Kept before anybody is asked: a restart from here on is seen.
        site.learn(boots={node.name: node.boot_id for node in site.nodes})
    if site.step.confirmed_at is None:
        if site.step.learned.get("unseen"):
            return Waiting(_doubt(site), PERSON_SECONDS)
        return Waiting("Waits for a person: do it, then confirm it here.", PERSON_SECONDS)
    who = site.step.confirmed_by.get_username() if site.step.confirmed_by else "somebody"
    unseen = sorted(node.name for node in site.nodes if _is_as_before(site, node))
    if unseen and "unseen" not in site.step.learned:
        return _doubted(site, who, unseen)
    known = site.change.diff.get("facts", {}).get("nodes", {})
    wanted = site.step.node_names or [each["name"] for each in known.values()]
    there = {node.name for node in site.nodes}
    if missing := [name for name in wanted if name not in there]:
        return Waiting(f"Confirmed, but {listed(missing)} is not in the cluster.", PERSON_SECONDS)
    if away := [node.name for node in site.nodes if not node.ready]:
        return Waiting(f"Confirmed, but {listed(away)} is not ready yet.", PERSON_SECONDS)
    if unseen:
        return Finished(cut(f"Confirmed again by {who}, though {_said(site, unseen)}."))
    return Finished(f"Confirmed by {who}.")


def _is_as_before(site: Site, node: GpuNode) -> bool:
    known = site.change.diff.get("facts", {}).get("nodes", {})
    if site.step.kind == routes.READD or node.uid not in known:
        return node.uid in known
    before = site.step.learned["boots"].get(node.name, "")
    return bool(before) and node.boot_id == before


def _said(site: Site, unseen: list[str]) -> str:
    has = "has" if len(unseen) == 1 else "have"
    return f"{len(unseen)} of {len(site.nodes)} {has} {_NOT_SEEN[site.step.kind]}: {listed(unseen)}"


def _doubted(site: Site, who: str, unseen: list[str]) -> Waiting:
    """Take a confirmation back, and keep which nodes speak against it."""
    learned = {**site.step.learned, "unseen": unseen, "doubted": who}
    row = ChangeStep.objects.filter(pushes.is_held(site.push), pk=site.step.pk)
    if not row.update(confirmed_by=None, confirmed_at=None, learned=learned):
        raise pushes.LostLease()
    site.step.learned, site.step.confirmed_at, site.step.confirmed_by = learned, None, None
    return Waiting(_doubt(site), PERSON_SECONDS)


def _doubt(site: Site) -> str:
    # By what is kept on the step: whoever follows a worker that died before its words were stored says the same.
    learned = site.step.learned
    said = (
        f"Waits for a person: {learned.get('doubted', 'somebody')} confirmed it, but {_said(site, learned['unseen'])}."
    )
    return cut(f"{said} Do it and confirm; or confirm once more to go on without.", 900)
