"""Untrusted kubeconfig text -> Connection, or a refusal that names the entry and how to make a safe one.

Only one context is looked at and kept. Nothing that the text names is run, read from disk or contacted; the server's
host name is resolved last, to judge its addresses. No secret of it ever gets into a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import SplitResult, urlsplit

from gpupools.clusters.addresses import check_host, is_loopback
from gpupools.clusters.channel import tls_context
from gpupools.clusters.port import AckAccess, Connection
from gpupools.domain import yamltext
from gpupools.errors import Invalid

MOST_BYTES = 256 * 1024
SAFE = (
    "Make a service account for the console and write a kubeconfig with its token and the cluster's "
    "certificate-authority-data: no commands, no plug-ins, no files."
)
FLATTEN = "Run `kubectl config view --raw --minify --flatten`: it puts the contents of the files into the text."
_LISTS = ("clusters", "users", "contexts")
_FILES = {
    "certificate-authority": "cluster",
    "client-certificate": "user",
    "client-key": "user",
    "tokenFile": "user",
}
_REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")


def parse(
    text: str,
    *,
    context: str = "",
    allow_loopback: bool,
    allow_insecure: bool = False,
    denied: tuple[str, ...] = (),
    timeout_seconds: float = 10.0,
    ack: AckAccess | None = None,
) -> Connection:
    """Check a kubeconfig and return the way into one of its contexts (default: its current one).

    Raises Invalid on ``kubeconfig``, ``kubeconfig.cluster.<key>``, ``kubeconfig.user.<key>``, ``context`` or
    ``ack.<key>``; Unreachable when the server's host name does not resolve at the moment.
    """
    config = yamltext.load(text, max_bytes=MOST_BYTES, field="kubeconfig")
    if config.get("kind", "Config") != "Config":
        _refuse("kubeconfig", "This is not a kubeconfig: its kind is another.", "not-a-kubeconfig", "kind: Config")
    entries = {name: _entries(config, name) for name in _LISTS}
    name = _context_name(config, entries["contexts"], context)
    chosen = _body(entries["contexts"][name], "context")
    cluster = _named(entries["clusters"], chosen, "cluster", name)
    user = _named(entries["users"], chosen, "user", name)
    kept_cluster, server = _cluster(cluster, allow_loopback, allow_insecure)
    kept_user = _user(user)
    if server.scheme == "https":
        tls_context(kept_cluster, kept_user)
    if ack is not None:
        check_ack(ack, allow_loopback=allow_loopback, denied=denied)
    port = server.port or (443 if server.scheme == "https" else 80)
    check_host(
        server.hostname or "", port, field="kubeconfig.cluster.server", allow_loopback=allow_loopback, denied=denied
    )
    minimal = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": chosen["cluster"], "cluster": kept_cluster}],
        "users": [{"name": chosen["user"], "user": kept_user}],
        "contexts": [{"name": name, "context": {"cluster": chosen["cluster"], "user": chosen["user"]}}],
    }
    return Connection(
        server=kept_cluster["server"],
        kubeconfig=minimal,
        context=name,
        ack=ack,
        timeout_seconds=timeout_seconds,
        denied=denied,
    )


def check_ack(ack: AckAccess, *, allow_loopback: bool, denied: tuple[str, ...] = ()) -> None:
    """Check the parts of an ACK access that become host names and paths. Raises Invalid on ``ack.<key>``."""
    if not _REGION.fullmatch(ack.region):
        _refuse("ack.region", "This is not a region.", "bad-region", "a region such as cn-hangzhou", ack.region)
    if not _ID.fullmatch(ack.cluster_id):
        _refuse("ack.cluster_id", "This is not a cluster id.", "bad-id", "the id on ACK's page", ack.cluster_id)
    _check_identity(ack)
    if not ack.endpoint:
        if ack.protocol != "https":
            _refuse("ack.protocol", "ACK is spoken to over https only.", "not-https", "https", ack.protocol)
        return
    parts = _url(f"{ack.protocol}://{ack.endpoint}", "ack.endpoint")
    if parts.path or ack.protocol not in {"http", "https"}:
        _refuse("ack.endpoint", "This is not an endpoint.", "bad-endpoint", "host, or host:port", ack.endpoint)
    _check_scheme(parts, "ack.protocol", allow_loopback)
    check_host(parts.hostname or "", parts.port or 443, field="ack.endpoint", allow_loopback=allow_loopback,
               denied=denied)  # fmt: skip


def _check_identity(ack: AckAccess) -> None:
    """Check the RAM role's name, or else the AccessKey."""
    if ack.ram_role:
        if not _ID.fullmatch(ack.ram_role):
            _refuse("ack.ram_role", "This is not the name of a RAM role.", "bad-id", "a role's name", ack.ram_role)
        return
    if not ack.access_key_id.isascii() or not ack.access_key_id.isalnum():
        _refuse("ack.access_key_id", "This is not an AccessKey id.", "bad-id", "letters and digits")
    if not ack.secret or not ack.secret.isascii() or not ack.secret.isprintable() or " " in ack.secret:
        _refuse("ack.secret", "The AccessKey secret is missing or damaged.", "bad-secret", "the secret as given")


def _refuse(field: str, message: str, code: str, allowed: str, found: str = "") -> NoReturn:
    raise Invalid.field(field, message, code=code, found=found[:200], allowed=allowed)


def _entries(config: Mapping[str, Any], name: str) -> dict[str, Mapping[str, Any]]:
    """Return one of the three lists by name; a name that stands twice could mean either entry."""
    raw = config.get(name)
    if not isinstance(raw, list) or not raw:
        _refuse("kubeconfig", f"The kubeconfig has no list of {name}.", "incomplete", f"{name}: a list", name)
    found: dict[str, Mapping[str, Any]] = {}
    for entry in raw:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            _refuse("kubeconfig", f"An entry of {name} has no name.", "incomplete", "entries with a name", name)
        if entry["name"] in found:
            message = f"Two entries of {name} have the same name."
            _refuse("kubeconfig", message, "ambiguous", "each name once", entry["name"])
        found[entry["name"]] = entry
    return found


def _body(entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    body = entry.get(key)
    if not isinstance(body, dict):
        message = f"The {key} {entry['name']!r} of the kubeconfig is empty."
        _refuse("kubeconfig", message, "incomplete", f"a mapping under {key}")
    return body


def _context_name(config: Mapping[str, Any], contexts: Mapping[str, Any], wanted: str) -> str:
    known = ", ".join(sorted(contexts))[:200]
    name = wanted or config.get("current-context") or ""
    if not name and len(contexts) == 1:
        return next(iter(contexts))
    if not name:
        _refuse("context", "The kubeconfig names no current context: choose one.", "no-context", known)
    if not isinstance(name, str) or name not in contexts:
        _refuse("context", f"The kubeconfig has no context {str(name)[:100]!r}.", "no-context", known, str(name))
    return name


def _named(entries: Mapping[str, Any], context: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    wanted = context.get(key)
    if not isinstance(wanted, str) or wanted not in entries:
        message = f"The context {name!r} names a {key} that the kubeconfig does not have."
        _refuse(f"kubeconfig.{key}", message, "dangling", f"a {key} of the list", str(wanted))
    return _body(entries[wanted], key)


def _cluster(
    cluster: Mapping[str, Any], allow_loopback: bool, allow_insecure: bool
) -> tuple[dict[str, Any], SplitResult]:
    _refuse_files(cluster, "cluster")
    insecure = _is_on(cluster.get("insecure-skip-tls-verify"))
    if insecure and not allow_insecure:
        _refuse(
            "kubeconfig.cluster.insecure-skip-tls-verify",
            "The kubeconfig switches the check of the server's certificate off: anybody on the way could then read "
            "the credentials. Give certificate-authority-data instead; GPUPOOLS_ALLOW_INSECURE_TLS would allow it.",
            "insecure",
            "certificate-authority-data",
            "insecure-skip-tls-verify: true",
        )
    if cluster.get("proxy-url"):
        _refuse(
            "kubeconfig.cluster.proxy-url",
            "A kubeconfig may not choose a proxy for the console. Set one in the console's own environment.",
            "proxy",
            "no proxy-url",
            "proxy-url",
        )
    kept: dict[str, Any] = _texts(cluster, "cluster", ("server", "certificate-authority-data", "tls-server-name"))
    if insecure:
        kept["insecure-skip-tls-verify"] = True
    if "server" not in kept:
        message = "The kubeconfig does not say where the server is."
        _refuse("kubeconfig.cluster.server", message, "incomplete", "https://host:port")
    kept["server"] = kept["server"].rstrip("/")
    parts = _url(kept["server"], "kubeconfig.cluster.server")
    _check_scheme(parts, "kubeconfig.cluster.server", allow_loopback)
    return kept, parts


def _url(text: str, field: str) -> SplitResult:
    """Split an address; user info, queries and anything that two parsers could read differently are refused."""
    allowed = "https://host:port"
    if not text.isascii() or not text.isprintable() or any(letter in text for letter in " \\\"'<>^`{|}"):
        _refuse(field, "The server's address holds characters that an address cannot hold.", "bad-url", allowed)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        _refuse(field, "The server's address cannot be read.", "bad-url", allowed)
    if "@" in parts.netloc:
        message = "The server's address holds a user name or password. Put credentials into the user's entry."
        _refuse(field, message, "user-info", allowed, f"{parts.scheme}://…@{host}")
    if not host or parts.query or parts.fragment:
        message = "The server's address must have a host, and nothing after its path."
        _refuse(field, message, "bad-url", allowed, f"{parts.scheme}://{host or ''}")
    return parts


def _check_scheme(parts: SplitResult, field: str, allow_loopback: bool) -> None:
    if parts.scheme == "https" or parts.scheme == "http" and allow_loopback and is_loopback(parts.hostname or ""):
        return
    message = "The server must be spoken to over https: credentials would travel in the open otherwise."
    _refuse(field, message, "not-https", "https://host:port", f"{parts.scheme}://")


def _user(user: Mapping[str, Any]) -> dict[str, str]:
    for key, what in (("exec", "a command to run"), ("auth-provider", "an authentication plug-in")):
        if key in user:
            message = f"The kubeconfig gets its credentials from {what}, which the console never does. {SAFE}"
            _refuse(f"kubeconfig.user.{key}", message, key, "a token, or client-certificate-data", key)
    _refuse_files(user, "user")
    posing = next((key for key in ("as", "as-uid", "as-groups", "as-user-extra") if user.get(key)), "")
    if posing:
        message = f"The kubeconfig acts as somebody else ({posing}). {SAFE}"
        _refuse(f"kubeconfig.user.{posing}", message, "impersonation", "credentials of the console's own", posing)
    kept = _texts(user, "user", ("token", "client-certificate-data", "client-key-data", "username", "password"))
    if ("client-certificate-data" in kept) != ("client-key-data" in kept):
        message = "A client certificate and its key come together; one of them is missing."
        _refuse("kubeconfig.user.client-key-data", message, "incomplete", "both, as base64 data")
    token = kept.get("token", "").strip()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        message = "The token holds characters that a token cannot hold."
        _refuse("kubeconfig.user.token", message, "bad-token", "the token on one line")
    if token:
        kept["token"] = token
    if not kept.keys() & {"token", "client-certificate-data", "username"}:
        message = f"The kubeconfig has no credentials for this context. {SAFE}"
        _refuse("kubeconfig.user", message, "no-credentials", "a token, or client-certificate-data")
    return kept


def _refuse_files(entry: Mapping[str, Any], part: str) -> None:
    for key, owner in _FILES.items():
        if owner == part and entry.get(key):
            message = f"The kubeconfig names a file ({key}), which is on another computer. {FLATTEN}"
            inside = "token" if key == "tokenFile" else f"{key}-data"
            _refuse(f"kubeconfig.{part}.{key}", message, "file-path", inside, "the path of a file")


def _texts(entry: Mapping[str, Any], part: str, keys: tuple[str, ...]) -> dict[str, str]:
    """Keep the known keys that hold text; all others are left behind."""
    kept: dict[str, str] = {}
    for key in keys:
        value = entry.get(key)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            message = f"{key} must be text; put quotes around it."
            _refuse(f"kubeconfig.{part}.{key}", message, "type", "text", type(value).__name__)
        kept[key] = value
    return kept


def _is_on(value: object) -> bool:
    return value not in (None, False, "", "false", "False", "FALSE")
