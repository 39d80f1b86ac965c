"""One change whose worker is killed again and again at one kind of moment, and what was seen of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from django.utils import timezone

from gpupools.domain.changes import State
from gpupools.domain.routes import MANUAL
from gpupools.errors import ConsoleError
from gpupools.models import AuditEntry, ChangeStep, ModeChange, PoolHold, Push
from gpupools.services import changes, courses
from tests.services.crash_plots import END, GIVE_UP, START, Plot
from tests.services.crash_stage import MODE, SCALING, Stage, label
from tests.services.killing import Stop, Workers

# A change that dies more often than this does not get on.
MOST_KILLS = 120


class Moment(StrEnum):
    """What becomes of a worker, in each step anew."""

    BEFORE = "killed before anything of it has reached the cluster"
    DURING = "killed when it was carried out and no answer has come back"
    AFTER = "killed around the storing of what it has learned"
    LATE = "taken for dead and awake again when another has done it"


@dataclass
class Seen:
    """What was seen in one run or step: what the worker died of, and the writes that the cluster carried out."""

    kills: list[Stop] = field(default_factory=list)
    writes: list[Stop] = field(default_factory=list)

    def died(self, what: str, *, by_write: bool | None = None) -> int:
        """How often the worker died at a kind of stop."""
        return sum(each.what == what and by_write in (None, each.is_write) for each in self.kills)


class Story:
    """Carries a plot out with a worker that dies at every moment of a kind. ``failure``: why it came to no good end."""

    def __init__(self, stage: Stage, plot: Plot, moment: Moment) -> None:
        self.plot = plot
        self.moment = moment
        self.seen: dict[int, Seen] = defaultdict(Seen)
        self.failure = ""
        self._stage = stage
        self._died_at: set[tuple[object, ...]] = set()
        self._run = 0
        self._nudged: set[int] = set()
        self._worker = stage.workers[0]
        self._sleepers: list[tuple[Workers, Stop]] = []
        self._slept_in = 0
        self.change = plot.begins(stage)
        self._tasks = set(stage.tasks())
        self._version = stage.version()
        self.audit_from = AuditEntry.objects.order_by("-pk").values_list("pk", flat=True).first() or 0

    def tell(self) -> None:
        """Let workers come and go until the queue is empty."""
        stage = self._stage
        stage.gate.is_open = False
        stop = None
        try:
            self._worker.start()
            while True:
                stop = stage.gate.next()
                self._note(stop)
                if self._sleepers and (stop.what == "idle" or stop.what == "claimed" and self._run != self._slept_in):
                    self._wake()
                if stop.what == "idle":
                    break
                if not self._is_time(stop):
                    if stop.what == "settled":
                        self._nudge(stop)
                    stop.word.set_result(True)
                    continue
                if self.moment == Moment.LATE:
                    self._slept_in = self._run
                    self._sleepers.append((self._worker, stop))
                    self._worker = next(each for each in stage.workers if not each.is_working)
                else:
                    self._worker.kill()
                    stop.word.set_result(False)
                self._lease_runs_out()
                self._worker.start()
        finally:
            for worker, held in (*self._sleepers, (self._worker, stop)):
                worker.kill()
                if held is not None and not held.word.done():
                    held.word.set_result(False)
            stage.gate.is_open = True
        self.change.refresh_from_db()

    def _wake(self) -> None:
        """Let those go on that were taken for dead: they must not change anything any more."""
        for worker, held in self._sleepers:
            before = self._rows()
            held.word.set_result(True)
            while (late := self._stage.gate.next()).what != "ran":
                harmful = late.what == "settled" or late.what == "asks" and late.is_write
                late.word.set_result(not harmful)
                assert not harmful, f"a worker that was taken for dead: {late}"
            worker.kill()
            late.word.set_result(False)
            assert self._rows() == before, f"a worker that was taken for dead has written: {before}, {self._rows()}"
        self._sleepers.clear()

    def _rows(self) -> list[object]:
        """Everything that the console keeps of the change."""
        row = ModeChange.objects.filter(pk=self.change.pk).values()
        pushes = Push.objects.filter(target=f"change:{self.change.pk}").values()
        return [*row, *self.change.steps.values(), *pushes]

    def _note(self, stop: Stop) -> None:
        assert stop.what != "ended", f"the worker ended by itself: {stop.number}"
        if stop.what not in ("settled", "ran"):
            self._run = self._run_now()
        if stop.what == "answered" and stop.is_write and 200 <= stop.status < 300:
            self.seen[self._run].writes.append(stop)

    def _run_now(self) -> int:
        """Tell which run or step the worker is at, counted as in the plot's ``runs``."""
        state = ModeChange.objects.values_list("state", flat=True).get(pk=self.change.pk)
        if self.plot.end == State.ABANDONED or state == State.APPROVED:
            return 0
        states = list(self.change.steps.filter(is_rollback=self.plot.is_back).values_list("state", flat=True))
        done = states.count(ChangeStep.State.DONE)
        return done + (START in self.plot.runs)

    def _is_time(self, stop: Stop) -> bool:
        """Tell whether the worker is to die or sleep here; one does at each such place."""
        place: tuple[object, ...] | None = None
        if self.moment == Moment.BEFORE and stop.what == "asks":
            place = (self._run, stop.is_write)
        elif self.moment == Moment.DURING and stop.what == "answered":
            # A probe is cut off in its middle: it has seen the nodes and does not get to see the pods.
            if stop.is_write:
                place = (self._run, len(self.seen[self._run].writes))
            elif stop.path.endswith("/pods"):
                place = (self._run, "probe")
        elif self.moment == Moment.AFTER and stop.what in ("settling", "settled"):
            place = (self._run, stop.what, stop.detail)
        elif self.moment == Moment.LATE:
            # What it knows is old when it wakes up: that there is something to do, or which nodes there are.
            nodes = stop.what == "answered" and stop.path == "/api/v1/nodes"
            place = (self._run, stop.what) if nodes or stop.what == "claimed" else None
        if place is None or place in self._died_at:
            return False
        self._died_at.add(place)
        assert len(self._died_at) <= MOST_KILLS, "the change does not get on"
        self.seen[self._run].kills.append(stop)
        return True

    def _lease_runs_out(self) -> None:
        Push.objects.filter(state=Push.State.QUEUED).exclude(lease_until=None).update(
            lease_until=timezone.now() - timedelta(seconds=1)
        )

    def _nudge(self, stop: Stop) -> None:
        """Do once what a step waits for: end the pods that hold cards, or what a person is to do by hand."""
        is_doubted = "confirmed it, but" in stop.detail
        if self._run in self._nudged and not is_doubted:
            return
        self._stage.gate.is_open = True
        if "still hold" in stop.detail and self.change.holders == ModeChange.Holders.WAIT:
            self._stage.clear()
            self._nudged.add(self._run)
        elif stop.detail.startswith("Waits for a person"):
            self.change.refresh_from_db()
            if courses.waiting_for_a_person(self.change):
                changes.confirm(self._stage.operator, self.change, reason="It is done.")
            self._nudged.add(self._run)
        self._stage.gate.is_open = False

    def tell_and_look_back(self) -> None:
        """Tell the story, and say in ``failure`` what did not go as it should, or is not as it should be in the end."""
        try:
            self.tell()
            self._nothing_is_stuck()
            self._the_pool_is_as_meant()
            self._the_cluster_counted_once()
        except (AssertionError, ConsoleError) as error:
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            # The next story has the cluster for itself.
            Push.objects.filter(state=Push.State.QUEUED).update(state=Push.State.FAILED)
            self._stage.clear()

    def _nothing_is_stuck(self) -> None:
        change = self.change
        assert change.state == self.plot.end, f"it is {change.state}: {change.note}; {self._steps()}"
        pushes = list(Push.objects.filter(target=f"change:{change.pk}").values_list("state", "error"))
        assert set(pushes) <= {("done", "")}, f"pushes: {pushes}"
        assert not PoolHold.objects.filter(change=change).exists(), "it still holds a pool"
        entries = AuditEntry.objects.filter(pk__gt=self.audit_from, object_type="modechange", object_id=str(change.pk))
        told = Counter(entries.values_list("action", flat=True))
        ends = {
            State.APPLIED: ["change.start", "change.applied"],
            State.ROLLED_BACK: ["change.rolled_back"],
            State.ABANDONED: ["change.released"],
        }
        expected = Counter(ends[self.plot.end])
        if self.plot.kinds:
            expected["change.step"] = len(self.plot.kinds)
            steps = change.steps.filter(is_rollback=self.plot.is_back)
            assert [step.kind for step in steps] == list(self.plot.kinds), self._steps()
            assert {step.state for step in steps} == {ChangeStep.State.DONE}, self._steps()
            told_of = [step.detail for step in steps if step.kind == "uncordon" and self.plot.writes.get("uncordon")]
            assert all(detail.startswith("Uncordoned ") for detail in told_of), told_of
            expected["change.confirm"] = 2 * sum(kind in MANUAL for kind in self.plot.kinds)
        assert told == +expected, f"told: {told}"

    def _steps(self) -> str:
        return "; ".join(f"{step.kind}: {step.state} {step.detail}" for step in self.change.steps.all())

    def _the_pool_is_as_meant(self) -> None:
        home = self.change.target_pool or self.change.pool
        if self.plot.is_back:
            home = self.change.pool
        nodes = self._stage.nodes(home)
        assert len(nodes) == self.plot.nodes, f"nodes of the pool: {[node.name for node in nodes]}"
        wrong = [
            f"{node.name}: {node.labels[MODE]}, unschedulable {node.unschedulable}, ready {node.ready}"
            for node in nodes
            if (node.labels[MODE], node.unschedulable, node.ready) != (label(self.plot.mode), False, True)
        ]
        assert not wrong, f"nodes: {wrong}"
        if not self._stage.is_ack:
            return
        facts = self._stage.facts(home)
        assert facts.labels[MODE] == label(self.plot.mode), f"the pool's labels: {facts.labels}"
        assert facts.desired_size == len(nodes), f"wanted machines: {facts.desired_size}"
        scaling = facts.auto_scaling
        found = {
            "enable": scaling.enable,
            "min_instances": scaling.min_instances,
            "max_instances": scaling.max_instances,
        }
        assert (found == SCALING) == self.plot.scaled, f"auto scaling: {found}"

    def _the_cluster_counted_once(self) -> None:
        """Count at the cluster: ACK's tasks, and how often nodes were opened, closed, labelled, gone and made."""
        asked = Counter(kind for each, kind in self._stage.tasks().items() if each not in self._tasks)
        assert asked == Counter(self.plot.tasks), f"ACK's tasks: {asked}"
        seen = self._stage.node_states(self._version)
        restless = {uid: states for uid, states in seen.items() if len(states) > 4 or len(set(states)) != len(states)}
        assert not restless, f"nodes went to and fro: {restless}"


__all__ = ["END", "GIVE_UP", "START", "Moment", "Story"]
