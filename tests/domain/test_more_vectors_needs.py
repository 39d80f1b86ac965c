"""What a pod needs of a node as a whole, from raw objects: containers, sidecars, overhead, the pod itself, ports."""

from __future__ import annotations

import pytest

from gpupools.domain import objects
from gpupools.domain.messages import GATED, Unschedulable, read_failed_scheduling
from tests.domain.rawobjects import MEM, WHOLE, allocated, box, exclusive, raw_node, raw_pod, refusal, seen, shared

CPU_SHORT = "1 Insufficient cpu"


def cpu(amount, **more):
    return box(requests={"cpu": amount}, **more)


def sidecar(amount):
    return cpu(amount, restartPolicy="Always")


@pytest.mark.parametrize(
    ("containers", "spec", "millicores"),
    [
        ([cpu("500m"), cpu("600m")], {}, 1100),
        ([cpu("1"), cpu("1")], {"initContainers": [cpu("3"), cpu("2")]}, 3000),
        ([cpu("1")], {"initContainers": [sidecar("1"), cpu("2")]}, 3000),
        ([cpu("1")], {"initContainers": [cpu("2"), sidecar("1")]}, 2000),
        ([cpu("400m")], {"initContainers": [sidecar("500m"), cpu("1"), sidecar("700m")]}, 1600),
        ([cpu("800m")], {"overhead": {"cpu": "250m"}}, 1050),
        ([cpu("1")], {"initContainers": [cpu("2")], "overhead": {"cpu": "500m"}}, 2500),
        ([box({"cpu": "2"})], {}, 2000),
        ([box({"cpu": "4"}, {"cpu": "1"})], {}, 1000),
        # Of the pod as a whole.
        ([cpu("500m")], {"resources": {"requests": {"cpu": "2"}}}, 2000),
        ([cpu("500m")], {"resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "500m"}}, 2500),
        ([cpu("3")], {"resources": {"requests": {"cpu": "2"}}}, 2000),
        ([cpu("1")], {"resources": {"requests": {"cpu": "2"}}, "initContainers": [cpu("4")]}, 2000),
        ([cpu("1")], {"resources": {"requests": {"memory": "1Gi"}}}, 1000),
        ([cpu("1")], {"resources": {"limits": {"cpu": "5"}}}, 1000),
        ([box()], {"resources": {"limits": {"cpu": "5"}}}, 5000),
        ([box()], {"resources": {"limits": {"cpu": "5"}, "requests": {"cpu": "1"}}}, 1000),
        ([cpu("1")], {"resources": {"requests": {WHOLE: "4"}}}, 1000),
        ([cpu("1")], {"resources": None}, 1000),
    ],
)
def test_a_node_must_have_all_of_what_a_pod_needs_at_once(containers, spec, millicores):
    pod = raw_pod("p", *containers, **spec)
    assert seen(pod, raw_node(cpu=f"{millicores}m")).chosen == "n1"
    assert seen(pod, raw_node(cpu=f"{millicores - 1}m")).message == refusal(1, CPU_SHORT)


def test_huge_pages_of_the_pod_stand_in_for_those_of_its_containers():
    pod = raw_pod("p", box({"hugepages-2Mi": "4Mi"}), resources={"limits": {"hugepages-2Mi": "8Mi"}})
    assert seen(pod, raw_node(**{"hugepages-2Mi": "8Mi"})).chosen == "n1"
    assert seen(pod, raw_node(**{"hugepages-2Mi": "7Mi"})).message == refusal(1, "1 Insufficient hugepages-2Mi")


@pytest.mark.parametrize(
    "holder",
    [
        raw_pod("a", cpu("6"), on="n1"),
        raw_pod("a", cpu("6"), on="n1", phase="Pending"),
        raw_pod("a", cpu("6"), on="n1", phase="Unknown"),
        raw_pod("a", cpu("1"), on="n1", initContainers=[cpu("6")]),
        raw_pod("a", cpu("1"), on="n1", resources={"requests": {"cpu": "6"}}),
        raw_pod("a", cpu("1"), on="n1", overhead={"cpu": "5"}),
    ],
)
def test_what_a_bound_pod_holds_is_counted_alike(holder):
    assert seen(raw_pod("p", cpu("3")), raw_node(), pods=[holder]).message == refusal(1, CPU_SHORT, resolvable=1)
    assert seen(raw_pod("p", cpu("2")), raw_node(), pods=[holder]).chosen == "n1"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_neither_resources_nor_a_place_nor_ports(phase):
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    done = raw_pod("a", cpu("8", **port), on="n1", phase=phase)
    assert seen(raw_pod("p", cpu("8", **port)), raw_node(pods="1"), pods=[done]).chosen == "n1"


def test_a_full_node_says_so_beside_what_else_is_short():
    node, holder = raw_node(pods="1", cpu="1"), raw_pod("a", on="n1")
    assert seen(raw_pod("p"), node, pods=[holder]).message == refusal(1, "1 Too many pods", resolvable=1)
    both = seen(raw_pod("p", cpu("2")), node, pods=[holder])
    assert both.message == refusal(1, "1 Insufficient cpu, 1 Too many pods")


def test_none_of_a_resource_that_a_node_lacks_is_enough():
    assert seen(raw_pod("p", box({"example.com/x": "0"})), raw_node()).chosen == "n1"
    assert seen(raw_pod("p", box({"example.com/x": "1"})), raw_node()).message == refusal(
        1, "1 Insufficient example.com/x"
    )


def test_a_sidecars_share_counts_on_the_node_and_on_no_card():
    beside = box({MEM: "3"}, restartPolicy="Always")
    pod = raw_pod("p", box({MEM: "4"}), initContainers=[beside])
    held = [raw_pod("a", box({MEM: "9"}), on="n1", annotations=allocated({0: 9}))]
    assert seen(pod, shared(cards=1), pods=held).message == refusal(
        1, "1 Insufficient aliyun.com/gpu-mem", resolvable=1
    )
    roomy = seen(
        pod, shared(cards=2), pods=[*held, raw_pod("b", box({MEM: "11"}), on="n1", annotations=allocated({1: 11}))]
    )
    assert (roomy.chosen, roomy.cards) == ("n1", (1,))


def test_a_pod_behind_a_gate_goes_nowhere_until_it_is_opened():
    pod = raw_pod("p", box({WHOLE: "1"}), schedulingGates=[{"name": "quota.example/wait"}])
    said = seen(pod, exclusive())
    assert (said.chosen, said.verdicts, said.message, said.prefilter) == (None, (), GATED, GATED)
    assert read_failed_scheduling(said.message) == Unschedulable(0, prefilter=GATED)
    assert seen(raw_pod("p", box({WHOLE: "1"}), schedulingGates=[]), exclusive()).chosen == "n1"


@pytest.mark.parametrize(
    ("pod", "reasons"),
    [
        (raw_pod("p", box({WHOLE: "1"}), preemptionPolicy="Never"), "1 Insufficient nvidia.com/gpu"),
        (
            raw_pod("p", box({MEM: "3"}), preemptionPolicy="Never", labels={"aliyun.com/gpu-count": "2"}),
            "invalid replica for resource aliyun.com/gpu-mem,because 3 / 2 = 1.5",
        ),
    ],
)
def test_a_pod_that_never_preempts_is_told_so(pod, reasons):
    said = seen(pod, raw_node())
    assert said.message == (
        f"0/1 nodes are available: {reasons}. no new claims to deallocate, "
        "preemption: not eligible due to preemptionPolicy=Never."
    )
    back = read_failed_scheduling(said.message)
    assert back.preemption == "not eligible due to preemptionPolicy=Never"
    assert (back.victims_missing, back.not_helpful, back.prefilter == reasons) == (0, 0, bool(said.prefilter))


def test_the_default_policy_of_preemption_is_no_other():
    given = raw_pod("p", box({WHOLE: "1"}), preemptionPolicy="PreemptLowerPriority")
    assert seen(given, raw_node()).message == refusal(1, "1 Insufficient nvidia.com/gpu")


@pytest.mark.parametrize(
    ("holder", "asked", "free"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 81}, True),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "0.0.0.0"}, False),
        ({"hostPort": 80}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False),
    ],
)
def test_a_port_of_the_node_is_free_by_protocol_and_address(holder, asked, free):
    taken = raw_pod("a", box(ports=[{"containerPort": 80, **holder}]), on="n1")
    said = seen(raw_pod("p", box(ports=[{"containerPort": 80, **asked}])), raw_node(), pods=[taken])
    short = "1 node(s) didn't have free ports for the requested pod ports"
    assert said.message == ("" if free else refusal(1, short, resolvable=1))


@pytest.mark.parametrize(("restart", "free"), [("Always", False), (None, True)])
def test_only_a_sidecars_ports_are_taken_among_init_containers(restart, free):
    beside = box(ports=[{"containerPort": 80, "hostPort": 80}], restartPolicy=restart)
    taken = raw_pod("a", on="n1", initContainers=[beside])
    said = seen(raw_pod("p", box(ports=[{"containerPort": 80, "hostPort": 80}])), raw_node(), pods=[taken])
    assert (said.chosen is not None) is free


def test_a_node_that_says_nothing_of_being_ready_is_judged_by_its_taints():
    assert seen(raw_pod(), raw_node()).chosen == "n1"
    node = raw_node()
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert seen(raw_pod(), node).message == refusal(1, "1 node(s) had untolerated taint(s)")
    assert [objects.convert("Node", each).silent for each in (raw_node(), node)] == [True, False]
    assert objects.convert("Node", raw_node()).ready is False
