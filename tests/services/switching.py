"""Switches there and back under running pods: what runs before, in the new mode, and again after the way back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from gpupools.domain.changes import State
from gpupools.domain.gpus import GpuNode, Pod
from gpupools.domain.modes import MODES, Mode
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import changes, courses
from gpupools.services.access import Actor
from tests.services.driving import a_sleeper, drive, opened, reaches, run_one, until
from tests.services.test_carrying_on_ack import MODE

LIMITS: Mapping[str, Mapping[str, int]] = {
    "exclusive": {"nvidia.com/gpu": 1},
    "topology": {"aliyun.com/gpu": 1},
    "share": {"aliyun.com/gpu-mem": 2},
    "cgpu": {"aliyun.com/gpu-mem": 2},
    "mps": {"aliyun.com/gpu-mem": 2},
    "core_mem": {"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 10},
}
_numbers = itertools.count(1)


class Bench:
    """One pool's nodes and the Jobs that a test runs on them."""

    def __init__(self, operator: Actor, admin: Actor, cluster: Cluster, names: Sequence[str]) -> None:
        self.operator, self.admin, self.cluster, self.names = operator, admin, cluster, tuple(names)
        self._jobs: list[str] = []

    def nodes(self) -> dict[str, GpuNode]:
        with opened(self.cluster) as kubernetes:
            return {node.name: node for node in kubernetes.nodes() if node.name in self.names}

    def start(self, mode: str) -> list[str]:
        """Start a Job per node that asks for the mode's resources; return their names when all of them run."""
        jobs = []
        with opened(self.cluster) as kubernetes:
            for node in self.names:
                name = f"{mode.replace('_', '-')}-{next(_numbers)}"
                kubernetes.create(a_sleeper(name, seconds=1_000_000, limits=dict(LIMITS[mode]), node=node), op_id=name)
                jobs.append(name)
        self._jobs += jobs
        self.runs(jobs)
        return jobs

    def running(self, jobs: Sequence[str]) -> dict[str, Pod]:
        with opened(self.cluster) as kubernetes:
            pods = kubernetes.pods(namespace="default")
        return {pod.owner_name: pod for pod in pods if pod.owner_name in jobs and pod.ready and not pod.terminating}

    def uids(self, jobs: Sequence[str]) -> set[str]:
        return {pod.uid for pod in self.running(jobs).values()}

    def runs(self, jobs: Sequence[str]) -> None:
        until(lambda: set(self.running(jobs)) == set(jobs), what=f"running pods of {jobs}")

    def end(self) -> None:
        """Take away what the test has started."""
        with opened(self.cluster) as kubernetes:
            for name in self._jobs:
                kubernetes.delete("Job", "default", name)

    def carry_out(self, change: ModeChange) -> None:
        """Let somebody else approve a change, do by hand what it waits for, and work until it is applied."""
        if change.state == State.PENDING:
            changes.approve(self.admin, change, reason="agreed")
        applied = reaches(change, State.APPLIED)

        def is_applied() -> bool:
            if applied():
                return True
            if courses.waiting_for_a_person(change):
                changes.confirm(self.operator, change, reason="done by hand")
            return False

        drive(is_applied, what=f"an applied change; it says {change.steps.filter(state='running').first()}")
        assert {step.state for step in change.steps.all()} == {"done"}

    def is_in(self, mode: str) -> None:
        """See that every node is in a mode, reports it and nothing else, and takes pods."""
        facts = MODES[Mode(mode)]
        nodes = self.nodes()
        assert set(nodes) == set(self.names)
        for node in nodes.values():
            assert node.labels[MODE] == ("default" if mode == "exclusive" else mode)
            assert all(node.allocatable.get(name, 0) > 0 for name in facts.resources), node.allocatable
            assert not any(node.allocatable.get(name) for name in facts.zero_resources), node.allocatable
            assert not node.unschedulable


def there_and_back(bench: Bench, pool: NodePool, **wishes: object) -> ModeChange:
    """Switch a pool under running pods, see pods run in the new mode, undo it, and see the first ones run again."""
    before = pool.mode
    first = bench.start(before)
    old = bench.uids(first)
    change = changes.request(bench.operator, pool, holders="evict", reason="there", **wishes)
    assert len(change.blast_radius) == len(bench.names)
    bench.carry_out(change)
    after = change.target_mode
    bench.is_in(after)
    assert not old & bench.uids(first), "nothing of before runs on; Jobs of the same resource may start pods again"
    second = bench.start(after)
    new = bench.uids(second)
    home = change.target_pool or pool
    for row in (pool, home):
        row.refresh_from_db()
    change.refresh_from_db()
    undoing = changes.undo(bench.operator, change, reason="and back", holders="evict")
    assert len(undoing.blast_radius) >= len(second)
    bench.carry_out(undoing)
    bench.is_in(before)
    assert not new & bench.uids(second)
    bench.runs(first)
    assert run_one() is None
    return change
