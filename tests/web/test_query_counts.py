"""Lists ask the database as often for many rows as for few."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from gpupools.models import AuditEntry, ModeChange, OperationRequest, Role, Submission
from gpupools.services import allocation
from gpupools.services.access import Actor
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_cluster, a_pool, an_actor
from tests.services.showing import show
from tests.web.conftest import POOL, Lab, Visitor

pytestmark = pytest.mark.django_db


def more_of_everything(lab: Lab, people: dict[Role | None, Actor], count: int) -> None:
    """Add pools with nodes, pods, changes, submissions, audit entries, clusters and accounts."""
    picture = allocation.current(lab.cluster)
    assert picture is not None
    nodes, pods, now = list(picture.nodes), list(picture.pods), timezone.now()
    asker = people[Role.OPERATOR].user
    for number in range(count):
        name = f"more-{len(nodes)}"
        pool = a_pool(lab.cluster, name)
        nodes.append(a_node(name, labels={POOL: name}))
        pods.append(a_pod(name, mem=2, at={0: 2}, on=name, owner_kind="Job", owner_name=name))
        times = {"requested_at": now, "expires_at": now}
        ModeChange.objects.create(
            pool=pool, target_mode="share", fingerprint="x", reason="why", requested_by=asker, **times
        )
        for state in ("pending", "rejected"):
            OperationRequest.objects.create(
                cluster=lab.cluster, kind="size-0", pool=pool, target=name, reason="why", requested_by=asker,
                blast_radius={"nodes": [], "pods": [], "pools": []}, state=state, **times,
            )  # fmt: skip
        AuditEntry.objects.create(
            at=now,
            actor_name="x",
            action="pool.create",
            cluster=lab.cluster,
            object_type="nodepool",
            object_id=str(number),
        )
        Submission.objects.create(
            cluster=lab.cluster,
            kind="Job",
            namespace="default",
            name=name,
            submitted_by=asker,
            submitted_at=now,
            state=Submission.State.SUBMITTED,
        )
        a_cluster(name)
        an_actor(Role.VIEWER, lab.cluster, name=f"user-{name}")
    show(lab.cluster, nodes, pods)


ADDRESSES = [
    "/clusters/",
    "/c/lab/node-pools/",
    "/c/lab/nodes/",
    "/c/lab/jobs/",
    "/c/lab/pods/",
    "/c/lab/dashboard/",
    "/c/lab/diagnosis/",
    "/c/lab/ai-suite/",
    "/approvals/",
    "/audit/",
    "/users/",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_longer_list_asks_no_more(visitor: Visitor, lab: Lab, people: dict[Role | None, Actor], address: str) -> None:
    browser = visitor(Role.ADMIN)

    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert browser.get(address).status_code == 200
        return len(queries)

    more_of_everything(lab, people, 1)
    asked()  # the first visit remembers the cluster in the session
    few = asked()
    more_of_everything(lab, people, 10)
    assert asked() == few
    assert few <= 20
