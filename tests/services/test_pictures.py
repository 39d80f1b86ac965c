"""The picture in Redis: one writer at a time, an age that only grows younger, and honest absence."""

from __future__ import annotations

import pytest
from redis import Redis

from gpupools.domain.gpus import Picture
from gpupools.errors import Unreachable
from gpupools.services import pictures
from tests.domain.builders import a_node, a_pod

CLUSTER = 7


def a_picture(epoch: int = 1, sequence: int = 1, taken_at: float = 100.0, **fields: object) -> Picture:
    return Picture(epoch=epoch, sequence=sequence, taken_at=taken_at, **fields)  # type: ignore[arg-type]  # as given


def test_a_picture_comes_back_as_it_was_stored(empty_redis: Redis) -> None:
    picture = a_picture(nodes=(a_node("n1", cards=2),), pods=(a_pod("p", mem=4, at={1: 4}),))
    pictures.store(CLUSTER, picture)
    assert pictures.load(CLUSTER) == pictures.Stored(picture)


def test_nothing_published_yet_is_none_and_not_an_empty_cluster(empty_redis: Redis) -> None:
    assert pictures.load(CLUSTER) is None


def test_a_broker_that_is_away_is_said_so(settings, empty_redis: Redis) -> None:  # noqa: ANN001  # pytest-django's fixture
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    for call in (
        lambda: pictures.load(CLUSTER),
        lambda: pictures.store(CLUSTER, a_picture()),
        lambda: pictures.confirm(CLUSTER, epoch=1, taken_at=1.0),
        lambda: pictures.forget(CLUSTER),
    ):
        with pytest.raises(Unreachable) as caught:
            call()
        assert caught.value.code == "broker-away"


@pytest.mark.parametrize(("epoch", "sequence"), [(1, 9), (2, 3), (2, 2), (1, 3)])
def test_an_older_epoch_or_a_used_sequence_never_overwrites(empty_redis: Redis, epoch: int, sequence: int) -> None:
    pictures.store(CLUSTER, a_picture(2, 3, 200.0))
    with pytest.raises(pictures.Outranked) as caught:
        pictures.store(CLUSTER, a_picture(epoch, sequence, 300.0))
    assert (caught.value.epoch, caught.value.sequence) == (2, 3)
    stored = pictures.load(CLUSTER)
    assert stored is not None
    assert stored.picture.taken_at == 200.0


def test_a_confirmation_makes_the_numbers_younger_and_never_older(empty_redis: Redis) -> None:
    pictures.store(CLUSTER, a_picture(taken_at=100.0))
    assert pictures.confirm(CLUSTER, epoch=1, taken_at=150.5) == 150.5
    assert pictures.confirm(CLUSTER, epoch=1, taken_at=120.0) == 150.5
    stored = pictures.load(CLUSTER)
    assert stored is not None
    assert stored.picture.taken_at == 150.5


def test_another_epoch_cannot_make_numbers_younger_but_may_say_what_is_wrong(empty_redis: Redis) -> None:
    pictures.store(CLUSTER, a_picture(epoch=2, taken_at=100.0))
    assert pictures.confirm(CLUSTER, epoch=1, taken_at=200.0, error="old news") is None
    assert pictures.confirm(CLUSTER, epoch=3, taken_at=200.0) is None
    assert pictures.confirm(CLUSTER, epoch=3, taken_at=200.0, error="The cluster did not answer.") == 100.0
    stored = pictures.load(CLUSTER)
    assert stored is not None
    assert (stored.picture.taken_at, stored.error) == (100.0, "The cluster did not answer.")


def test_the_error_goes_with_the_next_picture(empty_redis: Redis) -> None:
    pictures.store(CLUSTER, a_picture())
    pictures.confirm(CLUSTER, epoch=1, taken_at=0.0, error="The cluster did not answer.")
    pictures.store(CLUSTER, a_picture(sequence=2))
    stored = pictures.load(CLUSTER)
    assert stored is not None
    assert stored.error == ""


def test_what_another_version_wrote_counts_as_nothing(empty_redis: Redis) -> None:
    empty_redis.set(f"gpupools:picture:{CLUSTER}", b"\xc1 not a picture")
    assert pictures.load(CLUSTER) is None


def test_a_forgotten_cluster_has_no_picture(empty_redis: Redis) -> None:
    pictures.store(CLUSTER, a_picture())
    pictures.forget(CLUSTER)
    assert pictures.load(CLUSTER) is None
    pictures.store(CLUSTER, a_picture())  # and a later one may begin again
