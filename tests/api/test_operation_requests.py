"""Dangerous operations over REST: 202 with the request and its place, decided by named actions of another account."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from gpupools.models import Cluster, NodePool, OperationRequest, Push, Role
from gpupools.services import pictures
from tests.api.conftest import Caller, is_problem
from tests.domain.builders import a_pod
from tests.services.builders import a_component
from tests.services.dangers import HELD, LONE, MPS, WHY, a_cloud, a_vision_pool, an_mps_node, machines
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
HOME = "/api/v1/operation-requests/"
KINDS = ("size-0", "forced-delete", "component-uninstall", "mps-upgrade")


@pytest.fixture
def cloud(db: None) -> Cluster:
    return a_cloud()


@pytest.fixture
def vision(cloud: Cluster) -> NodePool:
    a_component(cloud, "ack-ai-installer")
    return a_vision_pool(cloud)


def ask(client: APIClient, pool: NodePool, kind: str = "size-0", **headers: str) -> Any:
    suite = f"/api/v1/clusters/{pool.cluster.name}/components"
    path, body = {
        "size-0": (f"/api/v1/node-pools/{pool.pk}/scale/", {"desired_size": 0}),
        "forced-delete": (f"/api/v1/node-pools/{pool.pk}/delete/", {"force": True}),
        "component-uninstall": (f"{suite}/ack-ai-installer/uninstall/", {}),
        "mps-upgrade": (f"{suite}/{MPS}/upgrade/", {"version": "1.1"}),
    }[kind]
    return client.post(path, {**body, "reason": WHY}, headers=headers)


@pytest.mark.parametrize("kind", KINDS)
def test_what_needs_a_second_person_answers_202_with_the_request_and_where_it_is(
    caller: Caller, vision: NodePool, kind: str
) -> None:
    if kind == "mps-upgrade":
        an_mps_node(vision.cluster)
    client = caller(Role.OPERATOR)
    answer = ask(client, vision, kind)
    body = answer.json()
    assert (answer.status_code, answer["Location"]) == (202, f"{HOME}{body['id']}/")
    assert (body["kind"], body["state"], body["reason"], body["requested_by"]) == (kind, "pending", WHY, "the-operator")
    assert (body["cluster"], body["decided_by"], body["push"]) == ("cloud", None, None)
    assert client.get(answer["Location"]).json() == body
    assert not Push.objects.exists()


def test_fewer_machines_and_a_taint_that_ends_pods_answer_202_too(caller: Caller, vision: NodePool) -> None:
    client, where = caller(Role.OPERATOR), f"/api/v1/node-pools/{vision.pk}/"
    smaller = client.post(f"{where}scale/", {"desired_size": 1, "reason": WHY})
    assert (smaller.status_code, smaller.json()["kind"]) == (202, "scale-down")
    edit = {"taints": [{"key": "drain", "effect": "NoExecute"}], "update_nodes": True}
    version = client.get(where)["ETag"]
    assert is_problem(client.patch(where, edit, headers={"If-Match": version}), 400, "required")
    tainted = client.patch(where, {**edit, "reason": WHY}, headers={"If-Match": version})
    assert (tainted.status_code, tainted.json()["kind"]) == (202, "evicting-taint")
    assert client.get(tainted["Location"]).json()["title"] == "Taint vision and end pods"
    assert not Push.objects.exists()


def test_the_request_says_what_is_done_and_who_is_hit(caller: Caller, vision: NodePool) -> None:
    body = ask(caller(Role.OPERATOR), vision).json()
    assert body["title"] == "Scale vision to 0"
    assert body["diff"] == [{"what": "Wanted nodes", "old": "2", "new": "0"}]
    assert [node["name"] for node in body["blast_radius"]["nodes"]] == ["m1", "m2"]
    assert [pod["pod"] for pod in body["blast_radius"]["pods"]] == ["train", "notebook"]
    assert body["warnings"][0]["code"] == "lost-pods"


def test_a_repeated_post_gets_the_same_request_at_the_same_place(caller: Caller, vision: NodePool) -> None:
    client = caller(Role.OPERATOR)
    first = ask(client, vision, **{"Idempotency-Key": "once"})
    again = ask(client, vision, **{"Idempotency-Key": "once"})
    assert (again.status_code, again.json(), again["Location"]) == (202, first.json(), first["Location"])
    assert again["Idempotency-Replayed"] == "true"
    assert OperationRequest.objects.count() == 1
    assert is_problem(ask(client, vision), 409, "request-open")


def test_another_approves_and_the_request_names_the_push(caller: Caller, vision: NodePool) -> None:
    where = ask(caller(Role.OPERATOR), vision)["Location"]
    body = caller(Role.ADMIN).post(f"{where}approve/", {"reason": "Agreed."}).json()
    assert (body["state"], body["decided_by"], body["decision_reason"]) == ("approved", "the-admin", "Agreed.")
    assert body["push"] == str(Push.objects.get().op_id)
    assert caller(Role.ADMIN).get(f"/api/v1/pushes/{body['push']}/").json()["kind"] == "pool.modify"
    assert is_problem(caller(Role.ADMIN).post(f"{where}reject/", {"reason": "No."}), 409, "illegal-move")


def test_another_rejects_and_whoever_asked_withdraws(caller: Caller, vision: NodePool) -> None:
    where = ask(caller(Role.OPERATOR), vision)["Location"]
    assert is_problem(caller(Role.ADMIN).post(f"{where}withdraw/"), 403, "not-the-requester")
    assert caller(Role.ADMIN).post(f"{where}reject/", {"reason": "No."}).json()["state"] == "rejected"
    where = ask(caller(Role.OPERATOR), vision)["Location"]
    assert caller(Role.OPERATOR).post(f"{where}withdraw/").json()["state"] == "withdrawn"


def test_nobody_approves_their_own_and_a_reason_is_needed(caller: Caller, vision: NodePool) -> None:
    where = ask(caller(Role.ADMIN), vision)["Location"]
    assert is_problem(caller(Role.ADMIN).post(f"{where}approve/", {"reason": "Mine."}), 403, "self-approval")
    assert is_problem(caller(Role.ADMIN).post(f"{where}approve/", {}), 400, "invalid")


def test_pods_that_came_since_are_named_in_the_refusal_and_approved_by_name(caller: Caller, vision: NodePool) -> None:
    where = ask(caller(Role.OPERATOR), vision)["Location"]
    show(vision.cluster, machines(), [HELD, LONE, a_pod("late", on="m1")])
    admin = caller(Role.ADMIN)
    refused = admin.post(f"{where}approve/", {"reason": "Agreed."})
    assert is_problem(refused, 409, "kills-pods")
    assert "default/late" in refused.json()["detail"]
    agreed = admin.post(f"{where}approve/", {"reason": "Agreed.", "approved_pods": ["default/late"]})
    assert agreed.json()["state"] == "approved"


def test_a_request_that_moved_lapses_with_409(caller: Caller, vision: NodePool) -> None:
    where = ask(caller(Role.OPERATOR), vision)["Location"]
    show(vision.cluster, machines("m1"), [HELD])
    refused = caller(Role.ADMIN).post(f"{where}approve/", {"reason": "Agreed."})
    assert is_problem(refused, 409, "lapsed")
    assert "Node m2 left the pool." in refused.json()["detail"]
    assert caller(Role.VIEWER).get(where).json()["state"] == "lapsed"


def test_a_cluster_that_is_away_answers_503_and_when_to_come_again(caller: Caller, vision: NodePool) -> None:
    pictures.forget(vision.cluster.pk)
    Cluster.objects.update(state="unreachable")
    answer = ask(caller(Role.OPERATOR), vision)
    assert is_problem(answer, 503, "cluster-away")
    assert int(answer["Retry-After"]) > 0


def test_a_list_is_filtered_by_state_kind_and_target(caller: Caller, vision: NodePool) -> None:
    client = caller(Role.OPERATOR)
    ask(client, vision, "size-0")
    ask(client, vision, "component-uninstall")

    def kinds(**query: str) -> list[str]:
        return [row["kind"] for row in client.get(HOME, query).json()["results"]]

    assert kinds() == ["component-uninstall", "size-0"]
    assert kinds(kind="size-0") == kinds(target="vision") == kinds(pool=str(vision.pk)) == ["size-0"]
    assert kinds(state="approved") == []
    assert kinds(cluster__name="cloud", state="pending") == ["component-uninstall", "size-0"]


def test_without_the_policy_the_answer_is_what_it_was(caller: Caller, vision: NodePool, settings: Any) -> None:
    settings.GPUPOOLS_APPROVAL_REQUIRED = ()
    client = caller(Role.OPERATOR)
    path = f"/api/v1/node-pools/{vision.pk}/scale/"
    assert is_problem(client.post(path, {"desired_size": 0}), 400, "required")
    refused = client.post(path, {"desired_size": 0, "reason": WHY})
    assert is_problem(refused, 409, "kills-pods")
    both = ["default/train", "research/notebook"]
    done = client.post(path, {"desired_size": 0, "reason": WHY, "approved_pods": both})
    assert (done.status_code, done.json()["desired_size"], "Location" in done) == (200, 0, False)
    answer = ask(client, vision, "component-uninstall")
    assert (answer.status_code, answer.json()["kind"]) == (202, "component.uninstall")
