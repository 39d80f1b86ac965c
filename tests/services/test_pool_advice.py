"""What is said of a pool beside the others of its cluster, and of one that does not exist yet."""

from __future__ import annotations

import pytest

from gpupools.domain.gpus import Workload
from gpupools.domain.modes import POOL_LABEL
from gpupools.errors import Invalid, NotAllowed
from gpupools.models import AuditEntry, Cluster, NodePool, Push
from gpupools.services import pooladvice
from tests.domain.builders import a_node
from tests.services.builders import a_cluster, a_pool
from tests.services.showing import show

pytestmark = pytest.mark.django_db


@pytest.fixture
def ack(db: None, empty_redis: object) -> Cluster:
    return a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")


def test_a_pool_is_judged_by_its_nodes_and_beside_pools_that_are_there(viewer, lab, empty_redis):
    night = a_pool(lab, "night")
    a_pool(lab, "day")
    a_pool(lab, "past", state=NodePool.State.GONE)
    show(lab, [a_node("a", "cgpu", labels={POOL_LABEL: "night"}), a_node("b", "share", labels={POOL_LABEL: "night"})])
    assert [each.code for each in pooladvice.of(viewer, night)] == ["mixed-modes", "same-labels"]
    assert "past" not in pooladvice.of(viewer, night)[1].message


def test_a_pool_that_is_gone_gets_no_advice(viewer, lab, empty_redis):
    assert pooladvice.of(viewer, a_pool(lab, "past", state=NodePool.State.GONE)) == ()


def test_a_new_pool_on_ack_is_checked_and_judged_and_not_made(operator, ack):
    a_pool(ack, "day")
    types = ["ecs.gn7i-c8g1.2xlarge", "ecs.gn9x-c8g1.2xlarge", "ecs.gn6v-c8g1.8xlarge"]
    scaling = {"enable": True, "min_instances": 0, "max_instances": 4}
    new = pooladvice.of_new(operator, ack, name="night ", mode="cgpu", instance_types=types, auto_scaling=scaling)
    assert new.spec.name == "night"
    assert new.labels == {"ack.node.gpu.schedule": "cgpu", "ack.node.gpu.placement": "binpack"}
    assert new.spec.auto_scaling.kind == "gpushare"
    assert [each.code for each in new.advice] == ["mixed-cards", "unknown-type", "same-labels"]
    assert not NodePool.objects.filter(name="night").exists()
    assert not Push.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_new_pool_over_existing_nodes_says_what_happens_to_each(operator, lab, empty_redis):
    show(lab, [a_node("a", "exclusive"), a_node("b", "cgpu"), a_node("c", "cgpu")])
    new = pooladvice.of_new(operator, lab, name="night", mode="cgpu", node_names=["a", "b"], labels={"team": "ml"})
    assert new.changing == ("a",)
    by_node = {node: {write.key: (write.old, write.new) for write in g.writes} for g in new.groups for node in g.nodes}
    assert by_node["a"]["ack.node.gpu.schedule"] == ("default", "cgpu")
    assert "ack.node.gpu.schedule" not in by_node["b"]
    assert by_node["b"]["team"] == (None, "ml")


def test_what_creating_refuses_is_refused_before(operator, ack, lab, empty_redis):
    with pytest.raises(Invalid) as refused:
        pooladvice.of_new(operator, ack, name="night", mode="turbo", instance_types=["x"])
    assert {error.field for error in refused.value.errors} == {"mode", "instance_types"}
    show(lab, [a_node("a")])
    with pytest.raises(Invalid) as refused:
        pooladvice.of_new(operator, lab, name="night", mode="cgpu", node_names=["nobody"])
    assert [error.code for error in refused.value.errors] == ["unknown"]


def test_a_viewer_plans_no_pool(viewer, ack):
    with pytest.raises(NotAllowed):
        pooladvice.of_new(viewer, ack, name="night", mode="cgpu")


def daemonset(name: str, policy: str = "") -> Workload:
    return Workload("DaemonSet", "kube-system", name, policy=policy)


@pytest.mark.parametrize(
    ("workloads", "value", "reason"),
    [
        ([daemonset("cgpu-installer", "0")], 0, ""),
        ([daemonset("cgpu-installer", "3"), daemonset("cgpu-core-installer", "3"), daemonset("other", "9")], 3, ""),
        ([], None, "is there"),
        ([daemonset("cgpu-installer")], None, "names no POLICY"),
        ([daemonset("cgpu-installer", "9")], None, "none of 0 to 5"),
        ([daemonset("cgpu-installer", "1"), daemonset("cgpu-core-installer", "2")], None, "only one"),
    ],
)
def test_the_compute_policy_is_read_from_the_daemonsets_or_said_to_be_unknown(
    lab, empty_redis, workloads, value, reason
):
    show(lab, [], workloads=workloads)
    found = pooladvice.cgpu_policy(lab)
    assert (found.policy.value if found.policy else None) == value
    assert reason in found.reason


def test_before_anything_was_read_the_compute_policy_is_unknown(lab, empty_redis):
    assert "has been read yet" in pooladvice.cgpu_policy(lab).reason
