"""Which kind of push is carried out by what, and the one run that a worker makes over the rows that are due."""

from __future__ import annotations

from collections.abc import Callable

from gpupools.models import OperationRequest, Push
from gpupools.services import (
    changepushes,
    componentpushes,
    components,
    memberpushes,
    notices,
    poolpushes,
    pushes,
    submissions,
)
from gpupools.services.pushes import Handler

Failed = Callable[[Push, str], None]


def _told(failed: Failed) -> Failed:
    """Tell of the failure whoever asked for the operation and whoever approved it, where it was asked for."""

    def write(push: Push, error: str) -> None:
        failed(push, error)
        if (request := OperationRequest.objects.filter(push=push).first()) is not None:
            notices.failed(request)

    return write


HANDLERS: dict[str, Handler] = {
    "pool.create": Handler(poolpushes.create, poolpushes.create_failed),
    "pool.modify": Handler(poolpushes.modify, _told(poolpushes.change_failed)),
    "pool.delete": Handler(poolpushes.delete, _told(poolpushes.change_failed)),
    components.INSTALL: Handler(componentpushes.install, componentpushes.failed),
    components.UPGRADE: Handler(componentpushes.upgrade, _told(componentpushes.failed)),
    components.UNINSTALL: Handler(componentpushes.uninstall, _told(componentpushes.failed)),
    **submissions.HANDLERS,
    **changepushes.HANDLERS,
    **memberpushes.HANDLERS,
}


def run_due() -> int:
    """Carry out the rows that are due, and return how many were taken. Any number of workers may do so at once."""
    return pushes.drain(HANDLERS)
