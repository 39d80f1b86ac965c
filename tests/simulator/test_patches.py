"""Patches and selectors against simple oracles, and the cases that made them what they are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupools.simulator.errors import ApiError
from gpupools.simulator.kinds import KINDS
from gpupools.simulator.patches import json_patch, merge_patch, strategic_merge
from gpupools.simulator.selectors import selection

words = st.text(alphabet="abc", min_size=1, max_size=2)
leaf = st.one_of(st.integers(-5, 5), words, st.booleans(), st.lists(st.integers(0, 3), max_size=3))
documents = st.recursive(
    st.dictionaries(words, leaf, max_size=4), lambda inner: st.dictionaries(words, st.one_of(leaf, inner), max_size=4)
)


def difference(before: Any, after: Any) -> Any:
    """Return the merge patch between two documents, by the definition of RFC 7386."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before or before[key] != value or type(before[key]) is not type(value):
            patch[key] = difference(before.get(key), value) if key in before else value
    return patch


@given(documents, documents)
@settings(max_examples=300)
def test_a_merge_patch_leads_from_any_document_to_any_other(before: dict, after: dict) -> None:
    untouched = copy.deepcopy(before)
    assert merge_patch(before, difference(before, after)) == after
    assert before == untouched


@given(documents, documents)
@settings(max_examples=300)
def test_a_strategic_patch_without_keyed_lists_is_a_merge_patch(before: dict, after: dict) -> None:
    untouched = copy.deepcopy(before)
    assert strategic_merge(before, difference(before, after)) == after
    assert before == untouched


def json_difference(before: Any, after: Any, path: str = "") -> list[dict]:
    operations: list[dict] = []
    for key in before:
        if key not in after:
            operations.append({"op": "remove", "path": f"{path}/{key}"})
    for key, value in after.items():
        if key not in before:
            operations.append({"op": "add", "path": f"{path}/{key}", "value": value})
        elif isinstance(before[key], dict) and isinstance(value, dict):
            operations += json_difference(before[key], value, f"{path}/{key}")
        else:
            operations.append({"op": "test", "path": f"{path}/{key}", "value": before[key]})
            operations.append({"op": "replace", "path": f"{path}/{key}", "value": value})
    return operations


@given(documents, documents)
@settings(max_examples=300)
def test_a_json_patch_leads_from_any_document_to_any_other(before: dict, after: dict) -> None:
    untouched = copy.deepcopy(before)
    assert json_patch(before, json_difference(before, after)) == after
    assert before == untouched


containers = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"image": words, "stdin": st.booleans()}),
    unique_by=lambda container: container["name"],
    max_size=4,
)


@given(containers, containers)
@settings(max_examples=300)
def test_keyed_lists_merge_item_by_item(live: list[dict], patch: list[dict]) -> None:
    merged = strategic_merge({"containers": live}, {"containers": patch})["containers"]
    by_name = {item["name"]: dict(item) for item in live}
    for item in patch:
        by_name.setdefault(item["name"], {}).update(item)
    assert merged == list(by_name.values())


@given(containers, st.permutations("abcd"))
def test_the_order_that_a_patch_asks_for_is_kept(live: list[dict], order: list[str]) -> None:
    asked = [{"name": name} for name in order]
    merged = strategic_merge({"containers": live}, {"$setElementOrder/containers": asked, "containers": []})
    there = {item["name"] for item in live}
    assert [item["name"] for item in merged.get("containers", [])] == [name for name in order if name in there]


def test_one_item_is_deleted_by_its_key() -> None:
    live = {"env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}
    patch = {"env": [{"name": "a", "$patch": "delete"}]}
    assert strategic_merge(live, patch) == {"env": [{"name": "b", "value": "2"}]}


def test_a_list_is_replaced_when_told_so() -> None:
    live = {"env": [{"name": "a", "value": "1"}]}
    patch = {"env": [{"$patch": "replace"}, {"name": "c", "value": "3"}]}
    assert strategic_merge(live, patch) == {"env": [{"name": "c", "value": "3"}]}


def test_retained_keys_drop_the_others() -> None:
    live = {"volumes": [{"name": "v", "emptyDir": {}}]}
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}
    assert strategic_merge(live, patch) == {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}


def test_words_are_deleted_from_a_list_of_words() -> None:
    live = {"finalizers": ["a", "b"]}
    patch = {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}
    assert strategic_merge(live, patch) == {"finalizers": ["b", "c"]}


def test_taints_and_tolerations_are_replaced_whole() -> None:
    live = {"taints": [{"key": "a", "effect": "NoSchedule"}], "tolerations": [{"key": "a"}]}
    patch = {"taints": [{"key": "b", "effect": "NoExecute"}], "tolerations": []}
    assert strategic_merge(live, patch) == patch


def test_an_item_without_its_key_is_told_so() -> None:
    with pytest.raises(ApiError) as refused:
        strategic_merge({}, {"containers": [{"image": "x"}]})
    assert refused.value.status == 500


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/no"},
        {"op": "replace", "path": "/no", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "dance", "path": "/a"},
        {"op": "add", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_a_json_patch_that_cannot_be_done_is_refused(operation: dict) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"a": 1, "list": []}, [operation])
    assert refused.value.status == 422


def test_json_pointers_escape_slashes_and_lists_take_a_dash() -> None:
    before = {"labels": {"a/b": "1"}, "list": [1]}
    patch = [
        {"op": "replace", "path": "/labels/a~1b", "value": "2"},
        {"op": "add", "path": "/list/-", "value": 2},
        {"op": "copy", "from": "/list/0", "path": "/list/0"},
        {"op": "move", "from": "/labels", "path": "/moved"},
    ]
    assert json_patch(before, patch) == {"list": [1, 1, 2], "moved": {"a/b": "2"}}


keys, values = st.sampled_from(["a", "b", "x.io/c"]), st.sampled_from(["", "1", "2", "v"])
parts = st.one_of(
    st.tuples(st.just("in"), keys, st.lists(values, min_size=1, max_size=2)),
    st.tuples(st.just("notin"), keys, st.lists(values, min_size=1, max_size=2)),
    st.tuples(st.sampled_from(["=", "==", "!="]), keys, values),
    st.tuples(st.sampled_from(["exists", "absent"]), keys, st.none()),
)


def text_of(part: tuple[str, str, Any]) -> str:
    operator, key, value = part
    if operator in ("in", "notin"):
        return f"{key} {operator} ({', '.join(value)})"
    if operator in ("exists", "absent"):
        return f"{'!' if operator == 'absent' else ''}{key}"
    return f"{key}{operator}{value}"


def oracle(part: tuple[str, str, Any], labels: dict[str, str]) -> bool:
    operator, key, value = part
    if operator == "exists":
        return key in labels
    if operator == "absent":
        return key not in labels
    wanted = value if isinstance(value, list) else [value]
    found = key in labels and labels[key] in wanted
    return not found if operator in ("notin", "!=") else found


@given(st.lists(parts, min_size=1, max_size=3), st.dictionaries(keys, values))
@settings(max_examples=500)
def test_label_selectors_agree_with_their_definition(chosen: list, labels: dict[str, str]) -> None:
    test = selection(KINDS["Pod"], ",".join(text_of(part) for part in chosen), "")
    assert test is not None
    assert test({"metadata": {"labels": labels}}) is all(oracle(part, labels) for part in chosen)


@pytest.mark.parametrize(
    ("kind", "selector", "obj", "expected"),
    [
        ("Node", "spec.unschedulable=false", {"spec": {}}, True),
        ("Node", "spec.unschedulable=true", {"spec": {"unschedulable": True}}, True),
        ("Pod", "spec.nodeName=", {"spec": {}}, True),
        ("Pod", "status.phase!=Running,spec.nodeName=n", {"spec": {"nodeName": "n"}, "status": {}}, True),
        ("Job", "status.successful=2", {"status": {"succeeded": 2}}, True),
        ("Event", "source=kubelet", {"source": {"component": "kubelet"}}, True),
        ("Secret", "type=Opaque", {"type": "other"}, False),
    ],
)
def test_fields_are_selected_as_the_real_server_does(kind: str, selector: str, obj: dict, expected: bool) -> None:
    test = selection(KINDS[kind], "", selector)
    assert test is not None
    assert test({"metadata": {"name": "x"}, **obj}) is expected
