"""What goes by itself, what a state file holds, and what LogBook keeps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpupools.simulator import housekeeping
from gpupools.simulator.amounts import BadAmount, canonical
from gpupools.simulator.housekeeping import sweep
from gpupools.simulator.logs import LINES_KEPT, LogBook
from gpupools.simulator.statefile import StateError, StateFile
from gpupools.simulator.store import Store
from gpupools.simulator.tls import Authority

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


class Times:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> datetime:
        return self.moment


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def store(times: Times) -> Store:
    made = Store(now=times)
    made.bootstrap()
    return made


def names(store: Store, kind: str) -> list[str]:
    return [found["metadata"]["name"] for found in store.list(kind)]


def test_events_go_an_hour_after_they_were_seen_last(store: Store, times: Times) -> None:
    for name, minutes in (("old", 61), ("new", 59)):
        last = (START - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        store.create("Event", {"metadata": {"name": name}, "lastTimestamp": last})
    assert sweep(store, LogBook()) == 1
    assert names(store, "Event") == ["new"]


def test_the_oldest_finished_pods_go_beyond_the_bound(
    store: Store, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "FINISHED_PODS_KEPT", 2)
    for number in range(4):
        times.moment += timedelta(seconds=1)
        name = f"p{number}"
        store.create("Pod", {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
        if number != 1:
            store.change(
                "Pod", "default", name, lambda pod: pod["status"].update(phase="Succeeded"), subresource="status"
            )
    sweep(store, LogBook())
    assert names(store, "Pod") == ["p1", "p2", "p3"]


def test_a_state_file_gives_back_objects_shelves_and_logs(store: Store, tmp_path: Path, times: Times) -> None:
    made = store.create("ConfigMap", {"metadata": {"name": "kept"}, "data": {"a": "b"}})
    store.shelf("pools")["size"] = 3
    store.touch()
    logbook = LogBook()
    logbook.write("u", "c", "hello\nworld", times())
    logbook.end("u", "c")
    StateFile(tmp_path / "state", store, logbook).save()

    again, lines = Store(now=times), LogBook()
    assert StateFile(tmp_path / "state", again, lines).load()
    assert again.get("ConfigMap", "default", "kept") == made
    assert again.shelf("pools") == {"size": 3}
    assert again.version > store.version
    assert lines.lines("u", "c") == [(START, "hello"), (START, "world")]


def test_a_state_file_is_written_only_when_something_changed(store: Store, tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state", store, LogBook())
    file.save()
    first = (tmp_path / "state").stat().st_ino
    file.save()
    assert (tmp_path / "state").stat().st_ino == first
    store.create("ConfigMap", {"metadata": {"name": "new"}})
    file.save()
    assert (tmp_path / "state").stat().st_ino != first
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format":9,"version":1,"objects":{}}', '{"format":1,"version":1,"objects":{"X":[]}}']
)
def test_a_file_that_is_no_state_is_refused(store: Store, tmp_path: Path, content: str) -> None:
    (tmp_path / "state").write_text(content)
    with pytest.raises(StateError):
        StateFile(tmp_path / "state", store, LogBook()).load()


def test_logs_are_bounded_and_a_run_before_stays_readable(times: Times) -> None:
    logbook = LogBook()
    for number in range(LINES_KEPT + 5):
        logbook.write("u", "c", f"line {number}", times())
    assert len(logbook.lines("u", "c")) == LINES_KEPT
    assert logbook.lines("u", "c")[0] == (START, "line 5")
    logbook.start("u", "c")
    assert logbook.lines("u", "c") == []
    assert logbook.lines("u", "c", previous=True)[-1] == (START, f"line {LINES_KEPT + 4}")
    logbook.forget("u")
    assert not logbook.has("u", "c", previous=True)


async def test_a_follower_gets_what_is_there_and_what_comes_until_the_end(times: Times) -> None:
    logbook = LogBook()
    logbook.write("u", "c", "one", times())
    seen: list[str] = []

    async def follow() -> None:
        async for lines in logbook.follow("u", "c"):
            seen.extend(line for _, line in lines)

    following = asyncio.ensure_future(follow())
    await asyncio.sleep(0)
    logbook.write("u", "c", "two\nthree", times())
    logbook.end("u", "c")
    await following
    assert seen == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("1", "1"), (4, "4"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1536Mi", "1536Mi"), ("1000", "1k"),
        ("1500", "1500"),
        ("0", "0"), ("16Gi", "16Gi"), ("2000m", "2"), ("1e3", "1e3"), ("0.5Gi", "512Mi"), ("12345678Ki", "12345678Ki"),
    ],
)  # fmt: skip
def test_amounts_are_kept_in_canonical_form(given: str | int, kept: str) -> None:
    assert canonical(given) == kept


@pytest.mark.parametrize("given", ["", "lots", "1 Gi", "1GiB", "--1"])
def test_text_that_is_no_amount_is_refused(given: str) -> None:
    with pytest.raises(BadAmount):
        canonical(given)


def test_certificates_are_kept_until_they_near_their_end_or_do_not_fit(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.ensure()
    first = authority.certificate.read_bytes()
    authority.ensure()
    assert authority.certificate.read_bytes() == first
    authority.ensure(datetime.now(UTC) + timedelta(days=3640))
    second = authority.certificate.read_bytes()
    assert second != first
    authority.key.write_bytes((tmp_path / "pki" / "ca.key").read_bytes())
    authority.ensure()
    assert authority.certificate.read_bytes() != second
