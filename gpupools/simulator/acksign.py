"""ACS3-HMAC-SHA256: checks the signature of a request to the ACK OpenAPI as Alibaba Cloud's gateway does.

It owns the canonical form and the refusals' codes; it knows no operation and keeps no secret beyond its arguments.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

ALGORITHM = "ACS3-HMAC-SHA256"
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} Credential=(?P<key_id>[^,\s]+),\s*SignedHeaders=(?P<signed>[^,\s]+),"
    r"\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_CLOCK_SKEW = timedelta(minutes=15)
# Without these in the signature a request could be replayed against another operation, host or body.
_MUST_BE_SIGNED = frozenset(
    {"host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version"}
)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request as it arrived. ``path`` is still percent-encoded; header names are lower case."""

    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes


class SignatureRefusedError(Exception):
    """Why a request is not let in: HTTP status, the gateway's code, and a sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def canonical_query(query: Iterable[tuple[str, str]]) -> str:
    """Return the query sorted by name, values percent-encoded with nothing but ``~`` kept as it is."""
    return "&".join(f"{name}={quote(value, safe='~')}" for name, value in sorted(query))


def canonical_request(request: SignedRequest, signed: Sequence[str], body_hash: str) -> str:
    """Return the text whose hash is signed."""
    headers = "".join(f"{name}:{request.headers.get(name, '').strip()}\n" for name in signed)
    parts = (
        request.method,
        request.path or "/",
        canonical_query(request.query),
        headers,
        ";".join(signed),
        body_hash,
    )
    return "\n".join(parts)


def signature(request: SignedRequest, signed: Sequence[str], body_hash: str, secret: str) -> str:
    """Return the signature that the holder of ``secret`` would have written."""
    hashed = hashlib.sha256(canonical_request(request, signed, body_hash).encode()).hexdigest()
    return hmac.new(secret.encode(), f"{ALGORITHM}\n{hashed}".encode(), hashlib.sha256).hexdigest()


class Gatekeeper:
    """Lets signed requests in. It remembers nonces for as long as their date would be accepted."""

    def __init__(self, access_key_id: str, secret: str) -> None:
        self._key_id = access_key_id
        self._secret = secret
        self._nonces: dict[str, datetime] = {}  # in order of arrival

    def check(self, request: SignedRequest, *, now: datetime) -> None:
        """Return when the request may pass; raise SignatureRefusedError otherwise."""
        found = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        if found is None:
            raise SignatureRefusedError(
                400, "MissingAuthorization", f"The request has no valid Authorization header of {ALGORITHM}."
            )
        if not hmac.compare_digest(found["key_id"].encode(), self._key_id.encode()):
            raise SignatureRefusedError(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
        signed = found["signed"].split(";")
        if unsigned := sorted(_MUST_BE_SIGNED.difference(signed)):
            raise SignatureRefusedError(
                400, "IncompleteSignature", f"These headers must be signed: {', '.join(unsigned)}."
            )
        body_hash = request.headers.get("x-acs-content-sha256", "")
        if not hmac.compare_digest(body_hash.encode(), hashlib.sha256(request.body).hexdigest().encode()):
            raise SignatureRefusedError(
                400, "InvalidContentSha256", "x-acs-content-sha256 is not the hash of the body that arrived."
            )
        if not hmac.compare_digest(signature(request, signed, body_hash, self._secret), found["signature"]):
            raise SignatureRefusedError(
                400, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation."
            )
        self._check_fresh(request, now)

    def _check_fresh(self, request: SignedRequest, now: datetime) -> None:
        try:
            sent = datetime.fromisoformat(request.headers["x-acs-date"].replace("Z", "+00:00"))
            late = abs(now - sent) > _CLOCK_SKEW
        except (ValueError, TypeError):
            raise SignatureRefusedError(
                400, "InvalidTimeStamp.Format", "Specified time stamp or date value is not well formatted."
            ) from None
        if late:
            raise SignatureRefusedError(
                400, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired."
            )
        while self._nonces and now - next(iter(self._nonces.values())) > 2 * _CLOCK_SKEW:
            del self._nonces[next(iter(self._nonces))]
        nonce = request.headers.get("x-acs-signature-nonce", "")
        if not nonce or nonce in self._nonces:
            raise SignatureRefusedError(400, "SignatureNonceUsed", "Specified signature nonce was used already.")
        self._nonces[nonce] = now
