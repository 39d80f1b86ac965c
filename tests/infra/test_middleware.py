"""Every request has an id in logs and answer; static files are served whole, in threads and in the event loop."""

import gzip
from pathlib import Path

import pytest
import structlog
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings

from console.middleware import HEADER, PlainStaticFiles, request_id


def a_request(path: str = "/", **headers: str) -> HttpRequest:
    return RequestFactory().get(path, headers=headers)


def bound(request: HttpRequest) -> HttpResponse:
    return HttpResponse(structlog.contextvars.get_contextvars()["request_id"])


def test_the_answer_names_the_id_that_the_log_lines_carry():
    answer = request_id(bound)(a_request())
    assert answer[HEADER] == answer.content.decode()
    assert len(answer[HEADER]) == 32


def test_the_id_of_a_proxy_is_taken_over():
    assert request_id(bound)(a_request(**{HEADER: "proxy-0042-abc"}))[HEADER] == "proxy-0042-abc"


@pytest.mark.parametrize("given", ["short", "x" * 65, "two words here", "<script>alert"])
def test_an_id_that_could_spoil_the_log_is_replaced(given: str):
    assert request_id(bound)(a_request(**{HEADER: given}))[HEADER] != given


async def test_the_id_is_given_in_the_event_loop_too():
    async def view(request: HttpRequest) -> HttpResponse:
        return bound(request)

    answer = await request_id(view)(a_request())
    assert answer[HEADER] == answer.content.decode()


class TestStaticFiles:
    """WhiteNoise, answering whole files."""

    @pytest.fixture
    def folder(self, tmp_path: Path):
        (tmp_path / "app.js").write_text("let a = 1;" * 200)
        with gzip.open(tmp_path / "app.js.gz", "wb") as file:
            file.write(b"let a = 1;" * 200)
        with override_settings(STATIC_ROOT=str(tmp_path), WHITENOISE_USE_FINDERS=False, DEBUG=False):
            yield tmp_path

    def test_a_file_is_answered_whole(self, folder: Path):
        answer = PlainStaticFiles(lambda request: HttpResponse(status=404))(a_request("/static/app.js"))
        assert answer.status_code == 200
        assert answer.content == (folder / "app.js").read_bytes()
        assert answer["Content-Type"].startswith("text/javascript")

    def test_who_takes_compressed_answers_gets_one(self, folder: Path):
        request = a_request("/static/app.js", **{"Accept-Encoding": "gzip"})
        answer = PlainStaticFiles(lambda request: HttpResponse(status=404))(request)
        assert answer["Content-Encoding"] == "gzip"
        assert gzip.decompress(answer.content) == (folder / "app.js").read_bytes()

    async def test_a_file_is_answered_in_the_event_loop_and_the_rest_is_passed_on(self, folder: Path):
        async def the_rest(request: HttpRequest) -> HttpResponse:
            return HttpResponse("page")

        middleware = PlainStaticFiles(the_rest)
        assert (await middleware(a_request("/static/app.js"))).content == (folder / "app.js").read_bytes()
        assert (await middleware(a_request("/static/none.js"))).content == b"page"
        assert (await middleware(a_request("/clusters/"))).content == b"page"
