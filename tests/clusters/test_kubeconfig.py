"""Hostile and honest kubeconfigs: what is refused, at which entry, and that nothing secret or foreign happens."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpupools.clusters import kubeconfig
from gpupools.clusters.port import AckAccess
from gpupools.errors import ConsoleError, Invalid, Unreachable

SECRET = "s3cr3t-do-not-show"  # noqa: S105  # made up
Config = dict[str, Any]


def config(**changes: Any) -> Config:
    """Return a kubeconfig of one context with a token; changes are dotted paths with ``__``."""
    made: Config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.10:6443"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
    }
    made.update(changes)
    return made


def with_cluster(**entries: Any) -> Config:
    made = config()
    made["clusters"][0]["cluster"].update({key.replace("_", "-"): value for key, value in entries.items()})
    return made


def server(address: str) -> Config:
    return with_cluster(server=address)


def with_user(entries: dict[str, Any]) -> Config:
    return config(users=[{"name": "u", "user": entries}])


def refused(made: Config | str, *, allow_loopback: bool = False, context: str = "") -> Invalid:
    text = made if isinstance(made, str) else yaml.safe_dump(made)
    with pytest.raises(Invalid) as caught:
        kubeconfig.parse(text, allow_loopback=allow_loopback, context=context)
    error = caught.value
    shown = f"{error} {error.errors} {error.data}"
    assert SECRET not in shown
    assert error.errors[0].message.strip().endswith((".", ")"))
    return error


CORPUS: list[tuple[str, Config | str, str, str]] = [
    ("exec", with_user({"exec": {"command": "/bin/sh", "args": ["-c", SECRET]}}), "kubeconfig.user.exec", "exec"),
    (
        "exec beside a token",
        with_user({"token": SECRET, "exec": {"command": "id"}}),
        "kubeconfig.user.exec",
        "exec",
    ),
    ("exec that is empty", with_user({"exec": None, "token": SECRET}), "kubeconfig.user.exec", "exec"),
    (
        "auth provider",
        with_user({"auth-provider": {"name": "gcp", "config": {"cmd-path": "/bin/id"}}}),
        "kubeconfig.user.auth-provider",
        "auth-provider",
    ),
    ("token file", with_user({"tokenFile": "/etc/shadow"}), "kubeconfig.user.tokenFile", "file-path"),
    (
        "token file beside a token",
        with_user({"token": SECRET, "tokenFile": "/var/run/secrets/token"}),
        "kubeconfig.user.tokenFile",
        "file-path",
    ),
    (
        "client certificate file",
        with_user({"client-certificate": "/c.pem", "client-key": "/k.pem"}),
        "kubeconfig.user.client-certificate",
        "file-path",
    ),
    (
        "client key file",
        with_user({"client-certificate-data": "eA==", "client-key": "../k"}),
        "kubeconfig.user.client-key",
        "file-path",
    ),
    (
        "CA file",
        with_cluster(certificate_authority="/etc/passwd"),
        "kubeconfig.cluster.certificate-authority",
        "file-path",
    ),
    (
        "CA file by URL",
        with_cluster(certificate_authority="file:///etc/passwd"),
        "kubeconfig.cluster.certificate-authority",
        "file-path",
    ),
    (
        "no TLS check",
        with_cluster(insecure_skip_tls_verify=True),
        "kubeconfig.cluster.insecure-skip-tls-verify",
        "insecure",
    ),
    (
        "no TLS check as text",
        with_cluster(insecure_skip_tls_verify="yes"),
        "kubeconfig.cluster.insecure-skip-tls-verify",
        "insecure",
    ),
    ("proxy", with_cluster(proxy_url="http://evil.example:3128"), "kubeconfig.cluster.proxy-url", "proxy"),
    ("http", server("http://192.0.2.10:6443"), "kubeconfig.cluster.server", "not-https"),
    ("file address", server("file:///etc/passwd"), "kubeconfig.cluster.server", "bad-url"),
    ("gopher address", server("gopher://192.0.2.10:70/x"), "kubeconfig.cluster.server", "not-https"),
    ("unix address", server("unix:///var/run/docker.sock"), "kubeconfig.cluster.server", "bad-url"),
    ("no scheme", server("192.0.2.10:6443"), "kubeconfig.cluster.server", "bad-url"),
    ("user info", server(f"https://admin:{SECRET}@192.0.2.10"), "kubeconfig.cluster.server", "user-info"),
    ("empty user info", server("https://@192.0.2.10"), "kubeconfig.cluster.server", "user-info"),
    ("query", server("https://192.0.2.10/?x=1"), "kubeconfig.cluster.server", "bad-url"),
    ("fragment", server("https://192.0.2.10/#x"), "kubeconfig.cluster.server", "bad-url"),
    ("bad port", server("https://192.0.2.10:99999"), "kubeconfig.cluster.server", "bad-url"),
    ("backslash", server("https://192.0.2.10\\@127.0.0.1"), "kubeconfig.cluster.server", "bad-url"),
    ("line break", server("https://192.0.2.10/\nHost: x"), "kubeconfig.cluster.server", "bad-url"),
    ("blank", server("https://192.0.2.10 /"), "kubeconfig.cluster.server", "bad-url"),
    ("full-width host", server("https://１２７.0.0.1"), "kubeconfig.cluster.server", "bad-url"),
    ("no server", with_cluster(server=""), "kubeconfig.cluster.server", "incomplete"),
    ("server as number", with_cluster(server=6443), "kubeconfig.cluster.server", "type"),
    ("loopback", server("https://127.0.0.1:6443"), "kubeconfig.cluster.server", "forbidden-address"),
    ("loopback of another number", server("https://127.8.9.1"), "kubeconfig.cluster.server", "forbidden-address"),
    ("localhost", server("https://localhost:6443"), "kubeconfig.cluster.server", "forbidden-address"),
    ("loopback 6", server("https://[::1]:6443"), "kubeconfig.cluster.server", "forbidden-address"),
    ("loopback as one number", server("https://2130706433"), "kubeconfig.cluster.server", "forbidden-address"),
    ("loopback in hexadecimal", server("https://0x7f.1"), "kubeconfig.cluster.server", "forbidden-address"),
    ("unspecified", server("https://0.0.0.0"), "kubeconfig.cluster.server", "forbidden-address"),
    ("unspecified 6", server("https://[::]"), "kubeconfig.cluster.server", "forbidden-address"),
    ("mapped loopback", server("https://[::ffff:127.0.0.1]"), "kubeconfig.cluster.server", "forbidden-address"),
    ("compatible loopback", server("https://[::127.0.0.1]"), "kubeconfig.cluster.server", "forbidden-address"),
    (
        "metadata",
        server("https://169.254.169.254/latest"),
        "kubeconfig.cluster.server",
        "forbidden-address",
    ),
    ("mapped metadata", server("https://[::ffff:a9fe:a9fe]"), "kubeconfig.cluster.server", "forbidden-address"),
    ("NAT64 metadata", server("https://[64:ff9b::a9fe:a9fe]"), "kubeconfig.cluster.server", "forbidden-address"),
    ("6to4 metadata", server("https://[2002:a9fe:a9fe::]"), "kubeconfig.cluster.server", "forbidden-address"),
    ("Alibaba metadata", server("https://100.100.100.200"), "kubeconfig.cluster.server", "forbidden-address"),
    ("AWS metadata 6", server("https://[fd00:ec2::254]"), "kubeconfig.cluster.server", "forbidden-address"),
    ("link-local 6", server("https://[fe80::1]"), "kubeconfig.cluster.server", "forbidden-address"),
    ("multicast", server("https://224.0.0.1"), "kubeconfig.cluster.server", "forbidden-address"),
    ("broadcast", server("https://255.255.255.255"), "kubeconfig.cluster.server", "forbidden-address"),
    ("impersonation", with_user({"token": SECRET, "as": "admin"}), "kubeconfig.user.as", "impersonation"),
    (
        "impersonated group",
        with_user({"token": SECRET, "as-groups": ["system:masters"]}),
        "kubeconfig.user.as-groups",
        "impersonation",
    ),
    ("no credentials", with_user({"extensions": []}), "kubeconfig.user", "no-credentials"),
    ("token with a line break", with_user({"token": "a\nX-Evil: 1"}), "kubeconfig.user.token", "bad-token"),
    ("token as number", with_user({"token": 12345}), "kubeconfig.user.token", "type"),
    (
        "certificate without key",
        with_user({"client-certificate-data": "eA=="}),
        "kubeconfig.user.client-key-data",
        "incomplete",
    ),
    (
        "certificate that is no base64",
        with_user({"client-certificate-data": "!!", "client-key-data": "!!"}),
        "kubeconfig.user.client-certificate-data",
        "bad-data",
    ),
    (
        "CA that is no certificate",
        with_cluster(certificate_authority_data=base64.b64encode(b"-----BEGIN CERTIFICATE-----\nx").decode()),
        "kubeconfig.cluster.certificate-authority-data",
        "bad-data",
    ),
    (
        "unknown current context",
        config(**{"current-context": "nowhere"}),
        "context",
        "no-context",
    ),
    (
        "context without its cluster",
        config(contexts=[{"name": "main", "context": {"cluster": "x", "user": "u"}}]),
        "kubeconfig.cluster",
        "dangling",
    ),
    (
        "context without its user",
        config(contexts=[{"name": "main", "context": {"cluster": "c", "user": "x"}}]),
        "kubeconfig.user",
        "dangling",
    ),
    ("no contexts", config(contexts=[]), "kubeconfig", "incomplete"),
    ("users as mapping", config(users={"u": {"token": SECRET}}), "kubeconfig", "incomplete"),
    ("nameless entry", config(users=[{"user": {"token": SECRET}}]), "kubeconfig", "incomplete"),
    (
        "two clusters of one name",
        config(clusters=[*config()["clusters"], *config()["clusters"]]),
        "kubeconfig",
        "ambiguous",
    ),
    ("another kind", config(kind="Secret"), "kubeconfig", "not-a-kubeconfig"),
    ("alias bomb", "a: &a [x]\nb: [*a, *a]\n", "kubeconfig", "alias"),
    ("merge key", "base: &b {x: 1}\nuser:\n  <<: *b\n", "kubeconfig", "alias"),
    ("python object", "!!python/object/apply:os.system ['id']", "kubeconfig", "not-yaml"),
    ("duplicate key", "kind: Config\nkind: Config\n", "kubeconfig", "not-yaml"),
    ("oversize", "a: " + "x" * 300_000, "kubeconfig", "too-large"),
    ("deep", "[" * 500, "kubeconfig", "too-deep"),
    ("not YAML", "{{{", "kubeconfig", "not-yaml"),
    ("a list", "- a\n", "kubeconfig", "not-an-object"),
    ("empty", "", "kubeconfig", "not-an-object"),
    ("binary", "\x00\x01", "kubeconfig", "not-yaml"),
    ("two documents", yaml.safe_dump(config()) + "---\nb: 1\n", "kubeconfig", "several-documents"),
]


@pytest.mark.parametrize(("made", "field", "code"), [c[1:] for c in CORPUS], ids=[c[0] for c in CORPUS])
def test_a_hostile_kubeconfig_is_refused_at_the_right_entry(made: Config | str, field: str, code: str) -> None:
    error = refused(made)
    assert (error.errors[0].field, error.errors[0].code) == (field, code)
    assert field == "kubeconfig" or error.errors[0].allowed


def test_hostile_kubeconfigs_contact_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are resolved only after everything else was found to be right; nothing is ever connected to."""
    asked: list[str] = []

    def getaddrinfo(host: str, *rest: Any, **more: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))]

    def connect(*_: Any) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", connect)
    for _, made, _, _ in CORPUS:
        refused(made)
    assert set(asked) <= {"localhost", "2130706433", "0x7f.1"}


def test_an_honest_kubeconfig_gives_its_context_and_only_that() -> None:
    made = config()
    made["contexts"].append({"name": "other", "context": {"cluster": "c2", "user": "u2", "namespace": "x"}})
    made["clusters"].append({"name": "c2", "cluster": {"server": "https://192.0.2.20:6443/", "extensions": []}})
    made["users"].append({"name": "u2", "user": {"username": "bob", "password": SECRET}})
    made["preferences"] = {"colors": True}
    found = kubeconfig.parse(yaml.safe_dump(made), context="other", allow_loopback=False, timeout_seconds=3)
    assert found.server == "https://192.0.2.20:6443"
    assert found.context == "other"
    assert found.timeout_seconds == 3
    assert found.kubeconfig == {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "other",
        "clusters": [{"name": "c2", "cluster": {"server": "https://192.0.2.20:6443"}}],
        "users": [{"name": "u2", "user": {"username": "bob", "password": SECRET}}],
        "contexts": [{"name": "other", "context": {"cluster": "c2", "user": "u2"}}],
    }
    assert SECRET not in repr(found)


def test_what_is_kept_can_be_read_again_as_json() -> None:
    first = kubeconfig.parse(yaml.safe_dump(config()), allow_loopback=False)
    again = kubeconfig.parse(json.dumps(first.kubeconfig, ensure_ascii=False), allow_loopback=False)
    assert again == first


def test_a_dangerous_user_of_another_context_does_no_harm_and_is_not_kept() -> None:
    made = config()
    made["users"].append({"name": "dev", "user": {"exec": {"command": "aws"}}})
    made["contexts"].append({"name": "dev", "context": {"cluster": "c", "user": "dev"}})
    found = kubeconfig.parse(yaml.safe_dump(made), allow_loopback=False)
    assert "exec" not in json.dumps(found.kubeconfig)
    assert refused(made, context="dev").code == "exec"


def test_an_unknown_context_is_answered_with_those_that_are_there() -> None:
    error = refused(config(), context="nope")
    assert error.errors[0].found == "nope"
    assert error.errors[0].allowed == "main"


@pytest.mark.parametrize("address", ["https://127.0.0.1:6443", "https://[::1]:6443", "http://127.0.0.1:8080"])
def test_loopback_is_allowed_by_the_flag_alone(address: str) -> None:
    found = kubeconfig.parse(yaml.safe_dump(server(address)), allow_loopback=True)
    assert found.server == address


@pytest.mark.parametrize("address", ["https://169.254.169.254", "https://0.0.0.0", "http://192.0.2.1"])
def test_the_loopback_flag_opens_nothing_else(address: str) -> None:
    refused(server(address), allow_loopback=True)


def resolving(*addresses: str) -> Callable[..., list[Any]]:
    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return getaddrinfo


def test_a_name_is_judged_by_every_address_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving("192.0.2.7", "169.254.169.254"))
    error = refused(server("https://innocent.example"))
    assert error.errors[0].found == "innocent.example (169.254.169.254)"
    monkeypatch.setattr(socket, "getaddrinfo", resolving("192.0.2.7"))
    assert kubeconfig.parse(yaml.safe_dump(server("https://innocent.example")), allow_loopback=False)


def test_a_name_that_leads_to_loopback_is_refused_even_where_loopback_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving("127.0.0.1"))
    assert refused(server("https://innocent.example"), allow_loopback=True).code == "forbidden-address"
    assert kubeconfig.parse(yaml.safe_dump(server("https://localhost:6443")), allow_loopback=True)


def test_a_name_that_does_not_resolve_is_unreachable_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(Unreachable):
        kubeconfig.parse(yaml.safe_dump(server("https://away.example")), allow_loopback=False)


def access(**changes: str) -> AckAccess:
    values = {
        "cluster_id": "c0123456789abcdef",
        "region": "cn-hangzhou",
        "access_key_id": "LTAI5tExample",
        "secret": SECRET,
    }
    return AckAccess(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"region": "x.evil.example/"}, "ack.region"),
        ({"region": "CN"}, "ack.region"),
        ({"cluster_id": "../../users"}, "ack.cluster_id"),
        ({"access_key_id": "a b"}, "ack.access_key_id"),
        ({"secret": "with\nbreak"}, "ack.secret"),
        ({"secret": ""}, "ack.secret"),
        ({"protocol": "http"}, "ack.protocol"),
        ({"endpoint": "127.0.0.1:80"}, "ack.endpoint"),
        ({"endpoint": "169.254.169.254"}, "ack.endpoint"),
        ({"endpoint": "192.0.2.1/path"}, "ack.endpoint"),
        ({"endpoint": "u:p@192.0.2.1"}, "ack.endpoint"),
        ({"endpoint": "192.0.2.1", "protocol": "http"}, "ack.protocol"),
        ({"endpoint": "192.0.2.1", "protocol": "ftp"}, "ack.endpoint"),
    ],
)
def test_an_ack_access_that_would_lead_astray_is_refused(changes: dict[str, str], field: str) -> None:
    with pytest.raises(ConsoleError) as caught:
        kubeconfig.check_ack(access(**changes), allow_loopback=False)
    assert caught.value.errors[0].field == field
    assert SECRET not in str(caught.value.errors)


def test_an_ack_access_is_kept_and_shows_no_secret() -> None:
    found = kubeconfig.parse(yaml.safe_dump(config()), allow_loopback=False, ack=access())
    assert found.ack == access()
    assert SECRET not in repr(found)
    kubeconfig.check_ack(access(endpoint="127.0.0.1:81", protocol="http"), allow_loopback=True)
