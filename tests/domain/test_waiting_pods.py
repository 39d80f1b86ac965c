"""Why a pod waits: what is said is true of the nodes in its reach, and of no others."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.allocation import fold_all
from gpupools.domain.diagnosis import Scene, Severity, diagnose, scene, waiting
from gpupools.domain.gpus import AffinityTerm, GpuNode, Requirement, Taint
from gpupools.domain.messages import GATED
from gpupools.domain.placement import node_states, preview
from tests.domain.builders import MEM, ROOM, TOPOLOGY, WHOLE, a_node, a_pod, filled, with_port

MODE = "ack.node.gpu.schedule"
IN = {mode: {MODE: mode} for mode in ("cgpu", "share", "core_mem", "topology")} | {"exclusive": {MODE: "default"}}
CPU_NODE = GpuNode("cpu-1", allocatable=ROOM, capacity=ROOM)


def waiting_pod(*containers, name="w", selects=None, said=None, gated=False, **fields):
    """A pod on no node; ``said`` is what the scheduler told of it, by default what the engine would."""
    ask_fields = {key: fields.pop(key) for key in ("required_terms", "node_selector", "tolerations") if key in fields}
    pod = a_pod(name, *containers, on="", phase="Pending", **fields)
    ask = msgspec.structs.replace(pod.ask, node_selector=IN[selects] if selects else {}, gated=gated, **ask_fields)
    return msgspec.structs.replace(pod, ask=ask, message=said or "")


def found(nodes, pods, pod):
    if not pod.message:
        pod = msgspec.structs.replace(pod, message=preview(pod.ask, node_states(nodes, pods)).message or "0/9 nodes x")
    everything = [*pods, pod]
    seen = diagnose(Scene(nodes, everything, (), folds=fold_all(nodes, everything)))
    return [each for each in seen if f"{pod.namespace}/{pod.name}" in each.pods]


def only(nodes, pods, pod):
    (one,) = found(nodes, pods, pod)
    return one


def test_memory_of_nodes_that_it_does_not_select_is_none_of_its_business():
    nodes = [a_node("c1", "cgpu"), a_node("s1", "share", cards=2), CPU_NODE]
    one = only(nodes, filled(15, 15, 15, 13, on="c1"), waiting_pod(mem=5, selects="cgpu"))
    assert (one.code, one.scenario, one.severity) == ("insufficient-memory", 8, Severity.WARNING)
    assert one.message == "default/w waits: no node in its reach has 5 memory units left."
    assert one.evidence == "c1: 2 on its emptiest card, 2 in all."


def test_a_pod_short_of_cpu_is_not_told_of_memory():
    nodes = [a_node("c1", "cgpu"), a_node("s1", "share"), CPU_NODE]
    one = only(nodes, (), waiting_pod(mem=1, cpu=999_000))
    assert one.code == "insufficient-other"
    assert one.message == "default/w waits: no node in its reach has 999 of cpu left."
    assert "c1: 15 on its emptiest card, 60 in all, 64 of cpu" in one.evidence


def test_what_no_node_has_in_all_is_named_before_what_is_only_taken():
    full = [pod for name in ("c1", "c2") for pod in filled(15, 15, 15, 15, on=name, prefix=name)]
    one = only([a_node("c1"), a_node("c2")], full, waiting_pod(mem=1, cpu=999_000))
    assert one.code == "insufficient-other"


def test_compute_is_what_is_short_where_memory_is_left():
    node = a_node("m1", "core_mem", cards=2)
    held = [a_pod(f"h{card}", mem=11, core=60, at={card: 11}, core_at={card: 60}, on="m1") for card in (0, 1)]
    one = only([node], held, waiting_pod(mem=1, core=45, selects="core_mem"))
    assert (one.code, one.scenario) == ("no-card-has-room", 9)
    assert "no single card has 1 memory unit and 45% of its compute left" in one.message
    assert one.evidence == "m1: 4 on its emptiest card, 8 in all, at most 40% of a card's compute."


def test_compute_of_all_cards_together():
    node = a_node("m1", "core_mem", cards=1)
    held = [a_pod("h", mem=2, core=80, at={0: 2}, core_at={0: 80}, on="m1")]
    one = only([node], held, waiting_pod(mem=1, core=45, selects="core_mem"))
    assert one.code == "insufficient-compute"
    assert one.message == "default/w waits: no node in its reach has 45% of compute left."


def test_an_affinity_that_leaves_no_node():
    terms = (AffinityTerm((Requirement("cards", "Gt", ("8",)),)),)
    one = only([a_node("c1"), a_node("c2"), CPU_NODE], (), waiting_pod(mem=1, required_terms=terms))
    assert one.code == "no-node-in-reach"
    assert "2 nodes: Its node selector or affinity wants cards Gt 8 (not there)." in one.evidence


def test_taints_and_cordons_keep_nodes_out_of_reach():
    nodes = [a_node("c1", taints=(Taint("team", "a"),)), a_node("c2", unschedulable=True)]
    one = only(nodes, (), waiting_pod(mem=1))
    assert "1 node: It does not tolerate team=a:NoSchedule." in one.evidence
    assert "cordoned" in one.evidence


def test_resources_of_two_modes_are_given_by_no_node():
    nodes = [a_node("c1"), a_node("e1", "exclusive"), CPU_NODE]
    one = only(nodes, (), waiting_pod(mem=1, whole=1))
    assert (one.code, one.scenario) == ("wrong-resource", 14)
    assert "no node in its reach gives aliyun.com/gpu-mem and nvidia.com/gpu in its mode" in one.message
    assert one.evidence == "In its reach: 1 node in mode cgpu, 1 node in mode exclusive."


def test_memory_alone_does_not_get_onto_cards_with_compute():
    nodes = [a_node("m1", "core_mem"), a_node("c1", taints=(Taint("team"),))]
    one = only(nodes, (), waiting_pod(mem=1))
    assert one.code == "wrong-resource"
    assert (
        "In its reach: 1 node in mode core_mem. Out of it: 1 node: It does not tolerate team:NoSchedule."
        in one.evidence
    )


@pytest.mark.parametrize(("mode", "resource"), [("exclusive", "whole"), ("topology", "topology")])
def test_whole_cards_that_are_all_taken(mode, resource):
    nodes = [a_node("n1", mode, cards=4), a_node("n2", mode, cards=2), a_node("c1", "cgpu"), CPU_NODE]
    held = [a_pod("h1", on="n1", **{resource: 4}), a_pod("h2", on="n2", **{resource: 1})]
    one = only(nodes, held, waiting_pod(selects=mode, **{resource: 2}))
    assert (one.code, one.scenario) == ("insufficient-cards", 8)
    assert one.message == "default/w waits: no node in its reach has 2 cards left."
    assert one.evidence == "n2: 1 of 2 cards free; n1: 0 of 4 cards free."
    assert {WHOLE, TOPOLOGY} & set(nodes[0].allocatable)


def test_one_card():
    one = only([a_node("n1", "exclusive", cards=1)], [a_pod("h", whole=1)], waiting_pod(whole=1))
    assert one.message == "default/w waits: no node in its reach has 1 card left."


def test_room_in_pieces_on_some_nodes_and_none_on_others():
    nodes = [a_node("c1", cards=2), a_node("c2", cards=2)]
    held = [*filled(10, 10, on="c1", prefix="a"), *filled(15, 15, on="c2", prefix="b")]
    one = only(nodes, held, waiting_pod(mem=8))
    assert one.code == "no-card-has-room"
    assert "no single card has 8 memory units left" in one.message
    assert one.evidence == "c1: 5 on its emptiest card, 10 in all; c2: 0 on its emptiest card, 0 in all."


def test_a_share_over_several_cards():
    pod = waiting_pod(mem=16, label_count=2)
    one = only([a_node("c1", cards=3)], filled(10, 10, on="c1"), pod)
    assert "no node in its reach has 8 memory units left on each of 2 cards" in one.message


def test_different_wants_of_different_nodes_are_all_said():
    nodes = [a_node("c1"), a_node("c2", resources={"cpu": 1_000})]
    one = only(nodes, filled(15, 15, 15, 15, on="c1"), waiting_pod(mem=1, cpu=2_000))
    assert "memory of cards on 1 of 2" in one.message
    assert "cpu on 1 of 2" in one.message


@pytest.mark.parametrize(
    ("node", "pod", "code"),
    [
        (a_node("c1", resources={"pods": 1}), {"mem": 1}, "too-many-pods"),
        (a_node("c1", cards=1, labels={"ack.node.gpu.max-pod": "1"}), {"mem": 1}, "cards-have-their-pods"),
        (a_node("c1", labels={"ack.node.gpu.max-pod": "many"}), {"mem": 1}, "cards-have-their-pods"),
    ],
)
def test_what_else_a_node_may_be_short_of(node, pod, code):
    assert only([node], filled(1, on="c1"), waiting_pod(**pod)).code == code


def test_a_port_that_is_taken():
    held = a_pod("h", with_port(80, mem=1), at={0: 1}, on="c1")
    one = only([a_node("c1")], [held], waiting_pod(with_port(80, mem=1)))
    assert one.code == "port-taken"


def test_a_group_that_fits_pod_by_pod_and_not_together():
    labels = {"gputopology.alibabacloud.com/pod-group": "g", "gputopology.alibabacloud.com/replica": "2"}
    pods = [waiting_pod(name=name, topology=3, said="Insufficient gpus", selects="topology") for name in ("w0", "w1")]
    pods = [msgspec.structs.replace(pod, ask=msgspec.structs.replace(pod.ask, labels=labels)) for pod in pods]
    one = only([a_node("t1", "topology", cards=4)], pods[:1], pods[1])
    assert one.code == "insufficient-cards"
    assert "no room for its whole group" in one.message


def test_a_rule_about_the_manifest_says_it_alone():
    (one,) = found([a_node("c1"), a_node("e1", "exclusive")], (), waiting_pod(whole=1, selects="cgpu"))
    assert (one.code, one.severity) == ("wrong-resource", Severity.ERROR)


def test_gates_new_pods_and_pods_on_their_way_are_nothing_to_say():
    nodes = [a_node("c1")]
    assert not found(nodes, (), waiting_pod(mem=99, gated=True, said=GATED))
    silent = waiting_pod(mem=99)
    assert not diagnose(Scene(nodes, [silent], (), folds=fold_all(nodes, [])))


def test_a_scheduler_of_ones_own_is_named_whether_it_has_spoken_or_not():
    pod = waiting_pod(mem=1)
    pod = msgspec.structs.replace(pod, ask=msgspec.structs.replace(pod.ask, scheduler="volcano"))
    (one,) = diagnose(Scene([a_node("c1")], [pod], (), folds={}))
    assert (one.code, one.severity) == ("another-scheduler", Severity.INFO)


def test_where_the_engine_finds_room_the_schedulers_words_decide():
    nodes = [a_node("c1")]
    stale = only(nodes, (), waiting_pod(mem=1, said="0/1 nodes are available: 1 Insufficient aliyun.com/gpu-mem."))
    assert (stale.code, stale.severity) == ("room-now", Severity.INFO)
    words = "0/1 nodes are available: 1 node(s) had volume node affinity conflict."
    assert only(nodes, (), waiting_pod(mem=1, said=words)).code == "waits-for-other"


def test_of_very_many_that_wait_the_last_are_told_by_the_schedulers_words(monkeypatch):
    monkeypatch.setattr(scene, "MOST_ANSWERS", 0)
    said = "0/1 nodes are available: 1 Insufficient aliyun.com/gpu-mem."
    one = only([a_node("c1")], (), waiting_pod(mem=99, said=said))
    assert one.code == waiting.NOT_ASKED
    assert one.evidence.startswith("It asks for 99 of aliyun.com/gpu-mem")


def test_equal_pods_of_one_owner_are_told_of_together():
    pods = [
        waiting_pod(name=f"w{number}", mem=99, said="0/1 nodes are available: 1 Insufficient aliyun.com/gpu-mem.")
        for number in range(3)
    ]
    pods = [msgspec.structs.replace(pod, owner_kind="Job", owner_name="j") for pod in pods]
    (one,) = diagnose(Scene([a_node("c1")], pods, (), folds=fold_all([a_node("c1")], pods)))
    assert one.pods == ("default/w0", "default/w1", "default/w2")
    assert MEM not in one.message
