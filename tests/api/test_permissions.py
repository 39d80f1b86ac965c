"""Who may call what: every endpoint, for every role."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from rest_framework.test import APIClient

from gpupools.models import Cluster, ModeChange, NodePool, OperationRequest, Role
from gpupools.services import tokens, users
from gpupools.services.access import SYSTEM, Actor
from tests.api.conftest import Caller, is_problem

REASON = {"reason": "because"}
# method, path, body, the lowest role that gets through the door (past it, 2xx, 4xx or 503 by the state of things).
TABLE: list[tuple[str, str, dict[str, Any], Role]] = [
    ("get", "clusters/", {}, Role.VIEWER),
    ("get", "clusters/lab/", {}, Role.VIEWER),
    ("post", "clusters/lab/disconnect/", REASON, Role.ADMIN),
    ("post", "clusters/lab/credentials/", {"kubeconfig": "{}"}, Role.ADMIN),
    ("post", "clusters/lab/probe/", {}, Role.OPERATOR),
    ("get", "clusters/lab/allocation/explain/", {}, Role.VIEWER),
    ("get", "clusters/lab/components/ack-mps-control/nodes/", {}, Role.VIEWER),
    ("get", "clusters/lab/components/ack-mps-control/offer/", {}, Role.OPERATOR),
    ("post", "clusters/lab/components/ack-mps-control/upgrade/", REASON, Role.OPERATOR),
    ("post", "clusters/lab/components/ack-mps-control/rehearse/", {"image_prefix": "r.example/x"}, Role.OPERATOR),
    ("get", "clusters/lab/cgpu-policy/", {}, Role.VIEWER),
    ("get", "clusters/lab/components/", {}, Role.VIEWER),
    ("get", "clusters/lab/components/ack-mps-control/", {}, Role.VIEWER),
    ("post", "clusters/lab/components/ack-mps-control/install/", {"image_prefix": "r.example/x"}, Role.OPERATOR),
    ("post", "clusters/lab/components/ack-mps-control/uninstall/", REASON, Role.OPERATOR),
    ("get", "clusters/lab/nodes/", {}, Role.VIEWER),
    ("get", "clusters/lab/pods/", {}, Role.VIEWER),
    ("get", "clusters/lab/allocation/", {}, Role.VIEWER),
    ("get", "clusters/lab/allocation/inspect/", {}, Role.VIEWER),
    ("get", "clusters/lab/allocation/history/", {}, Role.VIEWER),
    ("get", "node-pools/", {}, Role.VIEWER),
    ("get", "node-pools/{pool}/", {}, Role.VIEWER),
    ("get", "node-pools/{pool}/advice/", {}, Role.VIEWER),
    ("get", "node-pools/{pool}/found/", {}, Role.VIEWER),
    ("post", "node-pools/preview/", {"cluster": "lab", "name": "new", "mode": "cgpu"}, Role.OPERATOR),
    ("post", "node-pools/{pool}/preview-edit/", {}, Role.VIEWER),
    ("post", "node-pools/{pool}/scale/", {"desired_size": 2}, Role.OPERATOR),
    ("post", "node-pools/{pool}/delete/", {}, Role.OPERATOR),
    ("post", "node-pools/{pool}/take-out/", {"node_names": ["n"], **REASON}, Role.OPERATOR),
    ("post", "node-pools/{pool}/attach/", {"instance_ids": ["i-1"], **REASON}, Role.OPERATOR),
    ("post", "node-pools/{pool}/restore-drift/", REASON, Role.OPERATOR),
    ("post", "node-pools/{pool}/adopt-drift/", {"node_name": "n", **REASON}, Role.OPERATOR),
    ("post", "mode-changes/{change}/approve/", REASON, Role.ADMIN),
    ("post", "mode-changes/{change}/reject/", REASON, Role.ADMIN),
    ("post", "mode-changes/{change}/pause/", REASON, Role.OPERATOR),
    ("post", "mode-changes/{change}/retry/", REASON, Role.OPERATOR),
    ("post", "mode-changes/{change}/abandon/", REASON, Role.OPERATOR),
    ("post", "mode-changes/{change}/release/", REASON, Role.OPERATOR),
    ("post", "mode-changes/{change}/roll-back/", REASON, Role.OPERATOR),
    ("post", "mode-changes/{change}/undo/", REASON, Role.OPERATOR),
    ("post", "mode-changes/{change}/confirm/", REASON, Role.OPERATOR),
    ("get", "mode-changes/", {}, Role.VIEWER),
    ("get", "mode-changes/{change}/", {}, Role.VIEWER),
    ("post", "operation-requests/{request}/approve/", REASON, Role.ADMIN),
    ("post", "operation-requests/{request}/reject/", REASON, Role.ADMIN),
    ("get", "operation-requests/", {}, Role.VIEWER),
    ("get", "operation-requests/{request}/", {}, Role.VIEWER),
    ("get", "submissions/", {}, Role.VIEWER),
    ("get", "audit-entries/", {}, Role.VIEWER),
    ("get", "pushes/", {}, Role.VIEWER),
    ("get", "users/", {}, Role.ADMIN),
    ("post", "users/", {"username": "new"}, Role.ADMIN),
    ("get", "grants/", {}, Role.ADMIN),
    ("post", "grants/", {"user": "stan", "role": "viewer"}, Role.ADMIN),
]
LISTS = {path for method, path, *_ in TABLE if method == "get" and "{" not in path and "lab" not in path}


@pytest.fixture
def ground(lab: Cluster, people: dict[Role | None, Actor]) -> dict[str, int]:
    """A pool of the cluster and a change that the operator asked for."""
    now = timezone.now()
    pool = NodePool.objects.create(cluster=lab, name="p", mode="share", state="active", created_at=now)
    change = ModeChange.objects.create(
        pool=pool,
        target_mode="cgpu",
        reason="x",
        requested_by=people[Role.OPERATOR].user,
        requested_at=now,
        expires_at=now + timezone.timedelta(hours=1),
    )
    request = OperationRequest.objects.create(
        cluster=lab,
        kind="component-uninstall",
        component="ack-ai-installer",
        target="ack-ai-installer",
        blast_radius={"nodes": [], "pods": [], "pools": []},
        reason="x",
        requested_by=people[Role.OPERATOR].user,
        requested_at=now,
        expires_at=now + timezone.timedelta(hours=1),
    )
    return {"pool": pool.pk, "change": change.pk, "request": request.pk}


def call(client: APIClient, method: str, path: str, body: dict[str, Any], ground: dict[str, int]) -> Any:
    address = f"/api/v1/{path.format(**ground)}"
    return client.get(address) if method == "get" else client.post(address, body)


@pytest.mark.parametrize("row", TABLE, ids=[f"{method} {path}" for method, path, *_ in TABLE])
@pytest.mark.parametrize("role", [None, *Role])
def test_only_those_who_may_get_through(
    caller: Caller,
    ground: dict[str, int],
    redis_url: str,
    row: tuple[str, str, dict[str, Any], Role],
    role: Role | None,
) -> None:
    method, path, body, needed = row
    response = call(caller(role), method, path, body, ground)
    if role is None and path in LISTS - {"users/", "grants/"}:
        assert response.status_code == 200
        # Of the audit log, everybody sees what they did themselves.
        assert [row for row in response.json()["results"] if row.get("actor_name") != "stan"] == []
    elif role is None:
        assert response.status_code in {403, 404}, response.content
    elif role.rank < needed.rank:
        assert is_problem(response, 403, "role-too-low")
    else:
        assert response.status_code not in {401, 403, 404, 405, 500}, response.content


@pytest.mark.parametrize("row", TABLE, ids=[f"{method} {path}" for method, path, *_ in TABLE])
def test_nobody_gets_in_without_signing_in(ground: dict[str, int], row: tuple[str, str, dict[str, Any], Role]) -> None:
    method, path, body, _ = row
    assert is_problem(call(APIClient(), method, path, body, ground), 401, "not-authenticated")


def test_a_token_can_do_less_than_its_owner(people: dict[Role | None, Actor], lab: Cluster) -> None:
    _, text = tokens.issue(people[Role.ADMIN], name="weak", role="viewer")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    assert client.get("/api/v1/clusters/lab/").status_code == 200
    assert is_problem(client.post("/api/v1/clusters/lab/disconnect/", REASON), 403, "role-too-low")


def test_a_requester_with_every_role_still_cannot_approve(
    caller: Caller, ground: dict[str, int], people: dict[Role | None, Actor]
) -> None:
    operator = people[Role.OPERATOR]
    assert operator.user is not None
    users.grant(SYSTEM, operator.user, role="admin")
    operator.user.is_superuser = True
    operator.user.save()
    _, text = tokens.issue(operator, name="t", role="admin")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    response = client.post(f"/api/v1/mode-changes/{ground['change']}/approve/", REASON)
    assert is_problem(response, 403, "self-approval")


def _actions(resolver: URLResolver) -> set[tuple[str, str]]:
    """Return (name, last part of the address) of every named action."""
    found: set[tuple[str, str]] = set()
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            found |= _actions(pattern)
        elif isinstance(pattern, URLPattern) and (pattern.name or "").count("-"):
            last = str(pattern.pattern).rstrip("/$").rsplit("/", 1)[-1]
            if not str(pattern.name).endswith(("-list", "-detail")):
                found.add((str(pattern.name), last))
    return found


# About oneself, or decided by who one is and not by a role: tested where they are.
ELSEWHERE = {
    "token-revoke", "mode-change-withdraw", "operation-request-withdraw", "submission-check", "job-template-render",
    "pod-log", "pod-waiting", "user-set-active", "grant-revoke", "me-notices", "node-pool-instance-types",
}  # fmt: skip


def test_every_action_that_changes_something_is_in_a_test_of_who_may() -> None:
    api = next(each for each in get_resolver().url_patterns if getattr(each, "app_name", "") == "api")
    said = {path.strip("/").split("/")[-1] for _, path, *_ in TABLE}
    assert {name for name, last in _actions(api) if last not in said} - ELSEWHERE == set()
