"""The local copy as a pure thing: whatever comes in whatever mixture, it ends as the server's list."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gpupools.clusters.listing import Listing
from gpupools.clusters.localcopy import LocalCopy
from gpupools.clusters.translate import Event, Seen
from gpupools.domain.gpus import Ask, Pod


def seen(uid: str, name: str, version: int, *, phase: str = "Running", created: str = "") -> Seen:
    value = Pod(uid, "default", name, Ask(), message=str(version), phase=phase, created_at=created)
    return Seen(uid, str(version), ("default", name), value)


@dataclass
class Server:
    """What the truth is, and every event that led there."""

    version: int = 10
    objects: dict[str, Seen] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    made: int = 0

    def write(self, name: str) -> None:
        """Create the object of that name, or change it."""
        self.version += 1
        uid = next((s.uid for s in self.objects.values() if s.place[1] == name), "")
        type_ = "MODIFIED"
        if not uid:
            self.made += 1
            uid, type_ = f"uid-{self.made}", "ADDED"
        self.objects[uid] = seen(uid, name, self.version)
        self.log.append(Event(type_, uid, str(self.version), self.objects[uid]))

    def delete(self, name: str) -> None:
        uid = next((s.uid for s in self.objects.values() if s.place[1] == name), "")
        if uid:
            self.version += 1
            old = self.objects.pop(uid)
            self.log.append(Event("DELETED", uid, str(self.version), seen(uid, old.place[1], self.version)))

    def listing(self) -> Listing:
        return Listing(list(self.objects.values()), str(self.version))

    def values(self) -> list[Pod]:
        return [s.value for s in self.objects.values() if isinstance(s.value, Pod)]


def by_uid(values: list[Pod]) -> list[Pod]:
    return sorted(values, key=lambda pod: pod.uid)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("abcd")),
        st.tuples(st.just("delete"), st.sampled_from("abcd")),
        st.tuples(st.just("list"), st.just("")),
        st.tuples(st.just("replay"), st.integers(1, 6)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_lists_events_and_replays_of_old_ones_always_end_as_the_server_s_list(
    steps: list[tuple[str, object]],
) -> None:
    server, copy = Server(), LocalCopy(most_finished=100)
    copy.replace(server.listing())
    told = 0
    for what, arg in steps:
        if what == "write":
            server.write(str(arg))
        elif what == "delete":
            server.delete(str(arg))
        elif what == "list":
            copy.replace(server.listing())
            told = len(server.log)
        elif isinstance(arg, int):  # the stream repeats what it has told before
            for event in server.log[max(0, told - arg) : told]:
                copy.apply(event)
        for event in server.log[told:]:
            copy.apply(event)
        told = len(server.log)
        assert by_uid(copy.values()) == by_uid(server.values())  # type: ignore[arg-type]  # pods only


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_the_differences_that_are_returned_rebuild_the_copy(steps: list[tuple[str, object]]) -> None:
    server, copy = Server(), LocalCopy(most_finished=100)
    rebuilt: dict[str, Pod] = {}
    told = 0
    for what, arg in steps:
        if what == "write":
            server.write(str(arg))
        elif what == "delete":
            server.delete(str(arg))
        differences = copy.replace(server.listing()) if what == "list" else []
        for event in [] if what == "list" else server.log[told:]:
            differences += copy.apply(event)
        told = len(server.log)
        for old, new in differences:
            assert old != new
            if isinstance(old, Pod):
                assert rebuilt.pop(old.uid) == old
            if isinstance(new, Pod):
                rebuilt[new.uid] = new
    assert by_uid(list(rebuilt.values())) == by_uid(server.values())


def test_a_delete_that_was_missed_is_made_up_for_by_the_new_object_of_that_name() -> None:
    copy = LocalCopy(most_finished=10)
    copy.replace(Listing([seen("old", "p", 5)], "5"))
    new = seen("new", "p", 7)
    differences = copy.apply(Event("ADDED", "new", "7", new))
    assert copy.values() == [new.value]
    assert [(o.uid if isinstance(o, Pod) else None, n.uid if isinstance(n, Pod) else None) for o, n in differences] == [
        ("old", None),
        (None, "new"),
    ]


def test_versions_that_are_no_numbers_are_taken_in_the_order_in_which_they_come() -> None:
    copy = LocalCopy(most_finished=10)
    copy.replace(Listing([], "opaque"))
    first, second = seen("u", "p", 1), seen("u", "p", 2)
    copy.apply(Event("ADDED", "u", "x9", Seen("u", "x9", first.place, first.value)))
    copy.apply(Event("MODIFIED", "u", "x1", Seen("u", "x1", second.place, second.value)))
    assert copy.values() == [second.value]


def test_an_object_that_a_new_list_cannot_read_keeps_its_last_value() -> None:
    copy = LocalCopy(most_finished=10)
    kept = seen("kept", "p", 5)
    copy.replace(Listing([kept, seen("gone", "q", 5)], "5"))
    copy.replace(Listing([], "9", unreadable=["kept", "never-seen"]))
    assert copy.values() == [kept.value]


def test_only_the_newest_finished_pods_are_kept() -> None:
    copy = LocalCopy(most_finished=3)
    done = [seen(f"u{i}", f"p{i}", 5, phase="Succeeded", created=f"2026-01-0{i}") for i in range(1, 6)]
    copy.replace(Listing([*done, seen("r", "running", 5)], "5"))
    assert {pod.uid for pod in copy.values() if isinstance(pod, Pod)} == {"u3", "u4", "u5", "r"}
    copy.apply(Event("MODIFIED", "r", "6", seen("r", "running", 6, phase="Failed")))
    assert {pod.uid for pod in copy.values() if isinstance(pod, Pod)} == {"u4", "u5", "r"}
    assert len(copy) == 3
