"""Selectors, affinity, taints and preferences, from raw objects, at the edges that kube-scheduler's source draws."""

from __future__ import annotations

import pytest

from gpupools.domain import objects
from gpupools.domain.filters import explained
from tests.domain.rawobjects import WHOLE, box, exclusive, raw_node, raw_pod, refusal, seen

GPU = {WHOLE: "1"}
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
NARROWED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
TAINT = "node(s) had untolerated taint(s)"


def rule(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)} if values else {"key": key, "operator": operator}


def labelled(*rules):
    return {"matchExpressions": list(rules)}


def named(*rules):
    return {"matchFields": list(rules)}


def bound_to(*terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return raw_pod("p", box(GPU), affinity={"nodeAffinity": required})


def preferring(*weighed):
    terms = [{"weight": weight, "preference": term} for weight, term in weighed]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    return raw_pod("p", box(GPU), affinity={"nodeAffinity": preferred})


@pytest.mark.parametrize(
    ("terms", "labels", "fits"),
    [
        ([labelled(rule("n", "Gt", "-5"))], {"n": "-3"}, True),
        ([labelled(rule("n", "Lt", "3"))], {"n": "3"}, False),
        ([labelled(rule("n", "Gt", "3"))], {"n": "05"}, True),
        ([labelled(rule("n", "Gt", "3"))], {"n": "1_0"}, False),
        ([labelled(rule("n", "Gt", "3"))], {"n": "9" * 20}, False),
        ([labelled(rule("n", "Gt", "3", "4"))], {"n": "9"}, False),
        ([labelled(rule("n", "Gt"))], {"n": "9"}, False),
        ([labelled(rule("n", "Lt", "x"))], {"n": "9"}, False),
        ([labelled(rule("n", "In", ""))], {"n": ""}, True),
        ([labelled(rule("n", "In", ""))], {}, False),
        ([labelled(rule("n", "DoesNotExist"))], {}, True),
        ([labelled(rule("n", "DoesNotExist"))], {"n": ""}, False),
        ([labelled(rule("n", "NotIn", "a"), rule("n", "Exists"))], {}, False),
        # What is wrong in itself holds for no node, also where its opposite would.
        ([labelled(rule("n", "In"))], {"n": "a"}, False),
        ([labelled(rule("n", "NotIn"))], {}, False),
        ([labelled(rule("n", "NotIn", "a b"))], {}, False),
        ([labelled(rule("n", "NotIn", "a", "b" * 64))], {}, False),
        ([labelled(rule("n", "NotIn", "a", "", "B_c-9.d"))], {}, True),
        ([labelled(rule("n", "Exists", "a"))], {"n": "a"}, False),
        ([labelled(rule("n", "DoesNotExist", "a"))], {}, False),
        ([labelled(rule("n", "Equals", "a"))], {"n": "a"}, False),
        ([labelled(rule("n", "NotIn")), labelled(rule("n", "Exists"))], {"n": "a"}, True),
        ([{}, labelled(rule("n", "Exists"))], {"n": "a"}, True),
        ([], {"n": "a"}, False),
        ([named(rule("metadata.name", "NotIn", "n2"))], {}, True),
        ([named(rule("metadata.name", "NotIn", "n2", "n3"))], {}, False),
        ([named(rule("metadata.name", "Exists"))], {}, False),
        ([named(rule("metadata.name", "Gt", "1"))], {}, False),
    ],
)
def test_a_term_holds_where_the_scheduler_would_let_it(terms, labels, fits):
    said = seen(bound_to(*terms), exclusive(labels=labels))
    assert said.message == ("" if fits else refusal(1, f"1 {AFFINITY}"))


def test_a_selector_of_an_empty_value_needs_the_label():
    pod = raw_pod("p", box(GPU), nodeSelector={"x": ""})
    assert seen(pod, exclusive()).message == refusal(1, f"1 {AFFINITY}")
    assert seen(pod, exclusive(labels={"x": ""})).chosen == "n1"


def test_nodes_that_a_name_leaves_out_are_not_looked_at():
    nodes, taken = [exclusive("n1"), exclusive("n2", cards=1)], [raw_pod("a", box(GPU), on="n2")]
    only_n2 = named(rule("metadata.name", "In", "n2"))
    assert seen(bound_to(only_n2), *nodes).tie_nodes == ("n2",)
    full = refusal(2, f"1 Insufficient nvidia.com/gpu, 1 {NARROWED}", resolvable=1)
    assert seen(bound_to(only_n2), *nodes, pods=taken).message == full
    and_label = {**only_n2, **labelled(rule("z", "Exists"))}
    assert seen(bound_to(and_label), *nodes).message == refusal(2, f"1 {AFFINITY}, 1 {NARROWED}")
    nowhere = named(rule("metadata.name", "In", "n9"))
    assert seen(bound_to(nowhere), *nodes).message == refusal(2, f"2 {NARROWED}")
    open_to_all = seen(bound_to(nowhere, labelled(rule("z", "DoesNotExist"))), *nodes)
    assert [verdict.fits for verdict in open_to_all.verdicts] == [True, True]
    both = named(rule("metadata.name", "In", "n1"), rule("metadata.name", "In", "n2"))
    assert seen(bound_to(both), *nodes).message == refusal(2, "pod affinity terms conflict")
    two_values = named(rule("metadata.name", "In", "n1", "n2"))
    assert seen(bound_to(two_values), *nodes, exclusive("n3")).message == refusal(3, f"1 {NARROWED}, 2 {AFFINITY}")


@pytest.mark.parametrize(
    ("taint", "toleration", "fits"),
    [
        (
            "k=v:NoExecute",
            {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 9},
            True,
        ),
        ("k=v:NoExecute", {"key": "k", "operator": "Exists"}, True),
        ("k=v:NoExecute", {"key": "k", "operator": "Exists", "effect": "NoSchedule"}, False),
        ("k=v:PreferNoSchedule", {}, True),
        ("k=:NoSchedule", {"key": "k"}, True),
        ("k=v:NoSchedule", {"key": "k", "value": "w"}, False),
        ("k=7:NoSchedule", {"key": "k", "operator": "Gt", "value": "5"}, True),
        ("k=5:NoSchedule", {"key": "k", "operator": "Gt", "value": "5"}, False),
        ("k=-7:NoSchedule", {"key": "k", "operator": "Lt", "value": "5"}, True),
        ("k=1_0:NoSchedule", {"key": "k", "operator": "Lt", "value": "500"}, False),
        ("k=99999999999999999999:NoSchedule", {"key": "k", "operator": "Gt", "value": "5"}, False),
        ("k=9223372036854775808:NoSchedule", {"key": "k", "operator": "Gt", "value": "5"}, False),
        ("k=v:NoSchedule", {"key": "k", "operator": "NotEqual", "value": "x"}, False),
        ("k=v:NoSchedule", {"key": "k", "operator": "exists"}, False),
    ],
)
def test_a_taint_is_tolerated_as_the_api_defines_it(taint, toleration, fits):
    key, _, rest = taint.partition("=")
    value, _, effect = rest.partition(":")
    node = exclusive(taints=[{"key": key, "value": value, "effect": effect}])
    said = seen(raw_pod("p", box(GPU), tolerations=[toleration] if toleration else []), node)
    assert said.message == ("" if fits else refusal(1, f"1 {TAINT}"))


def test_a_cordon_comes_before_taints_and_yields_to_its_own_toleration():
    cordoned = exclusive(cordoned=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])
    tolerating = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    assert seen(raw_pod("p", box(GPU)), cordoned).message == refusal(1, "1 node(s) were unschedulable")
    assert seen(raw_pod("p", box(GPU), tolerations=[tolerating]), cordoned).chosen == "n1"
    other = tolerating | {"effect": "NoExecute"}
    assert seen(raw_pod("p", box(GPU), tolerations=[other]), cordoned).message == refusal(
        1, "1 node(s) were unschedulable"
    )


SOFT = [{"key": "a", "effect": "PreferNoSchedule"}]


@pytest.mark.parametrize(
    ("pod", "first", "second", "ties"),
    [
        (preferring((10, labelled(rule("z", "In", "b")))), {}, {"labels": {"z": "b"}}, ("n2",)),
        (
            preferring(
                (8, labelled(rule("z", "In", "b"))),
                (5, labelled(rule("z", "In", "a"))),
                (5, labelled(rule("y", "Exists"))),
            ),
            {"labels": {"z": "b"}},
            {"labels": {"z": "a", "y": "1"}},
            ("n2",),
        ),
        (preferring((10, {})), {}, {}, ("n1", "n2")),
        (preferring((10, named(rule("metadata.name", "In", "n2")))), {}, {}, ("n2",)),
        (raw_pod("p", box(GPU)), {"taints": SOFT}, {}, ("n2",)),
        (raw_pod("p", box(GPU)), {"taints": SOFT}, {"taints": SOFT}, ("n1", "n2")),
        # 3 x 100 for a node without the taint against 2 x 100 for the label.
        (preferring((10, labelled(rule("z", "Exists")))), {"labels": {"z": "b"}, "taints": SOFT}, {}, ("n2",)),
    ],
)
def test_preferences_order_nodes_that_are_equal_otherwise(pod, first, second, ties):
    said = seen(pod, exclusive("n1", **first), exclusive("n2", **second))
    assert (said.tie_nodes, said.chosen) == (ties, ties[0])


def test_reasons_and_their_counts_are_sorted_as_text():
    tainted = [exclusive(f"a{n:02}", taints=[{"key": "k", "effect": "NoSchedule"}]) for n in range(10)]
    short = [raw_node("z1"), raw_node("z2")]
    said = seen(raw_pod("p", box(GPU)), *tainted, *short)
    assert said.message == refusal(12, f"10 {TAINT}, 2 Insufficient nvidia.com/gpu")
    full = [exclusive("z1", cards=1), exclusive("z2", cards=1)]
    held = [raw_pod("a", box(GPU), on="z1"), raw_pod("b", box(GPU), on="z2")]
    said = seen(raw_pod("p", box(GPU)), *[raw_node(f"a{n:02}") for n in range(10)], *full, pods=held)
    assert said.message.endswith(
        ": 10 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
    )


@pytest.mark.parametrize(
    ("term", "said"),
    [
        (labelled(rule("z", "In", "a", "b")), "z In a, b (found c)"),
        (labelled(rule("y", "Exists"), rule("z", "Exists")), "y Exists (not there)"),
        (named(rule("metadata.name", "NotIn", "n1")), "metadata.name NotIn n1 (found n1)"),
        ({}, "a term that is empty and matches no node"),
    ],
)
def test_what_of_a_term_does_not_match_is_named(term, said):
    ask = objects.convert("Pod", bound_to(term)).ask
    assert explained(ask, objects.convert("Node", exclusive(labels={"z": "c"}))) == {"affinity": said}
