"""What decides between nodes and cards at the edges, and which taint or label it was that a node has against a pod."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.asks import effective_requests
from gpupools.domain.filters import explained
from gpupools.domain.gpus import Taint, Toleration
from gpupools.domain.messages import failed_scheduling
from gpupools.domain.placement import Fleet, node_states, sequence
from gpupools.domain.wishes import wish
from tests.domain.builders import a_node, a_pod, an_ask, container
from tests.domain.seeing import labelled, see, term
from tests.domain.test_groups import member, of_group

T4 = {"model": "T4"}
GPU_ONLY = Taint("gpu", "only")
SOFT = Taint("soft", "", "PreferNoSchedule")


@pytest.mark.parametrize(
    ("ask", "node", "said"),
    [
        pytest.param({}, a_node(), {}, id="nothing is against it"),
        pytest.param({}, a_node(taints=(GPU_ONLY, Taint("spot"))), {"taint": "gpu=only:NoSchedule, spot:NoSchedule"},
                     id="taints with and without a value"),
        pytest.param({"tolerations": (Toleration("gpu", "Exists"),)}, a_node(taints=(GPU_ONLY, Taint("spot"), SOFT)),
                     {"taint": "spot:NoSchedule"}, id="a tolerated taint and a soft one are not named"),
        pytest.param({}, a_node(ready=False), {"taint": "node.kubernetes.io/not-ready:NoSchedule"},
                     id="a node that is not ready"),
        pytest.param({"node_selector": T4}, a_node(labels=T4), {}, id="the selector matches"),
        pytest.param({"node_selector": T4 | {"zone": "a"}}, a_node(labels={"model": "V100"}),
                     {"affinity": "model=T4 (found V100); zone=a (not there)"}, id="a wrong label and a missing one"),
        pytest.param({"required_terms": (term(("model", "In", ("T4", "A10"))), term(("zone", "Exists", ())))},
                     a_node(labels={"model": "V100"}),
                     {"affinity": "model In T4, A10 (found V100); zone Exists (not there)"},
                     id="every term with what is wrong in it"),
        pytest.param({"required_terms": (term(("model", "In", ("T4",))), term(("zone", "Exists", ())))},
                     a_node(labels=T4), {}, id="one term is enough"),
        pytest.param({"required_terms": (term(("model", "In", ("T4",)), ("zone", "DoesNotExist", ())),
                                         term(("model", "In", ("T4",))))},
                     a_node(labels={"model": "V100"}), {"affinity": "model In T4 (found V100)"},
                     id="the same expression once, and none that matches"),
        pytest.param({"node_selector": {"zone": "a"}, "required_terms": (term(("model", "In", ("T4",))),)}, a_node(),
                     {"affinity": "zone=a (not there); model In T4 (not there)"}, id="the selector and the terms"),
        pytest.param({"required_terms": (term(fields=(("metadata.name", "In", ("a", "b")),)),)}, a_node(),
                     {"affinity": "metadata.name In a, b (found n1)"}, id="a node is found by one name at a time"),
        pytest.param({"node_selector": T4}, a_node(taints=(GPU_ONLY,)),
                     {"taint": "gpu=only:NoSchedule", "affinity": "model=T4 (not there)"}, id="both"),
    ],
)  # fmt: skip
def test_taints_and_labels_that_are_against_a_pod_are_named(ask, node, said):
    assert explained(an_ask(mem=1, **ask), node) == said


@pytest.mark.parametrize(("value", "fits"), [("n1", False), ("", True), ("n2", False)])
def test_a_field_that_nodes_do_not_have_is_empty(value, fits):
    ask = an_ask(mem=1, required_terms=(term(fields=(("metadata.uid", "In", (value,)),)),))
    assert see(ask, a_node()).verdicts[0].fits is fits


def test_what_is_asked_for_as_nothing_takes_nothing():
    (state,) = node_states([a_node()], [a_pod(mem=0, whole=0, cpu=0)])
    assert not any(amount for resource, amount in state.requested.items() if resource != "pods")


@pytest.mark.parametrize("preempts", [True, False])
def test_a_group_that_is_not_complete_says_whether_it_would_preempt(preempts):
    ask = msgspec.structs.replace(of_group(3, 1), preempts=preempts)
    (seen,) = sequence(ask, 1, node_states([a_node(mode="topology")], []))
    assert seen.message == failed_scheduling((), nodes=1, prefilter=seen.prefilter, preempts=preempts)


def test_resources_are_short_in_the_order_of_their_names():
    asks = {"example.com/a": 9, "example.com/b": 5, "cpu": 65_000, "mem": 61}
    rejections = see(an_ask(container(**asks)), a_node()).verdicts[0].rejections
    assert [each.resource for each in rejections] == ["cpu", "aliyun.com/gpu-mem", "example.com/a", "example.com/b"]


def test_the_share_of_a_card_is_a_whole_number():
    wanted = wish(labelled(2, mem=8, core=30))
    assert [repr(wanted.memory_units), repr(wanted.core_percent)] == ["4", "15"]


def test_an_init_container_that_asks_for_nothing_adds_nothing():
    ask = an_ask(container(mem=0), init=(container(mem=0, whole=0),))
    assert not any(effective_requests(ask).values())


def test_a_pod_that_was_placed_holds_one_of_each_card():
    fleet = Fleet(node_states([a_node(mode="topology", cards=4)], []))
    taken = fleet.place(an_ask(topology=2)).cards
    (state,) = fleet.states
    assert [gpu.cards_used for gpu in state.allocation.gpus] == [int(index in taken) for index in range(4)]
    assert [holding.cards for gpu in state.allocation.gpus for holding in gpu.holdings] == [1, 1]


def test_a_very_large_group_keeps_to_the_nodes_where_it_runs():
    nodes = [a_node(f"n{number:03}", mode="topology", cards=8) for number in range(130)]
    runs = [member(f"m{number}", 1, 1000, on="n129", annotations={"topology.kubernetes.io/gpu-group": str(number)})
            for number in range(4)]  # fmt: skip
    others = [msgspec.structs.replace(node, allocatable=node.allocatable | {"aliyun.com/gpu": 4}) for node in nodes]
    same_room = [*others[:-1], nodes[-1]]
    seen = sequence(of_group(516, 1), 512, node_states(same_room, runs), mates=runs)
    assert "n129" in {each.chosen for each in seen}
    assert len({each.chosen for each in seen}) == 128
