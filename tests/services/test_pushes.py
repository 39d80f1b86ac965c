"""The queue: claims with lease and fence, outcomes only by the holder, retries, parking, crashes, races."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from gpupools.errors import Conflict, Invalid, Refused, Unreachable
from gpupools.models import AuditEntry, NodePool, Push
from gpupools.services import pushes
from gpupools.services.access import SYSTEM
from gpupools.services.pushes import Again, Done, Handler
from tests.services.builders import a_cluster, a_pool

pytestmark = pytest.mark.django_db


class Cluster:
    """Counts what reaches a cluster, by operation id, and answers by a script."""

    def __init__(self, *script):
        self.script = list(script)
        self.seen = []

    def run(self, push):
        self.seen.append(push.op_id)
        step = self.script.pop(0) if self.script else Done()
        if isinstance(step, Exception):
            raise step
        return step(push) if callable(step) else step


def enqueue(cluster, target="pool:1", actor=SYSTEM, kind="test"):
    with transaction.atomic():
        return pushes.enqueue(actor, kind=kind, cluster=cluster, target=target, payload={"pool": 1})


def drain(run, failed=None):
    return pushes.drain({"test": Handler(run, failed)})


def make_due(push):
    Push.objects.filter(pk=push.pk).update(due_at=timezone.now() - timedelta(seconds=1))


def end_lease(push):
    """As if the worker that holds the row had been killed long ago."""
    Push.objects.filter(pk=push.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def test_a_push_is_carried_out_once_and_audited(lab, operator):
    push = enqueue(lab, actor=operator)
    cluster = Cluster()
    assert drain(cluster.run) == 1
    assert drain(cluster.run) == 0
    push.refresh_from_db()
    assert (push.state, push.lease_until, push.error) == (Push.State.DONE, None, "")
    assert push.finished_at is not None
    assert cluster.seen == [push.op_id]
    entry = AuditEntry.objects.get(action="push.done")
    assert entry.actor_name == "system"
    assert entry.cluster == lab
    assert entry.data["requested_by"] == "olga"
    assert entry.data["op_id"] == str(push.op_id)


def test_a_second_push_to_a_target_in_flight_is_refused_as_busy(lab):
    enqueue(lab)
    with pytest.raises(Conflict) as refusal:
        enqueue(lab)
    assert refusal.value.code == "busy"
    enqueue(lab, target="pool:2")
    drain(Cluster().run)
    enqueue(lab)


def test_a_rolled_back_request_leaves_no_push(lab):
    with pytest.raises(RuntimeError), transaction.atomic():
        pushes.enqueue(SYSTEM, kind="test", cluster=lab, target="pool:1", payload={})
        raise RuntimeError
    assert not Push.objects.exists()


def test_two_workers_cannot_claim_one_row(lab):
    push = enqueue(lab)
    claimed = pushes.claim()
    assert claimed is not None
    assert (claimed.pk, claimed.fence, claimed.attempts) == (push.pk, 1, 1)
    assert pushes.claim() is None


@pytest.mark.django_db(transaction=True)
def test_many_workers_at_once_take_each_row_exactly_once(lab):
    rows = {enqueue(lab, f"pool:{number}").pk for number in range(12)}
    start = threading.Barrier(4)

    def work():
        start.wait(timeout=10)
        taken = []
        try:
            # A worker that lost every race of one look has seen all rows taken, or looks again.
            while Push.objects.filter(state=Push.State.QUEUED, lease_until=None).exists():
                if (push := pushes.claim()) is not None:
                    taken.append(push.pk)
        finally:
            connection.close()
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [pk for worker in [pool.submit(work) for _ in range(4)] for pk in worker.result(timeout=30)]
    assert sorted(taken) == sorted(rows)
    assert set(Push.objects.values_list("fence", flat=True)) == {1}


def test_rows_are_taken_in_the_order_in_which_they_are_due(lab):
    late, early = enqueue(lab, "pool:1"), enqueue(lab, "pool:2")
    Push.objects.filter(pk=early.pk).update(due_at=timezone.now() - timedelta(minutes=1))
    future = enqueue(lab, "pool:3")
    Push.objects.filter(pk=future.pk).update(due_at=timezone.now() + timedelta(minutes=1))
    cluster = Cluster()
    drain(cluster.run)
    assert cluster.seen == [early.op_id, late.op_id]


def test_what_a_try_learned_is_kept_and_given_to_the_next_one(lab):
    push = enqueue(lab)
    known = []
    cluster = Cluster(
        Again(0, {"task_id": "t-1"}), Again(0, {"pool_id": "np-1"}), lambda push: known.append(push.learned) or Done()
    )
    assert drain(cluster.run) == 3
    assert known == [{"task_id": "t-1", "pool_id": "np-1"}]
    push.refresh_from_db()
    assert push.state == Push.State.DONE


def test_a_push_that_waits_is_left_alone_until_it_is_due(lab):
    push = enqueue(lab)
    cluster = Cluster(Again(30))
    assert drain(cluster.run) == 1
    assert drain(cluster.run) == 0
    push.refresh_from_db()
    assert push.state == Push.State.QUEUED
    assert push.due_at > timezone.now() + timedelta(seconds=20)


def test_waiting_does_not_count_as_failing(lab):
    push = enqueue(lab)
    cluster = Cluster(*[Again(0)] * (3 * pushes.MAX_TRIES))
    drain(cluster.run)
    push.refresh_from_db()
    assert push.state == Push.State.DONE


def test_an_unreachable_cluster_is_tried_again_with_a_growing_pause_and_the_reason_visible(lab):
    push = enqueue(lab)
    cluster = Cluster(*[Unreachable("The cluster did not answer.", retry_after_seconds=1)] * 4)
    pauses = []
    for _ in range(4):
        make_due(push)
        before = timezone.now()
        drain(cluster.run)
        push.refresh_from_db()
        pauses.append((push.due_at - before).total_seconds())
        assert push.error == "The cluster did not answer."
        assert push.state == Push.State.QUEUED
    base = pushes.BACK_OFF_SECONDS
    for pause, expected in zip(pauses, (base, 2 * base, 4 * base, 8 * base), strict=True):
        assert 0.75 * expected <= pause <= 1.25 * expected + 1


def test_pauses_have_a_cap(lab):
    push = enqueue(lab)
    Push.objects.filter(pk=push.pk).update(attempts=pushes.MAX_TRIES - 2)
    before = timezone.now()
    drain(Cluster(Unreachable("Away.")).run)
    push.refresh_from_db()
    assert (push.due_at - before).total_seconds() <= 1.25 * pushes.BACK_OFF_CAP_SECONDS + 1


def test_after_the_last_try_it_is_parked_with_the_reason(lab):
    push = enqueue(lab)
    Push.objects.filter(pk=push.pk).update(attempts=pushes.MAX_TRIES - 1)
    drain(Cluster(Unreachable("The cluster did not answer.")).run)
    push.refresh_from_db()
    assert push.state == Push.State.FAILED
    assert "Given up after 12 tries" in push.error
    assert "did not answer" in push.error
    assert AuditEntry.objects.get(action="push.failed").data["error"] == push.error


@pytest.mark.parametrize(
    "error", [Refused("No such type."), Conflict("Edited elsewhere."), Invalid.field("name", "Bad name.")]
)
def test_what_repeating_cannot_help_is_parked_at_once(lab, error):
    push = enqueue(lab)
    told = []
    drain(Cluster(error).run, failed=lambda push, sentence: told.append(sentence))
    push.refresh_from_db()
    assert (push.state, push.error) == (Push.State.FAILED, error.message)
    assert told == [error.message]


def test_a_parked_push_frees_its_target(lab):
    enqueue(lab)
    drain(Cluster(Refused("No.")).run)
    enqueue(lab)


def test_a_worker_killed_before_it_wrote_anything_is_replaced_when_its_lease_ends(lab):
    push = enqueue(lab)
    assert pushes.claim() is not None
    cluster = Cluster()
    assert drain(cluster.run) == 0
    end_lease(push)
    assert drain(cluster.run) == 1
    push.refresh_from_db()
    assert (push.state, push.fence) == (Push.State.DONE, 2)


def test_a_row_that_kills_its_worker_each_time_is_parked(lab):
    push = enqueue(lab)
    for _ in range(pushes.MAX_TRIES):
        assert pushes.claim() is not None
        end_lease(push)
    cluster = Cluster()
    drain(cluster.run)
    push.refresh_from_db()
    assert push.state == Push.State.FAILED
    assert "ended each time" in push.error
    assert cluster.seen == []


def test_a_worker_that_lost_its_lease_writes_nothing(lab):
    pool = a_pool(lab)
    push = enqueue(lab)

    def too_slow(push):
        end_lease(push)
        assert pushes.claim() is not None  # another worker takes the row meanwhile
        return Done(write=lambda: NodePool.objects.filter(pk=pool.pk).update(error="written by the slow one"))

    drain(too_slow)
    push.refresh_from_db()
    pool.refresh_from_db()
    assert (push.state, push.fence, pool.error) == (Push.State.QUEUED, 2, "")
    assert not AuditEntry.objects.exists()


def test_a_worker_that_lost_its_lease_makes_no_call_that_must_not_be_made_twice(lab):
    enqueue(lab)
    calls = []

    def too_slow(push):
        end_lease(push)
        assert pushes.claim() is not None
        pushes.hold(push)
        calls.append("create")
        return Done()

    drain(too_slow)
    assert calls == []


def test_holding_renews_the_lease(lab):
    push = enqueue(lab)
    claimed = pushes.claim()
    end_lease(push)
    pushes.hold(claimed)
    push.refresh_from_db()
    assert push.lease_until > timezone.now() + timedelta(seconds=pushes.lease_seconds() - 2)


def test_the_lease_outlasts_all_calls_that_a_write_takes(lab, settings):
    push = enqueue(lab)
    claimed = pushes.claim()
    pushes.hold(claimed, calls=5)
    push.refresh_from_db()
    longest = timedelta(seconds=5 * 2 * settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS)
    assert push.lease_until > timezone.now() + longest - timedelta(seconds=2)


def test_a_failure_of_a_slow_worker_does_not_park_the_row_of_the_new_one(lab):
    push = enqueue(lab)

    def too_slow(push):
        end_lease(push)
        assert pushes.claim() is not None
        raise Refused("No.")

    drain(too_slow)
    push.refresh_from_db()
    assert (push.state, push.error) == (Push.State.QUEUED, "")


def test_rows_that_an_outcome_writes_are_written_with_it_or_not_at_all(lab):
    pool = a_pool(lab)
    push = enqueue(lab)

    def write():
        NodePool.objects.filter(pk=pool.pk).update(error="half")
        raise Unreachable("The database of something went away.")

    drain(Cluster(Done(write=write)).run)
    push.refresh_from_db()
    pool.refresh_from_db()
    assert (push.state, pool.error) == (Push.State.QUEUED, "")
    assert not AuditEntry.objects.exists()


def test_a_silent_cluster_costs_a_run_one_try_and_holds_the_others_up_no_longer(lab):
    other = a_cluster("other")
    for number in range(3):
        enqueue(lab, f"pool:{number}")
    sound = enqueue(other)
    asked = []

    def run(push):
        asked.append(push.cluster.name)
        if push.cluster == lab:
            raise Unreachable("Away.")
        return Done()

    assert drain(run) == 2
    assert asked == ["lab", "other"]
    sound.refresh_from_db()
    assert sound.state == Push.State.DONE


def test_a_defect_in_one_handler_stops_neither_the_others_nor_itself_for_ever(lab):
    broken, sound = enqueue(lab, "pool:1"), enqueue(lab, "pool:2")

    def run(push):
        if push.pk == broken.pk:
            raise KeyError("a defect")
        return Done()

    assert drain(run) == 2
    broken.refresh_from_db()
    sound.refresh_from_db()
    assert sound.state == Push.State.DONE
    assert broken.state == Push.State.QUEUED
    assert "a defect" not in broken.error
    assert "console itself" in broken.error


def test_a_kind_that_nothing_carries_out_is_parked(lab):
    push = enqueue(lab, kind="unheard-of")
    drain(Cluster().run)
    push.refresh_from_db()
    assert push.state == Push.State.FAILED
    assert "unheard-of" in push.error


def test_an_outcome_may_queue_the_next_push_for_the_same_target(lab):
    enqueue(lab)
    first = Done(write=lambda: pushes.enqueue(SYSTEM, kind="test", cluster=lab, target="pool:1", payload={}))
    cluster = Cluster(first)
    assert drain(cluster.run) == 2
    assert len(set(cluster.seen)) == 2


def test_a_lease_is_longer_than_any_one_call(settings):
    assert pushes.lease_seconds() > settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS
