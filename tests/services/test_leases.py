"""Who may publish a cluster: exactly one, and a new one gets a new epoch."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from gpupools.models import Cluster, WatchLease
from gpupools.services import leases
from gpupools.services.leases import Lease

pytestmark = pytest.mark.django_db


def run_out(cluster: Cluster) -> None:
    WatchLease.objects.filter(cluster=cluster).update(until=timezone.now() - timedelta(seconds=1))


def taken(cluster: Cluster, holder: str) -> Lease:
    lease = leases.take(cluster, holder)
    assert lease is not None
    return lease


def test_the_first_who_comes_takes_it_and_nobody_else(lab: Cluster) -> None:
    assert taken(lab, "one").epoch == 1
    assert leases.take(lab, "two") is None
    assert leases.take(lab, leases.POLLER) is None
    assert leases.is_watched(lab)


def test_a_lease_that_ran_out_goes_to_the_next_with_a_new_epoch(lab: Cluster) -> None:
    old = taken(lab, "one")
    run_out(lab)
    assert not leases.is_watched(lab)
    new = taken(lab, "two")
    assert new.epoch == old.epoch + 1
    assert not leases.renew(old)
    assert leases.renew(new)


def test_of_two_who_read_the_same_row_one_takes_it(lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(lab, "one")
    run_out(lab)
    stale = WatchLease.objects.get(cluster=lab)
    taken(lab, "two")
    monkeypatch.setattr(WatchLease.objects, "get_or_create", lambda **_: (stale, False))
    run_out(lab)
    assert leases.take(lab, "three") is None, "it was about to use an epoch that is in use"


def test_a_returned_lease_can_be_taken_at_once(lab: Cluster) -> None:
    leases.release(taken(lab, "one"))
    assert taken(lab, "two").epoch == 2


def test_a_watcher_takes_over_from_the_poller_at_once(lab: Cluster) -> None:
    assert taken(lab, leases.POLLER).epoch == 1
    assert not leases.is_watched(lab)
    assert taken(lab, "one").epoch == 2
    assert leases.take(lab, leases.POLLER) is None


def test_the_poller_keeps_its_epoch_from_poll_to_poll(lab: Cluster) -> None:
    first = taken(lab, leases.POLLER)
    run_out(lab)
    assert taken(lab, leases.POLLER) == first


def test_the_holder_rises_above_an_epoch_that_was_left_in_the_broker(lab: Cluster) -> None:
    lease = taken(lab, "one")
    raised = leases.outrank(lease, 57)
    assert raised is not None
    assert raised.epoch == 58
    assert leases.renew(raised)
    assert leases.outrank(lease, 60) is None, "the lease of the old epoch is not held any more"
