"""FailedScheduling texts read back, of this release and of older ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.messages import Reason, Unschedulable, read_failed_scheduling
from gpupools.domain.placement import node_states, preview
from tests.domain.builders import a_node, an_ask
from tests.domain.picks import cases
from tests.domain.test_placement_oracle import some_nodes, states_of

MEM = "aliyun.com/gpu-mem"
SHORT = Reason(2, "insufficient", f"Insufficient {MEM}", MEM)
OLD_TAINT = "node(s) had taint {nvidia.com/gpu: present}, that the pod didn't tolerate"
CARDS = "node(s) didn't have enough device resources to allocate"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "0/5 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 2 Insufficient "
            "nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
            "preemption: 0/5 nodes are available: 1 No preemption victims found for incoming pod, 4 Preemption is not "
            "helpful for scheduling.",
            Unschedulable(
                5,
                (
                    Reason(1, "insufficient", "Insufficient cpu", "cpu"),
                    Reason(1, "taint", "node(s) had untolerated taint(s)"),
                    Reason(2, "insufficient", "Insufficient nvidia.com/gpu", "nvidia.com/gpu"),
                    Reason(2, "affinity", "node(s) didn't match Pod's node affinity/selector"),
                ),
                victims_missing=1,
                not_helpful=4,
            ),
            id="1.36",
        ),
        pytest.param(
            f"0/3 nodes are available: 1 node(s) had untolerated taint {{nvidia.com/gpu: present}}, "
            f"2 Insufficient {MEM}. preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
            "2 No preemption victims found for incoming pod..",
            Unschedulable(
                3,
                (
                    Reason(
                        1,
                        "taint",
                        "node(s) had untolerated taint {nvidia.com/gpu: present}",
                        "",
                        "nvidia.com/gpu: present",
                    ),
                    SHORT,
                ),
                victims_missing=2,
                not_helpful=1,
            ),
            id="1.24-with-two-full-stops",
        ),
        pytest.param(
            f"0/3 nodes are available: 1 {OLD_TAINT}, 2 Insufficient {MEM}.",
            Unschedulable(3, (Reason(1, "taint", OLD_TAINT, "", "nvidia.com/gpu: present"), SHORT)),
            id="1.20-a-taint-with-a-comma",
        ),
        pytest.param(
            f"0/3 nodes are available: 1 node(s) had taint {{dedicated: }}, that the pod didn't tolerate, 2 {CARDS}.",
            Unschedulable(
                3,
                (
                    Reason(
                        1, "taint", "node(s) had taint {dedicated: }, that the pod didn't tolerate", "", "dedicated"
                    ),
                    Reason(2, "device", CARDS),
                ),
            ),
            id="a-taint-without-a-value",
        ),
        pytest.param(
            "0/3 nodes are available: 1 node(s) had taints that the pod didn't tolerate, 1 node(s) were unschedulable, "
            "1 node(s) didn't match node selector.",
            Unschedulable(
                3,
                (
                    Reason(1, "taint", "node(s) had taints that the pod didn't tolerate"),
                    Reason(1, "unschedulable", "node(s) were unschedulable"),
                    Reason(1, "affinity", "node(s) didn't match node selector"),
                ),
            ),
            id="1.14",
        ),
        pytest.param(
            "No nodes are available that match all of the predicates: Insufficient cpu (3), "
            "PodToleratesNodeTaints (1).",
            Unschedulable(
                0,
                (
                    Reason(3, "insufficient", "Insufficient cpu", "cpu"),
                    Reason(1, "taint", "PodToleratesNodeTaints"),
                ),
            ),
            id="1.9",
        ),
        pytest.param(
            "0/1 nodes are available: invalid replica for resource aliyun.com/gpu-mem,because 10 / 3 = 3.3.",
            Unschedulable(1, prefilter="invalid replica for resource aliyun.com/gpu-mem,because 10 / 3 = 3.3"),
            id="a-prefilter",
        ),
        pytest.param(
            "0/2 nodes are available: 2 Too many pods. preemption: not eligible due to preemptionPolicy=Never.",
            Unschedulable(
                2,
                (Reason(2, "insufficient", "Too many pods", "pods"),),
                preemption="not eligible due to preemptionPolicy=Never",
            ),
            id="preemption-that-says-something-else",
        ),
        pytest.param(
            "0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 Insufficient cpu. still not "
            "schedulable, preemption: 0/2 nodes are available: 1 Insufficient cpu, 1 Preemption is not helpful for "
            "scheduling.",
            Unschedulable(
                2,
                (
                    Reason(1, "other", "node(s) had volume node affinity conflict"),
                    Reason(1, "insufficient", "Insufficient cpu", "cpu"),
                ),
                not_helpful=1,
                preemption="1 Insufficient cpu",
            ),
            id="a-sentence-that-nobody-knows",
        ),
        pytest.param(
            "0/2 nodes are available: 1 Insufficient GPU Memory in one device, 1 The node n1 is not for GPU share, "
            "need skip.",
            Unschedulable(
                2,
                (
                    Reason(1, "device", "Insufficient GPU Memory in one device"),
                    Reason(1, "mode", "The node n1 is not for GPU share, need skip"),
                ),
            ),
            id="the-open-source-extender",
        ),
        pytest.param("no nodes available to schedule pods", Unschedulable(0), id="no-nodes"),
        pytest.param("no nodes available to schedule pods.", Unschedulable(0), id="no-nodes-with-a-stop"),
        pytest.param("Successfully assigned default/p to n1", None, id="another-text"),
        pytest.param("No nodes are available that match all of the predicates: so it is", None, id="nothing-counted"),
        pytest.param("running PreBind plugin", None, id="an-error"),
    ],
)
def test_a_text_is_read_in_the_wording_of_its_release(text, expected):
    assert read_failed_scheduling(text) == expected


@pytest.mark.parametrize(
    ("sentence", "code"),
    [
        ("node(s) had untolerated taint(s)", "taint"),
        ("node(s) were unschedulable", "unschedulable"),
        ("node(s) didn't match Pod's node affinity/selector", "affinity"),
        ("node(s) didn't match Pod's node affinity", "affinity"),
        ("node(s) didn't satisfy plugin(s) [NodeAffinity]", "affinity"),
        ("node(s) didn't match the requested node name", "name"),
        ("node(s) didn't match the requested hostname", "name"),
        ("node(s) didn't have free ports for the requested pod ports", "ports"),
        (CARDS, "device"),
        ("Pod's RequireWholeGPU is true and not available devices can be fully occupied by it", "device"),
        ("The number of pods per gpu device has reached the maximum allowed", "device"),
        ("node(s) had an invalid value of label ack.node.gpu.max-pod", "device"),
        ("node(s) owns gpu resources are not matched that pod requests", "mode"),
        ("none(s) should have at least one resource in [aliyun.com/gpu-mem aliyun.com/gpu-core.percentage]", "mode"),
        ("reqeust resources must include aliyun.com/gpu-mem", "mode"),
        ("invalid reqeust for gpushare resources,only support reqeusts 2 resources at most", "mode"),
        ("not enough gpus with topology on the node", "topology"),
    ],
)
def test_every_sentence_has_a_code(sentence, code):
    found = read_failed_scheduling(f"0/12 nodes are available: 10 Insufficient cpu, 2 {sentence}.")
    assert found.reasons[1] == Reason(2, code, sentence)


@given(cases(some_nodes, size=64), st.integers(1, 3), st.integers(1, 12))
def test_what_is_written_is_read_back(nodes, count, each):
    seen = preview(an_ask(mem=count * each, labels={"aliyun.com/gpu-count": str(count)}), states_of(nodes))
    if seen.chosen is not None:
        return
    found = read_failed_scheduling(seen.message)
    said = [rejection for verdict in seen.verdicts for rejection in verdict.rejections]
    assert sum(reason.count for reason in found.reasons) == len(said)
    codes = {rejection.reason: rejection.code for rejection in said}
    for reason in found.reasons:
        assert reason.code == codes[reason.text] or (reason.code, codes[reason.text]) == ("insufficient", "mode")
    hopeless = sum(any(r.unresolvable for r in verdict.rejections) for verdict in seen.verdicts)
    assert (found.nodes, found.victims_missing, found.not_helpful) == (len(nodes), len(nodes) - hopeless, hopeless)


def test_a_prefilter_is_read_back():
    seen = preview(an_ask(mem=10, labels={"aliyun.com/gpu-count": "3"}), node_states([a_node(), a_node("b")], []))
    assert read_failed_scheduling(seen.message) == Unschedulable(2, prefilter=seen.prefilter, not_helpful=2)
