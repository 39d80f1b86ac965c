"""Groups of topology pods: complete or not, which nodes, which cards, and against every way to seat them."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.groups import mates
from gpupools.domain.placement import node_states, preview, sequence
from tests.domain.builders import a_node, a_pod, an_ask
from tests.domain.test_topology import DGX

GROUP, REPLICA = "gputopology.alibabacloud.com/pod-group", "gputopology.alibabacloud.com/replica"
GANG, LEAST = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"


def of_group(size, cards, *, gang=False, name="g"):
    labels = {GANG: name, LEAST: str(size)} if gang else {GROUP: name, REPLICA: str(size)}
    return an_ask(topology=cards, labels=labels)


def member(name, cards, size, *, on="", **fields):
    pod = a_pod(name, topology=cards, on=on, **fields)
    return msgspec.structs.replace(pod, ask=of_group(size, cards))


def places(previews):
    return [(each.chosen, each.cards) for each in previews]


def topology_nodes(**free):
    """Nodes of eight cards by the number of free ones."""
    nodes = [a_node(name, mode="topology", cards=8) for name in free]
    pods = [
        a_pod(f"on-{name}", on=name, topology=8 - left, annotations={
            "topology.kubernetes.io/gpu-group": ",".join(map(str, range(left, 8)))})
        for name, left in free.items() if left < 8
    ]  # fmt: skip
    return node_states(nodes, pods)


@pytest.mark.parametrize("gang", [False, True])
def test_a_group_that_is_not_complete_goes_nowhere(gang):
    (seen,) = sequence(of_group(2, 1, gang=gang), 1, topology_nodes(a=8))
    assert seen.chosen is None
    reason = "Number(1) of of GPUTopologyGroup(g) pods is not equal to label replica(2)"
    assert seen.prefilter == reason
    assert seen.message == (
        f"0/1 nodes are available: {reason}. no new claims to deallocate, preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling."
    )


def test_a_group_of_more_pods_than_it_says_goes_nowhere():
    seen = sequence(of_group(2, 1), 3, topology_nodes(a=8))
    assert len(seen) == 3
    assert {each.prefilter for each in seen} == {
        "Number(3) of of GPUTopologyGroup(g) pods is not equal to label replica(2)"
    }


def test_mates_that_wait_count_and_are_seated_first():
    waiting = member("w", 1, 2)
    seen = preview(of_group(2, 1), topology_nodes(a=8), mates=[waiting])
    assert (seen.chosen, seen.cards) == ("a", (1,))


def test_mates_that_run_draw_the_rest_to_their_node():
    running = member("r", 1, 2, on="b")
    assert preview(of_group(2, 1), topology_nodes(a=2, b=8), mates=[running]).chosen == "b"
    assert sequence(of_group(1, 1), 1, topology_nodes(a=2, b=8))[0].chosen == "a"


def test_mates_are_live_pods_of_the_namespace_and_the_group():
    pods = [
        member("one", 1, 2),
        member("done", 1, 2, phase="Succeeded"),
        member("going", 1, 2, terminating=True),
        member("far", 1, 2, namespace="far"),
        a_pod("other", topology=1, on=""),
    ]
    assert [pod.name for pod in mates(of_group(2, 1), pods)] == ["one"]
    assert mates(an_ask(topology=1), pods) == ()
    assert mates(of_group("x", 1), pods) == ()


def test_the_whole_group_goes_to_one_node_if_it_can():
    seen = sequence(of_group(3, 2), 3, topology_nodes(a=4, b=7, c=6, d=8))
    assert places(seen) == [("c", (0, 1)), ("c", (2, 3)), ("c", (4, 5))]
    assert all(each.tie_nodes == ("c",) for each in seen)


def test_two_nodes_are_the_tightest_pair():
    seen = sequence(of_group(4, 2), 4, topology_nodes(a=7, b=6, c=2, d=5))
    assert places(seen) == [("b", (0, 1)), ("b", (2, 3)), ("b", (4, 5)), ("c", (0, 1))]


def test_pods_fill_the_node_with_the_fewest_cards_left():
    seen = sequence(of_group(2, 4), 2, topology_nodes(a=5, b=4, c=4))
    assert places(seen) == [("b", (0, 1, 2, 3)), ("c", (0, 1, 2, 3))]


def test_cards_are_chosen_for_all_pods_of_a_node_at_once():
    node = a_node("dgx", mode="topology", cards=8, links=tuple(map(tuple, DGX)))
    held = a_pod(topology=2, on="dgx", annotations={"topology.kubernetes.io/gpu-group": "2,3"})
    seen = sequence(of_group(2, 2), 2, node_states([node], [held]))
    # The four of one socket have the fastest slowest link; of them the first pod gets the fastest pair.
    assert places(seen) == [("dgx", (6, 7)), ("dgx", (4, 5))]


def test_a_group_that_is_too_big_gets_the_plugins_sentence():
    seen = sequence(of_group(3, 4), 3, topology_nodes(a=8))
    assert {each.message for each in seen} == {"Insufficient gpus to allocate for the topology group g"}
    assert [each.chosen for each in seen] == [None] * 3


def test_one_pod_that_fits_nowhere_gets_the_nodes_reasons():
    (seen, _) = sequence(of_group(2, 9), 2, topology_nodes(a=8))
    assert "1 Insufficient aliyun.com/gpu" in seen.message


def test_other_resources_limit_the_pods_on_a_node():
    nodes = [a_node(name, mode="topology", cards=8, resources={"cpu": 4000}) for name in "ab"]
    seen = sequence(of_group_with_cpu(), 3, node_states(nodes, []))
    assert [each.chosen for each in seen] == ["a", "a", "b"]
    full = [a_node(name, mode="topology", cards=8, resources={"pods": 1}) for name in "ab"]
    assert [each.chosen for each in sequence(of_group(2, 1), 2, node_states(full, []))] == ["a", "b"]


def of_group_with_cpu():
    return an_ask(topology=1, cpu=2000, labels={GROUP: "g", REPLICA: "3"})


def test_a_shared_pod_with_group_labels_is_no_group():
    labels = {GROUP: "g", REPLICA: "2"}
    assert preview(an_ask(mem=4, labels=labels), node_states([a_node()], [])).chosen == "n1"


def test_a_very_large_group_is_seated_without_trying_all_sets():
    nodes = [a_node(f"n{number:03}", mode="topology", cards=8) for number in range(130)]
    seen = sequence(of_group(1000, 1), 1000, node_states(nodes, []))
    assert len({each.chosen for each in seen}) == 125


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 3))
def test_no_set_of_nodes_is_smaller_or_tighter(frees, count, cards):
    free = {f"n{number}": left for number, left in enumerate(frees)}
    seen = sequence(of_group(count, cards), count, topology_nodes(**free))
    fitting = [
        (size, sum(free[name] for name in names))
        for size in range(1, len(free) + 1)
        for names in combinations(sorted(free), size)
        if sum(free[name] // cards for name in names) >= count and all(free[name] >= cards for name in names)
    ]
    chosen = {each.chosen for each in seen}
    if not fitting:
        assert chosen == {None}
        return
    assert min(fitting) == (len(chosen), sum(free[name] for name in chosen))
    held = [(each.chosen, card) for each in seen for card in each.cards]
    assert len(held) == len(set(held)) == count * cards
    assert all(card < free[name] for name, card in held)
