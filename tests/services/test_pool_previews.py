"""What an edit would do to each node is told before it is saved, by the rules by which saving goes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gpupools.clusters.labelled import OURS_ANNOTATION
from gpupools.domain.gpus import GpuNode, Taint, Toleration
from gpupools.domain.modes import ACK_POOL_LABEL, POOL_LABEL
from gpupools.domain.nodewrites import KeyWrite
from gpupools.errors import Invalid, Missing, Unreachable
from gpupools.models import AuditEntry, Cluster, NodePool, Push, Role
from gpupools.services import poolpreviews
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_cluster, a_pool, an_actor
from tests.services.showing import show

pytestmark = pytest.mark.django_db


@pytest.fixture
def vision(lab: Cluster, empty_redis: object) -> NodePool:
    """A pool on plain Kubernetes that had set two labels and a taint on its nodes."""
    return a_pool(
        lab,
        "vision",
        labels={"team": "ml", "tier": "gold"},
        taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
    )


@pytest.fixture
def cloud(empty_redis: object, db: None) -> NodePool:
    """The same pool on ACK."""
    cluster = a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")
    return a_pool(cluster, "vision", labels={"team": "ml"})


def member(name: str, labels: dict[str, str] | None = None, mode: str = "cgpu", **fields: Any) -> GpuNode:
    ours = '{"labels":["team","tier"],"taints":[["gpu","NoSchedule"]]}'
    return a_node(
        name,
        mode,
        labels={POOL_LABEL: "vision", ACK_POOL_LABEL: "vision", **(labels or {})},
        annotations={OURS_ANNOTATION: ours},
        **{"taints": (Taint("gpu", "yes"),), **fields},
    )


ALIKE = {"team": "ml", "tier": "gold", "ack.node.gpu.placement": "binpack"}


def writes_of(preview: poolpreviews.EditPreview) -> dict[str, list[tuple[str, str, str | None, str | None]]]:
    return {node.node: [(w.kind, w.key, w.old, w.new) for w in node.writes] for node in preview.nodes}


def test_each_node_says_what_is_added_changed_and_removed_and_what_stays(viewer, vision):
    show(
        vision.cluster, [member("a", ALIKE), member("b", {**ALIKE, "team": "ops"}), member("c", {**ALIKE, "new": "1"})]
    )
    preview = poolpreviews.edit(viewer, vision, labels={"team": "ml", "new": "1"}, taints=[])
    gone = [("removed", "tier", "gold", None), ("removed", "taint gpu:NoSchedule", "yes", None)]
    assert writes_of(preview) == {
        "a": [("added", "new", None, "1"), *gone],
        "b": [("added", "new", None, "1"), ("changed", "team", "ops", "ml"), *gone],
        "c": gone,
    }
    assert preview.pool_writes == (
        KeyWrite("new", None, "1"),
        KeyWrite("tier", "gold", None),
        KeyWrite("taint gpu:NoSchedule", "yes", None),
    )


def test_nodes_that_stay_as_they_are_are_listed_too(viewer, vision):
    show(vision.cluster, [member("a", ALIKE), member("b", ALIKE)])
    preview = poolpreviews.edit(viewer, vision)
    assert writes_of(preview) == {"a": [], "b": []}
    assert preview.changes_nothing
    assert [each.code for each in preview.advice] == ["changes-nothing"]


def test_nodes_that_differ_already_say_by_whom_and_that_it_is_written_over(viewer, vision):
    owners = {"team": ("kubectl-label", "2026-11-30T10:00:00Z")}
    show(vision.cluster, [member("a", {**ALIKE, "team": "ops"}, owners=owners)])
    preview = poolpreviews.edit(viewer, vision)
    (drift,) = preview.drifting[0].drift
    assert (drift.key, drift.wanted, drift.found, drift.by) == ("team", "ml", "ops", "kubectl-label")
    assert "overwrites-drift" in [each.code for each in preview.advice]


def test_a_label_that_somebody_else_put_there_is_never_taken_off(viewer, vision):
    show(vision.cluster, [member("a", {**ALIKE, "theirs": "x"})])
    preview = poolpreviews.edit(viewer, vision, labels={})
    assert {write.key for write in preview.nodes[0].writes} == {"team", "tier"}


def test_on_ack_without_the_choice_the_same_list_says_which_nodes_will_differ(viewer, cloud):
    show(cloud.cluster, [member("a", ALIKE), member("b", {**ALIKE, "new": "1"})])
    preview = poolpreviews.edit(viewer, cloud, labels={"team": "ml", "new": "1"}, taints=[])
    assert not preview.update_nodes
    assert [each.node for each in preview.touched] == ["a"]
    (advice,) = preview.advice
    assert advice.code == "nodes-will-differ"
    assert "1 of 2 nodes" in advice.message
    assert "Only nodes that join later" in advice.message


def test_on_ack_a_removal_on_existing_nodes_is_said_to_be_unsure(viewer, cloud):
    show(cloud.cluster, [member("a", ALIKE)])
    preview = poolpreviews.edit(viewer, cloud, labels={}, update_nodes=True)
    assert writes_of(preview) == {"a": [("removed", "team", "ml", None)]}
    assert [each.code for each in preview.advice] == ["removal-unsure"]


def test_on_plain_kubernetes_an_edit_always_reaches_the_nodes(viewer, vision):
    show(vision.cluster, [member("a", ALIKE)])
    assert poolpreviews.edit(viewer, vision, labels={"team": "x"}, update_nodes=False).update_nodes


@pytest.mark.parametrize("update_nodes", [True, False])
def test_nodes_whose_mode_saving_would_change_are_refused_by_name_as_saving_refuses_them(operator, cloud, update_nodes):
    nodes = [member("a", ALIKE), member("b", ALIKE, mode="share")]
    show(cloud.cluster, nodes)
    preview = poolpreviews.edit(operator, cloud, labels={"team": "x"}, update_nodes=update_nodes)
    assert preview.refused == (("b",) if update_nodes else ())


def test_a_noexecute_taint_names_the_pods_that_it_ends(lab, vision):
    plain = a_pod("stays", on="a")
    tolerant = structs.replace(plain, ask=structs.replace(plain.ask, tolerations=(Toleration("drain", "Exists"),)))
    pods = [a_pod("goes", on="a"), a_pod("secret", on="a", namespace="payroll"), tolerant, a_pod("else", on="b")]
    show(lab, [member("a", ALIKE), a_node("b", "cgpu")], pods)
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "drain", "effect": "NoExecute"}]
    everything = poolpreviews.edit(an_actor(Role.VIEWER), vision, taints=taints)
    assert everything.evicted == (("default", "goes"), ("payroll", "secret"))
    assert "evicts-pods" in [each.code for each in everything.advice]
    partly = poolpreviews.edit(an_actor(Role.VIEWER, lab, "default"), vision, taints=taints)
    assert partly.evicted == (("", ""), ("default", "goes")), "a pod that may not be seen is counted and not named"


def test_bad_words_are_refused_field_by_field_as_saving_refuses_them(viewer, vision):
    with pytest.raises(Invalid) as refused:
        poolpreviews.edit(viewer, vision, labels={"kubernetes.io/hostname": "x"}, taints=[{"key": "-"}])
    assert [(error.field, error.code) for error in refused.value.errors] == [
        ("labels.kubernetes.io/hostname", "reserved"),
        ("taints.0.key", "bad-key"),
    ]


def test_a_label_that_the_pool_has_from_elsewhere_may_stay_but_not_change(viewer, vision):
    NodePool.objects.update(labels={"cgpu": "true"})
    vision.refresh_from_db()
    show(vision.cluster, [])
    assert poolpreviews.edit(viewer, vision, labels={"cgpu": "true", "team": "x"})
    with pytest.raises(Invalid):
        poolpreviews.edit(viewer, vision, labels={"cgpu": "false"})


def test_a_look_writes_nothing(viewer, vision):
    show(vision.cluster, [member("a", ALIKE)])
    poolpreviews.edit(viewer, vision, labels={"team": "x"}, taints=[])
    assert not Push.objects.exists()
    assert not AuditEntry.objects.exists()
    vision.refresh_from_db()
    assert vision.labels["team"] == "ml"


def test_where_neither_picture_nor_cluster_can_be_read_nobody_guesses(viewer, vision):
    with pytest.raises(Unreachable):
        poolpreviews.edit(viewer, vision, labels={"team": "x"})


def test_a_stranger_may_not_look(stranger, vision):
    with pytest.raises(Missing):
        poolpreviews.edit(stranger, vision)


def test_two_hundred_nodes_stand_in_a_few_groups(viewer, vision):
    nodes = [member(f"n-{n:03}", {**ALIKE, "team": "ops" if n % 50 == 0 else "ml"}) for n in range(200)]
    show(vision.cluster, nodes)
    preview = poolpreviews.edit(viewer, vision, labels={"team": "ml", "tier": "gold", "new": "1"})
    assert [len(group.nodes) for group in preview.groups] == [196, 4]
