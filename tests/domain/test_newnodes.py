"""One more node of a pool: what DaemonSets take of it before anything else comes, and what was assumed."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.gpus import AffinityTerm, Requirement, Taint, Toleration
from gpupools.domain.newnodes import new_nodes
from gpupools.domain.placement import node_states
from gpupools.domain.whatifs import what_would_help
from tests.domain.builders import WHOLE, a_node, a_pod, an_ask, container, filled

POOL = "alibabacloud.com/nodepool-id"
CORES = {"cpu": 4000, "pods": 3}


def pool_node(name="n1", *, pool="np", labels=None, **fields):
    return a_node(name, labels={POOL: pool, **(labels or {})}, **fields)


def daemon(name, *containers, on="n1", terms=(), namespace="kube-system", **fields):
    """A pod as the DaemonSet controller makes it: bound to its node by name, in every term of its affinity."""
    selector = fields.pop("selector", {})
    tolerations = fields.pop("tolerations", ())
    pod = a_pod(
        f"{name}-{on}", *containers, on=on, namespace=namespace, owner_kind="DaemonSet", owner_name=name, **fields
    )
    by_name = (Requirement("metadata.name", "In", (on,)),)
    bound = tuple(AffinityTerm(expressions, by_name) for expressions in terms or ((),))
    ask = msgspec.structs.replace(
        pod.ask, required_terms=bound, node_selector=selector, tolerations=(*pod.ask.tolerations, *tolerations)
    )
    return msgspec.structs.replace(pod, ask=ask)


def carried(*nodes, daemons):
    return {more.pool: more.daemons for more in new_nodes(node_states(nodes, daemons), daemons)}


def sentence(ask, *nodes, pods, **fields):
    found = what_would_help(ask, node_states(nodes, pods), daemons=pods, **fields)
    return next((each.sentence for each in found.options if each.code == "node"), None)


def test_a_new_node_carries_what_its_sibling_carries():
    daemons = [daemon("plugin", cpu=100), daemon("exporter", cpu=200, namespace="monitoring")]
    (more,) = new_nodes(node_states([pool_node()], daemons), daemons)
    assert (more.pool, more.pattern, more.daemons) == ("np", "n1", ("kube-system/plugin", "monitoring/exporter"))
    assert (more.state.requested, more.state.pods) == ({"cpu": 300}, 2)


def test_pods_of_other_owners_do_not_come_along():
    daemons = [a_pod("a", cpu=100, owner_kind="ReplicaSet", owner_name="a"), a_pod("b", cpu=100)]
    assert carried(pool_node(), daemons=daemons) == {"np": ()}


def test_one_pod_of_each_set_comes_and_the_siblings_own_where_there_is_one():
    daemons = [daemon("plugin", on="a", cpu=900), daemon("plugin", on="n1", cpu=100), daemon("plugin", on="z", cpu=900)]
    (more,) = new_nodes(node_states([pool_node()], daemons), daemons)
    assert more.state.requested == {"cpu": 100}
    elsewhere = [daemon("plugin", on="z", cpu=900), daemon("plugin", on="b", cpu=800)]
    (more,) = new_nodes(node_states([pool_node()], elsewhere), elsewhere)
    assert more.state.requested == {"cpu": 800}


@pytest.mark.parametrize(
    ("fields", "comes"),
    [
        ({}, True),
        ({"selector": {"ack.node.gpu.schedule": "cgpu"}}, True),
        ({"selector": {"ack.node.gpu.schedule": "share"}}, False),
        ({"terms": ((Requirement("zone", "In", ("a",)),),)}, True),
        ({"terms": ((Requirement("zone", "In", ("b",)),),)}, False),
        ({"terms": ((Requirement("zone", "In", ("b",)),), (Requirement("zone", "Exists"),))}, True),
    ],
)
def test_a_set_comes_where_its_selector_and_affinity_lead(fields, comes):
    found = carried(pool_node(labels={"zone": "a"}), daemons=[daemon("plugin", on="elsewhere", **fields)])
    assert found == {"np": ("kube-system/plugin",) if comes else ()}


@pytest.mark.parametrize(("tolerations", "comes"), [((), False), ((Toleration("gpu", "Exists"),), True)])
def test_a_set_comes_where_it_tolerates_the_taints(tolerations, comes):
    node = pool_node(taints=(Taint("gpu", "yes"),))
    found = carried(node, daemons=[daemon("plugin", tolerations=tolerations)])
    assert found == {"np": ("kube-system/plugin",) if comes else ()}


def test_each_pool_is_asked_of_its_own():
    nodes = [pool_node("a", pool="one"), pool_node("b", pool="two", mode="exclusive")]
    daemons = [daemon("shares", selector={"ack.node.gpu.schedule": "cgpu"}), daemon("all")]
    found = carried(*nodes, daemons=daemons)
    assert found == {"one": ("kube-system/all", "kube-system/shares"), "two": ("kube-system/all",)}


@pytest.mark.parametrize(
    ("asked", "fits"),
    [({"cpu": 3500}, True), ({"cpu": 3501}, False), ({"cpu": 4001}, False)],
)
def test_what_daemons_ask_for_is_taken_of_the_new_node(asked, fits):
    node = pool_node(resources=CORES)
    found = sentence(an_ask(mem=4, **asked), node, pods=[daemon("plugin", cpu=500), *filled(15, 15, 15, 15)])
    assert (found is not None) is fits


def test_daemons_take_places_of_pods_too():
    node = pool_node(resources=CORES)
    daemons = [daemon(name, cpu=1) for name in ("a", "b")]
    full = filled(15, 15, 15, 15)
    assert sentence(an_ask(mem=4), node, pods=[*daemons, *full]) is not None
    assert sentence(an_ask(mem=4), node, pods=[*daemons, daemon("c", cpu=1), *full]) is None


def test_a_daemon_that_takes_a_card_leaves_one_less():
    node = pool_node(mode="exclusive", cards=2, resources={WHOLE: 2})
    pods = [daemon("checker", whole=1), a_pod("full", whole=1)]
    assert sentence(an_ask(whole=1), node, pods=pods) is not None
    assert sentence(an_ask(whole=2), node, pods=pods) is None
    shares = [daemon("checker", container(mem=15)), *filled(15)]
    assert sentence(an_ask(mem=15), pool_node(cards=1), pods=shares) is None


def test_a_daemon_that_finds_no_room_even_there_takes_none():
    assert carried(pool_node(resources=CORES), daemons=[daemon("huge", cpu=5000)]) == {"np": ()}


def test_the_sentence_says_what_was_assumed():
    full = filled(15, 15, 15, 15)
    assert sentence(an_ask(mem=4), pool_node(), pods=[daemon("plugin"), *full]) == (
        "One more node of pool np would take it, if made as n1 is with 1 DaemonSet pod (plugin)."
    )
    many = [daemon(name) for name in "abcde"]
    assert sentence(an_ask(mem=4), pool_node(), pods=[*many, *full]) == (
        "One more node of pool np would take it, if made as n1 is with 5 DaemonSet pods (a, b, c, 2 more)."
    )


@pytest.mark.parametrize(
    ("namespaces", "carried_by"),
    [
        ({"team"}, "3 DaemonSet pods (mine, 2 more)"),
        (set(), "3 DaemonSet pods"),
        (None, "3 DaemonSet pods (a, b, mine)"),
    ],
)
def test_daemons_of_other_namespaces_count_and_are_not_named(namespaces, carried_by):
    pods = [daemon("a"), daemon("b"), daemon("mine", namespace="team"), *filled(15, 15, 15, 15)]
    assert sentence(an_ask(mem=4), pool_node(), pods=pods, namespaces=namespaces) == (
        f"One more node of pool np would take it, if made as n1 is with {carried_by}."
    )
