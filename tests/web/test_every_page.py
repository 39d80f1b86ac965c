"""What holds for every page: who may see it, that nothing in it is inline, and that machines can read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from gpupools.models import OperationRequest, Role
from gpupools.services import jobs
from tests.services.builders import an_actor
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db

GLOBAL = ["/clusters/", "/approvals/", "/audit/", "/tokens/", "/password/", "/api/"]
ASKED = 7
OF_A_CLUSTER = [
    f"/requests/{ASKED}/",
    "/c/lab/node-pools/",
    "/c/lab/node-pools/?q=c&mode=cgpu&state=active&sort=-used",
    "/c/lab/node-pools/cgpu/",
    "/c/lab/nodes/",
    "/c/lab/nodes/n-cgpu/",
    "/c/lab/nodes/n-plain/",
    "/c/lab/nodes/n-exclusive/",
    "/c/lab/ai-suite/",
    "/c/lab/ai-suite/ack-mps-control/",
    "/c/lab/jobs/",
    "/c/lab/create-job/",
    "/c/lab/pods/",
    "/c/lab/dashboard/",
    "/c/lab/diagnosis/",
    "/c/lab/explain/memory_units_used/",
    "/c/lab/explain/cards_used/?node=n-exclusive",
]
OF_OPERATORS = [
    "/c/lab/create-node-pool/",
    "/c/lab/node-pools/cgpu/change-mode/",
    "/c/lab/node-pools/cgpu/delete/",
    "/c/lab/node-pools/cgpu/edit/",
    "/c/lab/node-pools/cgpu/nodes/",
    "/c/lab/node-pools/cgpu/change-mode/?target_mode=share&target_policy=spread&holders=evict",
    "/c/lab/ai-suite/ack-mps-control/install/",
    "/c/lab/ai-suite/ack-mps-control/uninstall/",
]
OF_ADMINS = ["/clusters/connect/", "/c/lab/credentials/", "/c/lab/disconnect/", "/users/"]
EVERY = [*GLOBAL, *OF_A_CLUSTER, *OF_OPERATORS, *OF_ADMINS]


@pytest.fixture(autouse=True)
def _lab(lab: Lab) -> None:
    jobs.load_catalogue()
    OperationRequest.objects.create(
        pk=ASKED,
        cluster=lab.cluster,
        kind="component-uninstall",
        component="ack-ai-installer",
        target="ack-ai-installer",
        diff=[{"what": "ack-ai-installer", "old": "1.0", "new": "not installed"}],
        blast_radius={"nodes": [], "pods": [], "pools": []},
        reason="tidying up",
        requested_by=an_actor(Role.OPERATOR, name="olga").user,
        requested_at=timezone.now(),
        expires_at=timezone.now(),
    )


@pytest.mark.parametrize("address", EVERY)
def test_somebody_who_is_not_signed_in_is_asked_to_and_comes_back_here(client: Client, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/sign-in/?next=")
    assert Client().get(answer["Location"]).context["next"] == address


@pytest.mark.parametrize("address", [*GLOBAL, *OF_A_CLUSTER])
def test_a_viewer_sees_what_there_is_to_see(visitor: Visitor, address: str) -> None:
    assert visitor(Role.VIEWER).get(address).status_code == 200


@pytest.mark.parametrize("address", OF_OPERATORS)
def test_what_acts_needs_an_operator(visitor: Visitor, address: str) -> None:
    answer = visitor(Role.VIEWER).get(address)
    assert answer.status_code == 403
    assert "needs the role Operator" in Page(answer.content.decode()).text
    assert visitor(Role.OPERATOR).get(address).status_code == 200


@pytest.mark.parametrize("address", OF_ADMINS)
def test_what_connects_and_grants_needs_an_administrator(visitor: Visitor, address: str) -> None:
    assert visitor(Role.OPERATOR).get(address).status_code == 403
    assert visitor(Role.ADMIN).get(address).status_code == 200


@pytest.mark.parametrize("address", [*OF_A_CLUSTER, *OF_OPERATORS])
def test_a_cluster_that_one_may_not_see_is_not_there(visitor: Visitor, address: str) -> None:
    assert visitor(None).get(address).status_code == 404


@pytest.mark.parametrize("address", EVERY)
def test_nothing_in_a_page_is_inline_or_comes_from_elsewhere(visitor: Visitor, address: str) -> None:
    answer = visitor(Role.ADMIN).get(address)
    page = Page(answer.content.decode())
    for tag, attrs in page.elements:
        assert "style" not in attrs, (tag, attrs)
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        assert tag != "style"
        if tag == "script":
            assert attrs.get("src", "").startswith("/static/") or attrs.get("type") == "application/json", attrs
        if tag in {"link", "img", "use", "script"}:
            source = attrs.get("src") or attrs.get("href") or "/static/"
            assert source.startswith("/static/"), attrs
    assert "unsafe-inline" not in answer["Content-Security-Policy"]


@pytest.mark.parametrize("address", EVERY)
def test_a_page_can_be_read_by_machines(visitor: Visitor, address: str) -> None:
    page = Page(visitor(Role.ADMIN).get(address).content.decode())
    ids = [attrs["id"] for _, attrs in page.elements if attrs.get("id")]
    assert sorted(ids) == sorted(set(ids)), "an id is there twice"
    assert len(page.all("h1")) == 1
    assert page.all("main", id="main")
    assert page.all("a", class_="skip", href="#main")
    labelled = {attrs["for"] for attrs in page.all("label") if attrs.get("for")}
    wrapped = ("radio", "checkbox", "hidden")
    for tag in ("input", "select", "textarea"):
        for attrs in page.all(tag):
            assert attrs.get("type") in wrapped or attrs.get("id") in labelled or attrs.get("aria-label"), attrs


@pytest.mark.parametrize("address", EVERY)
def test_every_icon_of_a_page_is_in_the_sprite(visitor: Visitor, address: str) -> None:
    sprite = (Path(settings.BASE_DIR) / "static/icons/sprite.svg").read_text()
    known = set(re.findall(r'<symbol id="([^"]+)"', sprite))
    page = Page(visitor(Role.ADMIN).get(address).content.decode())
    assert {attrs["href"].partition("#")[2] for attrs in page.all("use")} <= known


@pytest.mark.parametrize("address", [*GLOBAL, *OF_A_CLUSTER])
def test_the_embedded_cluster_says_so_on_every_page(visitor: Visitor, lab: Lab, address: str) -> None:
    browser = visitor(Role.VIEWER)
    tag = {"class": "tag tag-embedded"}
    assert ("span", tag) not in Page(browser.get(address).content.decode()).elements
    lab.cluster.is_embedded = True
    lab.cluster.save(update_fields=["is_embedded"])
    assert ("span", tag) in Page(browser.get(address).content.decode()).elements


@pytest.mark.parametrize("language", ["en", "es", "zh-hans"])
def test_a_page_is_in_the_language_that_was_chosen(visitor: Visitor, language: str) -> None:
    browser = visitor(Role.VIEWER)
    browser.post("/language/", {"language": language, "next": "/clusters/"})
    page = Page(browser.get("/clusters/").content.decode())
    assert page.all("html")[0]["lang"] == language


def test_the_theme_is_remembered_and_anything_else_is_not(visitor: Visitor) -> None:
    browser = visitor(Role.VIEWER)
    answer = browser.post("/theme/", {"theme": "dark", "next": "/audit/"})
    assert answer["Location"] == "/audit/"
    assert Page(browser.get("/audit/").content.decode()).all("html")[0]["data-bs-theme"] == "dark"
    browser.post("/theme/", {"theme": "<script>", "next": "https://evil.example.com/"})
    assert browser.cookies["theme"].value == "dark"


def test_the_number_of_open_requests_stands_in_the_navigation(visitor: Visitor, lab: Lab) -> None:
    browser = visitor(Role.OPERATOR)
    wish = {"target_mode": "share", "target_policy": "binpack", "holders": "wait", "reason": "Try it."}
    assert browser.post("/c/lab/node-pools/cgpu/change-mode/", wish).status_code == 302
    page = Page(visitor(Role.ADMIN).get("/clusters/").content.decode())
    assert ("span", {"class": "count", "title": "waiting for a decision, or failed and not looked at"}) in page.elements
    assert "Approvals 2" in page.text
