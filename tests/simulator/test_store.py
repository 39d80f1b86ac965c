"""The store: versions, feeds, deletion, indexes, shelves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from gpupools.simulator.errors import ApiError
from gpupools.simulator.kinds import KINDS, Object
from gpupools.simulator.store import Store


@pytest.fixture
def store() -> Store:
    made = Store(journal_size=50)
    made.bootstrap()
    return made


def pod(name: str = "p", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def config_map(name: str = "c", **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


def test_what_is_returned_is_a_private_copy(store: Store) -> None:
    made = store.create("ConfigMap", config_map(a="1"))
    made["data"]["a"] = "changed"
    store.get("ConfigMap", "default", "c")["data"]["a"] = "changed"
    assert store.peek("ConfigMap", "default", "c")["data"] == {"a": "1"}


def test_what_was_given_may_be_changed_afterwards(store: Store) -> None:
    given = config_map(a="1")
    store.create("ConfigMap", given)
    given["data"]["a"] = "changed"
    assert store.get("ConfigMap", "default", "c")["data"] == {"a": "1"}


def test_every_write_raises_the_version_and_no_write_does_not(store: Store) -> None:
    first = store.create("ConfigMap", config_map(a="1"))
    same = store.update("ConfigMap", first)
    assert same["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    first["data"]["a"] = "2"
    second = store.update("ConfigMap", first)
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1


def test_a_later_store_begins_above_an_earlier_one() -> None:
    earlier = Store(now=lambda: datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC))
    later = Store(now=lambda: datetime(2026, 11, 30, 10, 0, 1, tzinfo=UTC))
    assert later.version > earlier.version + 500


def test_generation_counts_changes_of_the_wish_alone(store: Store) -> None:
    job = {
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}},
    }
    assert store.create("Job", job)["metadata"]["generation"] == 1

    def note(obj: Object) -> None:
        obj["metadata"]["annotations"] = {"a": "b"}

    def suspend(obj: Object) -> None:
        obj["spec"]["suspend"] = True

    def active(obj: Object) -> None:
        obj["status"] = {"active": 1}

    assert store.change("Job", "default", "j", note)["metadata"]["generation"] == 1
    assert store.change("Job", "default", "j", active, subresource="status")["metadata"]["generation"] == 1
    assert store.change("Job", "default", "j", suspend)["metadata"]["generation"] == 2


def test_status_and_spec_do_not_leak_through_each_other_s_door(store: Store) -> None:
    made = store.create("Pod", pod())
    made["status"] = {"phase": "Running"}
    made["metadata"]["labels"] = {"a": "b"}
    assert store.update("Pod", made)["status"]["phase"] == "Pending"
    made = store.get("Pod", "default", "p")
    made["status"]["phase"] = "Running"
    made["spec"]["nodeName"] = "n"
    done = store.update("Pod", made, subresource="status")
    assert done["status"]["phase"] == "Running"
    assert "nodeName" not in done["spec"]


def test_identity_cannot_be_rewritten(store: Store) -> None:
    made = store.create("ConfigMap", config_map(a="1"))
    forged = {**made, "metadata": {**made["metadata"], "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 9}}
    forged["data"] = {"a": "2"}
    done = store.update("ConfigMap", forged)
    assert done["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert "generation" not in done["metadata"]


def test_bound_pods_are_found_by_node_and_owned_ones_by_owner(store: Store) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-1"}
    for number in range(3):
        body = pod(f"p{number}", nodeName="n1" if number else "n2")
        body["metadata"]["ownerReferences"] = [owner]
        store.create("Pod", body)
    assert [found["metadata"]["name"] for found in store.pods_on("n1")] == ["p1", "p2"]
    assert [found["metadata"]["name"] for _, found in store.dependents("u-1")] == ["p0", "p1", "p2"]
    store.delete("Pod", "default", "p1", grace_seconds=0)
    assert [found["metadata"]["name"] for found in store.pods_on("n1")] == ["p2"]
    assert len(store.dependents("u-1")) == 2


def test_a_second_delete_may_shorten_the_grace_and_never_lengthen_it(store: Store) -> None:
    store.create("Pod", pod(nodeName="n1"))
    first, gone = store.delete("Pod", "default", "p")
    assert (first["metadata"]["deletionGracePeriodSeconds"], gone) == (30, False)
    longer, _ = store.delete("Pod", "default", "p", grace_seconds=60)
    assert longer["metadata"] == first["metadata"]
    shorter, _ = store.delete("Pod", "default", "p", grace_seconds=5)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    _, gone = store.delete("Pod", "default", "p", grace_seconds=0)
    assert gone


def test_a_finished_pod_goes_at_once(store: Store) -> None:
    store.create("Pod", pod(nodeName="n1"))
    store.change("Pod", "default", "p", lambda found: found["status"].update(phase="Failed"), subresource="status")
    assert store.delete("Pod", "default", "p")[1]


@pytest.mark.parametrize(
    ("propagation", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan"), ("Background", "")]
)
def test_propagation_leaves_its_finalizer(store: Store, propagation: str, finalizer: str) -> None:
    store.create("ConfigMap", config_map())
    last, gone = store.delete("ConfigMap", "default", "c", propagation=propagation)
    assert gone is (finalizer == "")
    assert last["metadata"].get("finalizers", []) == ([finalizer] if finalizer else [])


def test_nothing_is_made_in_a_namespace_that_ends(store: Store) -> None:
    store.create("Namespace", {"metadata": {"name": "short"}})
    last, gone = store.delete("Namespace", "", "short")
    assert (last["status"]["phase"], gone) == ("Terminating", False)
    with pytest.raises(ApiError) as refused:
        store.create("ConfigMap", {"metadata": {"name": "c", "namespace": "short"}})
    assert refused.value.status == 403
    assert refused.value.message.endswith("because it is being terminated")

    def finalize(namespace: Object) -> None:
        namespace["spec"]["finalizers"] = []

    store.change("Namespace", "", "short", finalize, subresource="finalize")
    assert store.peek("Namespace", "", "short") is None


def test_a_feed_tells_kinds_in_order_of_their_versions(store: Store) -> None:
    feed = store.subscribe("ConfigMap", "Pod")
    store.create("ConfigMap", config_map())
    store.create("Pod", pod())
    store.create("Secret", {"metadata": {"name": "s"}})
    store.delete("ConfigMap", "default", "c")
    assert [(event.type, event.kind) for event in feed.ready()] == [
        ("ADDED", "ConfigMap"),
        ("ADDED", "Pod"),
        ("DELETED", "ConfigMap"),
    ]
    assert feed.ready() == []


def test_a_feed_that_fell_behind_is_told_so(store: Store) -> None:
    feed = store.subscribe("ConfigMap")
    for number in range(51):
        store.create("ConfigMap", config_map(f"c{number}"))
    with pytest.raises(ApiError) as gone:
        feed.ready()
    assert (gone.value.status, gone.value.reason) == (410, "Expired")


def test_compaction_forgets_what_was(store: Store) -> None:
    feed = store.subscribe("ConfigMap")
    store.create("ConfigMap", config_map())
    store.compact()
    with pytest.raises(ApiError):
        feed.ready()
    assert store.subscribe("ConfigMap").ready() == []


async def test_a_waiting_feed_wakes_at_a_write_and_at_its_time(store: Store) -> None:
    feed = store.subscribe("ConfigMap")
    waiting = asyncio.ensure_future(feed.batch())
    await asyncio.sleep(0)
    assert not waiting.done()
    store.create("ConfigMap", config_map())
    assert [event.object["metadata"]["name"] for event in await waiting] == ["c"]
    assert await feed.batch(timeout_seconds=0.01) == []


def test_an_event_is_encoded_once_for_all(store: Store) -> None:
    one, two = store.subscribe("ConfigMap"), store.subscribe("ConfigMap")
    store.create("ConfigMap", config_map(a="b"))
    first, second = one.ready()[0], two.ready()[0]
    assert first.line == second.line
    assert first.stored.item is second.stored.item


def test_a_dry_run_stores_nothing(store: Store) -> None:
    version = store.version
    store.create("ConfigMap", config_map(), dry_run=True)
    assert store.peek("ConfigMap", "default", "c") is None
    store.create("ConfigMap", config_map())
    store.update("ConfigMap", config_map(a="2"), dry_run=True)
    store.delete("ConfigMap", "default", "c", dry_run=True)
    assert "data" not in store.get("ConfigMap", "default", "c") or not store.get("ConfigMap", "default", "c")["data"]
    assert store.version == version + 1


def test_shelves_are_kept_by_name_and_count_as_changes(store: Store) -> None:
    before = store.changes
    store.shelf("pools")["a"] = 1
    store.touch()
    assert store.shelf("pools") == {"a": 1}
    assert store.changes > before


def test_every_kind_can_be_listed_when_there_is_none_of_it(store: Store) -> None:
    assert all(isinstance(store.list(kind), list) for kind in KINDS)
