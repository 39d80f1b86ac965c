"""The only place where errors meet HTTP: every refusal of the REST API is one shape of problem document.

It knows no rule: which error it is was decided where it was raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from gpupools.errors import Conflict, ConsoleError, FieldError, Invalid, Missing, NotAllowed, Refused, Unreachable
from gpupools.services.idempotency import Reused

# The first kind that an error is an instance of decides.
STATUS: tuple[tuple[type[ConsoleError], int, str], ...] = (
    (Reused, 422, "The request cannot be repeated like this"),
    (Invalid, 400, "The input is wrong"),
    (NotAllowed, 403, "Not allowed"),
    (Missing, 404, "Not found"),
    (Conflict, 409, "Conflict"),
    (Unreachable, 503, "A cluster or the broker did not answer"),
    (Refused, 400, "The cluster refused"),
    (ConsoleError, 500, "The console failed"),
)
CONTENT_TYPE = "application/problem+json"


class StaleVersion(exceptions.APIException):
    """If-Match names another version than the one there is."""

    status_code = 412
    default_detail = "This object was changed meanwhile: read it again, and send its new ETag in If-Match."
    default_code = "stale-version"


class VersionRequired(exceptions.APIException):
    """An edit must say which version it is made on."""

    status_code = 428
    default_detail = "Send the ETag that you read in If-Match."
    default_code = "version-required"


def problem(status: int, *, title: str, detail: str, code: str, errors: Sequence[Mapping[str, str]] = ()) -> Any:
    """Return the body of a problem document (RFC 9457 with ``code`` and ``errors``)."""
    return {
        "type": f"urn:gpupools:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "errors": list(errors),
    }


def status_unread(error: Exception) -> int:
    """Return the status for a request that was not read: 413 when it is too large, 400 when it is not in order."""
    return 413 if isinstance(error, (RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent)) else 400


def unread(error: Exception) -> Any:
    """Return the body of the answer to a request that Django refused to read."""
    status = status_unread(error)
    if status == 400:
        detail = "The console cannot read this request."
        return problem(400, title="The request is not in order", detail=detail, code="not-readable")
    if isinstance(error, RequestDataTooBig):
        detail, allowed = "The body is too large.", f"at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes"
    else:
        detail = "The body has too many fields or files."
        allowed = f"at most {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS} fields"
    field = FieldError("body", detail, code="too-large", allowed=allowed)
    return problem(413, title="The request is too large", detail=detail, code="too-large", errors=[field.as_dict()])


def handle(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn an exception into an answer; None leaves it to Django, which logs it and answers 500."""
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if isinstance(error, ConsoleError):
        status, title = next((status, title) for kind, status, title in STATUS if isinstance(error, kind))
        fields = [field.as_dict() for field in error.errors]
        body = problem(status, title=title, detail=error.message, code=error.code, errors=fields)
        retry_after = getattr(error, "retry_after_seconds", None) or error.data.get("retry_after_seconds")
        headers = {"Retry-After": str(retry_after)} if retry_after else {}
    elif isinstance(error, SuspiciousOperation):
        status, body, headers = status_unread(error), unread(error), {}
    elif isinstance(error, exceptions.APIException):
        status, body, headers = _of_framework(error)
    else:
        return None
    set_rollback()
    return Response(body, status=status, headers=headers, content_type=CONTENT_TYPE)


def _of_framework(error: exceptions.APIException) -> tuple[int, Any, dict[str, str]]:
    headers = {}
    if header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait) + 1)
    if isinstance(error, exceptions.ValidationError):
        fields = [field.as_dict() for field in _fields(error.detail)]
        body = problem(400, title="The input is wrong", detail="Some fields are wrong.", code="invalid", errors=fields)
        return 400, body, headers
    code = error.get_codes()
    body = problem(
        error.status_code,
        title=HTTPStatus(error.status_code).phrase,
        detail=str(error.detail),
        code=(code if isinstance(code, str) else error.default_code).replace("_", "-"),
    )
    return error.status_code, body, headers


def _fields(detail: Any, path: str = "") -> Iterator[FieldError]:
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            name = "" if key == "non_field_errors" else str(key)
            yield from _fields(inner, ".".join(part for part in (path, name) if part))
    elif isinstance(detail, (list, tuple)) and any(isinstance(item, (Mapping, list)) for item in detail):
        for position, inner in enumerate(detail):
            yield from _fields(inner, f"{path}.{position}")
    else:
        for message in detail if isinstance(detail, (list, tuple)) else [detail]:
            code = getattr(message, "code", "invalid").replace("_", "-")
            yield FieldError(path or "body", str(message), code=code)
