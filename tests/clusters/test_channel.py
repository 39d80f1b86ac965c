"""TLS, time-outs, credentials and errors of the channel to an API server."""

from __future__ import annotations

import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpupools.clusters import kubeconfig
from gpupools.clusters.channel import Channel, cut, refusal
from gpupools.clusters.kube import KubeClient
from gpupools.clusters.port import Connection
from gpupools.errors import Conflict, Invalid, Refused, Unreachable
from tests.clusters.certificates import Pair, base64_of, certificate
from tests.clusters.scripted import ScriptedServer, status


@contextmanager
def tls_server(pair: Pair, folder: Path, *, client_ca: Pair | None = None) -> Iterator[tuple[int, list[Any]]]:
    """Serve ``/version`` over TLS, noting each request's authorization and client certificate."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            peer = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
            seen.append((self.headers.get("Authorization"), bool(peer)))
            data = json.dumps({"gitVersion": "v1.32.1"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder.mkdir(exist_ok=True)
    (folder / "c.pem").write_bytes(pair.pem)
    (folder / "k.pem").write_bytes(pair.key_pem())
    context.load_cert_chain(folder / "c.pem", folder / "k.pem")
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.pem.decode())

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that hangs up in the handshake is part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_port, seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def text(port: int, ca: Pair | None, user: dict[str, str], **cluster: str) -> str:
    entry = {"server": f"https://127.0.0.1:{port}", **cluster}
    if ca:
        entry["certificate-authority-data"] = base64_of(ca.pem)
    return yaml.safe_dump(
        {
            "clusters": [{"name": "c", "cluster": entry}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
    )


def test_a_token_travels_over_tls_that_the_kubeconfig_s_own_ca_vouches_for(tmp_path: Path) -> None:
    ca = certificate("ca")
    with tls_server(certificate("server", by=ca), tmp_path) as (port, seen):
        made = kubeconfig.parse(text(port, ca, {"token": "tok"}), allow_loopback=True)
        with KubeClient(made) as client:
            assert client.version() == "v1.32.1"
    assert seen == [("Bearer tok", False)]


def test_a_client_certificate_is_shown_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = certificate("ca")
    mine = certificate("console", by=ca)
    files = tmp_path / "temporary"
    files.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(files))
    user = {"client-certificate-data": base64_of(mine.pem), "client-key-data": base64_of(mine.key_pem())}
    with tls_server(certificate("server", by=ca), tmp_path / "server", client_ca=ca) as (port, seen):
        made = kubeconfig.parse(text(port, ca, user), allow_loopback=True)
        with KubeClient(made) as client:
            assert client.version() == "v1.32.1"
            assert list(files.iterdir()) == []
    assert seen == [(None, True)]


def test_a_name_and_password_travel_as_basic_authentication(tmp_path: Path) -> None:
    ca = certificate("ca")
    with tls_server(certificate("server", by=ca), tmp_path) as (port, seen):
        made = kubeconfig.parse(text(port, ca, {"username": "bob", "password": "pw"}), allow_loopback=True)
        with KubeClient(made) as client:
            client.version()
    assert seen == [("Basic Ym9iOnB3", False)]


def test_a_server_of_another_ca_is_not_spoken_to(tmp_path: Path) -> None:
    ca, other = certificate("ca"), certificate("other")
    with tls_server(certificate("server", by=ca), tmp_path) as (port, seen):
        for authority in (other, None):
            made = kubeconfig.parse(text(port, authority, {"token": "tok"}), allow_loopback=True)
            with KubeClient(made) as client, pytest.raises(Unreachable, match="certificate"):
                client.version()
    assert seen == []


def test_a_server_whose_certificate_is_for_another_name_needs_that_name(tmp_path: Path) -> None:
    ca = certificate("ca")
    pair = certificate("api.example", by=ca, address="192.0.2.1")
    with tls_server(pair, tmp_path) as (port, _):
        wrong = kubeconfig.parse(text(port, ca, {"token": "t"}), allow_loopback=True)
        with KubeClient(wrong) as client, pytest.raises(Unreachable, match="certificate"):
            client.version()
        named = text(port, ca, {"token": "t"}, **{"tls-server-name": "api.example"})
        with KubeClient(kubeconfig.parse(named, allow_loopback=True)) as client:
            assert client.version() == "v1.32.1"


@pytest.mark.parametrize("spoil", ["foreign key", "locked key"])
def test_a_client_key_that_cannot_be_used_is_refused_without_asking_the_terminal(spoil: str) -> None:
    ca = certificate("ca")
    mine, other = certificate("console", by=ca), certificate("other", by=ca)
    key = other.key_pem() if spoil == "foreign key" else mine.key_pem(b"password")
    user = {"client-certificate-data": base64_of(mine.pem), "client-key-data": base64_of(key)}
    with pytest.raises(Invalid) as caught:
        kubeconfig.parse(text(6443, ca, user), allow_loopback=True)
    assert caught.value.errors[0].field == "kubeconfig.user.client-key-data"


def test_a_name_that_leads_elsewhere_after_it_was_checked_is_not_spoken_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = certificate("ca")
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolve("192.0.2.7", 443, type=socket.SOCK_STREAM))
    with tls_server(certificate("rebound.example", by=ca), tmp_path) as (port, seen):
        named = text(port, ca, {"token": "t"}).replace("127.0.0.1", "rebound.example")
        made = kubeconfig.parse(named, allow_loopback=True)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolve("127.0.0.1", port, type=socket.SOCK_STREAM))
        with KubeClient(made) as client, pytest.raises(Refused) as caught:
            client.version()
    assert caught.value.code == "forbidden-address"
    assert seen == []


def test_nobody_listening_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        made = kubeconfig.parse(text(port, None, {"token": "t"}), allow_loopback=True)
        with KubeClient(made) as client, pytest.raises(Unreachable, match="refused"):
            client.version()


def test_a_server_that_never_answers_runs_into_the_time_out() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        config = {"clusters": [{"cluster": {}}], "users": [{"user": {"token": "t"}}]}
        with KubeClient(Connection(address, config, timeout_seconds=0.3)) as client:
            started = time.monotonic()
            with pytest.raises(Unreachable, match=r"silent for 0.3 s"):
                client.version()
            assert time.monotonic() - started < 3


def test_a_redirect_is_not_followed(api: ScriptedServer) -> None:
    elsewhere = {"Location": f"{api.address}/secret"}
    api.handlers["GET", "/version"] = lambda query, body: (302, ({}, elsewhere))
    with KubeClient(api.connection()) as client, pytest.raises(Refused) as caught:
        client.version()
    assert caught.value.code == "redirect"
    assert [path for _, path, _, _ in api.requests] == ["/version"]


def test_a_write_that_fails_is_sent_once(api: ScriptedServer) -> None:
    api.handlers["POST", "/api/v1/namespaces/default/pods"] = lambda query, body: status(503, "Unavailable", "no")
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    with KubeClient(api.connection()) as client, pytest.raises(Unreachable):
        client.create(manifest, op_id="op")
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("code", "reason", "kind", "ours"),
    [
        (400, "BadRequest", Refused, "bad-request"),
        (401, "Unauthorized", Refused, "unauthorized"),
        (403, "Forbidden", Refused, "forbidden"),
        (404, "NotFound", Refused, "not-found"),
        (409, "Conflict", Conflict, "conflict"),
        (409, "AlreadyExists", Conflict, "already-exists"),
        (410, "Expired", Refused, "gone"),
        (422, "Invalid", Refused, "invalid"),
        (429, "TooManyRequests", Unreachable, "unreachable"),
        (500, "InternalError", Unreachable, "unreachable"),
        (503, "ServiceUnavailable", Unreachable, "unreachable"),
    ],
)
def test_every_answer_that_says_no_becomes_one_of_our_errors(code: int, reason: str, kind: type, ours: str) -> None:
    error = refusal(code, json.dumps(status(code, reason, "because")[1]).encode())
    assert type(error) is kind
    assert error.code == ours
    assert "because" in error.message


def test_only_status_objects_are_passed_on_and_cut_short() -> None:
    page = b"<html>the gateway's inside: password=hunter2</html>"
    assert "hunter2" not in refusal(403, page).message
    foreign = json.dumps({"kind": "Secret", "message": "hunter2"}).encode()
    assert "hunter2" not in refusal(403, foreign).message
    long = refusal(403, json.dumps(status(403, "Forbidden", "x" * 5000)[1]).encode())
    assert len(long.message) < 400
    assert cut("a\x1b[31m\nb") == "a [31m b"


def test_a_retry_after_is_kept_within_reason() -> None:
    busy = json.dumps(status(429, "TooManyRequests", "slow down")[1]).encode()
    for header, seconds in (("7", 7), ("86400", 60), ("0", 1), ("soon", 5)):
        error = refusal(429, busy, header)
        assert isinstance(error, Unreachable)
        assert error.retry_after_seconds == seconds


def test_an_eviction_that_a_budget_refuses_is_about_a_pod_and_not_about_the_cluster() -> None:
    said = status(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")[1]
    budget = "The disruption budget web needs 2 healthy pods and has 2 currently"
    said["details"] = {"causes": [{"reason": "DisruptionBudget", "message": budget}]}
    error = refusal(429, json.dumps(said).encode())
    assert isinstance(error, Conflict)
    assert (error.code, error.message) == ("disruption-budget", f"{budget}.")
    said["details"] = {"causes": [{"reason": "Other", "message": "busy"}], "retryAfterSeconds": 10}
    assert isinstance(refusal(429, json.dumps(said).encode()), Unreachable)


def test_an_answer_that_is_no_json_is_unreachable_not_a_crash(api: ScriptedServer) -> None:
    api.handlers["GET", "/version"] = lambda query, body: (200, b"<html>welcome</html>")
    api.handlers["GET", "/api/v1/nodes"] = lambda query, body: (200, b"[]")
    with KubeClient(api.connection()) as client:
        with pytest.raises(Unreachable):
            client.version()
        with pytest.raises(Unreachable):
            client.nodes()


def test_a_channel_shows_no_credentials(api: ScriptedServer) -> None:
    assert "scripted-token" not in repr(api.connection())
    channel = Channel(api.connection())
    assert "scripted-token" not in repr(channel)
    channel.close()
