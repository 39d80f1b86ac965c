"""The main job by hand, in two browsers: pool, components, Job, live cards, and a mode change that two people make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Complaints
from tests.infra.console import Up

POOL, JOB, CARDS = "vision", "bert", 4
SLOW_MS = 120_000
# Draws every node of a fresh page once more by the script, and compares with what the server drew.
DRAWN_TWICE = """async () => {
  const board = await import("/static/js/board.js");
  const page = new DOMParser().parseFromString(await (await fetch(location.pathname)).text(), "text/html");
  const read = (id) => JSON.parse(page.getElementById(id).textContent);
  const addresses = document.getElementById("dashboard").dataset;
  const twice = read("snapshot").nodes.map((row) => [
    page.getElementById(`node-${row.node}`).outerHTML, board.drawNode(row, addresses, read("modes")).outerHTML]);
  return { nodes: twice.length, different: twice.filter(([server, script]) => server !== script) };
}"""


@pytest.fixture
def second_browser(
    browser: Browser, browser_context_args: dict[str, object], console: Up, complaints: Complaints
) -> Iterator[Page]:
    """The administrator, in a browser profile of their own."""
    context = browser.new_context(**browser_context_args)  # type: ignore[arg-type]  # what the fixture is made for
    page = context.new_page()
    complaints.listen(page)
    page.goto("/approvals/")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", console.accounts["admin"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Approvals", exact=True)).to_be_visible()
    yield page
    context.close()


def test_the_whole_flow(sign_in: Callable[[str], Page], second_browser: Page, complaints: Complaints) -> None:
    operator = sign_in("operator")
    install_the_installer(operator)
    create_the_pool(operator)

    board = operator.context.new_page()
    complaints.listen(board)
    board.goto("/c/embedded/dashboard/")
    board.evaluate("window.neverReloaded = true")
    expect(board.locator("#fresh[data-state=live]")).to_be_visible()
    row = board.locator("li.board-node", has_text=POOL)
    expect(row.locator("[data-card='0'] .count-text")).to_have_text("0/15")
    drawn = board.evaluate(DRAWN_TWICE)
    assert drawn["nodes"] >= 3
    assert drawn["different"] == []

    submit_the_job(operator)
    expect(row.locator("[data-card='0'] .count-text")).to_have_text("12/15", timeout=SLOW_MS)
    expect(row.locator(".sum")).to_contain_text("12/60")
    look_into_a_card(board)
    assert board.evaluate(DRAWN_TWICE)["different"] == []
    expect(operator.locator("#job-facts")).to_contain_text("Succeeded", timeout=SLOW_MS)
    expect(row.locator("[data-card='0'] .count-text")).to_have_text("0/15", timeout=SLOW_MS)

    ask_for_exclusive(operator)
    decide(second_browser)
    expect(operator.locator("#change-facts")).to_contain_text("Applied", timeout=SLOW_MS)
    expect(operator.locator(".plan > li:not(.is-done, .is-skipped)")).to_have_count(0)
    expect(row.locator(".mode-code")).to_have_text("EX", timeout=SLOW_MS)
    expect(row.locator(".sum")).to_contain_text(f"0/{CARDS}")
    assert board.evaluate("window.neverReloaded") is True, "the dashboard followed all of it without a reload"

    verify_the_node(operator)
    operator.goto("/audit/")
    for action in (
        "pool.create",
        "component.install",
        "submission.create",
        "change.request",
        "change.approve",
        "change.applied",
    ):
        expect(operator.locator("#main")).to_contain_text(action)
    assert complaints.found == []


def install_the_installer(page: Page) -> None:
    page.get_by_role("link", name="Cloud-native AI Suite").click()
    section = page.locator("#component-ack-ai-installer")
    section.get_by_role("button", name="Install ack-ai-installer").click()
    expect(section.locator(".box-head")).to_contain_text("Installed", timeout=SLOW_MS)


def create_the_pool(page: Page) -> None:
    page.get_by_role("link", name="Node Pools").first.click()
    page.get_by_role("link", name="Create Node Pool").click()
    page.get_by_label("Name", exact=True).fill(POOL)
    page.locator("input[name=mode][value=cgpu]").check()
    expect(page.locator("input[name=policy][value=binpack]")).to_be_checked()
    page.locator("input[name=instance_types][value='ecs.gn6v-c8g1.8xlarge']").check()
    page.get_by_label("Key").first.fill("team")
    page.get_by_label("Value").first.fill("vision")
    page.get_by_role("button", name="Create this node pool").click()
    expect(page.locator("#pool-facts .box-head")).to_contain_text("Active", timeout=SLOW_MS)
    expect(page.locator("#pool-nodes tbody tr")).to_have_count(1, timeout=SLOW_MS)
    expect(page.locator("#pool-nodes tbody tr")).to_contain_text("OK", timeout=SLOW_MS)


def submit_the_job(page: Page) -> None:
    page.goto("/c/embedded/create-job/?template=shared-memory")
    page.get_by_label("Name", exact=True).fill(JOB)
    page.get_by_label("Memory units per pod").fill("6")
    page.get_by_label("Pods", exact=True).fill("2")
    page.get_by_role("button", name="Check").click()
    preview = page.locator("#check")
    expect(preview).to_contain_text("Nothing to say against it.")
    expect(preview).to_contain_text("estimate")
    expect(preview.locator("tbody tr").first).to_contain_text("Chosen")
    page.get_by_role("button", name=f"Submit Job {JOB}").click()
    expect(page.get_by_role("heading", name=JOB)).to_be_visible()


def look_into_a_card(page: Page) -> None:
    page.locator("li.board-node", has_text=POOL).locator("[data-card='0']").click()
    panel = page.get_by_role("complementary")
    expect(panel.locator(".picked .holders li")).to_have_count(2)
    expect(panel.locator(".picked")).to_contain_text(f"Job/{JOB}")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def ask_for_exclusive(page: Page) -> None:
    page.goto(f"/c/embedded/node-pools/{POOL}/")
    page.get_by_role("link", name="Change mode").click()
    page.locator("input[name=target_mode][value=exclusive]").check()
    page.get_by_role("button", name="Show the flight plan").click()
    expect(page.locator("#main")).to_contain_text("Cordon cn-hangzhou.")
    page.get_by_label("Reason").fill("Training needs whole cards.")
    page.get_by_role("button", name="Request switch of 1 node to exclusive").click()
    expect(page.locator("#main")).to_contain_text("A second person must decide")
    expect(page.get_by_role("button", name=re.compile("Approve"))).to_have_count(0)


def decide(page: Page) -> None:
    expect(page.locator("#approvals-count")).to_have_text("1", timeout=SLOW_MS)
    page.locator("#approvals a.from-to").first.click()
    expect(page.locator("#main")).to_contain_text("Training needs whole cards.")
    page.get_by_label("Reason").fill("Agreed for this week.")
    page.get_by_role("button", name="Approve the switch to exclusive").click()
    expect(page.locator("#main")).to_contain_text("Agreed for this week.")


def verify_the_node(page: Page) -> None:
    page.goto("/c/embedded/nodes/?q=" + POOL)
    page.locator("#node-list a.name").click()
    checks = page.locator("#node-checks")
    expect(checks).to_contain_text("nvidia.com/gpu is reported")
    expect(checks.locator(".box-head")).to_contain_text("OK")
