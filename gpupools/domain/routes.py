"""The ordered steps of a mode change: by (from, to), by whoever owns the nodes, whole or batch by batch, and back.

Pure; services carry the steps out one by one. The order follows what ACK needs to keep its ledger true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import msgspec

from gpupools.domain.modes import MODES, Component, Mode

PREFLIGHT, CORDON, DRAIN, WRITE_LABELS = "preflight", "cordon", "drain", "write_labels"
WAIT_DAEMON, WAIT_RESOURCES, UNCORDON, VERIFY = "wait_daemon", "wait_resources", "uncordon", "verify"
# On ACK: the pool's own labels without its nodes', and the way of a node out of a pool and into one.
WRITE_POOL, REMOVE, ATTACH = "write_pool", "remove", "attach"
# On ACK: nothing else may add or remove machines of the pool meanwhile.
PAUSE_SCALING, RESUME_SCALING = "pause_scaling", "resume_scaling"
# What the console cannot do on a cluster whose machines are not its own; a person does it and says so.
RESTART, READD = "restart", "readd"
MANUAL = frozenset({RESTART, READD})
MOST_IN_BATCH = 100

# Seconds that a step takes where nothing was measured yet: per step, and more for every node.
_EXPECTED = {
    PREFLIGHT: (2, 0.0),
    CORDON: (2, 0.2),
    WRITE_LABELS: (10, 0.5),
    WRITE_POOL: (10, 0.0),
    PAUSE_SCALING: (5, 0.0),
    RESUME_SCALING: (5, 0.0),
    REMOVE: (90, 0.5),
    ATTACH: (240, 1.0),
    WAIT_DAEMON: (30, 0.1),
    WAIT_RESOURCES: (40, 0.1),
    UNCORDON: (2, 0.2),
    VERIFY: (2, 0.0),
}
_EVICTION_SECONDS = 45


class Way(StrEnum):
    """How a change reaches its nodes."""

    WHOLE = "whole"
    BATCHES = "batches"
    MOVE = "move"
    JOIN = "join"


class Step(msgspec.Struct, frozen=True):
    """One step of a plan: its kind, a sentence, and its batch with the nodes of that (none: all nodes).

    ``expected_seconds`` is what it usually takes; 0 where that depends on pods or on a person.
    """

    kind: str
    title: str
    wave: int = 0
    nodes: tuple[str, ...] = ()
    expected_seconds: int = 0


def needs_restart(from_mode: Mode | None, to_mode: Mode) -> bool:
    """Tell whether nodes must restart: ACK leaves cGPU's kernel module loaded until then."""
    return from_mode is Mode.CGPU and to_mode is Mode.SHARE


def needs_readd(from_mode: Mode | None, to_mode: Mode) -> bool:
    """Tell whether nodes must be taken out and added again: ACK says so for existing nodes that go to core_mem."""
    return to_mode is Mode.CORE_MEM and from_mode is not Mode.CORE_MEM


def plan(
    from_mode: Mode | None,
    to_mode: Mode,
    *,
    nodes: Sequence[str],
    evict: bool,
    owns_nodes: bool,
    way: Way = Way.WHOLE,
    batch: int = 0,
    scaled: bool = False,
    written: int = 0,
) -> tuple[Step, ...]:
    """Return the ordered steps of a change.

    ``nodes``: those that leave their mode, or all where none does; ``from_mode`` is ``to_mode`` then.
    ``owns_nodes``: machines are the provider's, and labels reach nodes by one pool-wide call (ACK).
    ``batch``: nodes at a time; 0 is all of them, or one by one where nodes are moved. ``scaled``: the provider makes
    and removes machines of the pool by itself. ``written``: how many nodes get labels, where these are more.
    A policy-only change needs no drain: ACK supports changing binpack and spread in place. An empty pool needs none.
    """
    steps = _forth(_Route(from_mode, to_mode, tuple(nodes), evict, written=written), owns_nodes, way, batch)
    if not scaled or not any(step.kind == CORDON for step in steps):
        return steps
    route = _Route(from_mode, to_mode, tuple(nodes), evict)
    pause = route.step(PAUSE_SCALING, "Pause auto scaling of the pool")
    resume = route.step(RESUME_SCALING, "Let auto scaling of the pool go on")
    return steps[0], pause, *steps[1:-1], resume, steps[-1]


def _forth(route: _Route, owns_nodes: bool, way: Way, batch: int) -> tuple[Step, ...]:
    from_mode, to_mode, nodes = route.from_mode, route.to_mode, route.nodes
    moved = owns_nodes and bool(nodes)
    if moved and way is Way.MOVE:
        return tuple(_by_machine(route, batch or 1, first=()))
    if from_mode is to_mode or not nodes:
        return route.preflight(), _write(route, owns_nodes=owns_nodes), route.verify()
    if moved and (needs_restart(from_mode, to_mode) or needs_readd(from_mode, to_mode)):
        write = route.step(WRITE_POOL, "Write the labels to the pool, for nodes that join it from now on")
        return tuple(_by_machine(route, batch or 1, first=(write,)))
    if owns_nodes:
        return tuple(_by_pool(route, batch))
    return tuple(_by_label(route, batch))


def back(
    *,
    to_mode: Mode | None,
    nodes: Sequence[str],
    evict: bool,
    owns_nodes: bool,
    machines: bool,
    labels: bool,
    others: Sequence[str] = (),
) -> tuple[Step, ...]:
    """Return the steps that bring nodes back to where a change found them.

    ``machines``: nodes went out of a pool (ACK), so they come back by the same door. ``labels``: some were written.
    ``others``: nodes that the change cordoned and that are not among these: they only need to be opened again.
    """
    route = _Route(None, to_mode or Mode.EXCLUSIVE, tuple(nodes), evict, is_back=True)
    if not nodes or not (labels or machines):
        return route.step(UNCORDON, "Uncordon what this change cordoned"), route.verify()
    if machines:
        first = (route.step(WRITE_POOL, "Write the former labels to the pool"),) if labels else ()
        steps = tuple(_by_machine(route, len(nodes), first=first))[1:]
        if not others:
            return steps
        they = "it was" if len(others) == 1 else "they were"
        title = f"Uncordon {_of(others)}, which stayed where {they}"
        opened = route.step(UNCORDON, title, nodes=tuple(others))
        return *steps[:-1], opened, steps[-1]
    return tuple(_by_pool(route, 0) if owns_nodes else _by_label(route, 0))[1:]


class _Route(msgspec.Struct, frozen=True):
    """What all steps of a plan have in common."""

    from_mode: Mode | None
    to_mode: Mode
    nodes: tuple[str, ...]
    evict: bool
    is_back: bool = False
    written: int = 0

    def step(self, kind: str, title: str, wave: int = 0, nodes: tuple[str, ...] = ()) -> Step:
        of = f"Batch {wave}: {title[0].lower()}{title[1:]}" if wave else title
        return Step(kind, of, wave, nodes, self._expected(kind, len(nodes or self.nodes)))

    def _expected(self, kind: str, count: int) -> int:
        if kind == DRAIN:
            return _EVICTION_SECONDS if self.evict else 0
        fixed, each = _EXPECTED.get(kind, (0, 0.0))
        return round(fixed + each * count)

    def preflight(self) -> Step:
        return self.step(PREFLIGHT, "Check that nothing moved since the request")

    def verify(self) -> Step:
        what = "are as they were before" if self.is_back else "carry the new labels"
        return self.step(VERIFY, f"Verify that pool and nodes {what}")

    def waves(self, batch: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield (number, nodes) of each batch; all nodes at once have the number 0 and are not named."""
        if not batch or batch >= len(self.nodes):
            yield 0, ()
            return
        for number, start in enumerate(range(0, len(self.nodes), batch), start=1):
            yield number, self.nodes[start : start + batch]

    def close(self, wave: int, nodes: tuple[str, ...]) -> tuple[Step, Step]:
        said = "Evict the pods that hold cards" if self.evict else "Wait for the pods that hold cards"
        if self.evict and self.is_back:
            said = "Evict the pods that the decision named; wait for others that hold cards"
        return (
            self.step(CORDON, f"Cordon {_of(nodes or self.nodes)}", wave, nodes),
            self.step(DRAIN, said, wave, nodes),
        )

    def wait(self, wave: int, nodes: tuple[str, ...]) -> Iterator[Step]:
        target = MODES[self.to_mode]
        if Component.MPS_CONTROL in target.components:
            yield self.step(WAIT_DAEMON, "Wait for the MPS daemon on each node", wave, nodes)
        reported = f"Wait until the nodes report {' and '.join(target.resources)} and nothing of other modes"
        yield self.step(WAIT_RESOURCES, reported, wave, nodes)

    def open(self, wave: int, nodes: tuple[str, ...]) -> Step:
        return self.step(UNCORDON, "Uncordon what this change cordoned", wave, nodes)


def _of(nodes: Sequence[str]) -> str:
    if len(nodes) <= 3:
        return ", ".join(nodes)
    return f"{len(nodes)} nodes"


def _write(route: _Route, *, owns_nodes: bool) -> Step:
    count = max(len(route.nodes), route.written)
    of_nodes = "1 node" if count == 1 else f"{count} nodes"
    former = " former" if route.is_back else ""
    if not owns_nodes:
        return route.step(WRITE_LABELS, f"Write the{former} labels to {of_nodes}, one after the other")
    nodes = f" and, in one call, to its {of_nodes}" if count else ""
    return route.step(WRITE_LABELS, f"Write the{former} labels to the pool{nodes}")


def _by_pool(route: _Route, batch: int) -> Iterator[Step]:
    """ACK: one call writes the labels of the pool and all its nodes, so all are drained before it."""
    yield route.preflight()
    for wave, nodes in route.waves(batch):
        yield from route.close(wave, nodes)
    yield _write(route, owns_nodes=True)
    yield from route.wait(0, ())
    for wave, nodes in route.waves(batch):
        yield route.open(wave, nodes)
    yield route.verify()


def _by_label(route: _Route, batch: int) -> Iterator[Step]:
    """Plain Kubernetes: each batch goes all the way before the next one is touched."""
    restart = not route.is_back and needs_restart(route.from_mode, route.to_mode)
    readd = not route.is_back and needs_readd(route.from_mode, route.to_mode)
    yield route.preflight()
    for wave, nodes in route.waves(batch):
        names = _of(nodes or route.nodes)
        yield from route.close(wave, nodes)
        if readd:
            yield route.step(READD, f"Remove {names} from the cluster and add it again, by hand", wave, nodes)
        count = len(nodes) or max(len(route.nodes), route.written)
        yield route.step(WRITE_LABELS, f"Write the labels to {counted(count)}, one after the other", wave, nodes)
        if restart:
            yield route.step(RESTART, f"Restart {names}, by hand: cGPU's module stays loaded until then", wave, nodes)
        yield from route.wait(wave, nodes)
        yield route.open(wave, nodes)
    if (staying := route.written - len(route.nodes)) > 0 and batch and batch < len(route.nodes):
        # Batches are of nodes that leave their mode; the others may still need another policy.
        yield route.step(WRITE_LABELS, f"Write the labels to {counted(staying)} of this mode already")
    yield route.verify()


def _by_machine(route: _Route, batch: int, *, first: Sequence[Step]) -> Iterator[Step]:
    """ACK: each batch leaves its pool without being released, and joins the pool that it shall be in."""
    yield route.preflight()
    yield from first
    for wave, named in route.waves(batch):
        nodes = named or route.nodes
        yield from route.close(wave, nodes)
        yield route.step(REMOVE, f"Take {_of(nodes)} out of the pool; the machines stay", wave, nodes)
        it, its, they = ("it", "its", "it") if len(nodes) == 1 else ("them", "their", "they")
        where = (
            f"the pool that {they} came from" if route.is_back else f"{its} new pool" if not first else f"{its} pool"
        )
        yield route.step(ATTACH, f"Attach {it} to {where}; ACK sets {it} up anew", wave, nodes)
        yield from route.wait(wave, nodes)
        yield route.open(wave, nodes)
    yield route.verify()


def counted(count: int) -> str:
    """Say how many nodes."""
    return "1 node" if count == 1 else f"{count} nodes"


def expected(steps: Sequence[Step], measured: Callable[[str], int | None]) -> tuple[Step, ...]:
    """Return the steps with the time that steps of their kind took here before, where that is known."""
    return tuple(
        step if (seconds := measured(step.kind)) is None else msgspec.structs.replace(step, expected_seconds=seconds)
        for step in steps
    )
