"""Clusters, tokens, accounts, components and the audit log as pages."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from gpupools.models import ApiToken, AuditEntry, Cluster, ComponentState, Grant, Push, Role, User
from gpupools.services import tokens
from gpupools.services.access import Actor
from tests.services.builders import a_cluster, a_component, a_pool
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db


def test_a_token_is_shown_once_and_never_again(visitor: Visitor) -> None:
    browser = visitor(Role.OPERATOR)
    answer = browser.post("/tokens/", {"name": "ci", "role": "viewer", "lifetime": "30"})
    shown = [piece for piece in Page(answer.content.decode()).pieces if piece.startswith(tokens.PREFIX)]
    assert len(shown) == 1
    acting = tokens.authenticate(shown[0])
    assert acting is not None
    assert acting.name == "the-operator"
    assert "no-store" in answer["Cache-Control"]
    assert tokens.PREFIX not in browser.get("/tokens/").content.decode()


def test_a_token_of_a_name_that_is_taken_is_said_at_the_name(visitor: Visitor) -> None:
    wish = {"name": "ci", "role": "viewer", "lifetime": ""}
    visitor(Role.OPERATOR).post("/tokens/", wish)
    answer = visitor(Role.OPERATOR).post("/tokens/", wish)
    assert answer.status_code == 400
    assert "You have a token of this name" in answer.context["form"].errors["name"][0]
    assert ApiToken.objects.get().expires_at is None


def test_one_revokes_ones_own_tokens_only(visitor: Visitor) -> None:
    visitor(Role.OPERATOR).post("/tokens/", {"name": "ci", "role": "viewer", "lifetime": "30"})
    token = ApiToken.objects.get()
    assert visitor(Role.VIEWER).post(f"/tokens/{token.pk}/revoke/").status_code == 404
    assert visitor(Role.OPERATOR).post(f"/tokens/{token.pk}/revoke/").status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_an_account_gets_a_password_that_is_shown_once(visitor: Visitor) -> None:
    browser = visitor(Role.ADMIN)
    answer = browser.post("/users/", {"action": "create", "username": "nina"})
    password = answer.context["password"]
    assert password in answer.content.decode()
    assert User.objects.get(username="nina").check_password(password)
    assert password not in browser.get("/users/").content.decode()
    again = browser.post("/users/", {"action": "create", "username": "nina"})
    assert "This name is taken" in again.context["user_form"].errors["username"][0]


def test_a_grant_is_given_and_taken_away(visitor: Visitor, people: dict[Role | None, Actor], lab: Lab) -> None:
    browser, user = visitor(Role.ADMIN), people[None].user
    assert user is not None
    wish = {"action": "grant", "user": user.pk, "role": "viewer", "cluster": lab.cluster.pk, "namespace": "default"}
    assert browser.post("/users/", wish).status_code == 302
    held = Grant.objects.get(user=user)
    assert visitor(None).get("/c/lab/nodes/").status_code == 200
    assert browser.post(f"/users/grants/{held.pk}/revoke/").status_code == 302
    assert visitor(None).get("/c/lab/nodes/").status_code == 404


def test_the_last_administrator_stays_one_and_the_page_says_why(
    visitor: Visitor, people: dict[Role | None, Actor]
) -> None:
    held = Grant.objects.get(role=Role.ADMIN)
    answer = visitor(Role.ADMIN).post(f"/users/grants/{held.pk}/revoke/")
    assert answer.status_code == 409
    assert "last administrator" in Page(answer.content.decode()).text


@pytest.mark.parametrize("address", ["/users/grants/1/revoke/", "/users/1/active/"])
def test_only_administrators_touch_accounts(visitor: Visitor, address: str) -> None:
    assert visitor(Role.OPERATOR).post(address).status_code == 403


def test_a_kubeconfig_that_is_refused_is_said_at_its_field(visitor: Visitor, settings: object) -> None:
    wish = {"name": "lab", "provider": "kubernetes", "kubeconfig": "not: a kubeconfig"}
    answer = visitor(Role.ADMIN).post("/clusters/connect/", wish)
    assert answer.status_code == 400
    assert answer.context["form"].errors["kubeconfig"]
    page = Page(answer.content.decode())
    assert page.value_of("name") == "lab"
    assert not Cluster.objects.exists()


def test_ack_access_that_is_incomplete_names_what_is_missing(visitor: Visitor) -> None:
    wish = {"name": "lab", "provider": "ack", "ack_region": "cn-shanghai", "ack_access_key_secret": "very-secret"}
    answer = visitor(Role.ADMIN).post("/clusters/connect/", wish)
    errors = answer.context["form"].errors
    assert {"ack_cluster_id", "ack_access_key_id"} <= set(errors)
    assert "ack_region" not in errors
    page = Page(answer.content.decode())
    assert page.value_of("ack_region") == "cn-shanghai"
    assert "very-secret" not in answer.content.decode(), "a secret never goes back to the page"


def test_a_file_that_is_no_text_is_refused(visitor: Visitor) -> None:
    file = SimpleUploadedFile("config", b"\xff\xfe\x00")
    wish = {"name": "lab", "provider": "kubernetes", "kubeconfig_file": file}
    answer = visitor(Role.ADMIN).post("/clusters/connect/", wish)
    assert "not text" in answer.context["form"].errors["kubeconfig_file"][0]


def test_an_uploaded_kubeconfig_is_read_like_a_pasted_one(visitor: Visitor) -> None:
    file = SimpleUploadedFile("config", b"not: a kubeconfig")
    answer = visitor(Role.ADMIN).post(
        "/clusters/connect/", {"name": "lab", "provider": "kubernetes", "kubeconfig_file": file}
    )
    assert answer.context["form"].errors["kubeconfig"]


def test_a_cluster_goes_only_with_a_reason_and_says_what_goes_with_it(visitor: Visitor, empty_redis: object) -> None:
    a_pool(a_cluster("lab"))
    browser = visitor(Role.ADMIN)
    assert "The console's record of 1 node pool." in Page(browser.get("/c/lab/disconnect/").content.decode()).text
    assert browser.post("/c/lab/disconnect/", {"reason": ""}).status_code == 400
    assert browser.post("/c/lab/disconnect/", {"reason": "Moved."}).status_code == 302
    assert not Cluster.objects.exists()


def test_a_component_in_use_says_who_depends_on_it(visitor: Visitor, lab: Lab) -> None:
    page = Page(visitor(Role.OPERATOR).get("/c/lab/ai-suite/ack-ai-installer/uninstall/").content.decode())
    assert "so it cannot go: cgpu, core-mem, mps, share, topology." in page.text
    answer = visitor(Role.OPERATOR).post("/c/lab/ai-suite/ack-ai-installer/uninstall/", {"reason": "clean up"})
    assert answer.status_code == 400
    assert not Push.objects.exists()


def test_installing_on_plain_kubernetes_asks_for_a_registry(visitor: Visitor, empty_redis: object) -> None:
    cluster = a_cluster("lab")
    a_component(cluster, "ack-mps-control", ComponentState.State.ABSENT)
    address = "/c/lab/ai-suite/ack-mps-control/install/"
    answer = visitor(Role.OPERATOR).post(address, {"image_prefix": ""})
    assert answer.status_code == 400
    assert "registry" in answer.context["form"].errors["image_prefix"][0]
    assert visitor(Role.OPERATOR).post(address, {"image_prefix": "registry.example.com/gpu"}).status_code == 302
    assert Push.objects.get().kind == "component.install"


def test_the_component_of_another_vendor_is_explained_and_not_installed(visitor: Visitor, lab: Lab) -> None:
    page = Page(visitor(Role.OPERATOR).get("/c/lab/ai-suite/").content.decode())
    assert "gpu-manager" in page.text
    assert "Tencent" in page.text
    assert visitor(Role.OPERATOR).get("/c/lab/ai-suite/gpu-manager/install/").status_code == 404


def test_audit_is_filtered_and_paged(visitor: Visitor, lab: Lab) -> None:
    browser = visitor(Role.ADMIN)
    for number in range(60):
        browser.post("/tokens/", {"name": f"t{number}", "role": "viewer", "lifetime": "30"})
    AuditEntry.objects.update(actor_name="the-admin")
    first = browser.get("/audit/", {"action": "token.issue", "actor": "the-admin"})
    assert len(first.context["lines"]) == 50
    assert "1–50 of 60" in Page(first.content.decode()).text
    second = browser.get("/audit/", {"action": "token.issue", "page": "2"})
    assert len(second.context["lines"]) == 10
    assert not browser.get("/audit/", {"q": "nothing like this"}).context["lines"]


def test_audit_shows_only_clusters_that_one_may_see(visitor: Visitor, lab: Lab) -> None:
    visitor(Role.OPERATOR).post(
        "/c/lab/node-pools/cgpu/change-mode/",
        {
            "target_mode": "share",
            "target_policy": "binpack",
            "holders": "wait",
            "reason": "why",
        },
    )
    assert "change.request" in Page(visitor(Role.VIEWER).get("/audit/").content.decode()).text
    lines = visitor(None).get("/audit/").context["lines"]
    assert "change.request" not in {entry.action for entry, _ in lines}
