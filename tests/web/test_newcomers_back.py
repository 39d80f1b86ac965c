"""What the page of a paused change says of pods that came since the request, and who may let them be evicted."""

from __future__ import annotations

import msgspec
import pytest
from django.utils import timezone

from gpupools.models import ModeChange, Role
from tests.domain.builders import a_pod
from tests.services.showing import show
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page
from tests.web.test_change_pages import ask

pytestmark = pytest.mark.django_db


@pytest.fixture
def paused(visitor: Visitor, lab: Lab) -> ModeChange:
    """A change that has written its labels, with a pod of the new mode that nobody had seen."""
    change = ask(visitor)
    visitor(Role.ADMIN).post(f"/changes/{change.pk}/decide/", {"action": "approve", "reason": "Fine."})
    change.steps.filter(kind="write_labels").update(state="done", started_at=timezone.now())
    ModeChange.objects.filter(pk=change.pk).update(state="paused")
    nodes = [
        msgspec.structs.replace(node, labels={**node.labels, "ack.node.gpu.schedule": "core_mem"})
        if node.name == "n-cgpu"
        else node
        for node in lab.picture.nodes
    ]
    late = a_pod("late", mem=2, core=10, on="n-cgpu", owner_kind="Job", owner_name="late")
    show(lab.cluster, nodes, [*lab.picture.pods, late])
    change.refresh_from_db()
    return change


def test_a_requester_reads_which_pods_rolling_back_waits_for_and_cannot_let_them_be_evicted(
    visitor: Visitor, paused: ModeChange
) -> None:
    operator = visitor(Role.OPERATOR)
    page = Page(operator.get(f"/changes/{paused.pk}/").content.decode())
    assert "Rolling back waits for 1 pod that came since the request" in page.text
    assert "default/late · n-cgpu" in page.text
    assert not page.all("input", name="approved_pods")
    wish = {"action": "roll_back", "reason": "Back.", "approved_pods": ["default/late"]}
    assert operator.post(f"/changes/{paused.pk}/decide/", wish).status_code in (400, 403)
    paused.refresh_from_db()
    assert paused.state == "paused"
    assert operator.post(f"/changes/{paused.pk}/decide/", {**wish, "approved_pods": []}).status_code == 302
    paused.refresh_from_db()
    assert (paused.state, paused.remembered["approved_later"]) == ("rolling_back", [])


def test_an_administrator_ticks_the_pods_that_rolling_back_may_evict(visitor: Visitor, paused: ModeChange) -> None:
    administrator = visitor(Role.ADMIN)
    page = Page(administrator.get(f"/changes/{paused.pk}/").content.decode())
    assert [box["value"] for box in page.all("input", name="approved_pods")] == ["default/late"]
    wish = {"action": "roll_back", "reason": "Back.", "approved_pods": ["default/late"]}
    assert administrator.post(f"/changes/{paused.pk}/decide/", wish).status_code == 302
    paused.refresh_from_db()
    assert [each["pod"] for each in paused.remembered["approved_later"]] == ["default/late"]
