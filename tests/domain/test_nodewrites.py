"""What writing a pool's labels and taints does to its nodes, key by key."""

from __future__ import annotations

import pytest

from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.nodewrites import KeyWrite, Wishes, differences, grouped, node_writes, taint_key

WANTED = Wishes({"team": "ml", "tier": ""}, (Taint("gpu", "yes"),))
GPU = taint_key(Taint("gpu"))


def node(labels: dict[str, str] | None = None, *taints: Taint) -> GpuNode:
    return GpuNode("n", labels=labels or {}, taints=taints)


def test_a_node_that_carries_everything_is_left_alone() -> None:
    carried = node({"team": "ml", "tier": "", "zone": "a"}, Taint("gpu", "yes"), Taint("else"))
    assert node_writes(carried, WANTED, owned=WANTED.keys) == ()


def test_what_is_missing_is_added_and_an_empty_value_is_a_value() -> None:
    assert node_writes(node(), WANTED, owned=()) == (
        KeyWrite("team", None, "ml"),
        KeyWrite("tier", None, ""),
        KeyWrite(GPU, None, "yes"),
    )


def test_another_value_is_changed_with_the_old_one_named() -> None:
    found = node({"team": "ops", "tier": ""}, Taint("gpu", "no"))
    writes = node_writes(found, WANTED, owned=())
    assert writes == (KeyWrite("team", "ops", "ml"), KeyWrite(GPU, "no", "yes"))
    assert [each.kind for each in writes] == ["changed", "changed"]
    assert [each.is_taint for each in writes] == [False, True]


def test_only_what_the_pool_had_put_there_is_taken_off() -> None:
    found = node({"team": "ml", "tier": "", "was": "ours", "theirs": "stays"}, Taint("gpu", "yes"), Taint("old", "x"))
    writes = node_writes(found, WANTED, owned={"was", "gone-already", taint_key(Taint("old"))})
    assert writes == (KeyWrite("was", "ours", None), KeyWrite("taint old:NoSchedule", "x", None))
    assert {each.kind for each in writes} == {"removed"}


def test_the_same_taint_with_another_effect_is_another_taint() -> None:
    found = node({"team": "ml", "tier": ""}, Taint("gpu", "yes", "NoExecute"))
    assert node_writes(found, WANTED, owned=()) == (KeyWrite(GPU, None, "yes"),)


def test_a_taint_without_value_is_there_and_not_missing() -> None:
    wanted = Wishes({}, (Taint("gpu", ""),))
    assert node_writes(node(None, Taint("gpu", "")), wanted, owned=()) == ()
    assert node_writes(node(), wanted, owned=()) == (KeyWrite(GPU, None, ""),)


def test_an_edit_of_the_pool_itself_is_told_label_by_label_and_taint_by_taint() -> None:
    before = Wishes({"a": "1", "b": "2"}, (Taint("t", "1"),))
    after = Wishes({"b": "3", "c": "4"}, (Taint("t", "2"), Taint("u")))
    assert [(each.kind, each.key) for each in differences(before, after)] == [
        ("removed", "a"),
        ("changed", "b"),
        ("added", "c"),
        ("changed", "taint t:NoSchedule"),
        ("added", "taint u:NoSchedule"),
    ]
    assert differences(after, after) == ()


@pytest.mark.parametrize("count", [1, 200])
def test_nodes_with_the_same_writes_stand_together_and_untouched_ones_last(count: int) -> None:
    add = (KeyWrite("team", None, "ml"),)
    change = (KeyWrite("team", "ops", "ml"),)
    rows = [
        ("still", ()),
        *((f"n-{n:03}", add) for n in range(count + 1)),
        *((f"c-{n:03}", change) for n in range(count)),
    ]
    groups = grouped(rows)
    assert [(group.writes, len(group.nodes)) for group in groups] == [(add, count + 1), (change, count), ((), 1)]
    assert sum(len(group.nodes) for group in groups) == len(rows), "no node is left out"
