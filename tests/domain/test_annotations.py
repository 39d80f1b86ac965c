"""ACK's allocation annotations: what is read of all generations, and what is written."""

from __future__ import annotations

import pytest

from gpupools.domain.annotations import Claim, claims, share_annotations, topology_annotations
from tests.domain.builders import an_ask, container

V2 = "scheduler.framework.gpushare.allocation"
CORE = "gpushare.alibabacloud.com/core-percentage"
TOPOLOGY = "gputopology.alibabacloud.com/allocation"


@pytest.mark.parametrize(
    ("annotations", "claim"),
    [
        ({}, Claim()),
        ({V2: '{"0":{"1":4}}'}, Claim({1: 4})),
        ({V2: '{"0":{"1":3},"1":{"1":4,"2":1}}'}, Claim({1: 7, 2: 1})),
        ({V2: '{"0":{"1":6}}', CORE: '{"0":{"1":30}}'}, Claim({1: 6}, {1: 30})),
        ({V2: '{"0":{"0":4}}', "gpushare.alibabacloud.com/device-resource": '{"0":15,"1":15}'},
         Claim({0: 4}, card_units={0: 15, 1: 15})),
        ({V2: '{"0":{"0":4}}', "gpushare.alibabacloud.com/device-resource": "?"}, Claim({0: 4})),
        ({V2: '{"0":{"0":"4"}}'}, Claim(problem="unreadable-allocation")),
        ({V2: "{}"}, Claim()),
        ({V2: '{"0":{}}'}, Claim()),
        ({V2: "{bad json"}, Claim(problem="unreadable-allocation")),
        ({V2: "[1]"}, Claim(problem="unreadable-allocation")),
        ({V2: '{"0":{"x":4}}'}, Claim(problem="unreadable-allocation")),
        ({V2: '{"0":{"-1":4}}'}, Claim(problem="unreadable-allocation")),
        ({V2: '{"0":{"1":-4}}'}, Claim(problem="unreadable-allocation")),
        ({V2: '{"0":{"1":6}}', CORE: "?"}, Claim({1: 6}, problem="unreadable-allocation")),
        ({"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "5"}, Claim({0: 5})),
        ({"ALIYUN_COM_GPU_MEM_IDX": "3"}, Claim({3: 9})),
        ({"ALIYUN_COM_GPU_MEM_IDX": "-1"}, Claim(problem="unreadable-allocation")),
        ({V2: "{bad json", "ALIYUN_COM_GPU_MEM_IDX": "3"}, Claim({3: 9})),
        ({V2: '{"0":{"1":4}}', "ALIYUN_COM_GPU_MEM_IDX": "3"}, Claim({1: 4})),
        ({TOPOLOGY: '{"allocatedGPUs":{"0":["0","3"],"1":["1"]},"visibleGPUs":["0"],"assumeTime":1,"assigned":false}'},
         Claim(cards=(0, 1, 3))),
        ({TOPOLOGY: "?"}, Claim(problem="unreadable-allocation")),
        ({TOPOLOGY: "?", "topology.kubernetes.io/gpu-group": "0,3"}, Claim(cards=(0, 3))),
        ({"topology.kubernetes.io/gpu-group": "3, 0", "topology.kubernetes.io/gpu-visible": "0,1,2,3"},
         Claim(cards=(0, 3))),
        ({"topology.kubernetes.io/gpu-group": "0,x"}, Claim(problem="unreadable-allocation")),
        ({"topology.kubernetes.io/gpu-group": ""}, Claim(problem="unreadable-allocation")),
    ],
)  # fmt: skip
def test_a_claim_is_read_from_the_newest_readable_annotation(annotations, claim):
    assert claims(annotations, asked_units=9) == claim


def test_a_share_of_one_card_is_written_as_ack_writes_it():
    written = share_annotations(an_ask(mem=4), (0,), card_units=(15, 15), assumed_at_ns=1767225600000000000)
    assert written == {
        "scheduler.framework.gpushare.allocation": '{"0":{"0":4}}',
        "scheduler.framework.gpushare.assume-time": "1767225600000000000",
        "scheduler.framework.gpushare.assigned": "false",
        "gpushare.alibabacloud.com/device-resource": '{"0":15,"1":15}',
    }


def test_containers_share_the_card_and_those_without_a_share_are_left_out():
    ask = an_ask(container("a", mem=3), container("log"), container("b", mem=4))
    assert share_annotations(ask, (1,), card_units=(15, 15), assumed_at_ns=1)[V2] == '{"0":{"1":3},"2":{"1":4}}'


def test_a_share_over_four_cards_is_split_evenly():
    ask = an_ask(mem=8, labels={"aliyun.com/gpu-count": "4"})
    written = share_annotations(ask, (0, 1, 2, 3), card_units=(15,) * 4, assumed_at_ns=1, assigned=True)
    assert written[V2] == '{"0":{"0":2,"1":2,"2":2,"3":2}}'
    assert written["scheduler.framework.gpushare.assigned"] == "true"


def test_compute_is_written_beside_memory():
    written = share_annotations(an_ask(mem=6, core=30), (1,), card_units=(15, 15), assumed_at_ns=1)
    assert written[CORE] == '{"0":{"1":30}}'


def test_whole_cards_of_a_topology_node_go_to_containers_in_turn():
    ask = an_ask(container("a", topology=2), container("log"), container("b", topology=1))
    assert topology_annotations(ask, (0, 3, 5), assumed_at_ns=7) == {
        TOPOLOGY: '{"allocatedGPUs":{"0":["0","3"],"2":["5"]},"visibleGPUs":["0","3","5"],'
        '"assumeTime":7,"assigned":false}'
    }


def test_what_is_written_is_read_back():
    ask = an_ask(mem=8, core=10, labels={"aliyun.com/gpu-count": "2"})
    claim = claims(share_annotations(ask, (0, 3), card_units=(15,) * 4, assumed_at_ns=1))
    assert claim == Claim({0: 4, 3: 4}, {0: 5, 3: 5}, card_units=dict.fromkeys(range(4), 15))
    assert claims(topology_annotations(an_ask(topology=2), (0, 3), assumed_at_ns=1)).cards == (0, 3)
