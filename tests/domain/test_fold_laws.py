"""The laws that every fold keeps, whatever pods there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.allocation import fold, fold_all
from gpupools.domain.totals import totals
from tests.domain.builders import a_node, a_pod
from tests.domain.picks import cases

PHASES = ("Pending", "Running", "Running", "Succeeded", "Failed", "Unknown")


def shares(picks):
    return {picks.between(0, 5): picks.between(0, 9) for _ in range(picks.between(1, 3))}


def some_pods(picks):
    pods = []
    for number in range(picks.between(0, 7)):
        at = shares(picks) if picks.yes() else None
        whole, topology = picks.one_of((0, 0), (0, 0), (1, 0), (0, 2))
        pods.append(
            a_pod(
                f"p{number}",
                mem=picks.between(0, 12),
                core=picks.one_of(0, 0, 20),
                whole=whole,
                topology=topology,
                at=at,
                core_at=shares(picks) if at and picks.yes() else None,
                phase=picks.one_of(*PHASES),
                terminating=picks.yes(),
                on=picks.one_of("n1", "n1", "n1", "n2"),
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


@given(NODES, cases(some_pods, size=200))
def test_the_fold_does_not_depend_on_the_order_of_pods(node, pods):
    expected = fold(node, pods)
    for other in (pods[::-1], pods[1::2] + pods[::2], pods[2:] + pods[:2]):
        assert fold(node, other) == expected


@given(NODES, cases(some_pods, size=200))
def test_sums_agree_on_every_level(node, pods):
    allocation = fold(node, pods)
    shared = allocation.memory_units > 0
    for gpu in allocation.gpus:
        assert gpu.memory_units_used == sum(holding.memory_units for holding in gpu.holdings)
        assert gpu.core_percent_used == sum(holding.core_percent for holding in gpu.holdings)
        assert gpu.cards_used == (bool(gpu.holdings) if shared else sum(holding.cards for holding in gpu.holdings))
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


@given(cases(some_pods, size=200))
def test_totals_are_the_sums_of_the_nodes(pods):
    nodes = [a_node("n1", cards=3), a_node("n2", mode="core_mem", cards=2)]
    allocations = fold_all(nodes, pods)
    sums = totals(allocations.values())
    for field in ("memory_units_used", "memory_units_pending", "cards_used", "core_percent_used", "memory_units"):
        by_node = sum(getattr(allocation, field) for allocation in allocations.values())
        assert getattr(sums.all, field) == by_node == sum(getattr(row, field) for row in sums.modes)
