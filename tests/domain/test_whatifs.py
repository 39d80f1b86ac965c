"""What would help a pod that fits nowhere; whatever is named was tried."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.gpus import AffinityTerm, Requirement, Taint
from gpupools.domain.placement import node_states, preview
from gpupools.domain.whatifs import Edit, Help, LargestFree, what_would_help
from tests.domain.builders import MEM, WHOLE, a_node, a_pod, an_ask, container, filled
from tests.domain.picks import cases
from tests.domain.test_placement_oracle import some_nodes, states_of

POOL = "alibabacloud.com/nodepool-id"
MODE = "ack.node.gpu.schedule"
TOLERATED = '{"key": "gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}'


def helped(ask, *nodes, pods=()):
    return what_would_help(ask, node_states(nodes, pods))


def key_of(option):
    """What an option is known by: what it asks for in another mode, otherwise the first value that it writes."""
    amounts = [each for each in option.edits if ".limits[" in each.field and each.value]
    if option.code == "mode" and amounts:
        return ", ".join(f"{each.field.rpartition('[')[2][:-1]}: {each.value}" for each in amounts)
    return option.pool or (option.edits[0].value if option.edits else "")


def options(ask, *nodes, pods=()):
    return {(each.code, key_of(each)): each for each in helped(ask, *nodes, pods=pods).options}


def test_one_that_fits_needs_no_help_and_one_that_is_invalid_gets_none():
    assert helped(an_ask(mem=4), a_node()) == Help()
    assert helped(an_ask(mem=4)) == Help()
    assert helped(an_ask(mem=10, labels={"aliyun.com/gpu-count": "3"}), a_node()) == Help()
    assert helped(an_ask(mem=4, core=33), a_node(mode="core_mem")) == Help()


def test_the_largest_free_card_is_the_largest_in_reach():
    nodes = [
        a_node("far", taints=(Taint("k", "v"),)),
        a_node("small", cards=2),
        a_node("large", cards=2),
        a_node("whole", mode="exclusive"),
    ]
    pods = [*filled(9, 10, on="small"), *filled(11, 8, on="large")]
    found = helped(an_ask(mem=9), *nodes, pods=pods)
    assert found.largest == LargestFree("large", MEM, 7, 1)
    assert options(an_ask(mem=9), *nodes, pods=pods)["smaller", "7"].node == "large"


def test_of_equal_cards_the_first_of_the_first_node_is_named():
    found = helped(an_ask(mem=16), a_node("b"), a_node("a"))
    assert found.largest == LargestFree("a", MEM, 15, 0)


def test_a_card_cannot_give_more_than_its_node_has_left():
    # What is bound without a readable allocation is on no card, yet the scheduler counts it on the node.
    found = helped(an_ask(mem=13), a_node(cards=1), pods=[a_pod("waits", mem=5)])
    assert found.largest == LargestFree("n1", MEM, 10, 0)


def test_the_largest_number_of_whole_cards():
    found = helped(an_ask(whole=4), a_node(mode="exclusive"), pods=[a_pod(whole=1)])
    assert found.largest == LargestFree("n1", WHOLE, 3, None)
    option = options(an_ask(whole=4), a_node(mode="exclusive"), pods=[a_pod(whole=1)])["smaller", "3"]
    assert option.edits == (Edit("spec.containers[0].resources.limits[nvidia.com/gpu]", "4", "3"),)


def test_nothing_is_free_in_reach():
    full = helped(an_ask(mem=4), a_node(cards=1), pods=filled(15))
    assert (full.largest, [each.code for each in full.options]) == (None, [])
    assert helped(an_ask(cpu=10**9), a_node(resources={"cpu": 0})).largest is None


def test_several_containers_are_not_made_smaller():
    ask = an_ask(container(mem=10), container(mem=10))
    assert not {code for code, _ in options(ask, a_node(cards=1))} & {"smaller", "mode"}


def test_a_share_over_several_cards_is_made_smaller_on_each():
    ask = an_ask(mem=20, labels={"aliyun.com/gpu-count": "2"})
    option = options(ask, a_node(cards=2), pods=filled(8, 8))["smaller", "14"]
    assert option.cards == (0, 1)


def test_terminating_pods_that_hold_the_place():
    going = a_pod("going", mem=15, at={0: 15}, terminating=True)
    option = options(an_ask(mem=15), a_node(cards=1), pods=[going])["wait", ""]
    assert option.sentence == "Wait until the terminating pod has ended: it would land on n1."
    whole = [a_pod(f"w{n}", whole=2, terminating=True) for n in range(2)]
    option = options(an_ask(whole=3), a_node(mode="exclusive"), pods=whole)["wait", ""]
    assert option.sentence.startswith("Wait until the 2 terminating pods have ended")
    core = a_pod("c", mem=1, core=100, at={0: 1}, core_at={0: 100}, terminating=True)
    assert ("wait", "") in options(an_ask(mem=1, core=50), a_node(mode="core_mem", cards=1), pods=[core])
    assert ("wait", "") in options(an_ask(mem=1), a_node(cards=1, resources={"pods": 1}), pods=[going])
    topology = a_pod("t", topology=4, terminating=True)
    assert ("wait", "") in options(an_ask(topology=4), a_node(mode="topology"), pods=[topology])
    assert ("wait", "") not in options(an_ask(mem=16), a_node(cards=1), pods=[going])


def test_a_taint_that_keeps_it_out():
    node = a_node(taints=(Taint("gpu", "present", "NoSchedule"),))
    option = options(an_ask(mem=4), node)["toleration", TOLERATED]
    assert (option.node, option.edits[0].field) == ("n1", "spec.tolerations[0]")
    assert option.sentence == "Tolerate the taint gpu=present:NoSchedule: it would land on n1."
    plain = a_node(taints=(Taint("gpu", "", "NoExecute"),))
    assert [each.sentence for each in helped(an_ask(mem=4), plain).options] == [
        "Tolerate the taint gpu:NoExecute: it would land on n1."
    ]


@pytest.mark.parametrize(
    "taints",
    [
        (Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),),
        (Taint("a", "1"), Taint("b", "2")),
    ],
)
def test_a_toleration_that_would_not_do_is_not_named(taints):
    assert not [code for code, _ in options(an_ask(mem=4), a_node(taints=taints)) if code == "toleration"]


def test_a_node_that_is_away_is_not_helped_by_tolerations():
    assert options(an_ask(mem=4), a_node(ready=False)) == {}


def test_another_value_of_a_selector_or_none():
    name = "aliyun.accelerator/nvidia_name"
    nodes = [a_node("a", labels={name: "T4"}), a_node("b", labels={name: "A10"}), a_node("c")]
    ask = an_ask(mem=4, node_selector={name: "V100"})
    found = options(ask, *nodes)
    assert found["selector", "T4"].node == "a"
    assert found["selector", "A10"].sentence == f"Select {name}=A10 instead of V100: it would land on b."
    assert ("selector", "") not in found
    nowhere = options(ask, a_node("c"))["selector", ""]
    assert (nowhere.node, nowhere.edits) == ("c", (Edit(f"spec.nodeSelector[{name}]", "V100", ""),))


def test_another_pool():
    nodes = [a_node("a", cards=1, labels={POOL: "np1"}), a_node("b", labels={POOL: "np2"})]
    found = options(an_ask(mem=15, node_selector={POOL: "np1"}), *nodes, pods=filled(1, on="a"))
    assert found["pool", "np2"].node == "b"
    assert found["node", "np1"].sentence == (
        "One more node of pool np1 would take it, if made as a is; no DaemonSet pods are known that it would carry."
    )


def test_a_required_affinity_in_the_way():
    term = AffinityTerm((Requirement("zone", "In", ("b",)),))
    found = options(an_ask(mem=4, required_terms=(term,)), a_node())
    assert found["selector", ""].edits[0].field.endswith("requiredDuringSchedulingIgnoredDuringExecution")


def test_the_resources_of_another_mode():
    found = options(an_ask(mem=4), a_node(mode="exclusive"))
    assert found["mode", "nvidia.com/gpu: 1"].edits[0] == Edit(f"spec.containers[0].resources.limits[{MEM}]", "4")
    assert options(an_ask(whole=1), a_node("s"))["mode", "aliyun.com/gpu-mem: 15"].node == "s"
    two = options(an_ask(whole=2), a_node("s"))["mode", "aliyun.com/gpu-mem: 30"]
    assert (two.cards, "over 2 cards" in two.sentence) == ((0, 1), True)
    assert options(an_ask(topology=2), a_node("x", mode="exclusive"))["mode", "nvidia.com/gpu: 2"].node == "x"
    assert options(an_ask(whole=2), a_node("t", mode="topology"))["mode", "aliyun.com/gpu: 2"].node == "t"
    core = options(an_ask(mem=5), a_node(mode="core_mem"))
    assert list(core) == [("mode", "aliyun.com/gpu-core.percentage: 35")]
    assert options(an_ask(mem=5, core=20), a_node("s"))["mode", ""].sentence == (
        "Ask for 5 of aliyun.com/gpu-mem instead of 5 of aliyun.com/gpu-mem and 20 of aliyun.com/gpu-core.percentage "
        "(Shared, cGPU) and select ack.node.gpu.schedule=cgpu: it would land on s."
    )
    assert not options(an_ask(whole=2), a_node(mode="core_mem"))


def test_another_mode_is_also_selected():
    ask = an_ask(mem=4, node_selector={MODE: "cgpu"})
    found = options(ask, a_node("x", mode="exclusive"), a_node("s", mode="share"))
    assert found["mode", "share"].node == "s"
    assert found["mode", "nvidia.com/gpu: 1"].node == "x"


def test_one_more_node_is_made_empty_healthy_and_open():
    node = a_node(
        labels={POOL: "np", "kubernetes.io/hostname": "n1"},
        unschedulable=True,
        ready=False,
        unhealthy=(0, 1, 2, 3),
        taints=(Taint("node.kubernetes.io/unschedulable"), Taint("gpu", "x", "PreferNoSchedule")),
    )
    found = options(an_ask(mem=15), node, pods=filled(15, 15, 15, 15))
    assert list(found) == [("node", "np")]
    by_name = an_ask(mem=4, node_selector={"kubernetes.io/hostname": "n1"})
    assert ("node", "np") not in options(by_name, node, pods=filled(15, 15, 15, 15))
    assert ("node", "np") not in options(an_ask(mem=16), node)


def test_a_new_node_is_made_after_a_healthy_one():
    sick = a_node("a", cards=1, labels={POOL: "np"}, unhealthy=(0,))
    well = a_node("b", cards=2, labels={POOL: "np"})
    ask = an_ask(mem=30, labels={"aliyun.com/gpu-count": "2"})
    assert ("node", "np") in options(ask, sick, well, pods=filled(1, on="b"))


def test_no_more_values_are_tried_than_help():
    nodes = [a_node(f"n{number}", labels={"zone": f"z{number}"}) for number in range(12)]
    found = options(an_ask(mem=4, node_selector={"zone": "nowhere"}), *nodes)
    assert len(found) == 8
    tainted = [a_node(f"n{number:02}", taints=(Taint(f"t{number:02}", "v"),)) for number in range(12)]
    assert len(options(an_ask(mem=4), *tainted)) == 8


@given(cases(some_nodes, size=64), st.integers(1, 3), st.integers(1, 12))
def test_the_smaller_ask_fits_and_one_unit_more_does_not(nodes, count, each):
    labels = {"aliyun.com/gpu-count": str(count)} if count > 1 else {}
    ask, states = an_ask(mem=count * each, labels=labels), states_of(nodes)
    found = what_would_help(ask, states)
    for option in found.options:
        assert option.node in {state.node.name for state in states}
        if option.code == "smaller":
            assert preview(an_ask(mem=int(option.edits[0].value), labels=labels), states).chosen == option.node
            if count == 1:
                assert preview(an_ask(mem=int(option.edits[0].value) + 1), states).chosen is None
