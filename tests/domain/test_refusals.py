"""Why nothing fits, in the scheduler's words."""

from __future__ import annotations

import pytest

from gpupools.domain.gpus import Taint
from gpupools.domain.placement import Fleet, node_states
from tests.domain.builders import a_node, a_pod, an_ask, container, filled
from tests.domain.seeing import HOPELESS, MODEL, ROOM_MESSAGE, VICTIMS, core_mem_pods, labelled, reason_of, see

WHOLE_DEVICE = {"ack.gpushare.placement": "require-whole-device"}


@pytest.mark.parametrize(
    ("node", "pods", "ask", "reason"),
    [
        pytest.param(a_node(cards=2), filled(10, 10), an_ask(mem=8), f"1 {ROOM_MESSAGE}", id="V21-fragmented"),
        pytest.param(
            a_node(),
            [],
            labelled(3, mem=10),
            "invalid replica for resource aliyun.com/gpu-mem,because 10 / 3 = 3.3",
            id="V23-the-share-must-be-whole",
        ),
        pytest.param(
            a_node(cards=3), filled(0, 10, 11), labelled(3, mem=15), f"1 {ROOM_MESSAGE}", id="V24-two-of-three-cards"
        ),
        pytest.param(a_node(cards=2), [], labelled(4, mem=16), f"1 {ROOM_MESSAGE}", id="V24-four-cards-of-two"),
        pytest.param(
            a_node(mode="core_mem"),
            [],
            an_ask(mem=4),
            "1 node(s) owns gpu resources are not matched that pod requests",
            id="V28-memory-only-on-core-mem",
        ),
        pytest.param(
            a_node(mode="core_mem"),
            [],
            an_ask(mem=4, core=0),
            "1 node(s) owns gpu resources are not matched that pod requests",
            id="V27-no-compute-on-core-mem",
        ),
        pytest.param(
            a_node(),
            [],
            an_ask(mem=4, core=30),
            "1 Insufficient aliyun.com/gpu-core.percentage",
            id="V28-compute-on-cgpu",
        ),
        pytest.param(
            a_node(mode="exclusive"),
            [],
            an_ask(mem=4),
            "1 Insufficient aliyun.com/gpu-mem",
            id="V29-a-share-of-exclusive",
        ),
        pytest.param(a_node(), [], an_ask(whole=1), "1 Insufficient nvidia.com/gpu", id="V29-a-whole-card-of-cgpu"),
        pytest.param(
            a_node(cards=1),
            filled(8),
            an_ask(container(mem=4), init=[container(mem=10)]),
            "1 Insufficient aliyun.com/gpu-mem",
            id="V31-the-init-container-counts-on-the-node",
        ),
        pytest.param(
            a_node(),
            filled(1, 1, 1, 1),
            an_ask(mem=15, labels=WHOLE_DEVICE),
            "1 Pod's RequireWholeGPU is true and not available devices can be fully occupied by it",
            id="no-card-is-empty",
        ),
        pytest.param(
            a_node(),
            [],
            an_ask(mem=14, labels=WHOLE_DEVICE),
            "1 Pod's RequireWholeGPU is true and not available devices can be fully occupied by it",
            id="a-whole-device-means-all-of-its-units",
        ),
        pytest.param(
            a_node(labels={"ack.node.gpu.max-pod": "1"}),
            filled(1, 1, 1, 1),
            an_ask(mem=4),
            "1 The number of pods per gpu device has reached the maximum allowed",
            id="every-card-has-its-pod",
        ),
        pytest.param(
            a_node(labels={"ack.node.gpu.max-pod": "many"}),
            [],
            an_ask(mem=4),
            "1 node(s) had an invalid value of label ack.node.gpu.max-pod",
            id="a-bad-cap",
        ),
        pytest.param(
            a_node(mode="core_mem"),
            [],
            an_ask(core=30),
            "1 reqeust resources must include aliyun.com/gpu-mem",
            id="compute-without-memory",
        ),
        pytest.param(
            a_node(mode="core_mem", cards=2),
            core_mem_pods(),
            an_ask(mem=2, core=85),
            f"1 {ROOM_MESSAGE}",
            id="compute-is-short-on-each-card",
        ),
        pytest.param(
            a_node(),
            [],
            an_ask(container(mem=2), container(mem=2, core=5)),
            "The requested gpu resource types should be consistent for all containers",
            id="containers-that-differ",
        ),
        pytest.param(
            a_node(),
            [],
            labelled("two", mem=4),
            "failed to parse request device count from pod label aliyun.com/gpu-count,"
            'reason: strconv.Atoi: parsing "two": invalid syntax',
            id="a-count-that-is-no-number",
        ),
        pytest.param(
            a_node(),
            [],
            labelled(-1, mem=4),
            "request device count must be large than 0,but got -1",
            id="a-negative-count",
        ),
        pytest.param(
            a_node(),
            [],
            an_ask(container(mem=4), container(mem=3), labels={"aliyun.com/gpu-count": "2"}),
            "invalid replica for resource aliyun.com/gpu-mem,because 3 / 2 = 1.5",
            id="each-container-divides-by-the-count",
        ),
        pytest.param(
            a_node(),
            [],
            an_ask(mem=4, labels={"ack.gpushare.placement": "some-device"}),
            "Invalid value of pod label ack.gpushare.placement:only support [require-whole-device]",
            id="an-unknown-placement",
        ),
        pytest.param(
            a_node(mode="topology", cards=3, unhealthy=(0, 1)),
            [],
            an_ask(topology=2),
            "1 not enough gpus with topology on the node",
            id="V38d-healthy-cards-are-few",
        ),
        pytest.param(
            a_node(mode="topology", cards=3),
            [a_pod(topology=2)],
            an_ask(topology=2),
            "1 Insufficient aliyun.com/gpu",
            id="topology-cards-are-taken",
        ),
        pytest.param(
            a_node(mode="topology"),
            [],
            an_ask(
                topology=1,
                labels={"gputopology.alibabacloud.com/pod-group": "g", "gputopology.alibabacloud.com/replica": "0"},
            ),
            "invalid replica 0,it should great than 0",
            id="a-group-of-none",
        ),
        pytest.param(
            a_node(mode="topology"),
            [],
            an_ask(
                topology=1,
                labels={"gputopology.alibabacloud.com/pod-group": "g", "pod-group.scheduling.sigs.k8s.io/name": "g"},
            ),
            "gang group label and gpu topology group label cannot appear together",
            id="gang-and-group",
        ),
        pytest.param(
            a_node(mode="topology"),
            [],
            an_ask(
                topology=1,
                labels={"gputopology.alibabacloud.com/ttl": "9", "pod-group.scheduling.sigs.k8s.io/name": "g"},
            ),
            "should not set label gputopology.alibabacloud.com/ttl when gang group label is enabled",
            id="gang-with-a-ttl",
        ),
        pytest.param(a_node(unschedulable=True), [], an_ask(mem=4), "1 node(s) were unschedulable", id="cordoned"),
        pytest.param(
            a_node(),
            [],
            an_ask(mem=4, node_name="n2"),
            "1 node(s) didn't match the requested node name",
            id="another-name",
        ),
        pytest.param(a_node(ready=False), [], an_ask(mem=4), "1 node(s) had untolerated taint(s)", id="not-ready"),
        pytest.param(a_node(resources={"pods": 0}), [], an_ask(mem=4), "1 Too many pods", id="no-room-for-pods"),
    ],
)
def test_why_nothing_fits_is_said_as_the_scheduler_says_it(node, pods, ask, reason):
    seen = see(ask, node, pods=pods)
    assert seen.chosen is None
    assert reason_of(seen) == f"0/1 nodes are available: {reason}."


def test_v30_the_whole_text_of_the_gpu_count_mistake():
    assert see(an_ask(count=25), a_node()).message == (
        "0/1 nodes are available: 1 Insufficient aliyun.com/gpu-count. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_v23_a_prefilter_reason_makes_every_node_unresolvable():
    seen = see(labelled(3, mem=10), a_node("a"), a_node("b"))
    assert seen.prefilter == "invalid replica for resource aliyun.com/gpu-mem,because 10 / 3 = 3.3"
    assert seen.message == (
        f"0/2 nodes are available: {seen.prefilter}. no new claims to deallocate, preemption: "
        f"0/2 nodes are available: 2 {HOPELESS}."
    )


def test_v39_one_node_gives_two_reasons():
    model = {MODEL: "A10"}
    nodes = [
        a_node("tainted", mode="exclusive", cards=1, labels=model, taints=(Taint("k", "v"),)),
        a_node("other-1", mode="exclusive", cards=1, labels={MODEL: "T4"}),
        a_node("other-2", mode="exclusive", cards=1, labels={MODEL: "T4"}),
        a_node("busy", mode="exclusive", cards=1, labels=model),
        a_node("busy-and-small", mode="exclusive", cards=1, labels=model, resources={"cpu": 1000}),
    ]
    pods = [a_pod("x", whole=1, on="busy"), a_pod("y", whole=1, on="busy-and-small")]
    seen = see(an_ask(whole=1, cpu=2000, node_selector=model), *nodes, pods=pods)
    assert seen.message == (
        "0/5 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 2 Insufficient "
        "nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: "
        "0/5 nodes are available: 1 No preemption victims found for incoming pod, 4 Preemption is not helpful for "
        "scheduling."
    )
    assert [r.reason for r in seen.verdicts[4].rejections] == ["Insufficient cpu", "Insufficient nvidia.com/gpu"]


def test_reasons_are_sorted_as_text_so_that_ten_stands_before_two():
    busy = [a_node(f"busy-{n:02}", mode="exclusive", cards=1) for n in range(10)]
    cordoned = [a_node(f"cordoned-{n}", mode="exclusive", cards=1, unschedulable=True) for n in range(2)]
    pods = [a_pod(f"p{n}", whole=1, on=node.name) for n, node in enumerate(busy)]
    assert see(an_ask(whole=1), *busy, *cordoned, pods=pods).message == (
        "0/12 nodes are available: 10 Insufficient nvidia.com/gpu, 2 node(s) were unschedulable. no new claims to "
        f"deallocate, preemption: 0/12 nodes are available: 10 {VICTIMS}, 2 {HOPELESS}."
    )


def test_a_node_that_the_pod_does_not_name_cannot_be_helped():
    assert see(an_ask(mem=4, node_name="n2"), a_node()).message.endswith(f"1 {HOPELESS}.")


def test_no_node_at_all():
    assert see(an_ask(mem=4)).message == "no nodes available to schedule pods"


def test_a_pod_that_is_refused_is_called_by_its_own_name():
    fleet = Fleet(node_states([a_node()], []))
    for name in ("one", "two"):
        assert fleet.preview(an_ask(mem=4, core=33, name=name)).message.startswith(f'Pod "{name}" is invalid')
