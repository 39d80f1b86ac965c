"""Pools as labels on nodes: every write is repeatable, and only what we set is taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from gpupools.clusters.labelled import OURS_ANNOTATION, LabelledPools
from gpupools.clusters.port import ApplyResult, PoolSpec
from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.modes import ACK_POOL_LABEL, MODE_LABEL, PLACEMENT_LABEL, POOL_LABEL, Mode, PlacementPolicy
from gpupools.errors import Conflict, Invalid, Refused, Unreachable


class Nodes:
    """The two methods of an API server that labelled pools use, over values."""

    def __init__(self, *nodes: GpuNode) -> None:
        self.by_name = {node.name: node for node in nodes}
        self.writes: list[str] = []
        self.fails_on = ""

    def nodes(self) -> list[GpuNode]:
        return list(self.by_name.values())

    def label_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None],
        taints_add: Sequence[Taint] = (),
        taints_remove: Sequence[Taint] = (),
        op_id: str,
        annotations: Mapping[str, str | None] | None = None,
    ) -> ApplyResult:
        if name == self.fails_on:
            raise Unreachable("The cluster did not answer.")
        before = self.by_name[name]
        gone = {(t.key, t.effect) for t in [*taints_remove, *taints_add]}
        after = msgspec.structs.replace(
            before,
            labels=merged(before.labels, labels),
            annotations=merged(before.annotations, annotations or {}),
            taints=(*(t for t in before.taints if (t.key, t.effect) not in gone), *taints_add),
        )
        self.by_name[name] = after
        if after != before:
            self.writes.append(name)
        return ApplyResult("changed" if after != before else "unchanged")


def merged(now: Mapping[str, str], change: Mapping[str, str | None]) -> dict[str, str]:
    return {k: v for k, v in {**now, **change}.items() if v is not None}


def a_node(name: str, *, taints: tuple[Taint, ...] = (), ready: bool = True, **labels: str) -> GpuNode:
    keyed = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return GpuNode(name, f"uid-{name}", labels=keyed, taints=taints, ready=ready, instance_type="ecs.gn7i")


def pools_on(*nodes: GpuNode) -> tuple[LabelledPools, Nodes]:
    api = Nodes(*nodes)
    return LabelledPools(api), api  # type: ignore[arg-type]  # it has the two methods that are used


def spec(*names: str, **changes: Any) -> PoolSpec:
    return PoolSpec(**{"name": "train", "mode": None, "node_names": names, **changes})


def test_a_pool_over_nodes_writes_membership_and_no_mode_when_none_is_given() -> None:
    pools, api = pools_on(a_node("a"), a_node("b"), a_node("c"))
    started = pools.create(spec("a", "b"), op_id="op")
    assert (started.pool_id, started.task_id) == ("train", "")
    assert pools.node_names("train") == ["a", "b"]
    assert api.by_name["a"].labels == {POOL_LABEL: "train"}
    assert api.by_name["c"].labels == {}
    assert pools.task("").state == "success"


def test_a_pool_with_a_mode_writes_mode_policy_labels_and_taints() -> None:
    pools, api = pools_on(a_node("a", kept="yes"))
    taint = Taint("gpu", "yes", "NoSchedule")
    wanted = spec("a", mode=Mode.CGPU, policy=PlacementPolicy.SPREAD, labels={"team": "v"}, taints=[taint])
    pools.create(wanted, op_id="op")
    there = api.by_name["a"]
    assert there.labels == {
        "kept": "yes",
        "team": "v",
        POOL_LABEL: "train",
        MODE_LABEL: "cgpu",
        PLACEMENT_LABEL: "spread",
    }
    assert there.taints == (taint,)
    assert json.loads(there.annotations[OURS_ANNOTATION]) == {"labels": ["team"], "taints": [["gpu", "NoSchedule"]]}
    (facts,) = pools.pools()
    assert facts.labels == {MODE_LABEL: "cgpu", PLACEMENT_LABEL: "spread", "team": "v"}
    assert facts.taints == (taint,)


def test_a_create_that_broke_in_the_middle_is_finished_by_repeating_it() -> None:
    pools, api = pools_on(a_node("a"), a_node("b"), a_node("c"))
    api.fails_on = "b"
    with pytest.raises(Unreachable):
        pools.create(spec("a", "b", "c"), op_id="op")
    api.fails_on = ""
    assert pools.find("op") is None
    pools.create(spec("a", "b", "c"), op_id="op")
    assert pools.node_names("train") == ["a", "b", "c"]
    assert api.writes == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("other", "error", "code"),
    [
        (a_node("b", gpupools_internal__pool="other"), Conflict, "in-another-pool"),
        (a_node("b", alibabacloud_com__nodepool_id="np1"), Refused, "owned-by-ack"),
        (a_node("z"), Refused, "not-found"),
    ],
)
def test_one_node_that_cannot_join_means_that_nothing_is_written(
    other: GpuNode, error: type[Exception], code: str
) -> None:
    if code == "owned-by-ack":
        other = msgspec.structs.replace(other, labels={ACK_POOL_LABEL: "np1"})
    pools, api = pools_on(a_node("a"), other)
    with pytest.raises(error) as caught:
        pools.create(spec("a", "b"), op_id="op")
    assert caught.value.code == code  # type: ignore[attr-defined]  # ours
    assert api.writes == []


def test_a_node_of_ack_is_refused_with_the_way_out() -> None:
    owned = msgspec.structs.replace(a_node("a"), labels={ACK_POOL_LABEL: "np1"})
    pools, _ = pools_on(owned)
    with pytest.raises(Refused, match="Connect this cluster by the ACK OpenAPI"):
        pools.create(spec("a", mode=Mode.CGPU), op_id="op")


def test_a_name_that_other_nodes_carry_is_taken() -> None:
    pools, _ = pools_on(a_node("a"), a_node("b", gpupools_internal__pool="train"))
    with pytest.raises(Conflict) as caught:
        pools.create(spec("a"), op_id="op")
    assert caught.value.code == "name-taken"


def test_a_pool_without_nodes_cannot_be() -> None:
    pools, _ = pools_on(a_node("a"))
    with pytest.raises(Invalid) as caught:
        pools.create(spec(), op_id="op")
    assert caught.value.errors[0].field == "node_names"
    assert pools.pool("train") is None


def test_a_modify_takes_back_the_labels_and_taints_that_we_had_set_and_no_others() -> None:
    foreign = Taint("foreign", effect="NoExecute")
    pools, api = pools_on(a_node("a", taints=(foreign,), mine="no", other="x"))
    first = spec("a", mode=Mode.CGPU, labels={"team": "v", "tier": "1"}, taints=[Taint("gpu")])
    pools.create(first, op_id="op-1")
    second = spec(mode=Mode.EXCLUSIVE, labels={"tier": "2"})
    pools.modify("train", second, update_nodes=True, op_id="op-2")
    there = api.by_name["a"]
    assert there.labels == {"mine": "no", "other": "x", "tier": "2", POOL_LABEL: "train", MODE_LABEL: "default"}
    assert there.taints == (foreign,)


def test_a_modify_that_shall_not_reach_nodes_reaches_only_new_ones() -> None:
    pools, api = pools_on(a_node("a"), a_node("b"))
    pools.create(spec("a"), op_id="op-1")
    pools.modify("train", spec("a", "b", labels={"team": "v"}), update_nodes=False, op_id="op-2")
    assert "team" not in api.by_name["a"].labels
    assert api.by_name["b"].labels == {POOL_LABEL: "train", "team": "v"}
    pools.modify("train", spec(labels={"team": "v"}), update_nodes=True, op_id="op-3")
    assert api.by_name["a"].labels["team"] == "v"
    assert pools.node_names("train") == ["a", "b"]


def test_a_member_that_ack_took_over_gets_no_mode_write() -> None:
    pools, api = pools_on(a_node("a"))
    pools.create(spec("a"), op_id="op-1")
    labels = {**api.by_name["a"].labels, ACK_POOL_LABEL: "np1"}
    api.by_name["a"] = msgspec.structs.replace(api.by_name["a"], labels=labels)
    with pytest.raises(Refused) as caught:
        pools.modify("train", spec(mode=Mode.MPS), update_nodes=True, op_id="op-2")
    assert caught.value.code == "owned-by-ack"


def test_a_pool_is_not_renamed() -> None:
    pools, _ = pools_on(a_node("a", gpupools_internal__pool="train"))
    with pytest.raises(Refused):
        pools.modify("train", spec(name="other"), update_nodes=True, op_id="op")


def test_a_delete_leaves_the_nodes_in_their_mode_without_our_marks() -> None:
    foreign = Taint("foreign", effect="NoExecute")
    pools, api = pools_on(a_node("a", taints=(foreign,), own="x"))
    pools.create(spec("a", mode=Mode.SHARE, labels={"team": "v"}, taints=[Taint("gpu")]), op_id="op-1")
    pools.delete("train", force=False, op_id="op-2")
    there = api.by_name["a"]
    assert there.labels == {"own": "x", MODE_LABEL: "share", PLACEMENT_LABEL: "binpack"}
    assert there.taints == (foreign,)
    assert there.annotations == {}
    assert pools.pools() == []
    pools.delete("train", force=False, op_id="op-2")


def test_a_pool_is_described_by_what_its_nodes_have_in_common() -> None:
    pools, api = pools_on(a_node("a"), a_node("b", ready=False))
    pools.create(spec("a", "b", mode=Mode.CGPU), op_id="op")
    labels = {**api.by_name["b"].labels, MODE_LABEL: "share"}
    api.by_name["b"] = msgspec.structs.replace(api.by_name["b"], labels=labels)
    facts = pools.pool("train")
    assert facts is not None
    assert facts.labels == {PLACEMENT_LABEL: "binpack"}
    assert (facts.total_nodes, facts.healthy_nodes, facts.failed_nodes) == (2, 1, 1)
    assert (facts.desired_size, facts.state) == (2, "active")
    assert facts.instance_types == ("ecs.gn7i",)


def test_a_spoiled_note_of_ours_takes_nothing_back() -> None:
    spoiled = msgspec.structs.replace(
        a_node("a", gpupools_internal__pool="train", team="v"), annotations={OURS_ANNOTATION: '{"labels": 7}'}
    )
    pools, api = pools_on(spoiled)
    pools.modify("train", spec(), update_nodes=True, op_id="op")
    assert api.by_name["a"].labels["team"] == "v"
