"""How a mode change gets its steps and into the queue, and how it holds its pools. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from statistics import median
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import DurationField, ExpressionWrapper, F

from gpupools.domain import routes
from gpupools.domain.changes import OPEN
from gpupools.domain.routes import Step
from gpupools.errors import Conflict
from gpupools.models import ChangeStep, ModeChange, NodePool, PoolHold
from gpupools.services import pushes
from gpupools.services.access import Actor

STEP: Final = "change.step"
RELEASE: Final = "change.release"
# As many finished steps as say what a step of their kind usually takes.
_MEASURED: Final = 20
_FEWEST_MEASURED: Final = 3
OPEN_STATES: Final = tuple(sorted(state.value for state in OPEN))


def target_of(change: ModeChange) -> str:
    """Return what the pushes of a change write to; the pools themselves are held by the open change."""
    return f"change:{change.pk}"


def enqueue(actor: Actor, change: ModeChange, kind: str = STEP) -> None:
    """Queue the next bit of a change; Conflict when one is queued already."""
    pushes.enqueue(
        actor, kind=kind, cluster=change.pool.cluster, target=target_of(change), payload={"change": change.pk}
    )


def wake(change: ModeChange) -> None:
    """Let a queued bit be done now instead of when it was to look again."""
    pushes.wake(change.pool.cluster, target_of(change))


def hold(change: ModeChange) -> None:
    """Hold the pools of a change; must be called in its transaction. Conflict when another open change holds one."""
    for pool in pools_of(change):
        PoolHold.objects.filter(pool=pool).exclude(change__state__in=OPEN_STATES).delete()
        try:
            with transaction.atomic():
                PoolHold.objects.create(pool=pool, change=change)
        except IntegrityError as error:
            raise held(pool) from error


def check_not_held(pools: Iterable[NodePool]) -> None:
    """Refuse pools that an open change holds."""
    for pool in pools:
        if PoolHold.objects.filter(pool=pool, change__state__in=OPEN_STATES).exists():
            raise held(pool)


def held(pool: NodePool) -> Conflict:
    """Return the refusal that names the pool."""
    return Conflict(
        f"An open mode change holds {pool.name}; it must be finished, rejected or withdrawn first.",
        code="change-open",
        pool=pool.name,
    )


def pools_of(change: ModeChange) -> list[NodePool]:
    """Return the pools that a change touches, always in the same order."""
    both = [change.pool, *([change.target_pool] if change.target_pool else [])]
    return sorted(both, key=lambda pool: pool.pk)


def write_steps(change: ModeChange, steps: Iterable[Step], *, is_rollback: bool = False) -> None:
    """Write the steps of a change behind those that it has, with what they took here before."""
    last = change.steps.order_by("-position").values_list("position", flat=True).first() or 0
    ChangeStep.objects.bulk_create(
        ChangeStep(
            change=change,
            position=position,
            kind=step.kind,
            title=step.title[:200],
            wave=step.wave,
            node_names=list(step.nodes),
            expected_seconds=step.expected_seconds,
            is_rollback=is_rollback,
        )
        for position, step in enumerate(measured(steps), start=last + 1)
    )


def measured(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps with the median of what their kind took lately; what was never measured keeps its guess."""
    planned = tuple(steps)
    found = {kind: _median_seconds(kind) for kind in {step.kind for step in planned}}
    return routes.expected(planned, lambda kind: found[kind])


def _median_seconds(kind: str) -> int | None:
    if kind in routes.MANUAL or kind == routes.DRAIN:
        return None  # that is up to people and pods
    took = ExpressionWrapper(F("finished_at") - F("started_at"), output_field=DurationField())
    done = ChangeStep.objects.filter(kind=kind, state=ChangeStep.State.DONE, finished_at__isnull=False)
    latest: list[timedelta] = list(done.order_by("-finished_at").values_list(took, flat=True)[:_MEASURED])
    if len(latest) < _FEWEST_MEASURED:
        return None
    return max(1, round(median(each.total_seconds() for each in latest)))
