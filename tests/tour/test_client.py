"""The tour's client: repeated until answered, with one key; and a report that never passes what was skipped."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gpupools.management.touring.client import Client, Refusal, wait_for
from gpupools.management.touring.report import Failed, Report, Skipped


class Scripted(BaseHTTPRequestHandler):
    """Answers each request with the next entry of ``script``; None hangs up without an answer."""

    script: list[tuple[int, dict[str, Any]] | None] = []
    keys: list[str | None] = []

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        type(self).keys.append(self.headers.get("Idempotency-Key"))
        entry = type(self).script.pop(0)
        if entry is None:
            self.close_connection = True
            return
        body = json.dumps(entry[1]).encode()
        self.send_response(entry[0])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Scripted.script, Scripted.keys = [], []
    running = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()
    running.server_close()


def test_a_post_is_repeated_with_its_key_until_it_is_answered(server: str) -> None:
    Scripted.script = [None, (503, {"code": "unreachable"}), (409, {"code": "still-running"}), (201, {"id": 7})]
    assert Client(server, "t").post("things/", {"a": 1}) == {"id": 7}
    assert len(Scripted.keys) == 4
    assert len(set(Scripted.keys)) == 1


def test_work_that_landed_before_the_process_died_is_found(server: str) -> None:
    Scripted.script = [None, (400, {"code": "taken"})]
    assert Client(server, "t").post("things/", landed=lambda: {"id": 7}) == {"id": 7}


def test_a_refusal_of_a_first_try_is_a_refusal(server: str) -> None:
    Scripted.script = [(400, {"code": "taken", "detail": "no", "errors": [{"field": "name", "message": "taken"}]})]
    with pytest.raises(Refusal) as caught:
        Client(server, "t").post("things/", landed=lambda: {"id": 7})
    assert str(caught.value) == "400 taken: no (name: taken)"


def test_waiting_ends_with_the_condition_or_with_the_time() -> None:
    seen = iter(range(10))
    assert wait_for(lambda: next(seen), seconds=60, what=lambda number: number == 2) == (True, 2)
    assert wait_for(lambda: 0, seconds=0, what=bool) == (False, 0)


@pytest.mark.parametrize(("whole", "status"), [(True, "failed"), (False, "skipped")])
def test_where_the_cluster_lacks_nothing_a_skipped_step_is_a_failure(whole: bool, status: str) -> None:
    report = Report(say=lambda line: None, whole=whole)
    with report.step("a"):
        raise Skipped("no scheduler")
    assert [(step.status, step.detail) for step in report.steps] == [(status, "no scheduler")]
    assert not report.passed("a")
    assert report.failed is whole


def test_a_tour_without_steps_has_not_succeeded() -> None:
    assert Report(say=lambda line: None, whole=False).failed


def test_a_failed_step_fails_the_report_and_the_next_one_still_runs() -> None:
    report = Report(say=lambda line: None, whole=False)
    with report.step("a"):
        raise Failed("x")
    with report.step("b"):
        pass
    assert [step.status for step in report.steps] == ["failed", "ok"]
    assert report.failed
