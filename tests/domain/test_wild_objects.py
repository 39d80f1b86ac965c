"""Objects that nobody would make: whatever stands in them, the engine answers, adds up, and can be read back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from gpupools.domain import allocation, explain, objects, placement, totals, whatifs
from gpupools.domain.ledger import Ledger
from gpupools.domain.messages import read_failed_scheduling
from gpupools.errors import Invalid
from tests.domain.picks import cases
from tests.domain.rawobjects import CORE, COUNT, MEM, TOPOLOGY, WHOLE, box, raw_node, raw_pod, seen, shared

AMOUNTS = ("1", "2", "4", "5", "15", "30", "100", "0", "-3", "0.5", "500m", "1e2", "4Gi", "9E", "1e90", 3, 0.5, None)
TEXTS = (
    "", "0", "1", "2", "-1", "02", "1_0", "²", "é", "\0", "9" * 30, "x" * 70, "{}", "{0}", "null", "true", "0,1",
    "0, 3", '{"0":{"0":4}}', '{"0":{"1":"4"}}', '{"1":{"9":2}}', '{"0":{"0":2,"1":2}}',
    '{"allocatedGPUs":{"0":["0","2"]}}', "cgpu",
    "core_mem", "topology", "spread", "require-whole-device", "16130MiB", "²MiB", "g",
)  # fmt: skip
ODD = (None, True, 7, 10**30, -0.5, [], ["x"], {}, {"x": None}, "x")
RESOURCES = (MEM, CORE, WHOLE, TOPOLOGY, COUNT, "cpu", "gpu")
LABELS = (
    "aliyun.com/gpu-count", "ack.node.gpu.schedule", "ack.node.gpu.placement", "ack.node.gpu.max-pod",
    "aliyun.accelerator/nvidia_mem", "aliyun.accelerator/nvidia_count", "ack.gpushare.placement",
    "gputopology.alibabacloud.com/pod-group", "gputopology.alibabacloud.com/replica", "zone",
)  # fmt: skip
NOTES = (
    "scheduler.framework.gpushare.allocation", "gpushare.alibabacloud.com/core-percentage",
    "gpushare.alibabacloud.com/device-resource", "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD",
    "gputopology.alibabacloud.com/allocation", "topology.kubernetes.io/gpu-group",
)  # fmt: skip
PLACES = ("metadata", "spec", "status", "labels", "annotations", "containers", "affinity", "tolerations", "priority")


def texts(picks, keys):
    return {picks.one_of(*keys): picks.one_of(*TEXTS) for _ in range(picks.between(0, 2))}


def a_box(picks):
    limits = {picks.one_of(*RESOURCES): picks.one_of(*AMOUNTS) for _ in range(picks.between(0, 2))}
    requests = {picks.one_of(*RESOURCES): picks.one_of(*AMOUNTS) for _ in range(picks.one_of(0, 0, 1))}
    return box(
        limits, requests, restartPolicy=picks.one_of(None, "Always"), ports=picks.one_of(None, [{"hostPort": 8}])
    )


def a_rule(picks):
    operator = picks.one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "?")
    return {"key": picks.one_of(*LABELS), "operator": operator, "values": picks.one_of(None, [], ["1"], ["g", "{0}"])}


def spoilt(picks, raw):
    """Put something of another type where it does not belong, now and then."""
    if picks.between(0, 9) == 9:
        place, odd = picks.one_of(*PLACES), picks.one_of(*ODD)
        for part in (raw, raw["metadata"], raw["spec"]):
            if isinstance(part, dict) and place in part:
                part[place] = odd
    return raw


def a_raw_node(picks, name):
    cards, units = picks.between(0, 4), picks.one_of(1, 5, 15)
    mode = picks.one_of("cgpu", "core_mem", "topology", "default", "wild")
    resources = {
        "cgpu": {MEM: str(cards * units), COUNT: str(cards)},
        "core_mem": {MEM: str(cards * units), COUNT: str(cards), CORE: str(100 * cards)},
        "topology": {TOPOLOGY: str(cards)},
        "default": {WHOLE: str(cards)},
        "wild": {picks.one_of(*RESOURCES): picks.one_of(*AMOUNTS) for _ in range(3)},
    }[mode]
    taints = picks.one_of(None, None, [{"key": "k", "value": "{0}", "effect": "NoSchedule"}])
    return spoilt(picks, raw_node(name, resources, labels=texts(picks, LABELS), taints=taints))


def a_raw_pod(picks, name):
    rules = {"nodeSelectorTerms": [{"matchExpressions": [a_rule(picks)]} for _ in range(picks.between(0, 1))]}
    pod = raw_pod(
        name,
        *picks.several(1, 2, a_box),
        on=picks.one_of("n0", "n1", "n2", ""),
        phase=picks.one_of("Running", "Pending", "Failed", "", "?"),
        annotations=texts(picks, NOTES),
        labels=texts(picks, LABELS),
        initContainers=picks.several(0, 1, a_box),
        overhead=picks.one_of(None, None, {WHOLE: picks.one_of(*AMOUNTS)}),
        resources=picks.one_of(None, None, {"requests": {"cpu": picks.one_of(*AMOUNTS)}}),
        nodeSelector=picks.one_of(None, None, {"zone": "{0}"}),
        affinity=picks.one_of(None, None, {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rules}}),
        preemptionPolicy=picks.one_of(None, "Never"),
        schedulingGates=picks.one_of(None, None, None, [{"name": "g"}]),
    )
    if picks.between(0, 3) == 3:
        pod["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    return spoilt(picks, pod)


def a_cluster(picks):
    return (
        [a_raw_node(picks, f"n{number}") for number in range(picks.between(0, 3))],
        [a_raw_pod(picks, f"p{number}") for number in range(picks.between(0, 5))],
        a_raw_pod(picks, "asking"),
    )


def readable(kind, raws):
    for raw in raws:
        try:
            yield objects.convert(kind, raw)
        except Invalid as error:
            assert error.errors[0].field


def adds_up(fold):
    on_cards = sum(gpu.memory_units_used for gpu in fold.gpus)
    lost = fold.memory_units_pending + fold.memory_units_orphan
    assert fold.memory_units_used == (on_cards + lost if fold.memory_units else 0)
    assert sum(fold.strays.values()) == sum(h.memory_units for h in fold.unplaced if h.lost == "unknown-card")
    for gpu in fold.gpus:
        assert gpu.memory_units_used == sum(holding.memory_units for holding in gpu.holdings)
        assert gpu.memory_units_releasing == sum(h.memory_units for h in gpu.holdings if h.releasing)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fold), type=type(fold)) == fold


def reads_back(found, nodes):
    """The reasons and counts of a refusal come back out of its text."""
    if found.chosen is not None or found.problems or not nodes:
        return
    back = read_failed_scheduling(found.message)
    if found.prefilter:
        assert back.prefilter == found.prefilter
        return
    counted: dict[str, int] = {}
    for rejection in (each for verdict in found.verdicts for each in verdict.rejections):
        counted[rejection.reason] = counted.get(rejection.reason, 0) + 1
    assert {reason.text: reason.count for reason in back.reasons} == counted
    assert back.preemption or back.victims_missing + back.not_helpful == nodes


@settings(max_examples=12)
@given(cases(a_cluster, size=400))
def test_any_object_is_refused_by_field_or_answered_in_sums_that_agree(cluster):
    raw_nodes, raw_pods, asking = cluster
    nodes, pods = list(readable("Node", raw_nodes)), list(readable("Pod", raw_pods))
    names = {node.name for node in nodes}
    if len(names) < len(nodes):
        return
    folds = allocation.fold_all(nodes, pods)
    for fold in folds.values():
        adds_up(fold)
    sums = totals.totals(folds.values()).all
    for figure in explain.Figure:
        assert explain.explain(folds.values(), figure).value == getattr(sums, figure.value)
    if len({pod.uid for pod in pods}) == len(pods):
        ledger = Ledger()
        for pod in pods:
            ledger.put_pod(msgspec.structs.replace(pod, node="n0"))
        for node in nodes:
            ledger.put_node(node)
        for pod in reversed(pods):
            ledger.put_pod(pod)
        assert dict(ledger.allocations) == folds
    states = placement.node_states(nodes, pods)
    for pod in readable("Pod", [asking]):
        for found in placement.sequence(pod.ask, 2, states):
            reads_back(found, len(nodes))
        if found.chosen is None:
            whatifs.what_would_help(pod.ask, states, [found])


def test_braces_in_a_selector_are_text_like_any_other():
    pod = raw_pod("p", box({MEM: "4"}), nodeSelector={"zone": "{0}"})
    found = seen(pod, shared())
    states = placement.node_states([objects.convert("Node", shared())], [])
    (option,) = whatifs.what_would_help(objects.convert("Pod", pod).ask, states, [found]).options
    assert option.sentence == "Do not select zone={0}: it would land on n1."


def test_a_share_is_not_reckoned_from_cards_without_memory():
    topology = raw_node("n1", {TOPOLOGY: "4"}, labels={"ack.node.gpu.schedule": "core_mem"})
    pod = raw_pod("p", box({MEM: "4"}))
    states = placement.node_states([objects.convert("Node", topology)], [])
    assert whatifs.what_would_help(objects.convert("Pod", pod).ask, states, [seen(pod, topology)]).largest is None


def test_less_than_nothing_is_nothing_to_the_engine():
    node = objects.convert("Node", raw_node("n1", {MEM: "-5", WHOLE: "2"}))
    assert (node.allocatable[MEM], node.capacity[MEM], node.allocatable["cpu"]) == (0, 0, 8000)
    held = raw_pod("a", box({WHOLE: "-3"}), on="n1")
    assert seen(raw_pod("p", box({WHOLE: "3"})), raw_node("n1", {WHOLE: "2"}), pods=[held]).chosen is None
    below = seen(raw_pod("p", overhead={WHOLE: "-3"}), raw_node())
    assert below.chosen == "n1"


def test_a_key_that_is_half_a_character_is_refused():
    with pytest.raises(Invalid) as caught:
        objects.convert("Pod", raw_pod() | {"\ud800": "x"})
    assert caught.value.errors[0].field == "object"


@pytest.mark.parametrize(("field", "value"), [("priority", 2**31), ("priority", "1"), ("affinity", [])])
def test_a_value_that_the_api_cannot_hold_is_refused_by_its_field(field, value):
    with pytest.raises(Invalid) as caught:
        objects.convert("Pod", raw_pod("p", **{field: value}))
    assert caught.value.errors[0].field == f"spec.{field}"
