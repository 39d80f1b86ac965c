"""Reading who calls: ``Authorization: Bearer gpc_...``. Whether they may is decided in services."""

from __future__ import annotations

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from gpupools.models import ApiToken, User
from gpupools.services import tokens
from gpupools.services.access import Actor


class TokenAuthentication(BaseAuthentication):
    """An API token as a bearer token."""

    keyword = "Bearer"

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return the user and token, None when there is no bearer token, or refuse a wrong one."""
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        try:
            plaintext = words[1].decode("ascii") if len(words) == 2 else ""
        except UnicodeDecodeError:
            plaintext = ""
        actor = tokens.authenticate(plaintext)
        if actor is None or actor.user is None or actor.token is None:
            raise AuthenticationFailed("This API token is unknown, expired or revoked.", code="bad-token")
        return actor.user, actor.token

    def authenticate_header(self, request: Request) -> str:
        """Ask for a bearer token: without this header a missing one would be answered 403 and not 401."""
        return 'Bearer realm="gpupools"'


class TokenScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI document names it."""

    target_class = "gpupools.api.authentication.TokenAuthentication"
    name = "apiToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the OpenAPI security scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "gpc_..."}


def actor_of(request: Request) -> Actor:
    """Return who acts in a request: a user in a session, or by way of an API token."""
    token = request.auth if isinstance(request.auth, ApiToken) else None
    return Actor(request.user, token)
