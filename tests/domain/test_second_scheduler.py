"""Random fleets of raw objects: the engine and a second scheduler, made from the rules alone, say the same."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from hypothesis import given, settings

from tests.domain import second_scheduler
from tests.domain.picks import cases
from tests.domain.rawobjects import CORE, COUNT, MEM, TOPOLOGY, WHOLE, seen

KINDS = ("share", "share", "core", "whole", "topology", "plain")


def a_node(picks, number):
    cards, units = picks.between(1, 4), picks.one_of(4, 15, 16)
    kind = picks.one_of(*KINDS)
    resources = {
        "cpu": picks.one_of("8", "2", "500m"),
        "memory": picks.one_of("32Gi", "4Gi"),
        "pods": picks.one_of("9", "1"),
    }
    labels = {"zone": picks.one_of("a", "b")} | picks.one_of({}, {"size": "5"}, {"size": "-2"}, {"size": "x"})
    if kind in ("share", "core"):
        resources |= {MEM: str(cards * units + picks.one_of(0, 0, 1)), COUNT: str(cards)}
        labels |= picks.one_of({}, {"ack.node.gpu.placement": "spread"}, {"ack.node.gpu.max-pod": "1"})
    resources |= {
        "core": {CORE: str(100 * cards)},
        "whole": {WHOLE: str(cards)},
        "topology": {TOPOLOGY: str(cards)},
    }.get(kind, {})
    effect = picks.one_of("NoSchedule", "PreferNoSchedule", "NoExecute")
    return {
        "metadata": {"name": f"n{number}", "uid": f"n{number}", "labels": labels},
        "spec": {
            "taints": picks.one_of([], [], [{"key": picks.one_of("k", "l"), "value": "v", "effect": effect}]),
            "unschedulable": picks.between(0, 9) == 9,
        },
        "status": {"allocatable": resources, "capacity": resources},
    }


def a_container(picks, kind):
    limits = {
        "share": {MEM: picks.one_of("2", "4", "8", "1", "3")},
        "core": {MEM: picks.one_of("2", "4", "8"), CORE: picks.one_of("20", "50", "5", "80")},
        "whole": {WHOLE: picks.one_of("1", "2")},
        "topology": {TOPOLOGY: picks.one_of("1", "2", "3")},
        "plain": {},
    }[kind]
    port = {"hostPort": picks.one_of(80, 81), "protocol": "TCP", "hostIP": picks.one_of("", "0.0.0.0", "10.0.0.1")}  # noqa: S104
    return {
        "name": "c",
        "resources": {
            "limits": limits,
            "requests": picks.one_of({}, {}, {"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"}),
        },
        "ports": [port] if picks.between(0, 9) == 9 else [],
    }


def a_term(picks):
    operator = picks.one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    values = {"In": ["a"], "NotIn": ["a"], "Gt": ["0"], "Lt": ["3"]}.get(operator, [])
    rule = {"key": picks.one_of("zone", "size"), "operator": operator, "values": values}
    name = {"key": "metadata.name", "operator": picks.one_of("In", "NotIn"), "values": [f"n{picks.between(0, 3)}"]}
    return picks.one_of(
        {"matchExpressions": [rule]}, {"matchFields": [name]}, {"matchExpressions": [rule], "matchFields": [name]}
    )


def a_pod(picks, name):
    kind = picks.one_of(*KINDS)
    spec = {"containers": picks.several(1, 2, lambda picks: a_container(picks, kind))}
    if picks.between(0, 4) == 4:
        beside = picks.several(1, 2, lambda picks: a_container(picks, picks.one_of(kind, "plain")))
        spec["initContainers"] = [each | picks.one_of({}, {"restartPolicy": "Always"}) for each in beside]
    spec |= picks.one_of({}, {}, {}, {"overhead": {"cpu": "250m"}}, {"resources": {"requests": {"cpu": "3"}}})
    spec |= picks.one_of({}, {}, {"nodeSelector": {"zone": "a"}})
    tolerations = (
        {"operator": "Exists"},
        {"key": "k", "operator": "Exists"},
        {"key": "k", "value": "v", "effect": "NoExecute"},
    )
    spec |= picks.one_of({}, {}, {"tolerations": [picks.one_of(*tolerations)]})
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": picks.several(1, 2, a_term)}}
    weighed = [{"weight": picks.one_of(1, 10, 50), "preference": a_term(picks)} for _ in range(2)]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": weighed}
    spec |= picks.one_of(
        {}, {}, {}, {"affinity": {"nodeAffinity": required}}, {"affinity": {"nodeAffinity": preferred}}
    )
    labels = picks.one_of({}, {}, {COUNT: "2"}, {COUNT: "3"}) if kind == "share" else {}
    meta = {"name": name, "namespace": "d", "uid": name, "labels": labels, "annotations": {}}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def bind(picks, pod, node):
    """Let a pod run on a node, mostly with the annotations that ACK would have written."""
    spec, notes, resources = pod["spec"], pod["metadata"]["annotations"], node["status"]["allocatable"]
    spec["nodeName"] = node["metadata"]["name"]
    pod["status"]["phase"] = picks.one_of("Running", "Running", "Running", "Succeeded")
    if picks.between(0, 7) == 7:
        pod["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    cards = int(resources.get(COUNT, resources.get(TOPOLOGY, 1)))
    first, limits = picks.between(0, 3) % cards, [container["resources"]["limits"] for container in spec["containers"]]
    if picks.between(0, 5) == 5:
        return pod
    if MEM in limits[0]:
        for key, name in ((second_scheduler.SHARES, MEM), (second_scheduler.SHARES_OF_CORE, CORE)):
            if name in limits[0]:
                shares = {str(n): {str(first): int(each[name])} for n, each in enumerate(limits)}
                notes[key] = json.dumps(shares)
        if picks.between(0, 5) == 5:
            notes[second_scheduler.UNITS_THEN] = json.dumps({str(card): picks.one_of(8, 30) for card in range(cards)})
    if TOPOLOGY in limits[0]:
        asked = min(cards, sum(int(each[TOPOLOGY]) for each in limits))
        taken = sorted((first + step) % cards for step in range(asked))
        notes[second_scheduler.CARDS] = json.dumps({"allocatedGPUs": {"0": [str(card) for card in taken]}})
    return pod


def a_fleet(picks):
    nodes = [a_node(picks, number) for number in range(picks.between(1, 4))]
    pods = [bind(picks, a_pod(picks, f"p{n}"), picks.one_of(*nodes)) for n in range(picks.between(0, 5))]
    return a_pod(picks, "asking"), nodes, pods


@settings(max_examples=15)
@given(cases(a_fleet, size=500))
def test_the_engine_and_the_second_scheduler_say_the_same(fleet):
    pod, nodes, pods = fleet
    found = seen(pod, *nodes, pods=pods)
    best, card_sets, text = second_scheduler.schedule(pod, nodes, pods)
    assert found.message == text
    if best is not None:
        assert (list(found.tie_nodes), found.cards) == (best, card_sets[0])
        assert found.tie_cards == tuple(sorted({card for cards in card_sets for card in cards}))


def test_the_second_scheduler_imports_nothing_of_the_product():
    tree = ast.parse(Path(second_scheduler.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"__future__", "fractions", "itertools", "json", "math"}
