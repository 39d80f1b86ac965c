"""What the API server says no with: a Status object with code, reason, message and causes, in its wording.

Raised by the store, by validation and by the HTTP side; turned into a body only in responses.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpupools.simulator.kinds import Kind


@dataclass(frozen=True, slots=True)
class Cause:
    """One ``details.causes`` entry: why (``FieldValueInvalid``), where (``spec.template``), a sentence."""

    reason: str
    field: str
    message: str


class ApiError(Exception):
    """An answer other than success, as the Kubernetes API gives it."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        causes: Sequence[Cause] = (),
        *,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.details = details or {}
        # Some refusals have details although there is nothing to say in them.
        self._has_details = details is not None
        # Goes into the Status' metadata: a continue token beside a 410.
        self.list_meta: dict[str, Any] = {}

    def body(self) -> dict[str, Any]:
        """Return the ``kind: Status`` object that goes over the wire."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_meta,
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            "code": self.status,
        }
        details = dict(self.details)
        if self.causes:
            details["causes"] = [
                {
                    "reason": cause.reason,
                    "message": cause.message,
                    **({"field": cause.field} if cause.field else {}),
                }
                for cause in self.causes
            ]
        if details or self._has_details:
            status["details"] = details
        return status


def _details(kind: Kind, name: str, uid: str = "") -> dict[str, Any]:
    details: dict[str, Any] = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    if uid:
        details["uid"] = uid
    return details


def not_found(kind: Kind, name: str) -> ApiError:
    """404: there is no such object."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', details=_details(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details=_details(kind, name))


def conflict(kind: Kind, name: str, why: str = "") -> ApiError:
    """409: a stale resourceVersion, or a precondition that does not hold."""
    why = why or ("the object has been modified; please apply your changes to the latest version and try again")
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}',
        details=_details(kind, name),
    )


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object breaks rules; several causes are joined as the API server joins them."""
    said = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    # The text names each problem once, however many causes there are.
    said = list(dict.fromkeys(said))
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = _details(kind, name)
    details["kind"] = kind.kind
    return ApiError(422, "Invalid", f'{kind.kind_and_group} "{name}" is invalid: {text}', causes, details=details)


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """403: understood, not allowed."""
    named = f'{kind.resource} "{name}"' if name else kind.resource
    return ApiError(403, "Forbidden", f"{named} is forbidden: {why}", causes, details=_details(kind, name))


def bad_request(message: str) -> ApiError:
    """400: the request itself cannot be understood."""
    return ApiError(400, "BadRequest", message)


def expired(message: str = "") -> ApiError:
    """410: the version asked for was compacted away; the client has to list again."""
    return ApiError(410, "Expired", message or "The resourceVersion for the provided watch is too old.")


def refuse_options(kind: str, causes: Sequence[Cause]) -> None:
    """Raise 422 when there is something wrong with a request's options (``ListOptions``, ``PatchOptions``)."""
    if not causes:
        return
    said = [f"{cause.field}: {cause.message}" for cause in causes]
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    raise ApiError(
        422,
        "Invalid",
        f'{kind}.meta.k8s.io "" is invalid: {text}',
        causes,
        details={"group": "meta.k8s.io", "kind": kind},
    )
