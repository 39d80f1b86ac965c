"""The page of one component: health per node, steps by hand, what an upgrade ends, manifests seen before applied."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.models import Cluster, Push, Role
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_cluster, a_component
from tests.services.showing import show
from tests.web.conftest import Lab, Visitor

pytestmark = pytest.mark.django_db
MPS = "ack-mps-control"


@pytest.fixture
def busy(lab: Lab) -> Lab:
    """An mps node with two pods that compute through the daemon, which is installed."""
    lab.cluster.components.all().delete()
    a_component(lab.cluster, MPS)
    pods = [a_pod(name, mem=2, at={0: 2}, on="m1") for name in ("one", "two")]
    show(lab.cluster, [a_node("m1", "mps")], pods)
    return lab


def test_the_page_tells_each_nodes_health_and_whose_pods_would_end(busy: Lab, visitor: Visitor) -> None:
    text = visitor(Role.ADMIN).get(f"/c/lab/ai-suite/{MPS}/").content.decode()
    assert "2 pods compute through it" in text
    assert "default/one" in text
    assert "there is no such DaemonSet" in text
    assert "2 pods compute" not in visitor(Role.VIEWER).get(f"/c/lab/ai-suite/{MPS}/").content.decode()


def test_without_the_policy_an_upgrade_goes_only_with_every_pod_ticked(
    busy: Lab, visitor: Visitor, settings: Any
) -> None:
    settings.GPUPOOLS_APPROVAL_REQUIRED = ()
    address, browser = f"/c/lab/ai-suite/{MPS}/upgrade/", visitor(Role.ADMIN)
    fields = {"image_prefix": "registry.example.com/x", "reason": "newer"}
    refused = browser.post(address, {**fields, "approved_pods": ["default/one"]})
    assert refused.status_code == 400
    assert "default/two" in refused.content.decode()
    assert not Push.objects.exists()
    assert browser.post(address, {**fields, "approved_pods": ["default/one", "default/two"]}).status_code == 302
    assert Push.objects.get().payload["approved_pods"] == ["default/one", "default/two"]


def test_without_the_policy_uninstalling_lists_the_pods_to_approve(busy: Lab, visitor: Visitor, settings: Any) -> None:
    settings.GPUPOOLS_APPROVAL_REQUIRED = ()
    busy.cluster.pools.filter(mode="mps").delete()
    address, browser = f"/c/lab/ai-suite/{MPS}/uninstall/", visitor(Role.ADMIN)
    assert "2 pods compute through it and end" in browser.get(address).content.decode()
    assert browser.post(address, {"reason": "gone"}).status_code == 400
    both = {"reason": "gone", "approved_pods": ["default/one", "default/two"]}
    assert browser.post(address, both).status_code == 302
    assert Push.objects.get().kind == "component.uninstall"


def test_the_acks_own_console_is_explained_where_the_component_is_missing(lab: Lab, visitor: Visitor) -> None:
    a_cluster("cloud", provider=Cluster.Provider.ACK, ack_cluster_id="c123")
    text = visitor(Role.VIEWER).get("/c/cloud/ai-suite/ack-ai-installer/").content.decode()
    assert "Tick Scheduling Policy Extension" in text
    assert "https://cs.console.aliyun.com/#/k8s/cluster/c123" in text
    assert "By hand" not in visitor(Role.VIEWER).get("/c/lab/ai-suite/ack-ai-installer/").content.decode()


def test_manifests_are_an_administrators_and_wrong_ones_are_said_at_the_field(lab: Lab, visitor: Visitor) -> None:
    address = f"/c/lab/ai-suite/{MPS}/apply/"
    assert visitor(Role.OPERATOR).post(address, {"manifests": "kind: Pod"}).status_code == 403
    answer = visitor(Role.ADMIN).post(address, {"manifests": "kind: Pod\nmetadata: {name: x}"})
    assert answer.status_code == 400
    assert "Objects of this kind are not part of a component" in answer.content.decode()
    assert "kind: Pod" in answer.content.decode(), "what was typed is kept"


def test_a_component_that_the_catalogue_does_not_have_is_not_there(lab: Lab, visitor: Visitor) -> None:
    assert visitor(Role.ADMIN).get("/c/lab/ai-suite/hami/").status_code == 404
    assert visitor(Role.ADMIN).post("/c/lab/ai-suite/hami/upgrade/", {"reason": "x"}).status_code == 404
