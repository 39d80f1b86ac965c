"""The main job by hand, component, pool, Job, live cards, and a mode change that another approves."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.e2e.conftest import Complaints

# Machines, device plugins and pods of the embedded cluster take their time on a busy machine; only bounds a failure.
PATIENCE_MS = 120_000


def install(page: Page, component: str) -> None:
    page.goto(f"/c/embedded/ai-suite/{component}/install/")
    page.get_by_role("button", name=f"Install {component}").click()
    page.wait_for_url("**/ai-suite/")


def create_pool(page: Page, name: str, *, mode: str) -> None:
    page.goto("/c/embedded/create-node-pool/")
    page.fill("input[name=name]", name)
    page.check(f"input[name=mode][value={mode}]")
    page.locator("input[name=instance_types]").first.check()
    page.fill("input[name=desired_size]", "1")
    page.get_by_role("button", name="Create this node pool").click()
    page.wait_for_url(f"**/node-pools/{name}/")


def test_from_an_empty_pool_list_to_an_approved_mode_change(
    sign_in: Callable[[str], Page], complaints: Complaints
) -> None:
    page = sign_in("operator")
    install(page, "ack-ai-installer")
    create_pool(page, "inference", mode="cgpu")

    # The dashboard fills by itself: nothing below reloads it.
    page.goto("/c/embedded/dashboard/")
    row = page.locator(".board-node", has_text="inference ·")
    expect(row.locator(".sum")).to_contain_text("0/22", timeout=PATIENCE_MS)

    jobs = page.context.new_page()
    complaints.listen(jobs)
    jobs.goto("/c/embedded/create-job/?template=shared-memory")
    jobs.get_by_role("button", name="Check").click()
    expect(jobs.get_by_role("heading", name="Where it would land")).to_be_visible()
    jobs.get_by_role("button", name="Submit Job").click()
    jobs.wait_for_url("**/jobs/*/")
    expect(row.locator(".sum")).to_contain_text("4/22", timeout=PATIENCE_MS)

    jobs.goto("/c/embedded/node-pools/inference/change-mode/?target_mode=exclusive&holders=evict")
    jobs.fill("textarea[name=reason], input[name=reason]", "One tenant is left on this pool.")
    jobs.get_by_role("button", name="Request switch").click()
    jobs.wait_for_url("**/changes/*/")
    change_address = jobs.url
    expect(jobs.get_by_role("button", name="Approve")).to_have_count(0)

    # A browser of their own: this one stays the operator's.
    admin = sign_in("admin")
    admin.goto(change_address)
    admin.fill("textarea[name=reason], input[name=reason]", "Agreed in the team.")
    admin.get_by_role("button", name="Approve").click()
    # The operator's dashboard, still open and never reloaded, shows the whole card.
    expect(row.locator(".mode-cell")).to_contain_text("exclusive", timeout=PATIENCE_MS)
    expect(row.locator(".sum")).to_contain_text("0/1", timeout=PATIENCE_MS)
    admin.goto(change_address)
    expect(admin.get_by_text("applied", exact=False).first).to_be_visible(timeout=PATIENCE_MS)
    assert complaints.found == []
