"""Lists: pages that stay whole, filters, and as many queries for twenty rows as for two."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from gpupools.models import AuditEntry, Cluster, ModeChange, NodePool, OperationRequest, Push, Role, Submission
from gpupools.services.access import Actor
from tests.api.conftest import Caller, is_problem


def fill(cluster: Cluster, people: dict[Role | None, Actor], numbers: range) -> None:
    """Make rows of every kind that is listed."""
    now, user = timezone.now(), people[Role.OPERATOR].user
    for number in numbers:
        pool = NodePool.objects.create(cluster=cluster, name=f"p{number}", mode="cgpu", state="active", created_at=now)
        ModeChange.objects.create(
            pool=pool, target_mode="mps", reason="x", requested_by=user, requested_at=now, expires_at=now
        )
        OperationRequest.objects.create(
            cluster=cluster, kind="size-0", pool=pool, target=pool.name, reason="x", requested_by=user,
            blast_radius={"nodes": [], "pods": [], "pools": []}, requested_at=now, expires_at=now,
        )  # fmt: skip
        Submission.objects.create(
            cluster=cluster, kind="Job", namespace="default", name=f"j{number}", submitted_by=user, submitted_at=now
        )
        Push.objects.create(cluster=cluster, kind="x", target=f"t{number}", due_at=now, created_at=now)
        AuditEntry.objects.create(
            at=now, actor_name="x", action="pool.create", cluster=cluster, cluster_name=cluster.name, object_id=number
        )


@pytest.mark.parametrize(
    "noun",
    ["clusters", "node-pools", "mode-changes", "operation-requests", "submissions", "pushes", "audit-entries"],
)
def test_a_list_takes_as_many_queries_for_many_rows_as_for_few(
    caller: Caller, people: dict[Role | None, Actor], lab: Cluster, noun: str
) -> None:
    client = caller(Role.VIEWER)
    fill(lab, people, range(2))
    client.get(f"/api/v1/{noun}/")  # the token's last use is written once a minute
    with CaptureQueriesContext(
        connection,
    ) as few:
        client.get(f"/api/v1/{noun}/")
    fill(lab, people, range(2, 20))
    with CaptureQueriesContext(connection) as many:
        client.get(f"/api/v1/{noun}/")
    assert len(many) == len(few), [query["sql"] for query in many]


def test_pages_stay_whole_while_rows_come(caller: Caller, people: dict[Role | None, Actor], lab: Cluster) -> None:
    client = caller(Role.VIEWER)
    fill(lab, people, range(5))
    page = client.get("/api/v1/node-pools/?page_size=2").json()
    seen = [row["name"] for row in page["results"]]
    fill(lab, people, range(5, 7))
    while page["next"]:
        page = client.get(page["next"]).json()
        seen += [row["name"] for row in page["results"]]
    assert seen == ["p4", "p3", "p2", "p1", "p0"]


def test_rows_are_filtered(caller: Caller, people: dict[Role | None, Actor], lab: Cluster) -> None:
    client = caller(Role.VIEWER)
    fill(lab, people, range(3))
    assert [row["name"] for row in client.get("/api/v1/node-pools/?name=p1").json()["results"]] == ["p1"]
    assert client.get("/api/v1/node-pools/?cluster__name=other").json()["results"] == []
    assert is_problem(client.get("/api/v1/audit-entries/?at__gte=nonsense"), 400, "invalid")


def test_a_pool_names_the_change_that_holds_it(caller: Caller, people: dict[Role | None, Actor], lab: Cluster) -> None:
    fill(lab, people, range(1))
    (row,) = caller(Role.VIEWER).get("/api/v1/node-pools/").json()["results"]
    assert row["open_change"] == ModeChange.objects.get().pk
    ModeChange.objects.update(state="rejected")
    (row,) = caller(Role.VIEWER).get("/api/v1/node-pools/").json()["results"]
    assert row["open_change"] is None
