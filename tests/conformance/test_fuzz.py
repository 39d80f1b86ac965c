"""Patches, selectors and apply at random, over the wire, against what a few lines of Python make of them."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.wire import Object, Server, config_map, names

# One request after the other to a real server: few examples, no deadline, and a namespace that they share.
over_the_wire = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)

keys = st.sampled_from("abcdef")
values = st.sampled_from(["", "1", "2", "x"])
data = st.dictionaries(keys, values, max_size=5)
changes = st.dictionaries(keys, st.one_of(st.none(), values), max_size=5)


def merged(before: dict[str, str], change: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**before, **change}.items() if value is not None}


def made(server: Server, maps: str, content: dict[str, str]) -> str:
    """Return the path of a new ConfigMap."""
    body = {"metadata": {"generateName": "fuzz-"}, "data": content}
    return f"{maps}/{server.post(maps, body).ok()['metadata']['name']}"


def content(found: Object) -> dict[str, str]:
    return dict(found.get("data") or {})


@over_the_wire
@given(data, st.lists(changes, min_size=1, max_size=3), st.booleans())
def test_merging_patches_merge(
    server: Server, maps: str, before: dict[str, str], patches: list[dict[str, str | None]], strategic: bool
) -> None:
    path, wanted = made(server, maps, before), before
    for patch in patches:
        wanted = merged(wanted, patch)
        answer = (server.strategic if strategic else server.merge)(path, {"data": patch})
        assert content(answer.ok()) == wanted
    assert content(server.get(path).ok()) == wanted


def operated(before: dict[str, str], operation: Object) -> dict[str, str] | None:
    """Return what an operation makes of the data, None when it cannot be done."""
    key, after = operation["path"].rpartition("/")[2], dict(before)
    if operation["op"] in ("replace", "remove") and key not in before:
        return None
    if operation["op"] == "test":
        return after if before.get(key) == operation["value"] else None
    if operation["op"] == "remove":
        del after[key]
    elif operation["op"] in ("copy", "move"):
        origin = operation["from"].rpartition("/")[2]
        if origin not in before:
            return None
        after[key] = before[origin]
        if operation["op"] == "move" and origin != key:
            del after[origin]
    else:
        after[key] = operation["value"]
    return after


operations = st.builds(
    lambda op, path, origin, value: {"op": op, "path": f"/data/{path}", "from": f"/data/{origin}", "value": value},
    st.sampled_from(["add", "remove", "replace", "test", "copy", "move"]),
    keys,
    keys,
    values,
)


@over_the_wire
@given(st.dictionaries(keys, values, min_size=1, max_size=5), st.lists(operations, min_size=1, max_size=3))
def test_json_patches_do_all_or_nothing(server: Server, maps: str, before: dict[str, str], patch: list[Object]) -> None:
    path = made(server, maps, {**before, "keep": "it"})
    wanted: dict[str, str] | None = {**before, "keep": "it"}
    for operation in patch:
        wanted = operated(wanted, operation) if wanted is not None else None
    answer = server.json_patch(path, *patch)
    assert answer.status == (422 if wanted is None else 200)
    assert content(server.get(path).ok()) == ({**before, "keep": "it"} if wanted is None else wanted)


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2", "30"]), max_size=3)
requirements = st.one_of(
    st.builds(lambda key, op, value: (key, op, (value,)), st.sampled_from("abc"), st.sampled_from(["=", "==", "!="]),
              st.sampled_from(["", "1", "2", "30"])),
    st.builds(lambda key, op, found: (key, op, tuple(found)), st.sampled_from("abc"), st.sampled_from(["in", "notin"]),
              st.lists(st.sampled_from(["1", "2", "30"]), min_size=1, max_size=3)),
    st.builds(lambda key, op: (key, op, ()), st.sampled_from("abc"), st.sampled_from(["exists", "absent"])),
    st.builds(lambda key, op, bound: (key, op, (bound,)), st.sampled_from("abc"), st.sampled_from(["<", ">"]),
              st.sampled_from(["1", "2", "29"])),
)  # fmt: skip


def written(requirement: tuple[str, str, tuple[str, ...]]) -> str:
    key, operator, found = requirement
    if operator in ("in", "notin"):
        return f"{key} {operator} ({','.join(found)})"
    return {"exists": key, "absent": f"!{key}"}.get(operator) or f"{key}{operator}{found[0]}"


def meets(found: dict[str, str], requirement: tuple[str, str, tuple[str, ...]]) -> bool:
    key, operator, wanted = requirement
    value = found.get(key)
    if operator in ("exists", "absent"):
        return (value is not None) is (operator == "exists")
    if operator in ("=", "==", "in"):
        return value in wanted
    if operator in ("!=", "notin"):
        return value not in wanted
    if value is None or not value.isdigit():
        return False
    return int(value) > int(wanted[0]) if operator == ">" else int(value) < int(wanted[0])


def test_selectors_select_what_meets_every_requirement(server: Server, maps: str) -> None:
    everything: dict[str, dict[str, str]] = {}
    for number in range(24):
        found = {key: ["", "1", "2", "30"][(number // 3**place) % 4] for place, key in enumerate("abc")}
        chosen = {key: value for place, (key, value) in enumerate(found.items()) if (number >> place) % 3}
        everything[f"o{number:02}"] = chosen
        server.post(maps, config_map(f"o{number:02}", labels={**chosen, "run": "fuzz"})).ok()

    @over_the_wire
    @given(st.lists(requirements, min_size=1, max_size=3))
    def check(asked: list[tuple[str, str, tuple[str, ...]]]) -> None:
        selector = ",".join(["run=fuzz", *(written(requirement) for requirement in asked)])
        wanted = [name for name, found in everything.items() if all(meets(found, part) for part in asked)]
        assert names(server.get(maps, labelSelector=selector).ok()) == wanted

    check()


@over_the_wire
@given(st.text(alphabet="ab1=!<>(), -./\\", max_size=12), st.booleans())
def test_whatever_is_asked_as_a_selector_is_answered_in_order(
    server: Server, maps: str, text: str, fields: bool
) -> None:
    query: dict[str, Any] = {"fieldSelector" if fields else "labelSelector": text}
    answer = server.get(maps, **query)
    assert answer.status in (200, 400)
    assert answer.status == 200 or answer.reason == "BadRequest"


managers = st.sampled_from(["one", "two", "three"])


@over_the_wire
@given(st.lists(st.tuples(managers, data, st.booleans()), min_size=1, max_size=5))
def test_applying_owns_conflicts_and_takes_back(
    server: Server, maps: str, steps: list[tuple[str, dict[str, str], bool]]
) -> None:
    path = made(server, maps, {})
    name = path.rpartition("/")[2]
    live: dict[str, str] = {}
    owned: dict[str, set[str]] = {}
    for manager, wanted, force in steps:
        others = {other: found for other, found in owned.items() if other != manager}
        clashes = {key for key in wanted if key in live and live[key] != wanted[key]}
        clashes &= set().union(*others.values())
        answer = server.apply(path, config_map(name, wanted or None), manager, **({"force": "true"} if force else {}))
        if clashes and not force:
            assert answer.status == 409
            assert {field for _, field in answer.causes} == {f".data.{key}" for key in clashes}
            continue
        for found in others.values():
            found -= clashes
        for key in owned.get(manager, set()) - wanted.keys():
            if not any(key in found for found in others.values()):
                live.pop(key, None)
        live |= wanted
        owned[manager] = set(wanted)
        after = answer.ok()
        assert content(after) == live
        entries = {e["manager"]: e["fieldsV1"] for e in after["metadata"]["managedFields"] if e["operation"] == "Apply"}
        told = {who: {key[2:] for key in fields.get("f:data", {}) if key != "."} for who, fields in entries.items()}
        assert told == {who: found for who, found in owned.items() if found}
