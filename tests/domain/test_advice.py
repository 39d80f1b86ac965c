"""What is warned about although nothing forbids it: mixing, pools that cannot be told apart, unknown machines."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.domain.advice import Advice, PoolView, of_pool, scaling_kind_for
from gpupools.domain.modes import CHOOSABLE, MODES, Mode, mode_labels
from tests.domain.builders import a_node

A10, V100 = "NVIDIA-A10", "Tesla-V100-SXM2-16GB"


def view(name: str = "night", mode: Mode | None = Mode.CGPU, **fields: Any) -> PoolView:
    free = fields.pop("labels", {})
    return PoolView(name, mode, {**free, **(mode_labels(mode, None) if mode else {})}, **fields)


def card(model: str) -> dict[str, str]:
    return {"aliyun.accelerator/nvidia_name": model}


def codes(pool: PoolView, *others: PoolView) -> list[str]:
    return [each.code for each in of_pool(pool, others)]


def said(pool: PoolView, *others: PoolView) -> Advice:
    (advice,) = of_pool(pool, others)
    return advice


def test_a_pool_of_one_mode_and_one_card_model_needs_no_advice() -> None:
    nodes = [a_node(name, "cgpu", labels=card(A10)) for name in ("a", "b")]
    assert codes(view(nodes=nodes, instance_types=["ecs.gn7i-c8g1.2xlarge"])) == []


def test_nodes_of_several_modes_are_counted_by_mode() -> None:
    nodes = [a_node("a", "cgpu"), a_node("b", "share"), a_node("c", "share"), a_node("plain", "", 0)]
    advice = said(view(nodes=nodes))
    assert advice.code == "mixed-modes"
    assert "cgpu (1), share (2)" in advice.message


def test_cards_of_several_models_are_told_by_what_the_nodes_say() -> None:
    nodes = [a_node("a", "cgpu", labels=card(A10)), a_node("b", "cgpu", labels=card(V100))]
    advice = said(view(nodes=nodes, instance_types=["ecs.gn7i-c8g1.2xlarge"]))
    assert advice.code == "mixed-cards"
    assert f"{A10} (1), {V100} (1)" in advice.message


def test_machines_of_another_card_that_may_still_come_are_told_by_their_types() -> None:
    types = ["ecs.gn7i-c8g1.2xlarge", "ecs.gn6v-c8g1.8xlarge"]
    assert codes(view(instance_types=types)) == ["mixed-cards"]
    assert "may come into night: NVIDIA-A10, Tesla-V100-SXM2-16GB" in said(view(instance_types=types)).message
    assert codes(view(instance_types=types, nodes=[a_node("a", "cgpu", labels=card(A10))])) == ["mixed-cards"]
    assert codes(view(instance_types=["ecs.gn6v-c8g1.8xlarge", "ecs.gn6v-c8g1.2xlarge"])) == []


def test_an_unknown_instance_type_is_said_to_be_unknown_until_a_node_has_joined() -> None:
    pool = view(instance_types=["ecs.gn9x-c8g1.2xlarge"])
    assert said(pool).code == "unknown-type"
    assert "ecs.gn9x-c8g1.2xlarge" in said(pool).message
    assert codes(view(instance_types=["ecs.gn9x-c8g1.2xlarge"], nodes=[a_node("a", "cgpu", labels=card(A10))])) == []


def test_two_pools_that_want_the_same_labels_cannot_be_told_apart() -> None:
    advice = said(view(), view("day"), view("other", Mode.SHARE))
    assert advice.code == "same-labels"
    assert "day wants the same labels on nodes as night" in advice.message


def test_a_node_that_carries_every_label_of_another_pool_fits_both() -> None:
    narrow, wide = view("narrow", labels={"team": "ml"}), view("wide")
    assert said(narrow, wide).code == "fits-two-pools"
    assert "Nodes of narrow carry every label of wide too" in said(narrow, wide).message
    assert "Nodes of narrow carry every label of wide too" in said(wide, narrow).message


def test_labels_of_their_own_tell_two_pools_of_one_mode_apart() -> None:
    assert codes(view("a", labels={"team": "ml"}), view("b", labels={"team": "ops"})) == []


def test_a_pool_without_a_mode_is_nobodys_twin() -> None:
    assert codes(view(mode=None), view("other", None), view("day")) == []
    assert codes(view(), view("other", None)) == []


@pytest.mark.parametrize("mode", CHOOSABLE)
def test_every_mode_has_the_type_of_auto_scaling_that_counts_what_it_hands_out(mode: Mode) -> None:
    fitting = scaling_kind_for(mode)
    assert fitting == ("gpushare" if MODES[mode].shared else "gpu")
    assert codes(view(mode=mode, scaling_kind=fitting)) == []
    assert codes(view(mode=mode, scaling_kind="spot")) == []
    assert codes(view(mode=mode, scaling_kind="cpu")) == ["scaling-type"]
