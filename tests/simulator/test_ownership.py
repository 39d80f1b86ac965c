"""Field ownership: the FieldsV1 form, updates and applies in any order, and their invariants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupools.simulator.errors import ApiError
from gpupools.simulator.fieldsets import from_fields_v1, leaves, text_of, to_fields_v1
from gpupools.simulator.kinds import Object
from gpupools.simulator.ownership import apply, note_update
from gpupools.simulator.values import copy_of

MOMENT = "2026-01-01T00:00:00Z"


def config_map(data: dict[str, str], **labels: str) -> Object:
    found: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    if labels:
        found["metadata"]["labels"] = dict(labels)
    if data:
        found["data"] = dict(data)
    return found


def owners(obj: Object) -> dict[str, set[tuple[str, ...]]]:
    return {
        f"{entry['manager']}/{entry['operation']}": from_fields_v1(entry["fieldsV1"])
        for entry in obj["metadata"].get("managedFields", ())
    }


def applied(live: Object | None, wanted: Object, manager: str, *, force: bool = False) -> Object:
    return apply(live, wanted, manager=manager, subresource="", force=force, moment=MOMENT)


POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x.io/y"]},
    "spec": {
        "nodeSelector": {"k": "v"},
        "containers": [
            {
                "name": "c",
                "image": "x",
                "args": ["1", "2"],
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
        "tolerations": [{"key": "a", "operator": "Exists"}],
    },
}


def test_lists_are_owned_by_item_or_as_one_value_by_their_kind() -> None:
    assert to_fields_v1(leaves(POD)) == {
        "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {'v:"x.io/y"': {}}},
        "f:spec": {
            "f:nodeSelector": {},
            "f:tolerations": {},
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:name": {},
                    "f:image": {},
                    "f:args": {},
                    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                    "f:resources": {"f:limits": {"f:nvidia.com/gpu": {}}},
                }
            },
        },
    }


def test_field_sets_come_back_from_their_nested_form() -> None:
    paths = set(leaves(POD))
    assert from_fields_v1(to_fields_v1(paths)) == paths


def test_paths_read_as_in_conflict_messages() -> None:
    path = ("f:spec", "f:containers", 'k:{"name":"c"}', "f:image")
    assert text_of(path) == '.spec.containers[name="c"].image'


def test_several_conflicts_are_told_by_manager() -> None:
    live = applied(None, config_map({"a": "1", "b": "1"}), "one")
    with pytest.raises(ApiError) as refused:
        applied(live, config_map({"a": "2", "b": "2"}), "two")
    assert refused.value.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b'


def test_one_container_of_two_is_taken_back() -> None:
    live = applied(None, POD, "one")
    more = copy_of(POD)
    more["spec"]["containers"] = [{"name": "side", "image": "s"}]
    live = applied(live, more, "two", force=True)
    assert [container["name"] for container in live["spec"]["containers"]] == ["c", "side"]
    less = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    live = applied(live, less, "two")
    assert [container["name"] for container in live["spec"]["containers"]] == ["c"]


def test_maps_that_become_empty_go_but_metadata_stays() -> None:
    live = applied(None, config_map({"a": "1"}, x="1"), "one")
    live = applied(live, config_map({}), "one")
    assert live == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


words = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)
steps = st.lists(
    st.tuples(st.sampled_from(["apply", "force", "update"]), st.sampled_from(["m1", "m2", "m3"]), words, words),
    min_size=1,
    max_size=8,
)


@given(steps)
@settings(max_examples=300)
def test_whatever_is_written_every_field_has_an_owner_and_every_owner_a_field(chosen: list[Any]) -> None:
    live: Object | None = None
    for how, manager, data, labels in chosen:
        wanted = config_map(data, **labels)
        if how == "update":
            if live is not None:
                wanted["metadata"]["managedFields"] = live["metadata"].get("managedFields", [])
            note_update(live, wanted, manager=manager, subresource="", moment=MOMENT)
            live = wanted
        else:
            before = copy_of(live)
            try:
                live = applied(live, wanted, manager, force=how == "force")
            except ApiError as error:
                assert (error.status, how) == (409, "apply")
                assert live == before
                continue
            # An apply that goes through leaves every field as it said, under its name.
            assert {path: live_value for path, live_value in leaves(live).items() if path in leaves(wanted)} == (
                leaves(wanted)
            )
            assert owners(live).get(f"{manager}/Apply", set()) == set(leaves(wanted))
        there = set(leaves(live))
        owned = set().union(*owners(live).values()) if owners(live) else set()
        assert there <= owned <= set(leaves(live, branches=True))
