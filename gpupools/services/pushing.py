"""Which kind of push is carried out by what, and the one run that a worker makes over the rows that are due."""

from __future__ import annotations

from gpupools.services import changepushes, componentpushes, components, memberpushes, poolpushes, pushes, submissions
from gpupools.services.pushes import Handler

HANDLERS: dict[str, Handler] = {
    "pool.create": Handler(poolpushes.create, poolpushes.create_failed),
    "pool.modify": Handler(poolpushes.modify, poolpushes.change_failed),
    "pool.delete": Handler(poolpushes.delete, poolpushes.change_failed),
    components.INSTALL: Handler(componentpushes.install, componentpushes.failed),
    components.UPGRADE: Handler(componentpushes.upgrade, componentpushes.failed),
    components.UNINSTALL: Handler(componentpushes.uninstall, componentpushes.failed),
    **submissions.HANDLERS,
    **changepushes.HANDLERS,
    **memberpushes.HANDLERS,
}


def run_due() -> int:
    """Carry out the rows that are due, and return how many were taken. Any number of workers may do so at once."""
    return pushes.drain(HANDLERS)
