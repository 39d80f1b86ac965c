"""What a mode change would do, over REST, before anybody asks for it."""

from __future__ import annotations

import pytest

from gpupools.domain.modes import POOL_LABEL
from gpupools.models import Cluster, ModeChange, NodePool, PoolHold, Push, Role
from tests.api.conftest import Caller, is_problem
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_pool
from tests.services.showing import show

pytestmark = pytest.mark.django_db
PATH = "/api/v1/mode-changes/preview/"


@pytest.fixture
def pool(lab: Cluster, empty_redis: object) -> NodePool:
    placed = {POOL_LABEL: "vision", "ack.node.gpu.placement": "binpack"}
    nodes = [a_node("a", "cgpu", labels=placed), a_node("b", "cgpu", labels=placed)]
    show(lab, nodes, [a_pod("train", mem=4, at={0: 4}, on="a", namespace="team-a")])
    return a_pool(lab, "vision")


def test_a_preview_says_what_would_change_who_is_hit_and_in_which_steps(caller: Caller, pool: NodePool) -> None:
    body = {"pool": pool.pk, "target_mode": "share", "holders": "evict"}
    answer = caller(Role.VIEWER).post(PATH, body, format="json")
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert (found["from_mode"], found["target_mode"], found["target_policy"]) == ("cgpu", "share", "binpack")
    assert (found["nodes"], found["leaving"], found["holding"]) == (2, 2, 1)
    assert (found["changes_nothing"], found["needs_approval"], found["rule"]) == (False, True, "")
    assert [(each["pod"], each["node"]) for each in found["blast_radius"]] == [("train", "a")]
    kinds = [step["kind"] for step in found["steps"]]
    assert kinds[:3] == ["preflight", "cordon", "drain"]
    assert kinds[-2:] == ["uncordon", "verify"]
    assert "restart" in kinds  # cGPU's kernel module stays until then
    assert found["expected_seconds"] == sum(step["expected_seconds"] for step in found["steps"])
    assert not (ModeChange.objects.exists() or PoolHold.objects.exists() or Push.objects.exists())


def test_a_preview_of_what_is_so_already_says_that_it_changes_nothing(caller: Caller, pool: NodePool) -> None:
    found = caller(Role.VIEWER).post(PATH, {"pool": pool.pk, "target_mode": "cgpu"}, format="json").json()
    assert (found["changes_nothing"], found["leaving"]) == (True, 0)


def test_a_preview_refuses_what_a_request_refuses(caller: Caller, pool: NodePool) -> None:
    answer = caller(Role.VIEWER).post(PATH, {"pool": pool.pk, "target_mode": "mig"}, format="json")
    assert is_problem(answer, 400, "invalid")
    (error,) = answer.json()["errors"]
    assert (error["field"], error["code"], error["found"]) == ("target_mode", "read-only", "mig")
    assert "core_mem" in error["allowed"]


def test_a_pool_that_one_may_not_see_has_no_preview(caller: Caller, pool: NodePool) -> None:
    answer = caller(None).post(PATH, {"pool": pool.pk, "target_mode": "share"}, format="json")
    assert answer.status_code == 404
