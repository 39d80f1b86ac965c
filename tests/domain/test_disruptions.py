"""Disruption budgets: whom they cover, and what a decider is told of evictions."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.disruptions import Budget, BudgetList, budgets_of, held_up, is_pinned, sentence
from gpupools.domain.modes import Mode
from gpupools.domain.plans import blast_radius, bystander_warning, bystanders, eviction_warnings, warnings
from tests.domain.builders import a_node, a_pod


def a_budget(name="web", *, selector=None, allowed=0, healthy=2, desired=2, namespace="default"):
    raw = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selector is None else {"selector": selector},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired},
    }
    return msgspec.convert(raw, Budget)


def labelled(name, **labels):
    pod = a_pod(name, whole=1, owner_kind="ReplicaSet", owner_name="web")
    return msgspec.structs.replace(pod, ask=msgspec.structs.replace(pod.ask, labels=labels))


WEB = {"matchLabels": {"app": "web"}}


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        (None, False),
        ({}, True),
        (WEB, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Sideways"}]}, False),
    ],
)
def test_a_budget_covers_the_pods_of_its_selector(selector, covers):
    assert bool(budgets_of(labelled("p", app="web"), [a_budget(selector=selector)])) is covers


def test_a_budget_covers_no_pod_of_another_namespace():
    assert not budgets_of(labelled("p", app="web"), [a_budget(selector=WEB, namespace="prod")])


def test_a_budget_holds_up_when_more_pods_are_to_go_than_it_spares():
    pods = [labelled("a", app="web"), labelled("b", app="web")]
    assert held_up(pods, [a_budget(selector=WEB, allowed=2)]) == []
    [(budget, covered)] = held_up(pods, [a_budget(selector=WEB, allowed=1)])
    assert covered == pods
    assert sentence(budget, covered) == (
        "The disruption budget default/web lets 1 of its 2 pods here go now: it needs 2 healthy pods and has 2."
    )


def test_an_unread_list_of_budgets_is_an_empty_one():
    assert msgspec.json.decode(b'{"items": null}', type=BudgetList).items is None


@pytest.mark.parametrize(("kind", "pinned"), [("DaemonSet", True), ("Node", True), ("Job", False), ("", False)])
def test_daemonset_and_static_pods_are_never_evicted(kind, pinned):
    pod = a_pod("p", whole=1, owner_kind=kind, owner_name="x")
    assert is_pinned(pod) is pinned
    [hit] = blast_radius([a_node("n1", "exclusive")], [pod], from_mode=Mode.EXCLUSIVE, evict=True)
    assert (hit.fate == "stays") is pinned


def test_the_blast_radius_names_the_budget_that_would_hold_a_pod_up():
    pods = [labelled("a", app="web"), labelled("b", app="api")]
    radius = blast_radius(
        [a_node("n1", "exclusive")], pods, from_mode=Mode.EXCLUSIVE, evict=True, budgets=[a_budget(selector=WEB)]
    )
    assert [(hit.pod, hit.budget) for hit in radius] == [("a", "default/web"), ("b", "")]
    waiting = blast_radius(
        [a_node("n1", "exclusive")], pods, from_mode=Mode.EXCLUSIVE, evict=False, budgets=[a_budget(selector=WEB)]
    )
    assert {hit.budget for hit in waiting} == {""}, "who is waited for needs no budget"


def test_a_decider_is_told_who_is_lost_who_stays_who_has_no_place_and_who_is_held_up():
    pods = [
        labelled("a", app="web"),
        a_pod("bare", whole=1),
        a_pod("exporter", whole=1, owner_kind="DaemonSet", owner_name="dcgm"),
    ]
    radius = blast_radius([a_node("n1", "exclusive")], pods, from_mode=Mode.EXCLUSIVE, evict=True)
    said = dict(warnings(Mode.EXCLUSIVE, Mode.CGPU, affected=radius, evict=True))
    said |= dict(eviction_warnings(radius, ["default/a"], [a_budget(selector=WEB)], pods))
    assert said["lost-pods"] == "default/bare has no owner and is lost for good by the eviction."
    assert said["never-evicted"].startswith("default/exporter is never evicted (DaemonSet or static pod)")
    assert said["no-place"].startswith("Nowhere to go for default/a: a Deployment or Job starts it again")
    assert "default/web lets none of its 1 pod here go" in said["disruption-budget"]
    assert dict(eviction_warnings(radius, [], None, pods)).keys() == {"budgets-unknown"}
    assert eviction_warnings([], [], None, pods) == [], "nobody is evicted, so no budget matters"


def test_pods_without_cards_go_with_a_node_that_leaves():
    pods = [
        a_pod("api", owner_kind="ReplicaSet", owner_name="api"),
        a_pod("web"),
        a_pod("holder", whole=1),
        a_pod("daemon", owner_kind="DaemonSet", owner_name="logs"),
        a_pod("done", phase="Succeeded"),
        a_pod("elsewhere", on="n2"),
    ]
    names = bystanders([a_node("n1", "exclusive")], pods)
    assert names == ["default/api", "default/web"]
    said = "default/api, default/web hold no cards, and are evicted too when their nodes leave the cluster."
    assert bystander_warning(names) == ("other-pods", said)
    assert bystander_warning(names[:1])[1].startswith("default/api holds no card, and is evicted too")
