"""A pool goes to 0 in two browsers: one person asks after reading who is hit, another approves, both see it done."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.e2e.conftest import Complaints

POOL = "brief"
SLOW_MS = 120_000


def test_a_pool_is_scaled_to_0_by_two_people(sign_in: Callable[[str], Page], complaints: Complaints) -> None:
    operator, admin = sign_in("operator"), sign_in("admin")
    make_the_pool(operator)
    ask(operator)
    approve(admin)
    for page in (admin, operator):
        expect(page.locator("#request-facts")).to_contain_text("Done", timeout=SLOW_MS)
    operator.goto(f"/c/embedded/node-pools/{POOL}/")
    expect(operator.locator("#pool-nodes")).to_contain_text("No node here now", timeout=SLOW_MS)
    admin.goto("/audit/")
    for action in ("request.make", "request.approve", "pool.scale"):
        expect(admin.locator("#main")).to_contain_text(action)
    assert complaints.found == []


def make_the_pool(page: Page) -> None:
    body = {"cluster": "embedded", "name": POOL, "mode": "exclusive", "desired_size": 1}
    token = next(each["value"] for each in page.context.cookies() if each["name"] == "csrftoken")
    answer = page.request.post(
        "/api/v1/node-pools/",
        data={**body, "instance_types": ["ecs.gn6v-c8g1.8xlarge"]},
        headers={"X-CSRFToken": token, "Referer": page.url},
    )
    assert answer.status == 201, answer.text()
    page.goto(f"/c/embedded/node-pools/{POOL}/")
    expect(page.locator("#pool-facts .box-head")).to_contain_text("Active", timeout=SLOW_MS)
    expect(page.locator("#pool-nodes tbody tr")).to_have_count(1, timeout=SLOW_MS)


def ask(page: Page) -> None:
    page.get_by_label("Wanted nodes").fill("0")
    page.get_by_role("button", name="Set the size").click()
    expect(page.get_by_role("heading", name=f"Scale node pool {POOL} to 0")).to_be_visible()
    expect(page.locator("#who-is-hit")).to_contain_text("cn-hangzhou.")
    page.get_by_label("Reason").fill("The project has ended.")
    page.get_by_role("button", name=f"Ask a second person to approve: scale {POOL} to 0").click()
    expect(page.locator("#main")).to_contain_text("A second person must decide")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


def approve(page: Page) -> None:
    page.goto("/approvals/")
    page.get_by_role("link", name=f"Scale {POOL} to 0").click()
    page.get_by_label("Reason").fill("Agreed.")
    with page.expect_response(lambda answer: answer.url == page.url, timeout=SLOW_MS):
        pass  # the page brings itself up to date, and what was typed stays
    expect(page.get_by_label("Reason")).to_have_value("Agreed.")
    page.get_by_role("button", name=f"Approve: Scale {POOL} to 0").click()
    expect(page.locator("#request-facts")).to_contain_text("Approved")
