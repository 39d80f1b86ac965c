"""What cards hold and which ones a pod gets, from raw objects: annotations in every state, and numbers gone wild."""

from __future__ import annotations

import json

import msgspec
import pytest

from gpupools.domain import allocation, objects, placement
from gpupools.domain.annotations import MOST_UNITS
from tests.domain.rawobjects import (
    ALLOCATION,
    CORE,
    COUNT,
    MEM,
    TOPOLOGY,
    WHOLE,
    allocated,
    box,
    exclusive,
    raw_node,
    raw_pod,
    refusal,
    seen,
    shared,
)

V1 = "ALIYUN_COM_GPU_MEM_IDX"
V1_UNITS = "ALIYUN_COM_GPU_MEM_POD"
DEVICE = "node(s) didn't have enough device resources to allocate"
WHOLE_DEVICE = {"ack.gpushare.placement": "require-whole-device"}


def folded(node, *pods):
    return allocation.fold(objects.convert("Node", node), [objects.convert("Pod", pod) for pod in pods])


def cards(fold):
    return [gpu.memory_units_used for gpu in fold.gpus]


def holding(annotations, units="5", **more):
    return raw_pod("a", box({MEM: units}), on="n1", annotations=annotations, **more)


@pytest.mark.parametrize(
    ("annotations", "held", "pending", "orphan"),
    [
        ({ALLOCATION: '{"0":{"2":5}}'}, [0, 0, 5, 0], 0, 0),
        ({ALLOCATION: ' {"0": {"2": 5}} '}, [0, 0, 5, 0], 0, 0),
        ({ALLOCATION: '{"0":null,"1":{"2":5,"3":null}}'}, [0, 0, 5, 0], 0, 0),
        ({ALLOCATION: '{"0":{"2":5}}', V1: "3"}, [0, 0, 5, 0], 0, 0),
        ({ALLOCATION: "{oops", V1: "3"}, [0, 0, 0, 5], 0, 0),
        ({ALLOCATION: "{}", V1: "3"}, [0, 0, 0, 5], 0, 0),
        ({ALLOCATION: "null", V1: "3"}, [0, 0, 0, 5], 0, 0),
        ({ALLOCATION: '{"0":{"2":0}}', V1: "3"}, [0, 0, 0, 5], 0, 0),
        ({V1: "3", V1_UNITS: "0"}, [0, 0, 0, 5], 0, 0),
        ({V1: "3", V1_UNITS: "x"}, [0, 0, 0, 5], 0, 0),
        ({V1: "9", V1_UNITS: "5"}, [0, 0, 0, 0], 0, 5),
        ({V1: "-1", V1_UNITS: "5"}, [0, 0, 0, 0], 5, 0),
        ({V1: "one"}, [0, 0, 0, 0], 5, 0),
        ({V1: "²"}, [0, 0, 0, 0], 5, 0),
        ({ALLOCATION: '{"0":{}}'}, [0, 0, 0, 0], 5, 0),
        ({ALLOCATION: '{"0":{"2":0}}'}, [0, 0, 0, 0], 5, 0),
        # What the readers of the annotation do not decode names no card; the memory is held all the same.
        *(
            ({ALLOCATION: text}, [0, 0, 0, 0], 5, 0)
            for text in (
                "[]", "true", '"x"', "5", '{"0":5}', '{"0":[1]}', '{"0":{"1":"5"}}', '{"0":{"a":5}}', '{"a":{"1":5}}',
                '{"0":{"1":5.0}}', '{"0":{"1":true}}', '{"0":{"1":-5}}', '[{"1":5}]',
                '{"0":{"1":99999999999999999999}}',
                '{"0":{"1_0":5}}', '{"0":{"²":5}}', '{"0":{"1":5}', "\ud800",
            )
        ),
    ],
)  # fmt: skip
def test_a_pods_memory_is_found_wherever_its_annotations_leave_it(annotations, held, pending, orphan):
    fold = folded(shared(), holding(annotations))
    assert (cards(fold), fold.memory_units_pending, fold.memory_units_orphan) == (held, pending, orphan)
    assert fold.memory_units_used == 5


@pytest.mark.parametrize(
    ("annotations", "held"),
    [
        ({"gputopology.alibabacloud.com/allocation": '{"allocatedGPUs":{"0":["1"],"1":["3","2"]}}'}, [0, 1, 1, 1]),
        ({"gputopology.alibabacloud.com/allocation": '{"allocatedGPUs":{"0":["1"],"1":null}}'}, [0, 1, 0, 0]),
        ({"gputopology.alibabacloud.com/allocation": '{"allocatedGPUs":null}',
          "topology.kubernetes.io/gpu-group": "0, 3"}, [1, 0, 0, 1]),
        ({"topology.kubernetes.io/gpu-group": "0,²"}, [0, 0, 0, 0]),
        ({}, [0, 0, 0, 0]),
    ],
)  # fmt: skip
def test_topology_cards_are_those_of_all_containers(annotations, held):
    node = raw_node("n1", {TOPOLOGY: "4"}, labels={"ack.node.gpu.schedule": "topology"})
    fold = folded(node, raw_pod("a", box({TOPOLOGY: "3"}), on="n1", annotations=annotations))
    assert [gpu.cards_used for gpu in fold.gpus] == held
    assert (fold.cards_used, fold.cards) == (3, 4)


@pytest.mark.parametrize("count", ["-4", "1025", "1e18"])
def test_a_number_of_cards_that_no_machine_has_makes_no_cards(count):
    fold = folded(raw_node("n1", {MEM: "60", COUNT: count}), holding(allocated({0: 5})))
    assert (fold.gpus, fold.memory_units, fold.memory_units_used, fold.memory_units_orphan) == ((), 60, 5, 5)
    assert "no-cards" in {warning.code for warning in fold.warnings}


def test_numbers_without_end_are_written_and_read_like_others():
    wild = [
        raw_pod(f"a{n}", box({MEM: "9E", CORE: "9E", WHOLE: "9E"}), on="n1", annotations={V1: "0", V1_UNITS: "9" * 18})
        for n in range(9)
    ]
    for node in (shared(), exclusive(), raw_node("n1", {MEM: "9E", COUNT: "4"})):
        fold = folded(node, *wild)
        assert fold.memory_units_used + fold.memory_units_orphan >= 9 * MOST_UNITS
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(fold), type=type(fold)) == fold
    asked = objects.convert("Pod", raw_pod("p", box({MEM: "9E"}))).ask
    assert placement.preview(asked, placement.node_states([objects.convert("Node", shared())], [])).chosen is None


@pytest.mark.parametrize(
    ("text", "mib"), [("46068MiB", 46068), ("²MiB", None), ("9" * 30 + "MiB", None), ("MiB", None)]
)
def test_the_memory_of_a_card_is_a_plain_number_or_unknown(text, mib):
    node = objects.convert("Node", shared(labels={"aliyun.accelerator/nvidia_mem": text}))
    assert node.card_memory_mib == mib


def used(*units):
    return [
        raw_pod(f"used{card}", box({MEM: str(n)}), on="n1", annotations=allocated({card: n}))
        for card, n in enumerate(units)
        if n
    ]


SPREAD = {"ack.node.gpu.placement": "spread"}


@pytest.mark.parametrize(
    ("node", "units", "pod", "chosen", "ties"),
    [
        (shared(), (6, 2), box({MEM: "9"}), (0,), (0,)),
        (shared(labels=SPREAD), (6, 2, 1, 3), box({MEM: "9"}), (2,), (2,)),
        (shared(), (), box({MEM: "9"}), (0,), (0, 1, 2, 3)),
        (shared(labels={"ack.node.gpu.max-pod": "1"}), (1, 0, 1), box({MEM: "1"}), (1,), (1, 3)),
        (shared(labels={"ack.node.gpu.max-pod": "+2"}), (1, 0, 1), box({MEM: "1"}), (0,), (0, 2)),
        (shared(cards=2), (20,), box({MEM: "5"}), (1,), (1,)),
    ],
)
def test_the_card_is_the_fullest_or_the_emptiest_that_has_room(node, units, pod, chosen, ties):
    said = seen(raw_pod("p", pod), node, pods=used(*units))
    assert (said.cards, said.tie_cards) == (chosen, ties)


@pytest.mark.parametrize(
    ("node", "units", "pod", "reason"),
    [
        (shared(labels={"ack.node.gpu.max-pod": "1"}), (1, 1, 1, 1), raw_pod("p", box({MEM: "1"})),
         "The number of pods per gpu device has reached the maximum allowed"),
        (shared(), (1, 1, 1, 1), raw_pod("p", box({MEM: "15"}), labels=WHOLE_DEVICE),
         "Pod's RequireWholeGPU is true and not available devices can be fully occupied by it"),
        (shared(), (14, 14, 14, 14), raw_pod("p", box({MEM: "2"})), DEVICE),
        (shared(cards=2), (), raw_pod("p", box({MEM: "16"}), labels={COUNT: "4"}), DEVICE),
    ],
)  # fmt: skip
def test_cards_that_are_too_small_fail_after_the_node(node, units, pod, reason):
    assert seen(pod, node, pods=used(*units)).message == refusal(1, f"1 {reason}", resolvable=1)


@pytest.mark.parametrize("cap", ["-1", "1_0", "²", "", "two", "9" * 5000])
def test_a_cap_on_pods_that_is_no_number_takes_the_node_out(cap):
    said = seen(raw_pod("p", box({MEM: "1"})), shared(labels={"ack.node.gpu.max-pod": cap}))
    assert said.message == refusal(1, "1 node(s) had an invalid value of label ack.node.gpu.max-pod")


def test_a_whole_device_is_an_empty_card():
    said = seen(raw_pod("p", box({MEM: "15"}), labels=WHOLE_DEVICE), shared(), pods=used(1, 0, 3))
    assert (said.cards, said.tie_cards) == ((1,), (1, 3))


def test_a_card_that_grew_counts_its_pods_in_proportion():
    grown = raw_pod(
        "a",
        box({MEM: "10"}),
        on="n1",
        annotations=allocated({0: 10}) | {"gpushare.alibabacloud.com/device-resource": json.dumps({"0": 15})},
    )
    said = seen(raw_pod("p", box({MEM: "12"})), shared(cards=2, units=30), pods=[grown])
    assert (said.cards, said.tie_cards) == ((1,), (1,))


@pytest.mark.parametrize(("replica", "reason"), [
    ("0", "invalid replica 0,it should great than 0"),
    ("-2", "invalid replica -2,it should great than 0"),
    ("2", "Number(1) of of GPUTopologyGroup(g) pods is not equal to label replica(2)"),
    ("02", "Number(1) of of GPUTopologyGroup(g) pods is not equal to label replica(2)"),
    ("9" * 5000, ""),
    ("²", ""),
])  # fmt: skip
def test_a_group_is_as_large_as_its_label_says(replica, reason):
    node = raw_node("n1", {TOPOLOGY: "4"})
    labels = {"gputopology.alibabacloud.com/pod-group": "g", "gputopology.alibabacloud.com/replica": replica}
    said = seen(raw_pod("p", box({TOPOLOGY: "1"}), labels=labels), node)
    assert (said.prefilter, said.chosen) == (reason, None if reason else "n1")
