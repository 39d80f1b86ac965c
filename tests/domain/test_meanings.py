"""What the scheduler's reasons mean for one pod."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.gpus import Taint
from gpupools.domain.meanings import meaning, meaning_of_all
from gpupools.domain.messages import GATED, read_failed_scheduling
from gpupools.domain.placement import node_states, preview
from tests.domain.builders import CORE, MEM, a_node, an_ask, container, with_port

DEVICE = "node(s) didn't have enough device resources to allocate"
UNTOLERATED = "node(s) had untolerated taint(s)"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
TAINTED = a_node("t", taints=(Taint("gpu", "yes"), Taint("own", "", "NoExecute")))


def meant(sentence, ask, *nodes):
    read = read_failed_scheduling(f"0/3 nodes are available: 3 {sentence}.")
    (reason,) = read.reasons
    return meaning(reason, ask, nodes)


@pytest.mark.parametrize(
    ("sentence", "ask", "expected"),
    [
        (f"Insufficient {MEM}", an_ask(mem=8),
         f"It asks for 8 of {MEM}; each of these nodes had less left in all its cards together, or hands out none in "
         "its mode."),
        ("Insufficient nvidia.com/gpu", an_ask(whole=2),
         "It asks for 2 of nvidia.com/gpu; each of these nodes had less left."),
        ("Insufficient cpu", an_ask(container(cpu=500), init=[container(cpu=2500)]),
         "It asks for 2500m of cpu; each of these nodes had less left."),
        ("Insufficient memory", an_ask(container(memory=3 * 2**30)),
         "It asks for 3Gi of memory; each of these nodes had less left."),
        ("Insufficient example.com/fpga", an_ask(mem=4),
         "Less of example.com/fpga was left there than its containers ask for."),
        ("Too many pods", an_ask(mem=4), "The nodes carry as many pods as they may, whatever these ask for."),
        (DEVICE, an_ask(mem=8),
         "Each node had enough in sum, but no single card had 8 memory units left: what is free is in pieces."),
        (DEVICE, an_ask(mem=1, core=30),
         "Each node had enough in sum, but no single card had 1 memory unit and 30% of its compute left: what is free "
         "is in pieces."),
        (DEVICE, an_ask(mem=8, labels={"aliyun.com/gpu-count": "2"}),
         "It needs 4 memory units on each of 2 cards of one node; fewer cards there had that left."),
        ("The number of pods per gpu device has reached the maximum allowed", an_ask(mem=8),
         "Every card there has as many pods as the node's label ack.node.gpu.max-pod allows."),
        ("Pod's RequireWholeGPU is true and not available devices can be fully occupied by it", an_ask(mem=15),
         "It wants a shared card to itself and all of its units; no card there was empty and of just that size."),
        ("node(s) had an invalid value of label ack.node.gpu.max-pod", an_ask(mem=8),
         "The node's label cannot be read, so nothing is placed there until it is put right."),
        ("not enough gpus with topology on the node", an_ask(topology=2),
         "It asks for 2 cards with their links; fewer healthy ones were free there."),
        ("node(s) owns gpu resources are not matched that pod requests", an_ask(mem=4, core=20),
         "The nodes are in another mode: they hand out other GPU resources than what it asks for "
         f"({CORE}: 20, {MEM}: 4), and the two must be the same."),
        ("node(s) were unschedulable", an_ask(mem=4),
         "The nodes are cordoned: nothing new gets on until they are uncordoned."),
        ("node(s) didn't match the requested node name", an_ask(mem=4, node_name="n9"), "It names its node: n9."),
        ("node(s) didn't have free ports for the requested pod ports", an_ask(with_port(80)),
         "It wants a port of its node (80) that another pod there has."),
        ("node(s) had volume node affinity conflict", an_ask(mem=4),
         "The estimate here does not reckon with this: volumes, spreading, pod affinity, or a plugin of the cluster. "
         "Read it as it stands."),
    ],
)  # fmt: skip
def test_a_reason_is_set_beside_what_the_pod_asks_for(sentence, ask, expected):
    assert meant(sentence, ask) == expected


@pytest.mark.parametrize(
    ("sentence", "nodes", "expected"),
    [
        (UNTOLERATED, [TAINTED, a_node()], "It does not tolerate gpu=yes:NoSchedule, own:NoExecute."),
        (UNTOLERATED, [a_node()], "It does not tolerate a taint that nodes had then."),
        ("node(s) had taint {gpu: no}, that the pod didn't tolerate", [TAINTED], "It does not tolerate gpu: no."),
    ],
)
def test_taints_are_named_by_the_scheduler_or_by_the_nodes(sentence, nodes, expected):
    assert meant(sentence, an_ask(mem=4), *nodes) == expected


def test_labels_that_keep_it_away_are_named_and_not_all_of_many():
    ask = an_ask(mem=4, node_selector={"zone": "b"})
    nodes = [a_node(f"n{number}", labels={"zone": f"z{number}"}) for number in range(5)]
    assert meant(AFFINITY, ask, a_node(labels={"zone": "a"}), a_node("m", labels={"zone": "b"})) == (
        "Its node selector or affinity wants zone=b (found a)."
    )
    assert meant(AFFINITY, ask, *nodes) == (
        "Its node selector or affinity wants zone=b (found z0); zone=b (found z1); zone=b (found z2); and 2 more."
    )
    assert meant(AFFINITY, ask) == "It asks for other nodes by labels."


def test_every_reason_that_the_engine_gives_has_a_meaning_of_its_own():
    nodes = [
        TAINTED, a_node("c", unschedulable=True), a_node("x", mode="exclusive"), a_node("m", mode="core_mem"),
        a_node("s", cards=1, units=5), a_node("p", resources={"pods": 0}), a_node("z", labels={"zone": "a"}),
    ]  # fmt: skip
    ask = msgspec.structs.replace(an_ask(mem=9), node_selector={})
    seen = preview(ask, node_states(nodes, []))
    for rejection in (each for verdict in seen.verdicts for each in verdict.rejections):
        assert not meant(rejection.reason, ask, *nodes).startswith("The estimate here")


@pytest.mark.parametrize(
    ("prefilter", "start"),
    [(GATED, "It has scheduling gates"), ("invalid replica for resource x", "It stands for every node")],
)
def test_a_reason_for_all_nodes_has_a_meaning(prefilter, start):
    assert meaning_of_all(prefilter).startswith(start)
