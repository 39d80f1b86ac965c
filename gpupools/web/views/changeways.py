"""How a mode change reaches its nodes, in the words of the route that it really takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext as _

from gpupools.domain.modes import Mode
from gpupools.domain.routes import ATTACH, Step, Way, needs_readd, needs_restart
from gpupools.models import Cluster, ModeChange, NodePool


def ways(pool: NodePool, *, target: str, planned: Iterable[Step]) -> list[tuple[str, Any, Any]]:
    """Return (value, title, consequence) of each way, in the words of the pool's provider and of the mode wanted."""
    if pool.cluster.provider != Cluster.Provider.ACK:
        return [
            (
                "whole",
                _("The whole pool at once"),
                _("All nodes are cordoned and freed before the first label is written."),
            ),
            (
                "batches",
                _("A few nodes at a time"),
                _("Each batch goes all the way before the next one is cordoned; the rest stays in use."),
            ),
            (
                "move",
                _("Move nodes into another pool"),
                _("The chosen nodes get the labels and taints of the other pool."),
            ),
        ]
    move = (
        "move",
        _("Move nodes into another pool"),
        _("Each machine leaves this pool, is set up anew and joins the other one, its disks wiped; the rest stays."),
    )
    if _goes_by_machine(pool, target) or any(step.kind == ATTACH for step in planned):
        return [
            (
                "whole",
                _("Machine by machine"),
                _("Each machine leaves the pool and joins it anew, one after the other; ACK wipes its disks."),
            ),
            (
                "batches",
                _("A few machines at a time"),
                _("The machines of a batch leave the pool and join it anew together; ACK wipes their disks."),
            ),
            move,
        ]
    anew = _("To core_mem, and from cgpu to share, machines leave and join anew instead, and their disks are wiped.")
    return [
        (
            "whole",
            _("The whole pool at once"),
            _("All nodes are cordoned and freed; then one call writes the labels to the pool and its nodes.")
            + f" {anew}",
        ),
        (
            "batches",
            _("Free the nodes by batches"),
            _("Nodes are cordoned and freed a few at a time; the labels still reach all of them in one call.")
            + f" {anew}",
        ),
        move,
    ]


def way_text(change: ModeChange) -> str:
    """Say which way a change takes: by machine where its route is, whatever was chosen."""
    is_anew = any(each["code"] == "set-up-anew" for each in change.warnings)
    if not is_anew or change.way not in (Way.WHOLE, Way.BATCHES):
        return change.get_way_display()
    return _("A few machines at a time, disks wiped") if change.batch_size > 1 else _("Machine by machine, disks wiped")


def _goes_by_machine(pool: NodePool, target: str) -> bool:
    if target not in list(Mode) or pool.mode not in list(Mode):
        return False
    former, mode = Mode(pool.mode), Mode(target)
    return needs_restart(former, mode) or needs_readd(former, mode)
