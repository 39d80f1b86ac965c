"""Every page opens in a real browser without a script error, a policy violation or a request elsewhere."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, WebSocket, expect

from tests.e2e.conftest import Complaints
from tests.infra.console import Up
from tests.infra.waiting import until

PAGES = [
    "/clusters/", "/c/embedded/node-pools/", "/c/embedded/create-node-pool/", "/c/embedded/nodes/",
    "/c/embedded/ai-suite/", "/c/embedded/jobs/", "/c/embedded/create-job/", "/c/embedded/pods/",
    "/c/embedded/dashboard/", "/approvals/", "/audit/", "/tokens/", "/api/",
]  # fmt: skip


@pytest.mark.parametrize("name", ["operator", "admin"])
def test_every_page_opens_without_a_complaint(
    name: str, sign_in: Callable[[str], Page], complaints: Complaints
) -> None:
    page = sign_in(name)
    for address in PAGES:
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        expect(page.locator("h1")).to_be_visible()
    assert complaints.found == []


def test_the_browsable_api_page_draws_its_operations(sign_in: Callable[[str], Page], complaints: Complaints) -> None:
    page = sign_in("admin")
    page.goto("/api/v1/docs/")
    expect(page.locator(".opblock").first).to_be_visible(timeout=30_000)
    assert complaints.found == []


def test_the_dashboard_is_live_over_its_socket(sign_in: Callable[[str], Page], complaints: Complaints) -> None:
    page = sign_in("operator")
    # One list per socket: the page before may have had one too.
    sockets: list[list[str | bytes]] = []

    def follow(socket: WebSocket) -> None:
        frames: list[str | bytes] = []
        sockets.append(frames)
        socket.on("framereceived", lambda frame: frames.append(frame))

    page.on("websocket", follow)
    page.goto("/c/embedded/dashboard/")
    expect(page.get_by_text("live", exact=False).first).to_be_visible()
    # The snapshot, and what keeps its age true while nothing changes.
    assert until(lambda: page.wait_for_timeout(100) or (sockets and len(sockets[-1]) >= 2))
    first, *later = [json.loads(frame)["type"] for frame in sockets[-1]]
    assert first == "snapshot"
    assert set(later) <= {"pulse", "delta", "touched"}
    assert complaints.found == []


def test_an_open_dashboard_says_one_thing_about_the_cluster_during_an_outage_and_after(
    sign_in: Callable[[str], Page], console: Up
) -> None:
    page = sign_in("operator")
    page.goto("/c/embedded/dashboard/")
    chip, note = page.locator("#fresh"), page.locator("#cluster-note .note")
    badge = page.locator("#cluster-state .tone-bad")
    expect(chip).to_have_attribute("data-state", "live")
    cluster = console.pids()["cluster"]
    os.kill(cluster, signal.SIGSTOP)
    try:
        expect(chip).to_have_attribute("data-state", "stale", timeout=30_000)
        expect(note).to_contain_text("Cluster embedded does not answer", timeout=3_000)
        expect(badge).to_have_count(1)
        late = page.context.new_page()
        late.goto("/c/embedded/dashboard/")
        expect(late.locator("#cluster-note .note")).to_be_visible()
    finally:
        os.kill(cluster, signal.SIGCONT)
    for each in (page, late):
        expect(each.locator("#fresh")).to_have_attribute("data-state", "live", timeout=30_000)
        expect(each.locator("#cluster-note .note")).to_have_count(0, timeout=8_000)
        expect(each.locator("#cluster-state .tone-ok")).to_have_count(1)


LONG_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: a-job-with-a-rather-long-name}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example.com/train:1
        resources: {limits: {nvidia.com/gpu: 1}}
"""


@pytest.mark.parametrize("width", [1440, 390])
def test_no_table_of_a_job_or_a_node_is_cut(width: int, sign_in: Callable[[str], Page]) -> None:
    page = sign_in("operator")
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/c/embedded/create-job/")
    page.fill("#id_yaml", LONG_JOB.replace("long-name", f"long-name-{width}"))
    page.click("button[value=submit]")
    pods = page.locator("#job-pods tbody tr")
    expect(pods.first).to_be_visible(timeout=30_000)
    expect(page.locator("#job-pods tbody a.mono").first).to_be_visible(timeout=30_000)
    cut = "[...document.querySelectorAll('.sheet-wrap')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert page.evaluate(cut) == 0
    page.click("#job-pods tbody a.mono")
    expect(page.locator("#node-pods tbody tr").first).to_be_visible()
    assert page.evaluate(cut) == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_an_edited_manifest_survives_another_template_and_a_page_that_was_left(sign_in: Callable[[str], Page]) -> None:
    page = sign_in("operator")
    page.goto("/c/embedded/create-job/")
    page.locator("#id_yaml").press_sequentially("# mine")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.select_option("#template", index=1)
    expect(page.locator("#template")).to_have_value("")
    assert "# mine" in page.input_value("#id_yaml")
    page.goto("/c/embedded/dashboard/")
    page.goto("/c/embedded/create-job/")
    assert "# mine" not in page.input_value("#id_yaml")
    page.get_by_role("button", name="Bring it back").click()
    assert "# mine" in page.input_value("#id_yaml")
    expect(page.locator("#draft")).to_be_hidden()
