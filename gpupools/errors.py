"""The console's errors: each is a class with a code, a sentence for a person, and data.

Doors turn them into HTTP answers or form errors. This module knows nothing of Django, HTTP or clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field: what was found there, and what is allowed."""

    field: str
    message: str
    code: str = "invalid"
    found: str = ""
    allowed: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the JSON shape of the REST API; empty ``found`` and ``allowed`` are left out."""
        pairs = {
            "field": self.field,
            "code": self.code,
            "message": self.message,
            "found": self.found,
            "allowed": self.allowed,
        }
        return {key: value for key, value in pairs.items() if value or key in {"field", "code", "message"}}


class ConsoleError(Exception):
    """Base of everything that the console says no with."""

    default_code = "error"

    def __init__(self, message: str, *, code: str = "", errors: Sequence[FieldError] = (), **data: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.errors = tuple(errors)
        self.data = data


class Invalid(ConsoleError):
    """The input is wrong; ``errors`` names the fields. HTTP 400."""

    default_code = "invalid"

    @classmethod
    def field(cls, field: str, message: str, *, code: str = "invalid", found: str = "", allowed: str = "") -> Invalid:
        """Build the error of one field."""
        error = FieldError(field, message, code=code, found=found, allowed=allowed)
        return cls(message, code=code, errors=(error,))


class NotAllowed(ConsoleError):
    """The person may not do this. HTTP 403."""

    default_code = "not-allowed"


class Missing(ConsoleError):
    """The thing is not there, or may not be seen. HTTP 404."""

    default_code = "not-found"


class Conflict(ConsoleError):
    """Wrong state, lost race, or a name that is taken. HTTP 409."""

    default_code = "conflict"


class Unreachable(ConsoleError):
    """A cluster or a broker did not answer, or answered that it cannot now. HTTP 503."""

    default_code = "unreachable"

    def __init__(self, message: str, *, retry_after_seconds: int = 5, **kwargs: object) -> None:
        super().__init__(message, **kwargs)  # type: ignore[arg-type]  # keyword pass-through to the base
        self.retry_after_seconds = retry_after_seconds


class Refused(ConsoleError):
    """A cluster understood the request and refused it (4xx): repeating it will not help. HTTP 400."""

    default_code = "refused"
