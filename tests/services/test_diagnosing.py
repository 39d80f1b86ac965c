"""The diagnosis of a cluster as people and the API get it: by cluster, node and pool, and by what one may see."""

from __future__ import annotations

import time

import pytest
from rest_framework.test import APIClient

from gpupools.domain.modes import OP_LABEL
from gpupools.errors import Missing
from gpupools.models import Role
from gpupools.services import diagnosing
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_pool, an_actor
from tests.services.showing import a_daemonset, show

pytestmark = pytest.mark.django_db
IN_POOL = {"gpupools.internal/pool": "night"}


@pytest.fixture
def faulty(lab, empty_redis):
    """A pool that wants share with a node in cgpu, and an exclusive node with a broken card."""
    a_pool(lab, "night", mode="share", policy="")
    over = [a_pod(f"p{number}", mem=10, at={0: 10}, on="n1", namespace="red") for number in range(2)]
    nodes = [
        a_node("n1", "cgpu", cards=2, labels=IN_POOL),
        a_node("n2", "exclusive", cards=7, capacity={"nvidia.com/gpu": 8}),
    ]
    show(lab, nodes, over, [a_daemonset("cgpu-installer")])
    return lab


def codes(report):
    return {(each.code, each.node) for each in report.found}


def test_a_cluster_a_node_and_a_pool_are_diagnosed(faulty, viewer):
    everything = diagnosing.report(viewer, faulty)
    assert codes(everything) == {("over-allocated", "n1"), ("pool-not-synced", "n1"), ("cards-unhealthy", "n2")}
    assert (everything.errors, everything.warnings) == (2, 1)
    assert codes(diagnosing.report(viewer, faulty, node="n2")) == {("cards-unhealthy", "n2")}
    assert codes(diagnosing.report(viewer, faulty, pool="night")) == {
        ("over-allocated", "n1"),
        ("pool-not-synced", "n1"),
    }
    assert abs(everything.taken_at - time.time()) < 60


def test_what_is_wrong_with_a_pool_as_a_whole_is_told_with_the_pool(faulty, viewer):
    show(faulty, [a_node("n1", "cgpu", labels=IN_POOL), a_node("n2", "share", labels=IN_POOL)])
    assert ("pool-mixed", "") in codes(diagnosing.report(viewer, faulty, pool="night"))


def test_before_anybody_has_looked_nothing_is_known(lab, viewer, empty_redis):
    report = diagnosing.report(viewer, lab)
    assert (report.taken_at, report.found) == (None, ())


def test_pods_of_other_namespaces_have_no_name(faulty):
    guest = an_actor(Role.VIEWER, faulty, "blue")
    text = str(diagnosing.report(guest, faulty).found)
    assert "over-allocated" in text
    assert "red" not in text
    assert "p0" not in text


def test_who_may_not_see_the_cluster_may_not_see_what_is_wrong(faulty, stranger):
    with pytest.raises(Missing):
        diagnosing.report(stranger, faulty)


def test_the_api_tells_the_same(faulty, viewer):
    client = APIClient()
    client.force_authenticate(viewer.user)
    body = client.get(f"/api/v1/clusters/{faulty.name}/diagnosis/?node=n2").json()
    (found,) = body["results"]
    assert (body["errors"], body["warnings"], found["code"], found["scenario"]) == (1, 0, "cards-unhealthy", 40)
    assert found["evidence"]
    assert found["fix"]
    assert OP_LABEL not in str(body)


def test_what_is_true_of_all_pods_of_an_owner_is_said_once(lab, viewer, empty_redis):
    pods = [
        a_pod(f"p{number}", mem=1, at={0: 1}, on=f"n{number % 2}", owner_kind="Job", owner_name="train")
        for number in range(6)
    ]
    show(lab, [a_node("n0", "cgpu"), a_node("n1", "share")], pods)
    (found,) = diagnosing.report(viewer, lab).found
    assert (found.code, len(found.pods), found.node) == ("mode-not-bound", 6, "")
    assert "So with 5 more of its owner." in found.message
