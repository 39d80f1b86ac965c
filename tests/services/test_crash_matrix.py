"""Every kind of step of a mode change x killed before, during and after it: nothing is done twice, nothing is stuck.

A worker, a process of its own, is killed with SIGKILL at every such moment of a whole change, and another goes on each
time. What was done is counted at the embedded cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command

from gpupools.domain import routes
from gpupools.domain.changes import State
from gpupools.models import Role
from gpupools.services.access import Actor
from tests.services.builders import an_actor
from tests.services.crash_plots import END, PLOTS, Plot, needed
from tests.services.crash_stage import Stage, staged
from tests.services.crash_story import Moment, Story

SPEED = {"kubernetes": 40.0, "ack": 60.0}
STORIES = [(plot, moment) for plot in PLOTS for moment in Moment]
CELLS = [
    # Of the scope of a module, as stories are; a cell is never equal to another, so that pytest sorts by stories alone.
    pytest.param((plot, moment), (plot, moment, number), id=f"{plot}: {run} ({number}), {moment}")
    for plot, moment in STORIES
    for number, run in enumerate(plot.runs)
    # Closing a change asks the cluster for nothing.
    if run != END or moment in (Moment.AFTER, Moment.LATE)
]
MANUAL = {routes.RESTART, routes.READD}
ON_ACK = {routes.WRITE_POOL, routes.REMOVE, routes.ATTACH, routes.PAUSE_SCALING, routes.RESUME_SCALING}
EVERYWHERE = {
    routes.PREFLIGHT,
    routes.CORDON,
    routes.DRAIN,
    routes.WRITE_LABELS,
    routes.WAIT_DAEMON,
    routes.WAIT_RESOURCES,
    routes.UNCORDON,
    routes.VERIFY,
}


@pytest.fixture(scope="module")
def people(
    django_db_setup: None, django_db_blocker: pytest.FixtureRequest, redis_url: str
) -> Iterator[tuple[Actor, Actor]]:
    """An operator and an administrator; rows of this module are committed, as other processes must see them."""
    with django_db_blocker.unblock():
        yield an_actor(Role.OPERATOR, name="olga"), an_actor(Role.ADMIN, name="ada")
        call_command("flush", interactive=False, verbosity=0)


def stage_of(provider: str, people: tuple[Actor, Actor], factory: pytest.TempPathFactory) -> Iterator[Stage]:
    operator, admin = people
    pairs, empty = needed(provider, len(Moment))
    with staged(provider, operator, admin, factory.mktemp(provider), pairs, empty, SPEED[provider]) as stage:
        yield stage


@pytest.fixture(scope="module")
def kubernetes_stage(people: tuple[Actor, Actor], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from stage_of("kubernetes", people, tmp_path_factory)


@pytest.fixture(scope="module")
def ack_stage(people: tuple[Actor, Actor], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from stage_of("ack", people, tmp_path_factory)


@pytest.fixture(scope="module")
def story(request: pytest.FixtureRequest) -> Story:
    plot, moment = request.param
    told = Story(request.getfixturevalue(f"{plot.provider}_stage"), plot, moment)
    told.tell_and_look_back()
    return told


# Stories are committed before each test's own transaction begins; that one is there for pytest to make a database.
@pytest.mark.django_db
@pytest.mark.parametrize(("story", "cell"), CELLS, indirect=["story"], scope="module")
def test_a_killed_worker_leaves_nothing_undone_and_nothing_done_twice(
    story: Story, cell: tuple[Plot, Moment, int]
) -> None:
    plot, moment, number = cell
    seen = story.seen[number]
    expected = plot.writes.get(plot.runs[number], 0)
    assert not story.failure
    assert len(seen.writes) == expected, f"the cluster carried out {[(w.method, w.path) for w in seen.writes]}"
    if moment == Moment.BEFORE:
        assert seen.died("asks", by_write=False) == 1
        assert seen.died("asks", by_write=True) == (1 if expected else 0)
    elif moment == Moment.DURING:
        assert seen.died("answered", by_write=True) == expected
        # What is given up is opened again without a look at pods.
        assert seen.died("answered", by_write=False) == (plot.end != State.ABANDONED)
    elif moment == Moment.AFTER:
        assert seen.died("settling")
        assert seen.died("settled")
    else:
        assert seen.died("claimed") == 1
        assert seen.died("answered") == (plot.runs[number] != END)


def test_the_matrix_has_every_kind_of_step_on_both_providers_and_on_the_way_back() -> None:
    def kinds(provider: str, *, back: bool) -> set[str]:
        return {kind for plot in PLOTS if (plot.provider, plot.is_back) == (provider, back) for kind in plot.kinds}

    assert kinds("kubernetes", back=False) == EVERYWHERE | MANUAL
    assert kinds("kubernetes", back=True) == EVERYWHERE - {routes.PREFLIGHT}
    assert kinds("ack", back=False) == EVERYWHERE | ON_ACK
    assert kinds("ack", back=True) == (EVERYWHERE | ON_ACK) - {routes.PREFLIGHT, routes.PAUSE_SCALING}
    known = {value for name, value in vars(routes).items() if name.isupper() and isinstance(value, str)}
    assert known == EVERYWHERE | MANUAL | ON_ACK
