"""The plots of the crash matrix: changes that have, between them, every kind of step on both providers, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpupools.domain.changes import State
from gpupools.models import ModeChange
from gpupools.services import changes, courses
from tests.services.crash_stage import Stage

# Runs of a change that belong to no step: the one that starts it, the one that closes it, the one that gives it up.
START, END, GIVE_UP = "start", "end", "give_up"
BY_LABEL = ("cordon", "drain", "write_labels", "wait_resources", "uncordon", "verify")
WITH_DAEMON = ("cordon", "drain", "write_labels", "wait_daemon", "wait_resources", "uncordon", "verify")
BY_MACHINE = ("cordon", "drain", "remove", "attach", "wait_resources", "uncordon")


@dataclass(frozen=True, eq=False)
class Plot:
    """One change. ``writes``: how many requests of a kind of step change something in the cluster, in all.

    ``begins``: makes the change and leaves it to the worker. ``mode``, ``nodes`` and ``scaled``: how its pool
    shall be in the end.
    ``tasks``: what ACK shall have been asked for, by type. ``starts_in``, ``empty``: the fresh pools that it takes.
    """

    name: str
    provider: str
    kinds: tuple[str, ...]
    writes: Mapping[str, int]
    begins: Callable[[Stage], ModeChange]
    mode: str
    nodes: int = 2
    starts_in: str = "exclusive"
    empty: str = ""
    end: State = State.APPLIED
    scaled: bool = False
    tasks: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def is_back(self) -> bool:
        """Whether the worker is killed on the way back."""
        return self.end == State.ROLLED_BACK

    @property
    def runs(self) -> tuple[str, ...]:
        """The kinds of its steps in order, with what belongs to no step at its ends."""
        if self.end == State.ABANDONED:
            return (GIVE_UP,)
        return (*(() if self.is_back else (START,)), *self.kinds, END)


def evicts_to_mps(stage: Stage) -> ModeChange:
    pool = stage.pool("exclusive", scaled=stage.is_ack)
    stage.occupy([node.name for node in stage.nodes(pool)], "exclusive")
    return stage.approved(pool, "mps", holders="evict")


def waits_and_restarts(stage: Stage) -> ModeChange:
    pool = stage.pool("cgpu")
    stage.occupy([stage.nodes(pool)[0].name], "cgpu")
    return stage.approved(pool, "share")


def is_added_again_by_hand(stage: Stage) -> ModeChange:
    return stage.approved(stage.pool("exclusive"), "core_mem")


def joins(stage: Stage) -> ModeChange:
    nodes = stage.two_nodes("exclusive")
    stage.occupy(nodes[:1], "exclusive")
    return stage.approved(stage.pool("cgpu"), way="join", node_names=nodes, holders="evict")


def joined_and_leaves(stage: Stage) -> ModeChange:
    change = stage.stopped_after(joins(stage), "uncordon")
    return changes.roll_back(stage.operator, change, reason="enough")


def _back_over_newcomers(stage: Stage, change: ModeChange) -> ModeChange:
    named = [pod["pod"] for pod in courses.newcomers_back(change)]
    assert named, "somebody decides over the pods that came"
    return changes.roll_back(stage.admin, change, reason="enough", approved_pods=named)


def goes_back_to_mps(stage: Stage) -> ModeChange:
    pool = stage.pool("mps", scaled=stage.is_ack)
    change = stage.stopped_after(stage.approved(pool, "exclusive", holders="evict"), "uncordon")
    stage.occupy([node.name for node in stage.nodes(pool)], "exclusive")
    return _back_over_newcomers(stage, change)


def is_given_up(stage: Stage) -> ModeChange:
    pool = stage.pool("exclusive", scaled=stage.is_ack)
    change = stage.stopped_after(stage.approved(pool, "cgpu"), "cordon")
    return changes.abandon(stage.operator, change, reason="enough")


def is_set_up_anew(stage: Stage) -> ModeChange:
    pool = stage.pool("exclusive", scaled=True)
    stage.occupy([stage.nodes(pool)[0].name], "exclusive")
    return stage.approved(pool, "core_mem", batch_size=2)


def moves(stage: Stage) -> ModeChange:
    pool = stage.pool("exclusive")
    stage.occupy([node.name for node in stage.nodes(pool)], "exclusive")
    return stage.approved(pool, way="move", target_pool=stage.empty_pool("cgpu"), holders="evict", batch_size=2)


def is_set_up_as_before(stage: Stage) -> ModeChange:
    pool = stage.pool("mps", scaled=True)
    change = stage.approved(pool, "core_mem", holders="evict", batch_size=1)
    change = stage.stopped_after(change, "uncordon", wave=1)
    stage.occupy(list(change.remembered["machines"]), "core_mem")
    return _back_over_newcomers(stage, change)


PLOTS = (
    Plot(
        "nodes by label to mps, holders evicted", "kubernetes", ("preflight", *WITH_DAEMON),
        {"cordon": 2, "drain": 2, "write_labels": 2, "uncordon": 2}, evicts_to_mps, "mps",
    ),
    Plot(
        "nodes by label to share, holders waited for, restarted by hand", "kubernetes",
        ("preflight", "cordon", "drain", "write_labels", "restart", "wait_resources", "uncordon", "verify"),
        {"cordon": 2, "write_labels": 2, "uncordon": 2}, waits_and_restarts, "share", starts_in="cgpu",
    ),
    Plot(
        "nodes by label to core_mem, added again by hand", "kubernetes",
        ("preflight", "cordon", "drain", "readd", "write_labels", "wait_resources", "uncordon", "verify"),
        {"cordon": 2, "write_labels": 2, "uncordon": 2}, is_added_again_by_hand, "core_mem",
    ),
    Plot(
        "nodes that join a pool, a holder evicted", "kubernetes", ("preflight", *BY_LABEL),
        {"cordon": 2, "drain": 1, "write_labels": 2, "uncordon": 2}, joins, "cgpu", nodes=4,
    ),
    Plot(
        "nodes that leave the pool which they joined", "kubernetes", BY_LABEL,
        {"cordon": 2, "write_labels": 4, "uncordon": 2}, joined_and_leaves, "cgpu", end=State.ROLLED_BACK,
    ),
    Plot(
        "nodes by label back to mps, holders evicted", "kubernetes", WITH_DAEMON,
        {"cordon": 2, "drain": 2, "write_labels": 2, "uncordon": 2}, goes_back_to_mps, "mps",
        starts_in="mps", end=State.ROLLED_BACK,
    ),
    Plot(
        "nodes by label, given up", "kubernetes", (), {GIVE_UP: 2}, is_given_up, "exclusive", end=State.ABANDONED,
    ),
    Plot(
        "an ACK pool by one call to mps, holders evicted", "ack",
        ("preflight", "pause_scaling", *WITH_DAEMON[:-1], "resume_scaling", "verify"),
        {"pause_scaling": 1, "cordon": 2, "drain": 2, "write_labels": 1, "uncordon": 2, "resume_scaling": 1},
        evicts_to_mps, "mps", scaled=True, tasks={"nodepool_update": 3},
    ),
    Plot(
        "an ACK pool by one call back to mps, holders evicted", "ack",
        (*WITH_DAEMON[:-1], "resume_scaling", "verify"),
        {"cordon": 2, "drain": 2, "write_labels": 1, "uncordon": 2, "resume_scaling": 1},
        goes_back_to_mps, "mps", starts_in="mps", end=State.ROLLED_BACK, scaled=True, tasks={"nodepool_update": 2},
    ),
    Plot(
        "an ACK pool set up anew for core_mem, holders waited for", "ack",
        ("preflight", "pause_scaling", "write_pool", *BY_MACHINE, "resume_scaling", "verify"),
        {"pause_scaling": 1, "write_pool": 1, "cordon": 2, "remove": 1, "attach": 1, "resume_scaling": 1},
        is_set_up_anew, "core_mem", scaled=True,
        tasks={"nodepool_update": 3, "nodepool_remove_nodes": 1, "nodepool_attach": 1},
    ),
    Plot(
        "machines that move into another ACK pool, holders evicted", "ack", ("preflight", *BY_MACHINE, "verify"),
        {"cordon": 2, "drain": 2, "remove": 1, "attach": 1}, moves, "cgpu", empty="cgpu",
        tasks={"nodepool_remove_nodes": 1, "nodepool_attach": 1},
    ),
    Plot(
        "a machine of an ACK pool set up as before for mps, holders evicted", "ack",
        ("write_pool", *BY_MACHINE[:4], "wait_daemon", *BY_MACHINE[4:], "resume_scaling", "verify"),
        {"write_pool": 1, "cordon": 1, "drain": 1, "remove": 1, "attach": 1, "resume_scaling": 1},
        is_set_up_as_before, "mps", starts_in="mps", end=State.ROLLED_BACK, scaled=True,
        tasks={"nodepool_update": 2, "nodepool_remove_nodes": 1, "nodepool_attach": 1},
    ),
    Plot(
        "an ACK pool by one call, given up", "ack", (), {GIVE_UP: 3}, is_given_up, "exclusive", end=State.ABANDONED,
        scaled=True, tasks={"nodepool_update": 1},
    ),
)  # fmt: skip


def needed(provider: str, moments: int) -> tuple[Counter[str], Counter[str]]:
    """Return how many pairs of nodes in each mode the plots of a provider take, and how many empty pools."""
    mine = [plot for plot in PLOTS if plot.provider == provider]
    pairs = Counter(plot.starts_in for plot in mine) + Counter("cgpu" for plot in mine if "join" in plot.name)
    empty = Counter(plot.empty for plot in mine if plot.empty)
    return (
        Counter({mode: number * moments for mode, number in pairs.items()}),
        Counter({mode: number * moments for mode, number in empty.items()}),
    )
