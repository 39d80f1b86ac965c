"""Which nodes a step of a mode change is done with and which not, kept on the step for whoever looks when it stops.

It reads what was seen of the cluster; it makes no call, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gpupools.domain import plans, routes
from gpupools.models import ChangeStep, Push
from gpupools.services import pushes
from gpupools.services.changefacts import is_member
from gpupools.services.site import Site, listed


def note(site: Site) -> None:
    """Keep on the step which of its nodes are as it wants them, and which are not yet."""
    look = _LEFT.get(site.step.kind)
    if look is None:
        return
    concerned = _concerned(site)
    left = look(site, concerned) & concerned
    now = {"done": sorted(concerned - left), "left": sorted(left)}
    if any(site.step.learned.get(key) != value for key, value in now.items()):
        site.learn(**now)


def note_trouble(push: Push, step: ChangeStep, code: str = "") -> None:
    """Keep the code of what stands in a step's way; without one, that nothing does."""
    if step.learned.get("code", "") != code:
        step.learned = {**step.learned, "code": code}
        ChangeStep.objects.filter(pushes.is_held(push), pk=step.pk).update(learned=step.learned)


def told(step: ChangeStep) -> str:
    """Say on which nodes a step is done and on which not; nothing where that was never seen."""
    done, left = step.learned.get("done", ()), step.learned.get("left", ())
    if not left:
        return ""
    so_far = f"Done on {listed(done)}" if done else "Done on no node"
    return f"{so_far}; not on {listed(left)}."


def _concerned(site: Site) -> set[str]:
    """Return the names by which the change knows the nodes of a step, also of those that are out of the cluster."""
    if site.step.node_names:
        return set(site.step.node_names)
    present = {node.name for node in site.nodes}
    # Nodes of the pool that were as wanted from the start are no part of what is done.
    written = {site.name_now(row["node"]) for row in site.change.diff.get("nodes", ())}
    return present & written or present


def _open(site: Site, names: set[str]) -> set[str]:
    return {node.name for node in site.closing() if not node.unschedulable}


def _held(site: Site, names: set[str]) -> set[str]:
    return {pod.node for pod in plans.holders(site.closing(), site.seen.pods)}


def _unlabelled(site: Site, names: set[str]) -> set[str]:
    return {node.name for node in site.nodes if site.due(node) or site.is_strange(node)}


def _not_out(site: Site, names: set[str]) -> set[str]:
    return {node.name for node in site.closing()}


def _not_in(site: Site, names: set[str]) -> set[str]:
    joined = {node.name for node in site.seen.fleet if node.ready and is_member(site.home, node)}
    return {name for name in names if site.name_now(name) not in joined}


def _unreported(site: Site, names: set[str]) -> set[str]:
    return {node.name for node in site.nodes if plans.waiting_for(node, site.goal(node))}


def _closed(site: Site, names: set[str]) -> set[str]:
    return {node.name for node in site.nodes if node.unschedulable and node.name in site.ours()}


_LEFT: Final[Mapping[str, Callable[[Site, set[str]], set[str]]]] = {
    routes.CORDON: _open,
    routes.DRAIN: _held,
    routes.WRITE_LABELS: _unlabelled,
    routes.REMOVE: _not_out,
    routes.ATTACH: _not_in,
    routes.WAIT_RESOURCES: _unreported,
    routes.UNCORDON: _closed,
}
