"""Placement on shared cards against a naive oracle that tries every set of cards."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.gpus import Taint
from gpupools.domain.placement import node_states, preview
from tests.domain import oracle
from tests.domain.builders import CORE, MEM, a_node, a_pod, an_ask
from tests.domain.picks import cases

MODES = {"cgpu": [MEM], "core_mem": [MEM, CORE], "exclusive": []}


def _a_card(picks, units, mode):
    """(total, held) of each resource of the mode; compute is only held together with memory."""
    held = picks.between(0, units)
    core = 10 * picks.between(0, 10) if held else 0
    return [(units, held), (100, core)][: len(MODES[mode])]


def some_nodes(picks):
    nodes = []
    for number in range(picks.between(1, 4)):
        mode = picks.one_of("cgpu", "cgpu", "core_mem", "core_mem", "exclusive")
        units = picks.between(1, 9)
        cards = [_a_card(picks, units, mode) for _ in range(picks.between(1, 4))]
        node = {"name": f"n{number}", "mode": mode, "units": units, "resources": MODES[mode], "cards": cards}
        node["policy"] = picks.one_of("binpack", "spread")
        node["tainted"] = picks.one_of(True, False, False, False)
        nodes.append(node)
    return nodes


def states_of(nodes):
    made, pods = [], []
    for node in nodes:
        name, cards = node["name"], node["cards"]
        taints = (Taint("k", "v"),) if node["tainted"] else ()
        made.append(a_node(name, node["mode"], len(cards), node["units"], policy=node["policy"], taints=taints))
        for index, held in enumerate(cards):
            limits = dict(zip(("mem", "core"), (amount for _, amount in held), strict=False))
            at = {f"{key}_at" if key == "core" else "at": {index: amount} for key, amount in limits.items()}
            pods.append(a_pod(f"{name}-{index}", on=name, **limits, **at))
    return node_states(made, pods)


@given(cases(some_nodes, size=64), st.integers(1, 3), st.integers(1, 6), st.sampled_from([0, 0, 10, 40]))
def test_the_choice_the_ties_and_the_words_agree_with_the_oracle(nodes, count, each, core):
    count = 1 if core else count  # ACK gives compute on one card only
    labels = {"aliyun.com/gpu-count": str(count)} if count > 1 else {}
    asked = {MEM: count * each} | ({CORE: core} if core else {})
    seen = preview(an_ask(mem=count * each, core=core, labels=labels), states_of(nodes))
    chosen, sets, tied, reasons = oracle.place(nodes, asked, count)
    assert seen.chosen == chosen
    assert list(seen.tie_nodes) == tied
    said = {v.node: sorted((r.reason, r.unresolvable) for r in v.rejections) for v in seen.verdicts if not v.fits}
    assert said == {name: sorted(refused) for name, refused in reasons.items()}
    if chosen is None:
        assert seen.message == oracle.text(len(nodes), reasons)
    else:
        assert seen.cards == sets[0]
        assert set(seen.tie_cards) == {card for cards in sets for card in cards}


def test_the_oracle_imports_nothing_of_the_product():
    tree = ast.parse(Path(oracle.__file__).read_text(encoding="utf-8"))
    named = [getattr(node, "module", "") or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert not [name for name in named if name.startswith(("gpupools", "tests", "console"))]
