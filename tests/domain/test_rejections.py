"""A node's refusals as values: code, resource, and what was asked for, is free, and is free on the best card."""

from __future__ import annotations

import pytest

from gpupools.domain.gpus import AffinityTerm, Requirement, Taint
from gpupools.domain.placement import node_states, preview
from gpupools.domain.verdicts import Rejection
from gpupools.domain.wishes import wish
from tests.domain.builders import CORE, COUNT, MEM, TOPOLOGY, a_node, a_pod, an_ask, container, filled, with_port
from tests.domain.seeing import core_mem_pods, see

CARDS = "node(s) didn't have enough device resources to allocate"
TAINTED = "node(s) had untolerated taint(s)"
BOTH = "node(s) owns gpu resources are not matched that pod requests"


@pytest.mark.parametrize(
    ("node", "pods", "ask", "expected"),
    [
        (a_node(unschedulable=True), [], an_ask(mem=4),
         ("unschedulable", "node(s) were unschedulable", "", 0, 0, 0, True)),
        (
            a_node(), [], an_ask(mem=4, node_name="n2"),
            ("name", "node(s) didn't match the requested node name", "", 0, 0, 0, True),
        ),
        (a_node(taints=(Taint("k"),)), [], an_ask(mem=4), ("taint", TAINTED, "", 0, 0, 0, True)),
        (
            a_node(), [], an_ask(mem=4, node_selector={"a": "b"}),
            ("affinity", "node(s) didn't match Pod's node affinity/selector", "", 0, 0, 0, True),
        ),
        (
            a_node(), [],
            an_ask(mem=4, required_terms=(AffinityTerm((), (Requirement("metadata.name", "In", ("n2",)),)),)),
            ("affinity", "node(s) didn't satisfy plugin(s) [NodeAffinity]", "", 0, 0, 0, True),
        ),
        (
            a_node(), [a_pod("p", with_port(80))], an_ask(with_port(80, mem=4)),
            ("ports", "node(s) didn't have free ports for the requested pod ports", "", 0, 0, 0, False),
        ),
        (a_node(resources={"pods": 1}), [a_pod()], an_ask(mem=4),
         ("insufficient", "Too many pods", "pods", 1, 0, 0, False)),
        (a_node(), filled(9), an_ask(mem=60), ("insufficient", f"Insufficient {MEM}", MEM, 60, 51, 0, False)),
        (a_node(), [], an_ask(mem=61), ("insufficient", f"Insufficient {MEM}", MEM, 61, 60, 0, True)),
        (a_node(mode="exclusive"), [], an_ask(mem=4), ("mode", f"Insufficient {MEM}", MEM, 4, 0, 0, True)),
        (a_node(cards=2), filled(10, 9), an_ask(mem=8), ("device", CARDS, MEM, 8, 11, 6, False)),
        (a_node(cards=1), filled(20), an_ask(mem=0, cpu=1, core=0, whole=0), None),
        (a_node(cards=2, unhealthy=(0, 1)), [], an_ask(mem=8), ("device", CARDS, MEM, 8, 30, 0, False)),
        (a_node(resources={COUNT: 0}), [], an_ask(mem=8), ("device", CARDS, MEM, 8, 60, 0, False)),
        (
            a_node(mode="core_mem", cards=2),
            [a_pod("a", mem=1, core=80, at={0: 1}, core_at={0: 80}),
             a_pod("b", mem=1, core=70, at={1: 1}, core_at={1: 70})],
            an_ask(mem=5, core=50),
            ("device", CARDS, CORE, 50, 50, 30, False),
        ),
        (
            a_node(mode="core_mem", cards=2),
            [a_pod("a", mem=12, core=10, at={0: 12}, core_at={0: 10}),
             a_pod("b", mem=1, core=60, at={1: 1}, core_at={1: 60})],
            an_ask(mem=5, core=90),
            ("device", CARDS, MEM, 5, 17, 14, False),
        ),
        (a_node(mode="core_mem"), [], an_ask(mem=4), ("mode", BOTH, "", 0, 0, 0, True)),
        (a_node(mode="core_mem", resources={CORE: 1}), [], an_ask(mem=4), ("mode", BOTH, "", 0, 0, 0, True)),
        (
            a_node(mode="core_mem", cards=2),
            [a_pod(f"p{n}", mem=12, core=60, at={n: 12}, core_at={n: 60}) for n in range(2)],
            an_ask(mem=5, core=50),
            ("device", CARDS, MEM, 5, 6, 3, False),
        ),
        (a_node(mode="core_mem"), [], an_ask(core=5),
         ("mode", f"reqeust resources must include {MEM}", "", 0, 0, 0, True)),
        (
            a_node(labels={"ack.node.gpu.max-pod": "x"}), [], an_ask(mem=4),
            ("device", "node(s) had an invalid value of label ack.node.gpu.max-pod", "", 0, 0, 0, True),
        ),
        (
            a_node(cards=1, labels={"ack.node.gpu.max-pod": "1"}), filled(1), an_ask(mem=4),
            ("device", "The number of pods per gpu device has reached the maximum allowed", "", 0, 0, 0, False),
        ),
        (
            a_node(mode="topology", unhealthy=(0, 1, 2)), [], an_ask(topology=2),
            ("topology", "not enough gpus with topology on the node", TOPOLOGY, 2, 1, 1, False),
        ),
    ],
)  # fmt: skip
def test_a_rejection_has_its_code_words_and_figures(node, pods, ask, expected):
    (verdict,) = preview(ask, node_states([node], pods)).verdicts
    if expected is None:
        assert verdict.fits is True
        return
    assert verdict.fits is False
    assert verdict.rejections == (Rejection("n1", *expected),)


def test_v21_figures_say_how_much_is_free_and_on_the_best_card():
    (rejection,) = see(an_ask(mem=8), a_node(cards=2), pods=filled(10, 9)).verdicts[0].rejections
    assert (rejection.code, rejection.asked, rejection.free, rejection.best) == ("device", 8, 11, 6)


def test_figures_of_compute_when_that_is_what_is_short():
    node = a_node(mode="core_mem", cards=2)
    (rejection,) = see(an_ask(mem=2, core=85), node, pods=core_mem_pods()).verdicts[0].rejections
    assert (rejection.resource, rejection.asked, rejection.free, rejection.best) == (
        "aliyun.com/gpu-core.percentage",
        85,
        100,
        80,
    )


def test_v29_a_gpu_node_of_another_mode_has_the_code_mode():
    seen = see(
        an_ask(mem=4), a_node("a", mode="exclusive"), a_node("b", mode=""), a_node("c", cards=0, resources={MEM: 3})
    )
    assert [verdict.rejections[0].code for verdict in seen.verdicts] == ["mode", "insufficient", "insufficient"]


def test_a_node_counts_its_pods():
    pods = [a_pod("a"), a_pod("b")]
    assert see(an_ask(mem=4), a_node(resources={"pods": 3}), pods=pods).chosen == "n1"
    (rejection,) = see(an_ask(mem=4), a_node(resources={"pods": 2}), pods=pods).verdicts[0].rejections
    assert (rejection.reason, rejection.resource, rejection.asked, rejection.free) == ("Too many pods", "pods", 1, 0)
    (rejection,) = see(an_ask(mem=4), a_node(resources={"pods": 1}), pods=pods).verdicts[0].rejections
    assert rejection.free == 0


@pytest.mark.parametrize(
    ("ask", "labels", "unresolvable"),
    [
        (an_ask(mem=4), {"ack.node.gpu.max-pod": "x"}, True),
        (an_ask(mem=4), {"ack.node.gpu.max-pod": "0"}, False),
        (an_ask(core=5), {}, True),
        (an_ask(mem=4), {}, True),
        (an_ask(mem=16, core=5), {}, False),
    ],
)
def test_only_what_an_eviction_could_change_counts_as_resolvable(ask, labels, unresolvable):
    (rejection,) = see(ask, a_node(mode="core_mem", labels=labels)).verdicts[0].rejections
    assert rejection.unresolvable is unresolvable


@pytest.mark.parametrize(
    ("mem", "core", "figures"),
    [
        pytest.param(7, 5, ("aliyun.com/gpu-mem", 7, 7, 6), id="memory-is-short"),
        pytest.param(6, 85, ("aliyun.com/gpu-core.percentage", 85, 90, 80), id="compute-is-short"),
        pytest.param(6, 75, ("aliyun.com/gpu-mem", 6, 7, 6), id="each-is-there-but-on-different-cards"),
    ],
)
def test_figures_name_the_resource_that_is_short(mem, core, figures):
    pods = [
        a_pod("a", mem=9, core=90, at={0: 9}, core_at={0: 90}),
        a_pod("b", mem=14, core=20, at={1: 14}, core_at={1: 20}),
    ]
    (rejection,) = see(an_ask(mem=mem, core=core), a_node(mode="core_mem", cards=2), pods=pods).verdicts[0].rejections
    assert (rejection.resource, rejection.asked, rejection.free, rejection.best) == figures


def test_figures_of_the_best_card_leave_out_what_is_being_released():
    leaving = a_pod("leaving", mem=5, at={0: 5}, terminating=True)
    pods = [leaving, a_pod("staying", mem=3, at={0: 3}), *filled(0, 10, 4)]
    (rejection,) = see(an_ask(mem=13), a_node(cards=3), pods=pods).verdicts[0].rejections
    assert (rejection.free, rejection.best) == (23, 12)


def test_memory_is_named_when_it_is_what_is_short_and_compute_only_when_that_is():
    node = a_node(mode="core_mem", cards=2)
    pods = [a_pod("a", mem=1, core=60, at={0: 1}, core_at={0: 60}), a_pod("b", mem=12, core=0, at={1: 12})]
    # Compute would do on card 1, memory on card 0: no single figure is short.
    (rejection,) = preview(an_ask(mem=5, core=100), node_states([node], pods)).verdicts[0].rejections
    assert (rejection.resource, rejection.best) == (MEM, 14)


def test_several_reasons_come_in_the_schedulers_order():
    node = a_node(resources={"cpu": 1000, "memory": 10, "ephemeral-storage": 5, "a.example/x": 0})
    ask = an_ask(
        container(mem=99, cpu=2000, **{"memory": 20, "ephemeral-storage": 9, "a.example/x": 1, "z.example/zero": 0})
    )
    (verdict,) = preview(ask, node_states([node], [])).verdicts
    resources = [rejection.resource for rejection in verdict.rejections]
    assert resources == ["cpu", "memory", "ephemeral-storage", "a.example/x", MEM]
    assert wish(ask).requests == (
        ("cpu", 2000),
        ("memory", 20),
        ("ephemeral-storage", 9),
        ("a.example/x", 1),
        (MEM, 99),
    )
