"""Which of several nodes is taken: scores, preferences and ties."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.gpus import AffinityTerm, PreferredTerm, Requirement, Taint, Toleration
from gpupools.domain.modes import PlacementPolicy
from gpupools.domain.placement import Fleet, node_state, node_states, preview
from tests.domain.builders import a_node, a_pod, an_ask, container, filled
from tests.domain.seeing import MODEL, see, term
from tests.domain.test_groups import topology_nodes


def plain(name, **resources):
    return a_node(name, mode="", cards=0, resources=resources)


@pytest.mark.parametrize(
    ("resources", "score"),
    [
        ({"cpu": 3000, "memory": 7}, 61),  # 66 and 57 of a hundred, each cut, and their mean too
        ({"cpu": 1000, "memory": 3}, 0),
        ({"cpu": 1001, "memory": 4}, 12),
        ({"cpu": 2000, "memory": 6}, 50),
        ({"cpu": 1500, "memory": 9}, 49),  # 33 and 66, though a third and two thirds are one
    ],
)
def test_a_pod_without_cards_goes_where_most_stays_free(resources, score):
    ask = an_ask(container(cpu=1000, memory=3))
    (verdict,) = preview(ask, node_states([plain("n", **resources)], [])).verdicts
    assert verdict.score == score


def test_what_a_pod_does_not_ask_for_stays_free_but_not_less_than_nothing():
    ask = an_ask(cpu=1000)
    states = node_states([plain("n", cpu=4000, memory=10), plain("m", cpu=4000, memory=1)], [])
    assert [verdict.score for verdict in preview(ask, states).verdicts] == [87, 87]
    over = node_states([plain("n1", cpu=4000, memory=10)], [a_pod("p", container(memory=12))])
    assert preview(ask, over).verdicts[0].score == 75 // 2


def test_a_resource_that_a_node_does_not_report_scores_nothing():
    node = msgspec.structs.replace(plain("n"), allocatable={"cpu": 4000})
    (verdict,) = preview(an_ask(cpu=1000), node_states([node], [])).verdicts
    assert verdict.score == 75 // 2


def test_the_score_of_a_pod_without_cards_is_the_mean_of_free_cpu_and_memory_in_whole_per_cent():
    node = a_node(mode="", resources={"cpu": 3000, "memory": 1000})
    pods = [a_pod(cpu=1000)]
    assert see(an_ask(container(cpu=1000, memory=100)), node, pods=pods).verdicts[0].score == (33 + 90) // 2
    assert see(an_ask(container(cpu=2000, memory=100)), node, pods=pods).verdicts[0].score == (0 + 90) // 2
    half = a_node(mode="", resources={"cpu": 2000, "memory": 2000})
    assert see(an_ask(container(cpu=1000, memory=1000)), half).verdicts[0].score == 50
    assert see(an_ask(), a_node(mode="", resources={"cpu": 0, "memory": 0})).verdicts[0].score == 0


def test_a_pod_without_cards_goes_where_most_is_free():
    nodes = [a_node("a", mode=""), a_node("b", mode="")]
    assert see(an_ask(cpu=1000), *nodes, pods=[a_pod(cpu=30_000, on="a")]).chosen == "b"


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


def test_topology_scores_by_how_much_of_the_free_cards_is_taken():
    taken = a_pod(topology=1, annotations={"topology.kubernetes.io/gpu-group": "0"})
    assert see(an_ask(topology=1), a_node(mode="topology", cards=5), pods=[taken]).verdicts[0].score == 25


def test_a_preference_is_cut_to_whole_points():
    def term(weight, value):
        return PreferredTerm(weight, AffinityTerm((Requirement("zone", "In", (value,)),)))

    nodes = [a_node(name, labels={"zone": name}) for name in "abc"]
    seen = preview(an_ask(mem=4, preferred_terms=(term(3, "a"), term(2, "b"))), node_states(nodes, []))
    assert [verdict.preference for verdict in seen.verdicts] == [200, 132, 0]
    one = preview(an_ask(mem=4, preferred_terms=(term(1, "b"),)), node_states(nodes, []))
    assert (one.chosen, [verdict.preference for verdict in one.verdicts]) == ("b", [0, 200, 0])


def test_soft_taints_are_cut_to_whole_points_and_added():
    def soft(count):
        return tuple(Taint(f"k{number}", "", "PreferNoSchedule") for number in range(count))

    nodes = [a_node(f"n{count}", taints=soft(count)) for count in range(4)]
    seen = preview(an_ask(mem=4), node_states(nodes, []))
    assert [verdict.preference for verdict in seen.verdicts] == [300, 201, 102, 0]
    tolerant = an_ask(mem=4, tolerations=(Toleration(operator="Exists"),))
    assert [verdict.preference for verdict in preview(tolerant, node_states(nodes, [])).verdicts] == [300] * 4
    term = PreferredTerm(1, AffinityTerm((Requirement("zone", "DoesNotExist"),)))
    both = preview(an_ask(mem=4, preferred_terms=(term,)), node_states(nodes, []))
    assert [verdict.preference for verdict in both.verdicts] == [500, 401, 302, 200]


def test_a_soft_taint_that_comes_later_is_heard_of():
    fleet = Fleet(node_states([a_node("a"), a_node("b")], []))
    assert fleet.preview(an_ask(mem=4)).chosen == "a"
    fleet.put(node_state(a_node("a", taints=(Taint("k", "", "PreferNoSchedule"),)), []))
    assert fleet.preview(an_ask(mem=4)).chosen == "b"


def test_the_emptiest_whole_cards_first_only_when_asked_to():
    states = node_states([a_node("a", mode="exclusive"), a_node("b", mode="exclusive")], [a_pod(whole=1, on="b")])
    policy = type(states[0].node.policy)
    assert preview(an_ask(whole=1), states).chosen == "b"
    assert preview(an_ask(whole=1), states, whole_card_policy=policy.SPREAD).chosen == "a"
    cpu = node_states([plain("a"), plain("b")], [a_pod(cpu=1000, on="a")])
    assert preview(an_ask(cpu=1000), cpu, whole_card_policy=policy.SPREAD).chosen == "b"


def test_the_score_of_a_topology_node_is_its_share():
    states = topology_nodes(a=8, b=3)
    assert [verdict.score for verdict in preview(an_ask(topology=2), states).verdicts] == [25, 200 / 3]
