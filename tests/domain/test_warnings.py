"""What a fold warns of, in words."""

from __future__ import annotations

import pytest

from gpupools.domain.allocation import fold
from tests.domain.builders import COUNT, a_node, a_pod

NOTES = "scheduler.framework.gpushare.allocation"


@pytest.mark.parametrize(
    ("node", "pod", "code", "words"),
    [
        (a_node(), a_pod(mem=1, annotations={NOTES: "?"}), "unreadable-allocation",
         "default/p has an allocation that cannot be read."),
        (a_node(mode="topology"), a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "x"}),
         "unreadable-allocation", "default/p has an allocation that cannot be read."),
        (a_node(), a_pod(mem=1, at={0: 2}), "limit-differs",
         "default/p asks for 1 memory unit, but its allocation says 2."),
        (a_node(), a_pod(mem=3, at={0: 2}), "limit-differs",
         "default/p asks for 3 memory units, but its allocation says 2."),
        (a_node(cards=1), a_pod(mem=4, at={1: 2, 2: 2}), "unknown-card",
         "default/p is allocated on GPU1, GPU2, but the node has 1 card."),
        (a_node(mode="topology", cards=2), a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "2"}),
         "unknown-card", "default/p is allocated on GPU2, but the node has 2 cards."),
        (a_node(mode="exclusive"), a_pod(mem=1, at={1: 1}), "former-mode",
         "default/p holds 1 memory unit on GPU1, allocated under a former mode of the node."),
        (a_node(mode="exclusive"), a_pod(mem=4, at={2: 2, 0: 2}), "former-mode",
         "default/p holds 4 memory units on GPU0, GPU2, allocated under a former mode of the node."),
        (a_node(mode="exclusive"), a_pod(mem=2), "former-mode",
         "default/p holds 2 memory units on an unknown card, allocated under a former mode of the node."),
        (a_node(), a_pod(whole=1), "former-mode",
         "default/p holds 1 whole card, allocated under a former mode of the node."),
        (a_node(), a_pod(topology=2), "former-mode",
         "default/p holds 2 whole cards, allocated under a former mode of the node."),
        (a_node(mode="topology"), a_pod(whole=2), "former-mode",
         "default/p holds 2 whole cards, allocated under a former mode of the node."),
        (a_node(cards=1), a_pod(mem=16, at={0: 16}), "over-allocated",
         "GPU0 is over-allocated: 16 of 15 memory units."),
        (a_node(mode="core_mem", cards=1), a_pod(mem=15, core=105, at={0: 15}, core_at={0: 105}), "over-allocated",
         "GPU0 is over-allocated: 105% of 100% compute."),
        (a_node(mode="core_mem", cards=1), a_pod(mem=16, core=105, at={0: 16}, core_at={0: 105}), "over-allocated",
         "GPU0 is over-allocated: 16 of 15 memory units and 105% of 100% compute."),
        (a_node(cards=1, units=30), a_pod(mem=4, at={0: 4}, annotations={
            "gpushare.alibabacloud.com/device-resource": '{"0":15}'}), "unit-changed",
         "default/p was bound when a card had 15 memory units; it has 30 now, and ACK's scheduler counts it in "
         "proportion."),
    ],
)  # fmt: skip
def test_a_warning_says_what_and_who(node, pod, code, words):
    (warning,) = fold(node, [pod]).warnings
    assert (warning.code, warning.message, warning.pods) == (code, words, ("default/p",))


def test_warnings_of_the_node_name_no_pod():
    (warning,) = fold(a_node(resources={COUNT: 0}), []).warnings
    assert (warning.message, warning.pods) == ("The node reports 60 memory units, but no cards.", ())
    (warning,) = fold(a_node(mode="exclusive"), [a_pod(whole=5)]).warnings
    assert (warning.code, warning.message, warning.pods) == (
        "over-allocated",
        "5 cards are held, but the node has 4.",
        (),
    )


def test_a_full_card_is_not_over_allocated_and_two_pods_on_a_topology_card_are():
    full = a_pod(mem=15, core=100, at={0: 15}, core_at={0: 100})
    assert fold(a_node(mode="core_mem", cards=1), [full]).warnings == ()
    notes = {"topology.kubernetes.io/gpu-group": "0"}
    pods = [a_pod(name, topology=1, annotations=notes) for name in "ab"]
    (warning,) = fold(a_node(mode="topology"), pods).warnings
    assert (warning.message, warning.pods) == ("GPU0 is over-allocated: 2 whole-card pods.", ("default/a", "default/b"))


def test_warnings_say_what_is_wrong_in_words():
    former = fold(a_node(mode="topology", cards=2), [a_pod("old", mem=6, at={1: 6})])
    assert former.warnings[0].message == (
        "default/old holds 6 memory units on GPU1, allocated under a former mode of the node."
    )
    stray = fold(a_node(cards=1), [a_pod("odd", mem=4, at={7: 4})])
    assert stray.warnings[0].message == "default/odd is allocated on GPU7, but the node has 1 card."
    assert stray.strays == {7: 4}
