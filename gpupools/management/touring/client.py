"""A small client of the console's REST API for one account.

It outlives a web process that is killed and restarted: every POST carries an Idempotency-Key and is repeated until it
is answered. It knows addresses and problem documents, no rule of the product.
"""

from __future__ import annotations

import http.client
import http.cookiejar
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# A killed web process is back within seconds; whoever waits longer than this waits for nothing.
PATIENCE_SECONDS = 90.0
PAUSE_SECONDS = 0.3


class Refusal(Exception):
    """The console answered no: a problem document."""

    def __init__(self, status: int, body: Mapping[str, Any], *, resent: bool = False) -> None:
        self.status = status
        self.resent = resent
        self.code = str(body.get("code", ""))
        self.detail = str(body.get("detail", ""))
        self.errors = list(body.get("errors", []))
        fields = "; ".join(f"{error.get('field')}: {error.get('message')}" for error in self.errors)
        super().__init__(f"{status} {self.code}: {self.detail}{f' ({fields})' if fields else ''}")


class NoAnswer(Exception):
    """The console did not answer for a long time."""


class Client:
    """Speaks to one console as one account, by an API token."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self._jar)
        )

    @classmethod
    def sign_in(cls, url: str, username: str, password: str, *, role: str) -> Client:
        """Sign in as a person does, issue an API token, and return a client that uses it."""
        session = cls(url)
        session._send("GET", "/sign-in/", {}, b"")
        form = urllib.parse.urlencode(
            {"username": username, "password": password, "csrfmiddlewaretoken": session._csrf()}
        ).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Referer": f"{session.url}/sign-in/"}
        session._send("POST", "/sign-in/", headers, form)
        body = json.dumps({"name": f"tour-{uuid.uuid4().hex[:8]}", "role": role}).encode()
        headers = {"X-CSRFToken": session._csrf(), "Referer": session.url, "Content-Type": "application/json"}
        status, text = session._send("POST", "/api/v1/tokens/", headers, body)
        if status != 201:
            raise Refusal(status, _json(text))
        return cls(url, _json(text)["token"])

    def _csrf(self) -> str:
        return next((cookie.value or "" for cookie in self._jar if cookie.name == "csrftoken"), "")

    def get(self, path: str, **query: str) -> Any:
        """GET below /api/v1/; raises Refusal or NoAnswer."""
        return self._patiently("GET", path + (f"?{urllib.parse.urlencode(query)}" if query else ""), None)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, landed: Callable[[], Any] = lambda: None
    ) -> Any:
        """POST below /api/v1/ once, however often it must be sent; raises Refusal or NoAnswer.

        A process that is killed between its commit and its answer leaves a key without an answer: the repeated
        request is then refused, since its work is done. ``landed`` looks for that work; None means not there.
        """
        try:
            return self._patiently("POST", path, body or {})
        except Refusal as refusal:
            found = landed() if refusal.resent else None
            if found is None:
                raise
            return found

    def rows(self, path: str, **query: str) -> Iterator[Any]:
        """Go through every page of a list."""
        page = self.get(path, **query)
        while True:
            yield from page["results"]
            if not page.get("next"):
                return
            page = self._patiently("GET", page["next"].partition("/api/v1/")[2], None)

    def _patiently(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        data = b""
        if body is not None:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
            data = json.dumps(body).encode()
        deadline = time.monotonic() + PATIENCE_SECONDS
        resent = False
        while True:
            try:
                status, text = self._send(method, f"/api/v1/{path}", headers, data)
            except (OSError, http.client.HTTPException) as error:
                resent = True
                if time.monotonic() > deadline:
                    raise NoAnswer(f"The console does not answer: {type(error).__name__}.") from error
                time.sleep(PAUSE_SECONDS)
                continue
            if status < 400:
                return _json(text) if text else None
            refusal = Refusal(status, _json(text), resent=resent)
            again = status in {502, 503} or refusal.code == "still-running"
            if not again or time.monotonic() > deadline:
                raise refusal
            time.sleep(PAUSE_SECONDS)

    def _send(self, method: str, path: str, headers: Mapping[str, str], data: bytes) -> tuple[int, bytes]:
        request = urllib.request.Request(  # noqa: S310  # always our own console's http address
            self.url + path, data=data or None, headers=dict(headers), method=method
        )
        try:
            with self._opener.open(request, timeout=30) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"detail": text[:200].decode(errors="replace")}


def wait_for(look: Callable[[], Any], *, seconds: float, what: Callable[[Any], bool]) -> tuple[bool, Any]:
    """Look until the condition holds or the time is over; return whether it held, and what was seen last."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if what(seen):
            return True, seen
        if time.monotonic() > deadline:
            return False, seen
        time.sleep(PAUSE_SECONDS)
