"""Whole cards by their links and their health, from raw objects: nodes, reports of plugins, pods of a group."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from gpupools.domain import groups, objects, placement, reports
from gpupools.domain.topology import best_cards
from tests.domain.picks import Picks
from tests.domain.rawobjects import MEM, TOPOLOGY, allocated, box, raw_node, raw_pod, refusal, shared

TOPOLOGY_REPORT = {"ack.node.gpu.schedule": "topology", "nodename": "n1"}


def report(name, data, labels=None):
    raw = {"metadata": {"name": name, "namespace": "kube-system", "labels": labels or {}}, "data": data}
    return reports.card_report(objects.read(raw, objects.ConfigMapObject))


def seen(pod, node, *, told=(), pods=()):
    value = reports.with_reports(objects.convert("Node", node), told)
    states = placement.node_states([value], [objects.convert("Pod", each) for each in pods])
    return placement.preview(objects.convert("Pod", pod).ask, states)


def topology(cards=4, name="n1"):
    return raw_node(name, {TOPOLOGY: str(cards)}, labels={"ack.node.gpu.schedule": "topology"})


def on_cards(name, *cards, on="n1"):
    allocation = {"allocatedGPUs": {"0": [str(card) for card in cards]}, "visibleGPUs": [], "assumeTime": 1}
    notes = {"gputopology.alibabacloud.com/allocation": json.dumps(allocation)}
    return raw_pod(name, box({TOPOLOGY: str(len(cards))}), on=on, annotations=notes)


@pytest.mark.parametrize(
    ("matrix", "held", "asked", "cards"),
    [
        (None, (), 2, (0, 1)),
        (None, (1,), 2, (0, 2)),
        ([[0, 1, 2, 3], [1, 0, 4, 50], [2, 4, 0, 5], [3, 50, 5, 0]], (), 2, (1, 3)),
        ([[0, 1, 2, 3], [1, 0, 4, 50], [2, 4, 0, 5], [3, 50, 5, 0]], (3,), 2, (1, 2)),
        ([[0, 1, 2, 3], [1, 0, 4, 50], [2, 4, 0, 5], [3, 50, 5, 0]], (), 3, (1, 2, 3)),
        ([[0, 9, 9, 9], [9, 0, 9, 9], [9, 9, 0, 9], [9, 9, 9, 0]], (), 3, (0, 1, 2)),
        # The slower direction of a link counts; one card is judged by its own entry.
        ([[0, 90, 5, 5], [1, 0, 5, 5], [5, 5, 0, 7], [5, 5, 7, 0]], (), 2, (2, 3)),
        ([[1, 0, 0, 0], [0, 3, 0, 0], [0, 0, 3, 0], [0, 0, 0, 2]], (), 1, (1,)),
        # No square of numbers is no matrix.
        ([[0, 1], [1, 0, 4]], (), 2, (0, 1)),
        ([["x"]], (), 2, (0, 1)),
        ([[0, 9], [9, 0]], (), 3, (0, 1, 2)),
    ],
)
def test_the_slowest_link_of_the_cards_is_as_fast_as_can_be(matrix, held, asked, cards):
    told = [report("n1-gputopo-report", {"bandwidth": json.dumps(matrix)}, TOPOLOGY_REPORT)] if matrix else []
    pods = [on_cards("a", *held)] if held else []
    assert seen(raw_pod("p", box({TOPOLOGY: str(asked)})), topology(), told=told, pods=pods).cards == cards


def test_a_matrix_of_more_cards_than_a_machine_links_is_left_aside():
    wide = report("n1-gputopo-report", {"bandwidth": json.dumps([[1.0] * 33] * 33)}, TOPOLOGY_REPORT)
    most = report("n1-gputopo-report", {"bandwidth": json.dumps([[1.0] * 32] * 32)}, TOPOLOGY_REPORT)
    assert (wide.links, len(most.links)) == (None, 32)


def test_every_small_matrix_gives_the_first_of_its_best_sets():
    picks = Picks(bytes((n * n * 37 + n * 11) % 251 for n in range(4000)))
    for size in (2, 3, 4, 5, 6):
        links = [[picks.one_of(0, 10, 30, 50) for _ in range(size)] for _ in range(size)]
        for count in range(2, size + 1):
            slowest = {
                cards: min(min(links[a][b], links[b][a]) for a, b in combinations(cards, 2))
                for cards in combinations(range(size), count)
            }
            best = [cards for cards, speed in slowest.items() if speed == max(slowest.values())]
            found = best_cards(links, range(size), count)
            assert (found.cards, found.ties, found.bandwidth) == (best[0], tuple(best[:32]), max(slowest.values()))


SICK = [
    ("n1-device-status", {"devices": '- deviceId: "1"\n  deviceType: gpu\n  healthy: false\n'}),
    ("n1-device-status", {"devices": '[{"deviceId":"1","deviceType":"gpu","healthy":false}]'}),
    ("n1-device-status", {"devices": '[\n{"deviceId": 1, "healthy": false}\n]\n'}),
    ("n1-device-status", {"devices": "---\n  - deviceId: 01\n    healthy: no\n"}),
    ("unhealthy-gpu-n1", {"gpus": "1"}),
    ("unhealthy-gpu-n1", {"gpus": " 1 , ²,-3,99999999999999999999"}),
    ("n1-gputopo-report", {"devices": '{"0":"Healthy","1":"Unhealthy","²":"x","-1":"x"}'}),
]


@pytest.mark.parametrize(("name", "data"), SICK)
def test_a_card_that_somebody_calls_sick_is_passed_over(name, data):
    told = [report(name, data)]
    held = [raw_pod("a", box({MEM: "8"}), on="n1", annotations=allocated({1: 8}))]
    share = seen(raw_pod("p", box({MEM: "4"})), shared(cards=2), told=told, pods=held)
    assert (share.cards, share.tie_cards) == ((0,), (0,))
    assert seen(raw_pod("p", box({TOPOLOGY: "2"})), topology(), told=told).cards == (0, 2)


@pytest.mark.parametrize(
    "devices",
    ["", "x: y", "- a\n- [b]",
     "{bad", "- deviceId: 1\n  healthy: true", "- deviceId: 1", "- deviceId: ²\n  healthy: no",
     "- deviceId: 1\n  deviceType: rdma\n  healthy: false", "- deviceId: 1\n  healthy: maybe"],
)  # fmt: skip
def test_what_says_nothing_of_sickness_leaves_cards_well(devices):
    assert report("n1-device-status", {"devices": devices}).unhealthy == ()


def test_sick_cards_are_short_on_the_cards_though_the_node_counts_them():
    told = [report("n1-gputopo-report", {"devices": '{"0":"XID","1":"XID","2":"XID"}'})]
    said = seen(raw_pod("p", box({TOPOLOGY: "2"})), topology(), told=told)
    assert said.message == refusal(1, "1 not enough gpus with topology on the node", resolvable=1)


GROUP = {"gputopology.alibabacloud.com/pod-group": "g", "gputopology.alibabacloud.com/replica": "3"}


def placed(count, nodes, pods=()):
    pod = objects.convert("Pod", raw_pod("new", box({TOPOLOGY: "2"}), labels=GROUP))
    there = [objects.convert("Pod", each) for each in pods]
    states = placement.node_states([objects.convert("Node", node) for node in nodes], there)
    found = placement.sequence(pod.ask, count, states, mates=groups.mates(pod.ask, there))
    return [(each.chosen, each.cards) for each in found], found[0].message


def test_a_group_takes_the_fewest_nodes_and_of_those_the_tightest():
    # 3 x 2 cards: one node of 8 is enough, and the node of 6 leaves nothing over.
    one_node = [("b", (0, 1)), ("b", (2, 3)), ("b", (4, 5))]
    assert placed(3, [topology(8, "a"), topology(6, "b"), topology(4, "c")]) == (one_node, "")
    # Without it two nodes: 4 + 2 is tighter than 4 + 4; the fuller one first.
    two_nodes, _ = placed(3, [topology(4, "a"), topology(4, "b"), topology(2, "c")])
    assert sorted(two_nodes) == [("a", (0, 1)), ("a", (2, 3)), ("c", (0, 1))]


def test_a_group_that_fits_pod_by_pod_but_not_as_a_whole_is_told_so():
    assert placed(3, [topology(4, "a")]) == ([(None, ())] * 3, "Insufficient gpus to allocate for the topology group g")


@pytest.mark.parametrize(("count", "listed"), [(2, 2), (4, 4)])
def test_a_group_of_another_size_waits(count, listed):
    spots, message = placed(count, [topology(8, "a")])
    assert spots == [(None, ())] * count
    reason = f"Number({listed}) of of GPUTopologyGroup(g) pods is not equal to label replica(3)"
    assert message == refusal(1, reason)


def test_pods_of_the_group_that_run_count_and_draw_the_others_near():
    running = on_cards("a", 0, 1, on="b")
    running["metadata"]["labels"] = dict(GROUP)
    spots, _ = placed(2, [topology(4, "a"), topology(8, "b")], [running])
    assert spots == [("b", (2, 3)), ("b", (4, 5))]
    elsewhere = {**running, "metadata": {**running["metadata"], "namespace": "other"}}
    assert placed(2, [topology(8, "a")], [elsewhere])[1].startswith("0/1 nodes are available: Number(2) of of")
