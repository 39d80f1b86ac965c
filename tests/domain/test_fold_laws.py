"""The laws that every fold keeps, whatever pods there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.allocation import fold, fold_all
from gpupools.domain.totals import totals
from tests.domain.builders import a_node, a_pod

PHASES = st.sampled_from(["Pending", "Running", "Running", "Succeeded", "Failed", "Unknown"])
SHARES = st.dictionaries(st.integers(0, 5), st.integers(0, 9), min_size=1, max_size=3)


@st.composite
def some_pods(draw):
    pods = []
    for number in range(draw(st.integers(0, 7))):
        at = draw(st.none() | SHARES)
        whole, topology = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 2)]))
        pods.append(
            a_pod(
                f"p{number}",
                mem=draw(st.integers(0, 12)),
                core=draw(st.sampled_from([0, 0, 20])),
                whole=whole,
                topology=topology,
                at=at,
                core_at=draw(st.none() | SHARES) if at else None,
                phase=draw(PHASES),
                terminating=draw(st.booleans()),
                on=draw(st.sampled_from(["n1", "n1", "n1", "n2"])),
            )
        )
    return pods


NODES = st.sampled_from(
    [
        a_node(cards=3),
        a_node(mode="core_mem", cards=2),
        a_node(mode="exclusive"),
        a_node(mode="topology"),
        a_node(mode=""),
    ]
)


@given(NODES, some_pods())
def test_the_fold_does_not_depend_on_the_order_of_pods(node, pods):
    expected = fold(node, pods)
    for other in (pods[::-1], pods[1::2] + pods[::2], pods[2:] + pods[:2]):
        assert fold(node, other) == expected


@given(NODES, some_pods())
def test_sums_agree_on_every_level(node, pods):
    allocation = fold(node, pods)
    shared = allocation.memory_units > 0
    for gpu in allocation.gpus:
        assert gpu.memory_units_used == sum(holding.memory_units for holding in gpu.holdings)
        assert gpu.core_percent_used == sum(holding.core_percent for holding in gpu.holdings)
        assert gpu.cards_used == sum(holding.cards for holding in gpu.holdings)
        assert gpu.memory_units_releasing == sum(h.memory_units for h in gpu.holdings if h.releasing)
    if allocation.core_percent:
        loose = sum(holding.core_percent for holding in allocation.unplaced)
        assert allocation.core_percent_used == sum(gpu.core_percent_used for gpu in allocation.gpus) + loose
    assert sum(holding.memory_units for holding in allocation.unplaced) == (
        allocation.memory_units_pending + allocation.memory_units_orphan
    )
    if shared:
        placed = sum(gpu.memory_units_used for gpu in allocation.gpus)
        loose = allocation.memory_units_pending + allocation.memory_units_orphan
        assert allocation.memory_units_used == placed + loose == sum(h.memory_units for h in allocation.holdings)
        assert allocation.memory_units_releasing == sum(h.memory_units for h in allocation.holdings if h.releasing)
        assert sum(allocation.strays.values()) == allocation.memory_units_orphan
    else:
        assert allocation.memory_units_used == 0
    bound = {pod.uid for pod in pods if pod.node == "n1" and not pod.finished}
    assert {holding.uid for holding in allocation.holdings} <= bound


@given(st.lists(some_pods(), min_size=1, max_size=1))
def test_totals_are_the_sums_of_the_nodes(drawn):
    nodes = [a_node("n1", cards=3), a_node("n2", mode="core_mem", cards=2)]
    allocations = fold_all(nodes, drawn[0])
    sums = totals(allocations.values())
    for field in ("memory_units_used", "memory_units_pending", "cards_used", "core_percent_used", "memory_units"):
        by_node = sum(getattr(allocation, field) for allocation in allocations.values())
        assert getattr(sums.all, field) == by_node == sum(getattr(row, field) for row in sums.modes)
