"""ACS3-HMAC-SHA256 as the gateway checks it: what passes once, and every way not to pass."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpupools.simulator.acksign import (
    ALGORITHM,
    Gatekeeper,
    SignatureRefusedError,
    SignedRequest,
    canonical_query,
    signature,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SIGNED = (
    "host",
    "x-acs-action",
    "x-acs-content-sha256",
    "x-acs-date",
    "x-acs-signature-nonce",
    "x-acs-version",
)
BODY = b'{"count": 1}'


def signed(
    *,
    secret: str = "the-secret",
    key_id: str = "the-key",
    nonce: str = "n1",
    sent: datetime = NOW,
    names: tuple[str, ...] = SIGNED,
    body: bytes = BODY,
    after: Mapping[str, Any] | None = None,
) -> SignedRequest:
    """Build a request that is signed well, then change what ``after`` says."""
    headers = {
        "host": "127.0.0.1:1",
        "x-acs-action": "ScaleClusterNodePool",
        "x-acs-content-sha256": hashlib.sha256(body).hexdigest(),
        "x-acs-date": sent.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "x-acs-signature-nonce": nonce,
        "x-acs-version": "2015-12-15",
    }
    request = SignedRequest("POST", "/clusters/c1/nodepools/np1", [("force", "True")], headers, body)
    text = signature(request, names, headers["x-acs-content-sha256"], secret)
    headers["authorization"] = f"{ALGORITHM} Credential={key_id},SignedHeaders={';'.join(names)},Signature={text}"
    changed = {"method": "POST", "path": request.path, "query": request.query, "body": body, **(after or {})}
    return SignedRequest(changed["method"], changed["path"], changed["query"], headers, changed["body"])


def code_of(request: SignedRequest, gate: Gatekeeper | None = None) -> str:
    """Return the gateway's code, empty when the request passes."""
    try:
        (gate or Gatekeeper("the-key", "the-secret")).check(request, now=NOW)
    except SignatureRefusedError as error:
        return error.code
    return ""


def test_a_well_signed_request_passes() -> None:
    assert code_of(signed()) == ""


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (signed(secret="another"), "SignatureDoesNotMatch"),
        (signed(key_id="stranger"), "InvalidAccessKeyId.NotFound"),
        (signed(after={"body": b'{"count": 500}'}), "InvalidContentSha256"),
        (signed(after={"path": "/clusters/c1/nodepools/np2"}), "SignatureDoesNotMatch"),
        (signed(after={"query": [("force", "False")]}), "SignatureDoesNotMatch"),
        (signed(after={"method": "DELETE"}), "SignatureDoesNotMatch"),
        (signed(names=SIGNED[1:]), "IncompleteSignature"),
        (signed(sent=NOW - timedelta(minutes=16)), "InvalidTimeStamp.Expired"),
        (signed(sent=NOW + timedelta(minutes=16)), "InvalidTimeStamp.Expired"),
        (signed(nonce=""), "SignatureNonceUsed"),
        (SignedRequest("GET", "/", [], {}, b""), "MissingAuthorization"),
    ],
)
def test_anything_else_is_refused_with_its_code(request_: SignedRequest, code: str) -> None:
    assert code_of(request_) == code


def test_a_request_passes_only_once() -> None:
    gate = Gatekeeper("the-key", "the-secret")
    assert code_of(signed(), gate) == ""
    assert code_of(signed(), gate) == "SignatureNonceUsed"
    assert code_of(signed(nonce="n2"), gate) == ""


def test_the_query_is_sorted_and_encoded_as_the_sdks_do() -> None:
    assert canonical_query([("b", "x y/~"), ("a", '["i-1"]')]) == "a=%5B%22i-1%22%5D&b=x%20y%2F~"
