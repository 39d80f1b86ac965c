"""The page of a pod that waits, and the ways that lead there."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from gpupools.domain.gpus import Taint
from gpupools.models import Role, Submission
from gpupools.services.access import Actor
from tests.domain.builders import a_node, a_pod, filled
from tests.services.showing import show
from tests.web.conftest import POOL, Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
ADDRESS = "/c/lab/pods/default/w/"
MESSAGE = (
    "0/2 nodes are available: 1 node(s) didn't have enough device resources to allocate, 1 node(s) had untolerated "
    "taint(s). no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for "
    "incoming pod, 1 Preemption is not helpful for scheduling."
)
NODES = [a_node("small", cards=2, labels={POOL: "cgpu"}), a_node("kept", taints=(Taint("gpu", "yes"),))]
FULL = filled(10, 9, on="small")


def pending(message: str = MESSAGE, **fields):
    return a_pod("w", mem=8, on="", phase="Pending", reason="Unschedulable", message=message, **fields)


def read(visitor: Visitor, address: str = ADDRESS) -> Page:
    answer = visitor(Role.VIEWER).get(address)
    assert answer.status_code == 200
    return Page(answer.content.decode())


def test_the_page_has_the_scheduler_s_reasons_what_they_mean_and_an_estimate(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, NODES, [pending(), *FULL])
    text = read(visitor).text
    assert "no single card had 8 memory units left: what is free is in pieces." in text
    assert "It does not tolerate gpu=yes:NoSchedule." in text
    assert "It looked at 2 nodes; one node can give several reasons." in text
    assert "On 1 node no pod of lower priority could make way. On 1 node no eviction would help." in text
    assert "Where it would land now estimate" in text
    assert "It would stay Pending, for the same reasons" in text
    assert "asks 8, free 11, best card 6" in text
    assert "Tolerate the taint gpu=yes:NoSchedule: it would land on kept." in text
    assert "One more node of pool cgpu would take it, if made as small is" in text


def test_a_change_since_the_scheduler_looked_is_said(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, NODES, [pending()])
    assert "The scheduler said otherwise" in read(visitor).text
    show(lab.cluster, NODES[:1], [pending(), *FULL])
    text = read(visitor).text
    assert "These are not the scheduler’s reasons" in text
    assert "0/1 nodes are available: 1 node(s) didn't have enough device resources to allocate." in text


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("", "The scheduler has said nothing of it yet."),
        ("binding rejected", "These words are of no form that is known here"),
        ("0/1 nodes are available: invalid replica for resource x.", "It stands for every node"),
    ],
)
def test_other_words_of_the_scheduler(visitor: Visitor, lab: Lab, message: str, said: str) -> None:
    show(lab.cluster, NODES[:1], [pending(message), *FULL])
    page = read(visitor)
    assert said in page.text
    assert not [attrs for attrs in page.all("table") if attrs.get("id") == "said-reasons"]


def test_a_pod_with_a_node_has_no_such_part(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, NODES, [a_pod("w", mem=8, at={0: 8}, on="small")])
    assert "Why it waits" not in read(visitor).text


def test_the_pods_of_a_job_lead_to_why_they_wait(visitor: Visitor, lab: Lab, people: dict[Role | None, Actor]) -> None:
    runs = a_pod("runs", mem=8, at={0: 8}, on="small", owner_kind="Job", owner_name="train")
    show(lab.cluster, NODES, [pending(owner_kind="Job", owner_name="train"), runs])
    job = Submission.objects.create(
        cluster=lab.cluster, kind="Job", namespace="default", name="train", submitted_at=timezone.now(),
            submitted_by=people[Role.OPERATOR].user,
        state=Submission.State.SUBMITTED,
    )  # fmt: skip
    for address in (f"/c/lab/jobs/{job.pk}/", "/c/lab/pods/"):
        links = [attrs["href"] for attrs in read(visitor, address).all("a") if "#pod-waits" in attrs.get("href", "")]
        assert links == [f"{ADDRESS}#pod-waits"]


def test_many_nodes_cost_no_more_questions_and_not_all_of_them_are_listed(visitor: Visitor, lab: Lab) -> None:
    def asked(count: int) -> tuple[int, str]:
        nodes = [a_node(f"n{number:02}", cards=1, units=7) for number in range(count)]
        show(lab.cluster, nodes, [pending()])
        read(visitor)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            text = read(visitor).text
        return len(queries), text

    few, text = asked(2)
    many, long = asked(60)
    assert few == many
    assert "nodes more" not in text
    assert "and 10 nodes more" in long
