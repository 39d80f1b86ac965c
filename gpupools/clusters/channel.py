"""One authenticated channel to an API server: bytes out and in, failures as our errors.

It uses the official client's configuration and HTTP layer, but neither its models nor its kubeconfig loader, which
leaves certificates and keys as files in the temporary folder for the life of the process.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
import socket
import ssl
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import urllib3
import urllib3.connection
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from gpupools.clusters.addresses import is_loopback, why_forbidden
from gpupools.clusters.port import Connection
from gpupools.clusters.tokenfile import token_in
from gpupools.errors import Conflict, ConsoleError, Invalid, Refused, Unreachable

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
CONNECT_SECONDS = 5.0
LONGEST_MESSAGE = 300  # characters of a cluster's own words that are passed on
MOST_BYTES = 128 * 1024 * 1024  # of one answer; a page of 500 large pods is about 3 MB
_BLOCK = 64 * 1024
# urllib3 retries and follows redirects by itself unless told otherwise: a retried POST may land twice, and a
# redirect may lead to an address that was never checked.
_NO_RETRIES = urllib3.Retry(
    total=0, connect=0, read=0, redirect=0, status=0, other=0, raise_on_redirect=False, raise_on_status=False
)
_log = logging.getLogger(__name__)

Query = Sequence[tuple[str, str]]


class _Cause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class Status(msgspec.Struct, rename="camel"):
    """The ``kind: Status`` object with which an API server says no."""

    kind: str = ""
    reason: str | None = None
    message: str | None = None
    code: int | None = None
    details: _Details | None = None

    def cause(self, reason: str) -> str:
        """Return what the cause of that reason says, nothing without one."""
        causes = (self.details.causes if self.details else None) or ()
        return next((cut(each.message or "") for each in causes if each.reason == reason), "")


def tls_context(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    """Build the TLS side of a connection from base64 data of a kubeconfig; no file stays behind.

    Raises Invalid with the entry that cannot be used.
    """
    ca = _pem(cluster, "certificate-authority-data", "kubeconfig.cluster")
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except (ssl.SSLError, ValueError):
        raise _bad_data("kubeconfig.cluster.certificate-authority-data", "it holds no certificate") from None
    # Python 3.13 asks for X.509 extensions that the CAs of many clusters do not carry.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _pem(user, "client-certificate-data", "kubeconfig.user")
    key = _pem(user, "client-key-data", "kubeconfig.user")
    if certificate and key:
        # OpenSSL reads a client's pair from files only: private ones, gone before the first request.
        with tempfile.TemporaryDirectory(prefix="gpupools-") as folder:
            paths = Path(folder, "certificate.pem"), Path(folder, "key.pem")
            for path, text in zip(paths, (certificate, key), strict=True):
                path.touch(mode=0o600)
                path.write_text(text)
            try:
                # Without a password function OpenSSL would ask the terminal for one.
                context.load_cert_chain(*paths, password=lambda: "")
            except (ssl.SSLError, OSError, ValueError):
                raise _bad_data(
                    "kubeconfig.user.client-key-data",
                    "the client certificate and its key do not belong together, or the key is encrypted",
                ) from None
    return context


def _pem(entry: Mapping[str, Any], key: str, where: str) -> str:
    data = entry.get(key) or ""
    if not data:
        return ""
    try:
        text = base64.b64decode("".join(str(data).split()), validate=True).decode("ascii")
    except (binascii.Error, UnicodeError):
        raise _bad_data(f"{where}.{key}", "it is not base64 of a PEM text") from None
    if "-----BEGIN " not in text:
        raise _bad_data(f"{where}.{key}", "it is not base64 of a PEM text")
    return text


def _bad_data(field: str, reason: str) -> Invalid:
    return Invalid.field(
        field,
        f"{field.rpartition('.')[2]} cannot be used: {reason}.",
        code="bad-data",
        found="data that cannot be used",
        allowed="base64 of PEM text",
    )


class _CheckedConnection(urllib3.connection.HTTPSConnection):
    """Looks at the address that it really reached: a host name may resolve otherwise than when it was checked."""

    denied: tuple[str, ...] = ()

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        address = ipaddress.ip_address(sock.getpeername()[0])
        reason = why_forbidden(address, allow_loopback=is_loopback(self.host), denied=self.denied)
        if reason:
            sock.close()
            raise Refused(
                f"The console does not connect to {self.host} ({address}): it is {reason}.", code="forbidden-address"
            )
        return sock


def _checked_pool(denied: tuple[str, ...]) -> type[urllib3.HTTPSConnectionPool]:
    connection = type("_DenyingConnection", (_CheckedConnection,), {"denied": denied})
    return type("_CheckedPool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": connection})


class Channel:
    """Requests to one API server. Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        config = connection.kubeconfig
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        self.server = connection.server
        self.timeout_seconds = connection.timeout_seconds
        configuration = Configuration(host=connection.server, retries=_NO_RETRIES, connection_pool_maxsize=8)
        configuration.keep_alive = True  # finds dead peers below a watch that is silent by right
        configuration.tls_server_name = cluster.get("tls-server-name") or None
        if cluster.get("insecure-skip-tls-verify"):  # by setting alone, and said on the cluster's page
            configuration.verify_ssl = False
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if is_loopback(urlsplit(connection.server).hostname or ""):
            configuration.proxy = None  # a proxy of the environment cannot reach this machine's loopback
        if path := user.get("tokenFile"):  # a service account's own, replaced by the kubelet before it ends

            def refresh(current: Configuration) -> None:
                current.api_key["BearerToken"] = f"Bearer {token_in(path)}"

            refresh(configuration)
            configuration.refresh_api_key_hook = refresh
        elif user.get("token"):
            configuration.api_key["BearerToken"] = f"Bearer {user['token']}"
        self._api = ApiClient(configuration)
        self._api.user_agent = "gpupools-console"
        if user.get("username"):
            pair = f"{user['username']}:{user.get('password', '')}"
            self._api.set_default_header("authorization", "Basic " + base64.b64encode(pair.encode()).decode())
        if connection.server.startswith("https://"):
            manager = self._api.rest_client.pool_manager
            manager.connection_pool_kw["ssl_context"] = tls_context(cluster, user)
            if manager.proxy is None:  # behind a proxy of the environment it is the proxy that resolves names
                checked = _checked_pool(connection.denied)
                manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": checked}

    def close(self) -> None:
        """Close the idle connections."""
        self._api.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """Send one request and return the whole answer. Raises Unreachable, Refused or Conflict."""
        response = self._send(method, path, query, body, content_type, self.timeout_seconds)
        # A server that drips its answer would otherwise never run into the time-out of a single read.
        deadline = time.monotonic() + 6 * self.timeout_seconds
        blocks: list[bytes] = []
        size = 0
        try:
            while block := response.read(_BLOCK):
                size += len(block)
                if size > MOST_BYTES or time.monotonic() > deadline:
                    response.close()
                    raise Unreachable("The cluster's answer was too large or too slow to be read to its end.")
                blocks.append(block)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise unreachable(error, self.timeout_seconds) from None
        response.release_conn()
        data = b"".join(blocks)
        if not 200 <= response.status <= 299:
            raise self._refusal(response, data)
        return data

    def stream(self, path: str, *, query: Query, silence_seconds: float) -> urllib3.BaseHTTPResponse:
        """Open a watch. A read of it fails after ``silence_seconds`` without a byte; the caller closes it."""
        response = self._send("GET", path, query, None, JSON, silence_seconds)
        if not 200 <= response.status <= 299:
            try:
                data = response.read(_BLOCK)
            except (urllib3.exceptions.HTTPError, OSError):
                data = b""
            response.close()
            raise self._refusal(response, data)
        return response

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: Mapping[str, Any] | None,
        content_type: str,
        read_seconds: float,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": JSON}
        if body is not None:
            headers["Content-Type"] = content_type
        method, url, headers, _, _ = self._api.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        connect_seconds = min(CONNECT_SECONDS, self.timeout_seconds)
        try:
            answer = self._api.call_api(
                method,
                url,
                header_params=headers,
                body=None if body is None else dict(body),
                _request_timeout=(connect_seconds, read_seconds),
            )
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise unreachable(error, read_seconds) from None
        response: urllib3.BaseHTTPResponse = answer.response
        return response

    def _refusal(self, response: urllib3.BaseHTTPResponse, data: bytes) -> ConsoleError:
        retry_after = response.headers.get("Retry-After", "")
        return refusal(response.status, data, retry_after)


def status_of(data: bytes) -> Status:
    """Read a ``kind: Status`` answer; anything else gives an empty one, so that no foreign text is passed on."""
    try:
        status = msgspec.json.decode(data, type=Status)
    except msgspec.DecodeError:
        return Status()
    return status if status.kind == "Status" else Status()


def cut(text: str) -> str:
    """Shorten a cluster's words to what we pass on, without control characters."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return plain if len(plain) <= LONGEST_MESSAGE else plain[: LONGEST_MESSAGE - 1] + "…"


_CODES = {400: "bad-request", 401: "unauthorized", 403: "forbidden", 404: "not-found", 410: "gone", 422: "invalid"}


def refusal(http_status: int, data: bytes, retry_after: str = "") -> ConsoleError:
    """Turn an answer that is not 2xx into Unreachable (5xx, 429), Conflict (409) or Refused (the rest).

    A 429 that a disruption budget is the cause of is about one pod, not about the cluster: Conflict.
    """
    status = status_of(data)
    said = cut(status.message or "")
    if http_status == 429 and (budget := status.cause("DisruptionBudget")):
        return Conflict(f"{budget.rstrip('.')}.", code="disruption-budget", status=http_status)
    if http_status >= 500 or http_status == 429:
        words = said or f"it answered {http_status}"
        seconds = min(int(retry_after), 60) if retry_after.isdigit() else 5
        return Unreachable(
            f"The cluster cannot do that now: {words}.".replace("..", "."),
            retry_after_seconds=max(seconds, 1),
            status=http_status,
        )
    if http_status == 409:
        code = "already-exists" if status.reason == "AlreadyExists" else "conflict"
        return Conflict(said or "The object in the cluster has changed meanwhile.", code=code, status=http_status)
    if 300 <= http_status < 400:
        return Refused("The server sends elsewhere, which the console does not follow.", code="redirect")
    words = said or f"it answered {http_status} without a reason"
    code = _CODES.get(http_status, "refused")
    return Refused(f"The cluster refused: {words}", code=code, status=http_status, reason=status.reason or "")


def unreachable(error: Exception, seconds: float) -> Unreachable:
    """Say in a sentence why no answer came. Texts of exceptions hold addresses and object names: not passed on."""
    cause: BaseException = error
    while isinstance(cause, urllib3.exceptions.MaxRetryError) and cause.reason:
        cause = cause.reason
    verify = _certificate_problem(cause)
    if verify:
        words = f"its certificate does not hold ({cut(verify)})"
    elif isinstance(cause, urllib3.exceptions.NameResolutionError):
        words = "its host name does not resolve"
    elif isinstance(cause, urllib3.exceptions.NewConnectionError):  # urllib3 counts it among the time-outs
        is_refused = isinstance(cause.__cause__ or cause.__context__, ConnectionRefusedError)
        words = "the connection was refused" if is_refused else "no connection could be made"
    elif isinstance(cause, urllib3.exceptions.ConnectTimeoutError):
        words = "no connection within the time-out"
    elif isinstance(cause, urllib3.exceptions.TimeoutError | TimeoutError):
        words = f"silent for {seconds:g} s"
    elif isinstance(cause, urllib3.exceptions.SSLError | ssl.SSLError | ApiException):
        words = "TLS could not be set up"
    else:
        words = "the connection broke"
    _log.debug("no answer from a cluster: %s", type(cause).__name__)
    return Unreachable(f"The cluster did not answer: {words}.")


def _certificate_problem(error: BaseException) -> str:
    link: BaseException | None = error
    for _ in range(8):
        if link is None:
            break
        if isinstance(link, ssl.SSLCertVerificationError):
            return str(link.verify_message)
        inner = link.args[0] if link.args and isinstance(link.args[0], BaseException) else None
        link = inner or link.__cause__ or link.__context__
    return ""
