"""Which nodes a pod may go to at all: taints, labels, names, and what its containers ask for in turn."""

from __future__ import annotations

import pytest

from gpupools.domain.gpus import AffinityTerm, Requirement, Taint, Toleration
from gpupools.domain.placement import node_states, preview
from gpupools.domain.wishes import wish
from tests.domain.builders import MEM, WHOLE, a_node, a_pod, an_ask, container
from tests.domain.seeing import HOPELESS, MODEL, reason_of, see, term

TAINTED = a_node(mode="exclusive", taints=(Taint("nvidia.com/gpu", "present"),))
KEY = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        pytest.param(None, False, id="V34-none"),
        pytest.param(Toleration(KEY, "Exists", "", "NoSchedule"), True, id="V34-exists"),
        pytest.param(Toleration(KEY, "Equal", "true"), False, id="V34-another-value"),
        pytest.param(Toleration(KEY, "", "", "NoSchedule"), False, id="V34-no-operator-means-equal"),
        pytest.param(Toleration("", "Exists"), True, id="V34-everything"),
        pytest.param(Toleration(KEY, "Exists", "", "NoExecute"), False, id="V34-another-effect"),
        pytest.param(Toleration(KEY, "Equal", "present"), True, id="V34-equal"),
        pytest.param(Toleration("other", "Exists"), False, id="another-key"),
        pytest.param(Toleration("", "Equal", "present"), False, id="no-key-needs-exists"),
        pytest.param(Toleration(KEY, "Like", "present"), False, id="unknown-operator"),
    ],
)
def test_v34_a_taint_needs_a_toleration(toleration, fits):
    ask = an_ask(whole=1, tolerations=(toleration,) if toleration else ())
    seen = see(ask, TAINTED)
    assert (seen.chosen == "n1") is fits
    if not fits:
        assert reason_of(seen) == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    soft = a_node(mode="exclusive", taints=(Taint(KEY, "present", "PreferNoSchedule"),))
    assert see(ask, soft).chosen == "n1"


@pytest.mark.parametrize(
    ("operator", "value", "fits"),
    [
        ("Gt", "4", True),
        ("Gt", "5", False),
        ("Lt", "6", True),
        ("Lt", "5", False),
        ("Lt", "x", False),
        ("Gt", "-5", True),
    ],
)
def test_a_toleration_may_compare_whole_numbers(operator, value, fits):
    node = a_node(taints=(Taint("level", "5"),))
    assert (see(an_ask(mem=4, tolerations=(Toleration("level", operator, value),)), node).chosen == "n1") is fits


def test_a_cordoned_node_takes_what_tolerates_the_cordon():
    ask = an_ask(mem=4, tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert see(ask, a_node(unschedulable=True)).chosen == "n1"


def test_an_empty_operator_is_equal():
    node = a_node(taints=(Taint("k", "v"),))
    for toleration, fits in ((Toleration("k", "", "v"), True), (Toleration("k", "", "w"), False)):
        assert preview(an_ask(mem=4, tolerations=(toleration,)), node_states([node], [])).verdicts[0].fits is fits


def test_an_unknown_operator_tolerates_nothing():
    node = a_node(taints=(Taint("k", "v"),))
    odd = an_ask(mem=4, tolerations=(Toleration("k", "Near", "v"),))
    assert preview(odd, node_states([node], [])).chosen is None


IN_T4, IN_V100 = (MODEL, "In", ("T4",)), (MODEL, "In", ("V100",))
CARD_COUNT = "aliyun.accelerator/nvidia_count"


@pytest.mark.parametrize(
    ("terms", "selector", "fits"),
    [
        pytest.param((term(IN_T4, (CARD_COUNT, "Gt", ("3",))),), {}, True, id="V36-in-and-gt"),
        pytest.param((term((CARD_COUNT, "Gt", ("4",))),), {}, False, id="V36-gt-4"),
        pytest.param((term((MODEL, "Gt", ("3",))),), {}, False, id="V36-gt-on-text"),
        pytest.param((term(),), {}, False, id="V36-an-empty-term-matches-nothing"),
        pytest.param((term(IN_V100), term(IN_T4)), {}, True, id="V36-terms-are-or"),
        pytest.param((term(IN_T4),), {"zone": "a"}, False, id="V36-selector-and-affinity"),
        pytest.param((term((CARD_COUNT, "Lt", ("5",))),), {}, True, id="lt"),
        pytest.param((term((CARD_COUNT, "Lt", ("4",))),), {}, False, id="lt-itself"),
        pytest.param((term((CARD_COUNT, "Gt", ("-1",))),), {}, True, id="gt-a-negative-number"),
        pytest.param((term((CARD_COUNT, "Lt", ("x",))),), {}, False, id="lt-text"),
        pytest.param((term(IN_T4, IN_V100),), {}, False, id="expressions-are-and"),
        pytest.param((term(("zone", "NotIn", ("a",))),), {}, True, id="not-in-holds-for-a-missing-label"),
        pytest.param((term(("zone", "DoesNotExist")),), {}, True, id="does-not-exist"),
        pytest.param((term((MODEL, "DoesNotExist")),), {}, False, id="does-exist"),
        pytest.param((term((MODEL, "Exists")),), {}, True, id="exists"),
        pytest.param((term(("zone", "Exists")),), {}, False, id="exists-not"),
        pytest.param((term((MODEL, "Like", ("T4",))),), {}, False, id="unknown-operator"),
        pytest.param((), {}, False, id="no-terms-match-nothing"),
        pytest.param(None, {MODEL: "T4"}, True, id="selector"),
        pytest.param(None, {MODEL: "V100"}, False, id="another-model"),
        pytest.param((term(IN_T4, fields=[("metadata.name", "NotIn", ("n1",))]),), {}, False, id="not-this-name"),
    ],
)
def test_v36_labels_choose_nodes(terms, selector, fits):
    node = a_node(labels={MODEL: "T4", CARD_COUNT: "4"})
    seen = see(an_ask(mem=4, required_terms=terms, node_selector=selector), node)
    assert (seen.chosen == "n1") is fits
    if not fits:
        assert reason_of(seen) == "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."


def test_names_in_affinity_shrink_the_nodes_before_any_filter():
    only = (term(fields=[("metadata.name", "In", ("b",))]),)
    nodes = [a_node("a"), a_node("b", unschedulable=True), a_node("c")]
    assert see(an_ask(mem=4, required_terms=only), nodes[0], a_node("b")).chosen == "b"
    assert see(an_ask(mem=4, required_terms=only), *nodes).message == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. "
        f"no new claims to deallocate, preemption: 0/3 nodes are available: 3 {HOPELESS}."
    )
    others = (term(fields=[("metadata.name", "NotIn", ("a",))]),)
    assert see(an_ask(mem=4, required_terms=others), *nodes).chosen == "c"
    both = (term(fields=[("metadata.name", "In", ("a",)), ("metadata.name", "In", ("b",))]),)
    assert see(an_ask(mem=4, required_terms=both), *nodes).prefilter == "pod affinity terms conflict"


def test_v35_not_in_matches_the_missing_label():
    nodes = [
        a_node("a", mode="exclusive", cards=1, labels={MODEL: "V100"}),
        a_node("b", mode="exclusive", cards=1, labels={MODEL: "T4"}),
        a_node("c", mode=""),
    ]
    ask = an_ask(whole=1, required_terms=(term((MODEL, "NotIn", ("V100",))),))
    assert see(ask, *nodes, pods=[a_pod(whole=1, on="b")]).message == (
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: 1 No preemption victims found for incoming "
        "pod, 2 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize(
    ("value", "bound", "fits"),
    [("+5", "4", True), (str(2**63 - 1), "1", True), (str(2**63), "1", False), ("", "-1", False), ("5", "5", False)],
)
def test_numbers_in_affinity_are_whole_ones_of_the_api(value, bound, fits):
    term = AffinityTerm((Requirement("size", "Gt", (bound,)),))
    seen = preview(an_ask(mem=4, required_terms=(term,)), node_states([a_node(labels={"size": value})], []))
    assert (seen.chosen is not None) is fits


@pytest.mark.parametrize(
    "requirement",
    [Requirement("size", "Gt", ()), Requirement("size", "Gt", ("1", "2")), Requirement("size", "Near", ("5",))],
)
def test_a_requirement_that_makes_no_sense_is_not_met(requirement):
    term = AffinityTerm((requirement,))
    assert (
        preview(an_ask(mem=4, required_terms=(term,)), node_states([a_node(labels={"size": "5"})], [])).chosen is None
    )


def test_names_of_nodes_in_several_terms_are_put_together():
    def named(*names):
        return AffinityTerm((), (Requirement("metadata.name", "In", names),))

    states = node_states([a_node(name) for name in "abc"], [])
    seen = preview(an_ask(mem=4, required_terms=(named("a"), named("b"))), states)
    assert [verdict.fits for verdict in seen.verdicts] == [True, True, False]


@pytest.mark.parametrize(
    ("ask", "fits"),
    [
        (an_ask(container(cpu=40_000), init=[container(cpu=60_000)]), True),
        (an_ask(container(cpu=40_000), init=[container(cpu=65_000)]), False),
        (an_ask(container(cpu=40_000), init=[container(cpu=30_000, restartable=True)]), False),
        (an_ask(container(cpu=4_000), init=[container(cpu=30_000, restartable=True), container(cpu=40_000)]), False),
        (an_ask(container(cpu=4_000), init=[container(cpu=40_000), container(cpu=30_000, restartable=True)]), True),
        (an_ask(container(cpu=40_000), overhead={"cpu": 24_001}), False),
        (an_ask(container(cpu=40_000), overhead={"cpu": 24_000}), True),
    ],
)
def test_init_containers_sidecars_and_overhead_count_as_in_kubernetes(ask, fits):
    assert (see(ask, a_node(mode="")).chosen is not None) is fits


def test_an_init_container_counts_for_what_it_asks_alone():
    ask = an_ask(container(mem=4), init=[container(mem=10, cpu=100), container(mem=2, **{WHOLE: 1})])
    assert dict(wish(ask).requests) == {MEM: 10, "cpu": 100, WHOLE: 1}
