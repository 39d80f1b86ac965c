"""Placement: which node, which cards, and in which words nothing fits."""

from __future__ import annotations

import pytest

from gpupools.domain.annotations import share_annotations, topology_annotations
from gpupools.domain.gpus import AffinityTerm, PreferredTerm, Requirement, Taint, Toleration
from gpupools.domain.modes import PlacementPolicy
from gpupools.domain.placement import node_state, node_states, preview, sequence, take
from tests.domain.builders import MEM, TOPOLOGY, WHOLE, a_node, a_pod, an_ask, container, filled

MODEL = "aliyun.accelerator/nvidia_name"
ROOM_MESSAGE = "node(s) didn't have enough device resources to allocate"
VICTIMS = "No preemption victims found for incoming pod"
HOPELESS = "Preemption is not helpful for scheduling"


def see(ask, *nodes, pods=()):
    return preview(ask, node_states(nodes, pods))


def reason_of(seen):
    """The FailedScheduling text without its preemption part."""
    return seen.message.split(" no new claims")[0]


def labelled(count, **limits):
    return an_ask(**limits, labels={"aliyun.com/gpu-count": str(count)})


def core_mem_pods():
    held = [(5, 80), (9, 20)]
    return [
        a_pod(f"p{card}", mem=mem, core=core, at={card: mem}, core_at={card: core})
        for card, (mem, core) in enumerate(held)
    ]


@pytest.mark.parametrize(
    ("node", "pods", "ask", "cards", "score", "ties"),
    [
        pytest.param(
            a_node(), filled(11, 9), an_ask(mem=4), (0,), 100, (0,), id="V18-binpack-fills-the-card-to-the-brim"
        ),
        pytest.param(
            a_node(), filled(11, 9), an_ask(mem=6), (1,), 100, (1,), id="V19-the-next-card-when-one-is-too-full"
        ),
        pytest.param(
            a_node(policy="spread"),
            filled(4, 4, 0, 4),
            an_ask(mem=4),
            (2,),
            92,
            (2,),
            id="V19-spread-takes-the-emptiest",
        ),
        pytest.param(a_node(), filled(11, 9), labelled(2, mem=8), (0, 1), 45.5, (0, 1), id="V22-two-cards-binpack"),
        pytest.param(
            a_node(policy="spread"), filled(11, 9), labelled(2, mem=8), (2, 3), 39.5, (2, 3), id="V22-two-cards-spread"
        ),
        pytest.param(
            a_node(mode="core_mem", cards=3),
            core_mem_pods(),
            an_ask(mem=5, core=30),
            (1,),
            91.5,
            (1,),
            id="V25-binpack",
        ),
        pytest.param(
            a_node(mode="core_mem", cards=3, policy="spread"),
            core_mem_pods(),
            an_ask(mem=5, core=30),
            (2,),
            90.5,
            (2,),
            id="V25-spread",
        ),
        pytest.param(a_node(), [], an_ask(mem=4), (0,), 78, (0, 1, 2, 3), id="equal-cards-are-a-tie"),
        pytest.param(
            a_node(), filled(0, 4), labelled(2, mem=8), (0, 1), 29.5, (0, 1, 2, 3), id="a-tie-for-the-second-card"
        ),
        pytest.param(a_node(cards=1), [], an_ask(mem=15), (0,), 100, (0,), id="one-empty-card-binpack"),
        pytest.param(a_node(cards=1, policy="spread"), [], an_ask(mem=15), (0,), 70, (0,), id="one-empty-card-spread"),
        pytest.param(
            a_node(), filled(9, 0, 0, 4), labelled(2, mem=8), (0, 3), 38.5, (0, 3), id="two-cards-of-different-fill"
        ),
        pytest.param(
            a_node(), filled(9, 0, 0, 4), an_ask(mem=4), (0,), 96, (0,), id="card-scores-of-a-mixed-node-binpack"
        ),
        pytest.param(
            a_node(policy="spread"),
            filled(9, 0, 0, 4),
            an_ask(mem=4),
            (1,),
            92,
            (1, 2),
            id="card-scores-of-a-mixed-node-spread",
        ),
        pytest.param(
            a_node(policy="spread"),
            filled(9, 0, 0, 4),
            labelled(2, mem=8),
            (1, 2),
            39.5,
            (1, 2),
            id="the-two-empty-cards",
        ),
        pytest.param(a_node(), [], labelled(0, mem=4), (0,), 78, (0, 1, 2, 3), id="a-count-of-0-is-no-count"),
        pytest.param(
            a_node(),
            filled(4),
            an_ask(mem=15, labels={"ack.gpushare.placement": "require-whole-device"}),
            (1,),
            100,
            (1, 2, 3),
            id="a-whole-shared-card",
        ),
        pytest.param(
            a_node(labels={"ack.node.gpu.max-pod": "1"}),
            filled(4),
            an_ask(mem=4),
            (1,),
            78,
            (1, 2, 3),
            id="one-pod-per-card",
        ),
    ],
)
def test_the_best_card_of_a_shared_node_is_chosen(node, pods, ask, cards, score, ties):
    seen = see(ask, node, pods=pods)
    assert (seen.chosen, seen.message, seen.cards, seen.tie_cards) == ("n1", "", cards, ties)
    assert seen.verdicts[0].score == pytest.approx(score, abs=1e-9)


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


def term(*expressions, fields=()):
    return AffinityTerm(tuple(Requirement(*e) for e in expressions), tuple(Requirement(*f) for f in fields))


IN_T4, IN_V100 = (MODEL, "In", ("T4",)), (MODEL, "In", ("V100",))
COUNT = "aliyun.accelerator/nvidia_count"


@pytest.mark.parametrize(
    ("terms", "selector", "fits"),
    [
        pytest.param((term(IN_T4, (COUNT, "Gt", ("3",))),), {}, True, id="V36-in-and-gt"),
        pytest.param((term((COUNT, "Gt", ("4",))),), {}, False, id="V36-gt-4"),
        pytest.param((term((MODEL, "Gt", ("3",))),), {}, False, id="V36-gt-on-text"),
        pytest.param((term(),), {}, False, id="V36-an-empty-term-matches-nothing"),
        pytest.param((term(IN_V100), term(IN_T4)), {}, True, id="V36-terms-are-or"),
        pytest.param((term(IN_T4),), {"zone": "a"}, False, id="V36-selector-and-affinity"),
        pytest.param((term((COUNT, "Lt", ("5",))),), {}, True, id="lt"),
        pytest.param((term((COUNT, "Lt", ("4",))),), {}, False, id="lt-itself"),
        pytest.param((term((COUNT, "Gt", ("-1",))),), {}, True, id="gt-a-negative-number"),
        pytest.param((term((COUNT, "Lt", ("x",))),), {}, False, id="lt-text"),
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
    node = a_node(labels={MODEL: "T4", COUNT: "4"})
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


def test_a_node_counts_its_pods():
    pods = [a_pod("a"), a_pod("b")]
    assert see(an_ask(mem=4), a_node(resources={"pods": 3}), pods=pods).chosen == "n1"
    (rejection,) = see(an_ask(mem=4), a_node(resources={"pods": 2}), pods=pods).verdicts[0].rejections
    assert (rejection.reason, rejection.resource, rejection.asked, rejection.free) == ("Too many pods", "pods", 1, 0)
    (rejection,) = see(an_ask(mem=4), a_node(resources={"pods": 1}), pods=pods).verdicts[0].rejections
    assert rejection.free == 0


def test_a_card_can_be_filled_to_its_last_per_cent():
    node = a_node(mode="core_mem", cards=1)
    pods = [a_pod("a", mem=10, core=70, at={0: 10}, core_at={0: 70})]
    assert see(an_ask(mem=5, core=30), node, pods=pods).chosen == "n1"
    assert see(an_ask(mem=5, core=30), node, pods=pods).verdicts[0].score == 100


def test_labels_of_other_schedulers_mean_nothing_without_a_gang():
    ask = an_ask(topology=1, labels={"gputopology.alibabacloud.com/ttl": "9"})
    assert see(ask, a_node(mode="topology")).chosen == "n1"


def test_no_node_at_all():
    assert see(an_ask(mem=4)).message == "no nodes available to schedule pods"


def test_v37_pods_of_a_job_are_placed_in_turn():
    previews = sequence(an_ask(mem=10), 3, node_states([a_node(cards=2)], []))
    assert [seen.cards for seen in previews] == [(0,), (1,), ()]
    assert [seen.tie_cards for seen in previews[:2]] == [(0, 1), (1,)]
    assert reason_of(previews[2]) == f"0/1 nodes are available: 1 {ROOM_MESSAGE}."


def test_a_sequence_ends_with_the_same_failure_for_all_that_are_left():
    previews = sequence(
        an_ask(whole=2), 5, node_states([a_node("a", mode="exclusive"), a_node("b", mode="topology")], [])
    )
    assert [seen.chosen for seen in previews] == ["a", "a", None, None, None]
    assert previews[2].message == previews[4].message != ""
    assert sequence(an_ask(whole=8), 2, node_states([a_node(mode="exclusive")], []))[1].chosen is None
    assert sequence(an_ask(whole=1), 0, []) == []


def test_a_sequence_is_what_one_preview_after_the_other_gives():
    states = node_states([a_node("a", cards=2), a_node("b", cards=2, policy="spread")], filled(4, on="b"))
    ask = an_ask(mem=6)
    expected, now = [], list(states)
    for _ in range(6):
        seen = preview(ask, now)
        expected.append((seen.chosen, seen.cards, seen.tie_nodes, seen.tie_cards))
        now = [take(s, ask, seen.cards) if s.node.name == seen.chosen else s for s in now]
    got = sequence(ask, 6, states)
    assert [(seen.chosen, seen.cards, seen.tie_nodes, seen.tie_cards) for seen in got] == expected


def test_the_fuller_node_wins_and_equal_nodes_are_a_tie_by_name():
    nodes = [a_node("c"), a_node("b"), a_node("a")]
    seen = see(an_ask(mem=4), *nodes, pods=filled(4, on="c"))
    assert (seen.chosen, seen.tie_nodes) == ("c", ("c",))
    seen = see(an_ask(mem=4), *nodes)
    assert (seen.chosen, seen.tie_nodes) == ("a", ("a", "b", "c"))


def test_node_scores_are_whole_numbers_so_close_nodes_tie():
    nodes = [a_node("a", cards=1, units=300), a_node("b", cards=1, units=300)]
    seen = see(an_ask(mem=1), *nodes, pods=filled(1, on="b"))
    assert (seen.chosen, seen.tie_nodes) == ("a", ("a", "b"))


def test_preferred_affinity_outweighs_a_fuller_card():
    wish = PreferredTerm(10, term((MODEL, "In", ("T4",))))
    nodes = [a_node("full"), a_node("wanted", labels={MODEL: "T4"})]
    ask = an_ask(mem=4, preferred_terms=(wish, PreferredTerm(5, term((MODEL, "Exists")))))
    seen = see(ask, *nodes, pods=filled(11, on="full"))
    assert seen.chosen == "wanted"
    assert [verdict.preference for verdict in seen.verdicts] == [0, 200]


def test_soft_taints_are_avoided():
    soft = a_node("a", taints=(Taint("k", "v", "PreferNoSchedule"),))
    seen = see(an_ask(mem=4), soft, a_node("b"))
    assert (seen.chosen, [verdict.preference for verdict in seen.verdicts]) == ("b", [0, 300])
    tolerated = an_ask(mem=4, tolerations=(Toleration("k", "Exists"),))
    assert see(tolerated, soft, a_node("b")).chosen == "a"


def test_exclusive_cards_are_packed_or_spread_by_choice_and_have_no_index():
    states = node_states([a_node("a", mode="exclusive"), a_node("b", mode="exclusive")], [a_pod(whole=1, on="b")])
    packed = preview(an_ask(whole=1), states)
    assert (packed.chosen, packed.cards, packed.tie_cards) == ("b", (), ())
    spread = preview(an_ask(whole=1), states, whole_card_policy=PlacementPolicy.SPREAD)
    assert (spread.chosen, spread.verdicts[0].score) == ("a", 75)


def test_a_pod_without_cards_goes_where_most_is_free():
    nodes = [a_node("a", mode=""), a_node("b", mode="")]
    assert see(an_ask(cpu=1000), *nodes, pods=[a_pod(cpu=30_000, on="a")]).chosen == "b"


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


def test_what_terminating_pods_hold_is_free_on_the_card_but_not_on_the_node():
    leaving = a_pod("leaving", mem=12, at={0: 12}, terminating=True)
    seen = see(an_ask(mem=10), a_node(cards=2), pods=[leaving, *filled(0, 8)])
    assert (seen.chosen, seen.cards, seen.verdicts[0].waits_for) == ("n1", (0,), 1)
    assert see(an_ask(mem=2), a_node(cards=2), pods=[leaving]).verdicts[0].waits_for == 0
    assert reason_of(see(an_ask(mem=10), a_node(cards=1), pods=[leaving])) == (
        "0/1 nodes are available: 1 Insufficient aliyun.com/gpu-mem."
    )


def test_a_terminating_pods_compute_is_free_on_the_card():
    node = a_node(mode="core_mem", cards=2)
    leaving = a_pod("leaving", mem=2, core=60, at={0: 2}, core_at={0: 60}, terminating=True)
    staying = a_pod("staying", mem=12, core=10, at={1: 12}, core_at={1: 10})
    seen = see(an_ask(mem=4, core=50), node, pods=[leaving, staying])
    assert (seen.cards, seen.verdicts[0].waits_for) == ((0,), 1)


def test_pending_pods_are_on_no_card_but_count_on_the_node():
    seen = see(an_ask(mem=4), a_node(cards=1), pods=[a_pod("pending", mem=10)])
    assert (seen.chosen, seen.verdicts[0].score) == ("n1", 78)
    assert see(an_ask(mem=6), a_node(cards=1), pods=[a_pod("pending", mem=10)]).chosen is None


def test_an_over_allocated_card_takes_nothing_and_free_room_is_never_negative():
    over = a_pod("over", mem=20, at={0: 20})
    (rejection,) = see(an_ask(mem=4), a_node(cards=1), pods=[over]).verdicts[0].rejections
    assert (rejection.code, rejection.free) == ("insufficient", 0)
    (rejection,) = see(an_ask(mem=11), a_node(cards=3), pods=[over, *filled(0, 5, 5)]).verdicts[0].rejections
    assert (rejection.code, rejection.free, rejection.best) == ("device", 15, 10)


def test_topology_takes_the_fastest_set_and_the_tightest_node():
    links = ((0.0, 16.0, 50.0), (16.0, 0.0, 16.0), (50.0, 16.0, 0.0))
    nodes = [a_node("wide", mode="topology", cards=4), a_node("tight", mode="topology", cards=3, links=links)]
    seen = see(an_ask(topology=2), *nodes)
    assert (seen.chosen, seen.cards, seen.tie_cards) == ("tight", (0, 2), (0, 2))
    taken = a_pod(topology=1, on="tight", annotations={"topology.kubernetes.io/gpu-group": "2"})
    seen = see(an_ask(topology=2, node_selector={}), nodes[1], pods=[taken])
    assert seen.cards == (0, 1)


def test_a_card_of_a_terminating_topology_pod_is_free_for_the_ledger():
    leaving = a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "0"}, terminating=True)
    seen = see(an_ask(topology=1), a_node(mode="topology", cards=2), pods=[leaving])
    assert (seen.cards, seen.verdicts[0].waits_for) == ((0,), 1)


@pytest.mark.parametrize(
    ("node", "ask"),
    [
        (a_node(), an_ask(mem=4)),
        (a_node(), labelled(2, mem=8)),
        (a_node(mode="core_mem"), an_ask(mem=4, core=30)),
        (a_node(mode="exclusive"), an_ask(whole=2)),
        (a_node(mode="topology"), an_ask(topology=2)),
        (a_node(), an_ask(cpu=500)),
    ],
)
def test_taking_gives_the_numbers_that_reading_the_written_annotations_gives(node, ask):
    """What a preview takes and what the fold reads back from the scheduler's annotations must never differ."""
    before = node_state(node, filled(3, 5) if node.memory_units and not node.core_percent else [])
    seen = preview(ask, [before])
    assert seen.chosen == "n1"
    after = take(before, ask, seen.cards)
    notes = {}
    if node.memory_units and ask.containers[0].limits.get(MEM):
        notes = share_annotations(ask, seen.cards, card_units=(15,) * 4, assumed_at_ns=1)
    if ask.containers[0].limits.get(TOPOLOGY):
        notes = topology_annotations(ask, seen.cards, assumed_at_ns=1)
    pod = a_pod("new", *ask.containers, annotations=notes)
    read = node_state(node, [*(filled(3, 5) if node.memory_units and not node.core_percent else []), pod])
    assert (after.requested, after.pods) == (read.requested, read.pods)
    for field in ("cards_used", "memory_units_used", "core_percent_used", "cards_releasing"):
        assert getattr(after.allocation, field) == getattr(read.allocation, field)
    for mine, theirs in zip(after.allocation.gpus, read.allocation.gpus, strict=True):
        for field in ("memory_units_used", "core_percent_used", "cards_used"):
            assert getattr(mine, field) == getattr(theirs, field)


def test_states_count_bound_pods_that_are_not_finished():
    pods = [
        a_pod("a", cpu=500),
        a_pod("b", cpu=500, phase="Succeeded"),
        a_pod("c", cpu=250, terminating=True),
        a_pod("d", cpu=500, on=""),
        a_pod("e", cpu=500, on="n2"),
    ]
    state = node_state(a_node(), pods)
    assert (state.requested, state.pods) == ({"cpu": 750}, 2)
    assert node_states([a_node()], pods) == [state]


def test_exclusive_cards_are_asked_for_as_the_node_has_them():
    assert see(an_ask(whole=4), a_node(mode="exclusive")).chosen == "n1"
    assert see(an_ask(whole=4), a_node(mode="exclusive", resources={WHOLE: 3})).chosen is None


def test_the_score_of_a_pod_without_cards_is_the_mean_of_free_cpu_and_memory_in_whole_per_cent():
    node = a_node(mode="", resources={"cpu": 3000, "memory": 1000})
    pods = [a_pod(cpu=1000)]
    assert see(an_ask(container(cpu=1000, memory=100)), node, pods=pods).verdicts[0].score == (33 + 90) // 2
    assert see(an_ask(container(cpu=2000, memory=100)), node, pods=pods).verdicts[0].score == (0 + 90) // 2
    half = a_node(mode="", resources={"cpu": 2000, "memory": 2000})
    assert see(an_ask(container(cpu=1000, memory=1000)), half).verdicts[0].score == 50
    assert see(an_ask(), a_node(mode="", resources={"cpu": 0, "memory": 0})).verdicts[0].score == 0


def test_topology_scores_by_how_much_of_the_free_cards_is_taken():
    taken = a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "0"})
    assert see(an_ask(topology=1), a_node(mode="topology", cards=5), pods=[taken]).verdicts[0].score == 25


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


@pytest.mark.parametrize(("mem", "core", "waits"), [(5, 40, 0), (6, 40, 1), (5, 45, 1), (5, 0, 0)])
def test_a_pod_waits_only_for_what_it_cannot_do_without(mem, core, waits):
    node = a_node(mode="core_mem" if core else "cgpu", cards=2)
    leaving = a_pod(
        "leaving", mem=10, core=60 if core else 0, at={0: 10}, core_at={0: 60} if core else None, terminating=True
    )
    full = a_pod("full", mem=14, core=5 if core else 0, at={1: 14}, core_at={1: 5} if core else None)
    seen = see(an_ask(mem=mem, core=core), node, pods=[leaving, full])
    assert (seen.cards, seen.verdicts[0].waits_for) == ((0,), waits)


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
