"""The fold of pods onto cards: worked cases."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.allocation import difference, fold, fold_all, mode_of
from gpupools.domain.modes import Mode
from gpupools.domain.totals import totals
from gpupools.domain.units import unit_mib
from tests.domain.builders import COUNT, MEM, TOPOLOGY, WHOLE, a_node, a_pod, container, filled


def used(allocation):
    return [gpu.memory_units_used for gpu in allocation.gpus]


def codes(allocation):
    return [warning.code for warning in allocation.warnings]


def summary(allocation):
    """What most rows compare: per card, node used/total, pending, orphan, cards used/total, warning codes."""
    return (
        used(allocation),
        f"{allocation.memory_units_used}/{allocation.memory_units}",
        allocation.memory_units_pending,
        allocation.memory_units_orphan,
        f"{allocation.cards_used}/{allocation.cards}",
        codes(allocation),
    )


V1 = {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "5"}


@pytest.mark.parametrize(
    ("node", "pods", "expected"),
    [
        pytest.param(
            a_node(mode="exclusive"),
            [a_pod(whole=2)],
            ([], "0/0", 0, 0, "2/4", []),
            id="V01-exclusive-cards-are-a-count",
        ),
        pytest.param(
            a_node(), [a_pod(mem=4, at={1: 4})], ([0, 4, 0, 0], "4/60", 0, 0, "1/4", []), id="V02-annotation-on-card-1"
        ),
        pytest.param(
            a_node(),
            [a_pod("p", container(mem=1), container(mem=7), at=[{1: 1}, {1: 7}])],
            ([0, 8, 0, 0], "8/60", 0, 0, "1/4", []),
            id="V03-containers-add-up",
        ),
        pytest.param(
            a_node(), [a_pod(mem=5, annotations=V1)], ([5, 0, 0, 0], "5/60", 0, 0, "1/4", []), id="V04-old-annotations"
        ),
        pytest.param(
            a_node(),
            [a_pod(mem=8, at={0: 4, 3: 4}, label_count=2)],
            ([4, 0, 0, 4], "8/60", 0, 0, "2/4", []),
            id="V06-two-cards-hold-half-each",
        ),
        pytest.param(
            a_node(cards=2),
            [
                a_pod("a", mem=6, at={0: 6}),
                a_pod("b", mem=6, at={0: 6}, phase="Succeeded"),
                a_pod("c", mem=3, at={1: 3}, phase="Failed"),
            ],
            ([6, 0], "6/30", 0, 0, "1/2", []),
            id="V07-finished-pods-hold-nothing",
        ),
        pytest.param(
            a_node(cards=2),
            [a_pod(mem=3)],
            ([0, 0], "3/30", 3, 0, "0/2", []),
            id="V09-bound-without-annotation-is-pending",
        ),
        pytest.param(
            a_node(),
            [a_pod(mem=4, at={7: 4})],
            ([0, 0, 0, 0], "4/60", 0, 4, "0/4", ["unknown-card"]),
            id="V10-no-card-is-invented",
        ),
        pytest.param(
            a_node(mode="topology", cards=2, resources={MEM: 0, COUNT: 0}),
            [a_pod(mem=6, at={1: 6})],
            ([0, 0], "0/0", 0, 6, "0/2", ["former-mode"]),
            id="V11-allocated-under-a-former-mode",
        ),
        pytest.param(
            a_node(),
            [a_pod(mem=4, annotations={"scheduler.framework.gpushare.allocation": "{bad json"})],
            ([0, 0, 0, 0], "4/60", 4, 0, "0/4", ["unreadable-allocation"]),
            id="V12-unreadable-annotation-is-pending",
        ),
        pytest.param(a_node(mode="", cards=0), [], ([], "0/0", 0, 0, "0/0", []), id="V15-a-node-without-gpus-has-none"),
        pytest.param(
            a_node(resources={COUNT: 0}), [], ([], "0/60", 0, 0, "0/0", ["no-cards"]), id="V15-memory-without-cards"
        ),
        pytest.param(
            a_node(resources={COUNT: 0}),
            [a_pod(mem=4, at={0: 4})],
            ([], "4/60", 0, 4, "0/0", ["unknown-card", "no-cards"]),
            id="V15-memory-without-cards-and-a-holder",
        ),
        pytest.param(
            a_node(cards=1),
            [a_pod(mem=6, at={0: 3, 5: 3})],
            ([3], "6/15", 0, 3, "1/1", ["unknown-card"]),
            id="half-a-pod-is-on-a-card-that-is-not-there",
        ),
        pytest.param(
            a_node(cards=1),
            [a_pod("a", mem=10, at={0: 10}), a_pod("b", mem=9, at={0: 9})],
            ([19], "19/15", 0, 0, "1/1", ["over-allocated"]),
            id="over-allocation-is-not-clamped",
        ),
        pytest.param(
            a_node(cards=1),
            [a_pod(mem=3, at={0: 4})],
            ([4], "4/15", 0, 0, "1/1", ["limit-differs"]),
            id="the-annotation-wins-over-the-limit",
        ),
        pytest.param(
            a_node(cards=4, resources={MEM: 61}),
            [],
            ([0, 0, 0, 0], "0/61", 0, 0, "0/4", []),
            id="the-remainder-stays-with-the-node",
        ),
        pytest.param(
            a_node(),
            [a_pod(whole=1)],
            ([0, 0, 0, 0], "0/60", 0, 0, "0/4", ["former-mode"]),
            id="a-whole-card-of-before",
        ),
        pytest.param(
            a_node(mode="exclusive", cards=1),
            [a_pod("a", whole=1), a_pod("b", whole=1)],
            ([], "0/0", 0, 0, "2/1", ["over-allocated"]),
            id="more-exclusive-holders-than-cards",
        ),
        pytest.param(
            a_node(),
            [a_pod(at={1: 4})],
            ([0, 0, 0, 0], "0/60", 0, 0, "0/4", []),
            id="an-annotation-without-an-ask-is-nothing",
        ),
        pytest.param(
            a_node(),
            [a_pod(mem=4, at={1: 4}, on="other")],
            ([0, 0, 0, 0], "0/60", 0, 0, "0/4", []),
            id="pods-elsewhere",
        ),
        pytest.param(
            a_node(mode="exclusive"),
            [a_pod(whole=1, init=[container(whole=3)])],
            ([], "0/0", 0, 0, "3/4", []),
            id="the-scheduler-keeps-what-the-init-container-needed",
        ),
    ],
)
def test_pods_are_folded_onto_the_cards_of_their_node(node, pods, expected):
    assert summary(fold(node, pods)) == expected


def test_v14_memory_and_compute_are_folded_side_by_side():
    allocation = fold(a_node(mode="core_mem", cards=2), [a_pod(mem=6, core=30, at={1: 6}, core_at={1: 30})])
    assert used(allocation) == [0, 6]
    assert [gpu.core_percent_used for gpu in allocation.gpus] == [0, 30]
    assert [(gpu.memory_units, gpu.core_percent) for gpu in allocation.gpus] == [(15, 100)] * 2
    assert (allocation.core_percent_used, allocation.core_percent) == (30, 200)


@pytest.mark.parametrize("word", [{}, {"gpushare.alibabacloud.com/core-percentage": "{bad json"}])
def test_compute_without_a_readable_word_is_on_the_card_of_the_memory(word):
    allocation = fold(a_node(mode="core_mem", cards=2), [a_pod(mem=6, core=30, at={1: 6}, annotations=word)])
    assert [gpu.core_percent_used for gpu in allocation.gpus] == [0, 30]
    assert codes(allocation) == (["unreadable-allocation"] if word else [])


def test_compute_without_memory_is_on_no_card_but_counts_on_the_node():
    allocation = fold(a_node(mode="core_mem", cards=2), [a_pod(core=30)])
    assert [gpu.core_percent_used for gpu in allocation.gpus] == [0, 0]
    assert (allocation.core_percent_used, [each.core_percent for each in allocation.unplaced]) == (30, [30])
    assert fold(a_node(cards=2), [a_pod(core=30)]).core_percent_used == 0


@pytest.mark.parametrize(
    ("label", "memory", "cards", "size"),
    [
        pytest.param("32510MiB", 64, 2, 1024, id="V17a-1016-is-GiB"),
        pytest.param("32510MiB", 506, 2, 128, id="V17b-128.5-is-128-MiB"),
        pytest.param("143771MiB", 141 * 8, 8, 1024, id="a-141-GiB-card-is-not-counted-in-MiB"),
        pytest.param("16130MiB", 16130, 1, 1, id="the-open-source-plugin-in-MiB"),
        pytest.param("1999MiB", 1, 1, 1024, id="a-small-card-of-one-unit"),
        pytest.param("16130MiB", 40, 1, None, id="403-is-no-unit"),
        pytest.param(None, 60, 4, None, id="no-label"),
        pytest.param("lots", 60, 4, None, id="unreadable-label"),
        pytest.param("0MiB", 60, 4, None, id="no-memory"),
        pytest.param("16130MiB", 60, 0, None, id="no-cards"),
    ],
)
def test_v17_the_unit_is_found_from_the_cards_label(label, memory, cards, size):
    labels = {"aliyun.accelerator/nvidia_mem": label} if label is not None else {}
    assert unit_mib(a_node(cards=cards, resources={MEM: memory}, labels=labels)) == size


def test_terminating_pods_count_as_allocated_and_as_releasing():
    pods = [
        a_pod("a", mem=4, at={0: 4}, terminating=True),
        a_pod("b", mem=3, at={0: 3}),
        a_pod("c", mem=2, terminating=True),
    ]
    allocation = fold(a_node(cards=1), pods)
    assert (allocation.memory_units_used, allocation.memory_units_releasing, allocation.memory_units_pending) == (
        9,
        6,
        2,
    )
    assert (allocation.gpus[0].memory_units_used, allocation.gpus[0].memory_units_releasing) == (7, 4)
    assert allocation.cards_releasing == 0
    exclusive = fold(a_node(mode="exclusive"), [a_pod("a", whole=3, terminating=True), a_pod("b", whole=1)])
    assert (exclusive.cards_used, exclusive.cards_releasing) == (4, 3)


def test_topology_cards_have_an_index_only_through_their_annotation():
    group = {"topology.kubernetes.io/gpu-group": "0,3"}
    pods = [a_pod("a", topology=2, annotations=group), a_pod("b", topology=1)]
    allocation = fold(a_node(mode="topology", cards=4, unhealthy=(2,)), pods)
    assert [gpu.cards_used for gpu in allocation.gpus] == [1, 0, 0, 1]
    assert [gpu.healthy for gpu in allocation.gpus] == [True, True, False, True]
    assert (allocation.cards_used, allocation.cards) == (3, 4)
    assert [(holding.pod, holding.cards) for holding in allocation.unplaced] == [("b", 1)]


def test_an_unhealthy_topology_card_keeps_its_index():
    node = a_node(mode="topology", cards=3, capacity={TOPOLOGY: 4}, unhealthy=(1,))
    pods = [a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "3"})]
    allocation = fold(node, pods)
    assert [gpu.cards_used for gpu in allocation.gpus] == [0, 0, 0, 1]
    assert allocation.cards == 3
    assert allocation.warnings == ()


def test_a_topology_card_that_two_pods_claim_is_over_allocated():
    group = {"topology.kubernetes.io/gpu-group": "0"}
    pods = [a_pod(name, topology=1, annotations=group) for name in "ab"]
    allocation = fold(a_node(mode="topology", cards=2), pods)
    assert allocation.warnings[0].message == "GPU0 is over-allocated: 2 whole-card pods."
    assert allocation.warnings[0].pods == ("default/a", "default/b")


def test_a_topology_claim_beyond_the_last_card_is_said():
    allocation = fold(
        a_node(mode="topology", cards=2), [a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "5"})]
    )
    assert (allocation.cards_used, codes(allocation), allocation.unplaced[0].cards) == (1, ["unknown-card"], 1)


def test_a_pod_that_was_bound_when_cards_had_other_units_is_named():
    annotations = {"gpushare.alibabacloud.com/device-resource": '{"0":15,"1":15}'}
    allocation = fold(a_node(cards=2, units=30), [a_pod("old", mem=4, at={0: 4}, annotations=annotations)])
    assert codes(allocation) == ["unit-changed"]
    assert "had 15 memory units; it has 30 now" in allocation.warnings[0].message


def test_every_holder_is_listed_once_with_its_owner():
    pod = a_pod(
        "p",
        mem=8,
        at={0: 4, 3: 4},
        label_count=2,
        owner_kind="Job",
        owner_name="train",
        created_at="2026-01-01T00:00:00Z",
    )
    allocation = fold(a_node(), [pod])
    (holding,) = allocation.holdings
    assert (holding.memory_units, holding.owner_kind, holding.owner_name) == (8, "Job", "train")
    assert [holding.memory_units for holding in allocation.gpus[3].holdings] == [4]


@pytest.mark.parametrize(
    ("node", "mode"),
    [
        (a_node(mode="core_mem"), Mode.CORE_MEM),
        (a_node(mode="exclusive"), Mode.EXCLUSIVE),
        (a_node(mode="", resources={WHOLE: 2}), Mode.EXCLUSIVE),
        (a_node(mode="", resources={MEM: 60, COUNT: 4}, labels={"cgpu": "true"}), Mode.CGPU),
        (a_node(mode="", resources={MEM: 60, COUNT: 4}, labels={"gpushare": "true"}), Mode.SHARE),
        (a_node(mode="", resources={MEM: 60, COUNT: 4}), None),
        (a_node(mode="", resources={TOPOLOGY: 4}), Mode.TOPOLOGY),
        (a_node(mode="experimental", resources={MEM: 60, COUNT: 4}), None),
        (a_node(mode=""), None),
    ],
)
def test_the_mode_is_the_labels_or_what_the_resources_tell(node, mode):
    assert mode_of(node) == mode


def test_only_gpu_nodes_have_an_allocation():
    nodes = [a_node("gpu"), a_node("cpu", mode="")]
    assert fold_all(nodes, [a_pod(mem=4, at={0: 4}, on="gpu"), a_pod("x", on="cpu")]).keys() == {"gpu"}


def test_totals_are_kept_per_mode_and_over_all():
    nodes = [a_node("a"), a_node("b", cards=2), a_node("c", mode="exclusive"), a_node("d", mode="strange", cards=0)]
    pods = [
        a_pod("p", mem=4, at={1: 4}, on="a"),
        a_pod("q", mem=3, on="b"),
        a_pod("r", whole=2, on="c", terminating=True),
    ]
    sums = totals(fold_all(nodes, pods).values())
    assert [(row.mode, row.nodes) for row in sums.modes] == [(Mode.EXCLUSIVE, 1), (Mode.CGPU, 2), (None, 1)]
    exclusive, cgpu, _ = sums.modes
    assert (exclusive.cards_used, exclusive.cards, exclusive.cards_releasing) == (2, 4, 2)
    assert (cgpu.memory_units_used, cgpu.memory_units, cgpu.memory_units_pending, cgpu.cards_used) == (7, 90, 3, 1)
    assert (sums.all.nodes, sums.all.cards, sums.all.cards_used) == (4, 10, 3)


def test_the_difference_names_what_changed_came_and_went():
    nodes = [a_node("a"), a_node("b"), a_node("c")]
    old = fold_all(nodes[:2], filled(4, on="a"))
    new = fold_all(nodes[1:], filled(4, on="b"))
    assert difference(old, new) == {"a", "b", "c"}
    assert difference(new, fold_all(nodes[1:], filled(4, on="b"))) == frozenset()


def test_an_allocation_survives_the_way_through_redis():
    allocation = fold(a_node(), [a_pod(mem=4, at={7: 4})])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(allocation), type=type(allocation)) == allocation


def test_a_holding_keeps_who_and_since_when():
    pod = a_pod(mem=1, at={0: 1}, created_at="2026-11-30T00:00:00Z", owner_kind="Job", owner_name="j")
    (holding,) = fold(a_node(), [pod]).holdings
    assert (holding.created_at, holding.owner_kind, holding.owner_name) == ("2026-11-30T00:00:00Z", "Job", "j")


@pytest.mark.parametrize(("units", "cards", "expected"), [(64, 2, 1024), (506, 2, 128), (65, 2, 1024), (60, 0, None)])
def test_the_unit_is_that_of_a_whole_card(units, cards, expected):
    node = a_node(resources={MEM: units, COUNT: cards}, labels={"aliyun.accelerator/nvidia_mem": "32510MiB"})
    assert fold(node, []).unit_mib == expected
