"""The fold against a naive oracle, over nodes and pods of every kind that annotations and limits can make."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from hypothesis import given, settings

from gpupools.domain.allocation import fold
from gpupools.domain.gpus import Ask, ContainerAsk, GpuNode, Pod
from tests.domain import fold_oracle as oracle
from tests.domain.builders import CORE, COUNT, MEM, TOPOLOGY, WHOLE
from tests.domain.picks import cases

SHARE = "scheduler.framework.gpushare.allocation"
CORES = "gpushare.alibabacloud.com/core-percentage"
WAS = "gpushare.alibabacloud.com/device-resource"
GROUP = "topology.kubernetes.io/gpu-group"


def a_plain_node(picks):
    cards, units = picks.between(0, 3), picks.between(1, 12)
    allocatable = picks.one_of(
        {MEM: cards * units + picks.between(0, 1), COUNT: cards},
        {MEM: cards * units, COUNT: cards, CORE: 100 * cards},
        {MEM: 1, COUNT: 1, CORE: 100},
        {TOPOLOGY: cards},
        {TOPOLOGY: 1, MEM: 0},
        {WHOLE: cards, MEM: 0, TOPOLOGY: 0},
        {WHOLE: cards, TOPOLOGY: cards},
        {MEM: 0, CORE: 0},
    )
    more = picks.one_of({}, {TOPOLOGY: cards + 1}, {TOPOLOGY: 1})
    if picks.yes() and MEM in allocatable and allocatable.get(COUNT, 0) > 1:
        more = allocatable  # a card fell out, or parts of cards, which is no card
        lost = picks.one_of(units, units, 1)
        allocatable = {name: amount - {MEM: lost, CORE: 100}.get(name, 0) for name, amount in allocatable.items()}
    return {"allocatable": allocatable, "capacity": allocatable | more, "sick": picks.one_of((), (0,), (1, 2))}


def limits(picks):
    amounts = {
        MEM: picks.between(0, 9),
        CORE: picks.one_of(0, 30, 80),
        WHOLE: picks.between(0, 2),
        TOPOLOGY: picks.between(0, 3),
        "cpu": 1,
    }
    return {name: amount for name, amount in amounts.items() if picks.yes()}


def on_cards(picks):
    """Units by card for each container."""
    return picks.several(
        0, 2, lambda picks: {picks.between(0, 4): picks.between(0, 9) for _ in range(picks.between(0, 3))}
    )


def a_plain_pod(picks, number):
    return {
        "namespace": picks.one_of("a", "b"),
        "name": f"p{number}",
        "uid": f"u{number}",
        "limits": picks.several(1, 2, limits),
        "init": picks.one_of([], [], [{MEM: 5}], [{WHOLE: 2}, {TOPOLOGY: 1}]),
        "overhead": picks.one_of({}, {}, {WHOLE: 1}),
        "terminating": picks.yes(),
        "shares": picks.one_of(None, "?", on_cards(picks), on_cards(picks)),
        "cores": picks.one_of(None, None, "?", on_cards(picks)),
        "was": picks.one_of(None, None, 4, 15),
        "old": picks.one_of(None, None, (1, 3), (0, None), (7, 2)),
        "group": picks.one_of(None, picks.several(1, 3, lambda picks: picks.between(0, 4))),
    }


def keyed(per_container):
    return json.dumps({str(n): {str(card): x for card, x in cards.items()} for n, cards in enumerate(per_container)})


def real_pod(pod):
    notes = {}
    for key, value in ((SHARE, pod["shares"]), (CORES, pod["cores"])):
        if value is not None:
            notes[key] = "?" if value == "?" else keyed(value)
    if pod["was"] is not None:
        notes[WAS] = json.dumps({str(card): pod["was"] for card in range(9)})
    if pod["old"] is not None:
        index, units = pod["old"]
        notes["ALIYUN_COM_GPU_MEM_IDX"] = str(index)
        notes |= {"ALIYUN_COM_GPU_MEM_POD": str(units)} if units is not None else {}
    if pod["group"] is not None:
        notes[GROUP] = ",".join(map(str, pod["group"]))
    return Pod(
        uid=pod["uid"],
        namespace=pod["namespace"],
        name=pod["name"],
        ask=Ask(
            containers=tuple(ContainerAsk(requests=limits, limits=limits) for limits in pod["limits"]),
            init_containers=tuple(ContainerAsk(requests=limits, limits=limits) for limits in pod["init"]),
            overhead=pod["overhead"],
        ),
        node="n1",
        phase="Running",
        terminating=pod["terminating"],
        annotations=notes,
    )


def seen(holding):
    return (holding.pod, holding.memory_units, holding.core_percent, holding.cards, holding.releasing)


def a_case(picks):
    return a_plain_node(picks), [a_plain_pod(picks, number) for number in range(picks.between(0, 5))]


def a_sharing_pod(picks, number):
    """A pod with a readable allocation on one of few cards, as most pods of a busy node are."""
    units, core, card = picks.between(1, 9), picks.one_of(0, 0, 5, 30, 45), picks.one_of(0, 0, 0, 1, 2)
    return a_plain_pod(picks, number) | {
        "limits": [{MEM: units, CORE: core}],
        "init": [],
        "overhead": {},
        "shares": picks.one_of([{card: units}], [{card: units}, {0: 1}]),
        "cores": picks.one_of(None, [{card: core}], [{card: core}], [{card: 20, 4: 10}]),
        "was": picks.one_of(None, None, 1, 12, 15),
    }


def a_busy_case(picks):
    cards, units = picks.between(1, 2), picks.one_of(12, 15)
    allocatable = {MEM: cards * units, COUNT: cards} | picks.one_of({CORE: 100 * cards}, {CORE: 100}, {})
    pods = [a_sharing_pod(picks, number) for number in range(picks.between(2, 5))]
    return {"allocatable": allocatable, "capacity": allocatable, "sick": ()}, pods


@settings(max_examples=200)
@given(cases(a_case))
def test_the_fold_says_what_the_oracle_says(case):
    check(*case)


@settings(max_examples=100)
@given(cases(a_busy_case))
def test_the_fold_of_a_busy_node_says_what_the_oracle_says(case):
    check(*case)


def check(node, pods):
    expected = oracle.fold(node, pods)
    real = GpuNode("n1", allocatable=node["allocatable"], capacity=node["capacity"], unhealthy=node["sick"])
    found = fold(real, [real_pod(pod) for pod in reversed(pods)])
    said = {name: getattr(found, name) for name in expected if hasattr(found, name)}
    said["gpus"] = [
        {name: getattr(gpu, name) for name in card if name != "holdings"}
        | {"holdings": [seen(h) for h in gpu.holdings]}
        for gpu, card in zip(found.gpus, expected["gpus"], strict=True)
    ]
    said["holdings"] = [seen(holding) for holding in found.holdings]
    said["unplaced"] = [(seen(holding), holding.lost) for holding in found.unplaced]
    said["codes"] = sorted(warning.code for warning in found.warnings)
    assert said == expected
    assert all(warning.message and warning.message.endswith(".") for warning in found.warnings)


def test_the_oracle_imports_nothing_of_the_product():
    tree = ast.parse(Path(oracle.__file__).read_text(encoding="utf-8"))
    named = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert set(named) == {"__future__", "fractions", "math"}
