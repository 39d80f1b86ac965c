"""Placement on shared cards against a naive oracle that tries every set of cards."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain.gpus import Taint
from gpupools.domain.placement import node_states, preview
from tests.domain import oracle
from tests.domain.builders import a_node, an_ask, filled


@st.composite
def some_nodes(draw):
    nodes = []
    for number in range(draw(st.integers(1, 4))):
        units = draw(st.integers(1, 9))
        nodes.append(
            {
                "name": f"n{number}",
                "policy": draw(st.sampled_from(["binpack", "spread"])),
                "cards": [(units, draw(st.integers(0, units))) for _ in range(draw(st.integers(1, 4)))],
                "shared": draw(st.sampled_from([True, True, True, False])),
                "tainted": draw(st.sampled_from([True, False, False, False])),
            }
        )
        if not nodes[-1]["shared"]:
            nodes[-1]["cards"] = [(units, 0) for units, _ in nodes[-1]["cards"]]
    return nodes


def states_of(nodes):
    made, pods = [], []
    for node in nodes:
        cards, units = len(node["cards"]), node["cards"][0][0]
        mode = "cgpu" if node["shared"] else "exclusive"
        taints = (Taint("k", "v"),) if node["tainted"] else ()
        made.append(a_node(node["name"], mode, cards, units, policy=node["policy"], taints=taints))
        pods += filled(*(held for _, held in node["cards"]), on=node["name"], prefix=node["name"])
    return node_states(made, pods)


@given(some_nodes(), st.integers(1, 3), st.integers(1, 6))
def test_the_choice_the_ties_and_the_words_agree_with_the_oracle(nodes, count, each):
    labels = {"aliyun.com/gpu-count": str(count)} if count > 1 else {}
    seen = preview(an_ask(mem=count * each, labels=labels), states_of(nodes))
    chosen, sets, tied, reasons = oracle.place(nodes, count * each, count)
    assert seen.chosen == chosen
    assert list(seen.tie_nodes) == tied
    said = {verdict.node: verdict.rejections[0].reason for verdict in seen.verdicts if not verdict.fits}
    assert said == {name: reason for name, (reason, _) in reasons.items()}
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
