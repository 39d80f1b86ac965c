"""A running console and a Chromium that talks to nobody else. Tests here seed by pages and REST, never by rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request

from tests.infra.console import Up

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Complaints:
    """What went wrong in a browser without stopping it: script errors, policy violations, foreign requests."""

    origin: str
    found: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        """Collect the complaints of a page from now on."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"script: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.found.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        target = urlsplit(request.url)
        if target.scheme in {"http", "https", "ws", "wss"} and target.netloc != urlsplit(self.origin).netloc:
            self.found.append(f"foreign request: {request.url}")


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A console's first run, with `url` and `accounts`."""
    up = Up(tmp_path_factory.mktemp("console") / "var", "--port", "0")
    try:
        yield up.wait_open()
    finally:
        if up.process.poll() is None:
            up.interrupt()


@pytest.fixture(scope="session")
def browser_type_launch_args(chromium: str) -> dict[str, object]:
    """The machine's own Chromium; nothing is downloaded."""
    return {"executable_path": chromium, "args": QUIET}


@pytest.fixture(scope="session")
def browser_context_args(console: Up) -> dict[str, object]:
    """Addresses in tests are relative to the console."""
    return {"base_url": console.url, "locale": "en-GB", "viewport": {"width": 1280, "height": 800}}


@pytest.fixture
def complaints(console: Up) -> Complaints:
    """What the pages of this test complained about; each test says what it tolerates."""
    return Complaints(console.url)


@pytest.fixture
def sign_in(new_context: Callable[[], BrowserContext], console: Up, complaints: Complaints) -> Callable[[str], Page]:
    """Open a page signed in as admin or operator, in a browser session of its own."""

    def signed_in(name: str) -> Page:
        page = new_context().new_page()
        complaints.listen(page)
        page.goto("/sign-in/")
        page.fill("input[name=username]", name)
        page.fill("input[name=password]", console.accounts[name])
        page.press("input[name=password]", "Enter")
        page.wait_for_url(lambda url: "/sign-in/" not in url)
        return page

    return signed_in
