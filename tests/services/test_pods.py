"""The list of pods: filtered, beside what they hold, and confined to granted namespaces."""

from __future__ import annotations

import pytest

from gpupools.errors import Invalid, Missing, NotAllowed, Unreachable
from gpupools.models import Cluster, Role
from gpupools.services import pods
from gpupools.services.access import Actor
from gpupools.services.pods import CardUse, Filters
from tests.domain.builders import a_node, a_pod
from tests.services.builders import an_actor
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]


@pytest.fixture(autouse=True)
def picture(lab: Cluster, empty_redis: object) -> None:
    nodes = [a_node("n1", cards=2), a_node("n2", "exclusive"), a_node("n3", "topology")]
    show(
        lab,
        nodes,
        [
            a_pod("a", mem=4, at={1: 4}, on="n1", namespace="vision", owner_kind="Job", owner_name="train"),
            a_pod("b", whole=2, on="n2", namespace="speech"),
            a_pod("c", topology=1, on="", phase="Pending", namespace="speech"),
            a_pod("d", cpu=100, on="n1", namespace="vision", phase="Succeeded"),
        ],
    )


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (Filters(), ["b", "c", "a", "d"]),
        (Filters(namespace="vision"), ["a", "d"]),
        (Filters(node="n1"), ["a", "d"]),
        (Filters(owner="Job/train"), ["a"]),
        (Filters(owner="train"), ["a"]),
        (Filters(owner="DaemonSet/train"), []),
        (Filters(phase="Pending"), ["c"]),
        (Filters(mode="exclusive"), ["b"]),
        (Filters(gpu_only=True), ["b", "c", "a"]),
    ],
)
def test_pods_are_filtered_and_in_order(viewer: Actor, lab: Cluster, filters: Filters, names: list[str]) -> None:
    assert [row.pod.name for row in pods.listing(viewer, lab, filters).rows] == names


def test_each_pod_stands_beside_what_it_holds(viewer: Actor, lab: Cluster) -> None:
    rows = {row.pod.name: row for row in pods.listing(viewer, lab).rows}
    assert (rows["a"].mode, rows["a"].uses) == ("cgpu", (CardUse(1, 4),))
    assert (rows["b"].mode, rows["b"].uses) == ("exclusive", (CardUse(None, 0, 0, 2),)), "no index is invented"
    assert (rows["c"].uses, rows["c"].asks) == ((), {"aliyun.com/gpu": 1})
    assert rows["d"].uses == ()


def test_only_granted_namespaces_are_listed(lab: Cluster) -> None:
    actor = an_actor(Role.VIEWER, lab, "vision")
    assert [row.pod.name for row in pods.listing(actor, lab).rows] == ["a", "d"]
    with pytest.raises(NotAllowed):
        pods.listing(actor, lab, Filters(namespace="speech"))


def test_to_a_stranger_there_is_no_such_cluster(stranger: Actor, lab: Cluster) -> None:
    with pytest.raises(Missing):
        pods.listing(stranger, lab)
    with pytest.raises(Missing):
        pods.log(stranger, lab, "vision", "a")


def test_a_list_says_how_old_it_is_and_none_when_nothing_is_known(viewer: Actor, lab: Cluster) -> None:
    assert pods.listing(viewer, lab).taken_at is not None
    lab.pk = lab.pk + 1000  # a cluster that nobody has published
    assert pods.listing(viewer, lab) == pods.Listing(None, ())


@pytest.mark.parametrize("lines", [0, -1, 10_001])
def test_too_many_lines_of_a_log_are_refused(viewer: Actor, lab: Cluster, lines: int) -> None:
    with pytest.raises(Invalid) as caught:
        pods.log(viewer, lab, "vision", "a", tail_lines=lines)
    assert caught.value.errors[0].field == "tail_lines"


def test_a_log_of_another_namespace_is_refused_before_the_cluster_is_asked(lab: Cluster) -> None:
    with pytest.raises(NotAllowed):
        pods.log(an_actor(Role.VIEWER, lab, "vision"), lab, "speech", "b")


def test_a_cluster_that_is_away_is_said_to_be(viewer: Actor, lab: Cluster) -> None:
    with pytest.raises(Unreachable):
        pods.log(viewer, lab, "vision", "a")


def test_the_scheduler_s_sentence_on_a_waiting_pod_is_read_into_reasons(lab: Cluster) -> None:
    message = (
        "0/3 nodes are available: 1 node(s) had taint {gpu: yes}, that the pod didn't tolerate, 2 Insufficient cpu."
    )
    waits = a_pod("w", mem=4, on="", phase="Pending", reason="Unschedulable", message=message)
    bound = a_pod("b", mem=4, on="n1", phase="Pending", message=message)
    show(lab, [a_node("n1")], [waits, bound])
    rows = {row.pod.name: row for row in pods.listing(an_actor(Role.VIEWER, lab), lab).rows}
    found = rows["w"].unschedulable
    assert found is not None
    assert [(each.count, each.code, each.resource or each.taint) for each in found.reasons] == [
        (1, "taint", "gpu: yes"),
        (2, "insufficient", "cpu"),
    ]
    assert rows["b"].unschedulable is None
