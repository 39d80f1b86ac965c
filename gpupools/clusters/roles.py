"""Credentials of the RAM role of the ECS instance that the console runs on, by Alibaba Cloud's own library.

The library asks the instance's metadata service, which nothing else here may reach; no secret of the role is kept.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from alibabacloud_credentials.client import Client
from alibabacloud_credentials.exceptions import CredentialException
from alibabacloud_credentials.provider import EcsRamRoleCredentialsProvider
from Tea.exceptions import TeaException

from gpupools.errors import Unreachable

# The library logs each failure twice, with its traceback; what is to be said is in our error.
logging.getLogger("credentials").setLevel(logging.CRITICAL + 1)


class RoleCredentials(Client):  # type: ignore[misc]  # the library has no types
    """A role's credentials; raises Unreachable when the machine gives none."""

    def __init__(self, role: str) -> None:
        # The library's own way to refresh is a scheduler thread for each; refreshing when asked is enough.
        super().__init__(provider=EcsRamRoleCredentialsProvider(role_name=role, async_update_enabled=False))
        self._role = role

    def get_credential(self) -> Any:
        """Return key, secret and token, fetched now if they have ended."""
        try:
            return super().get_credential()
        except (CredentialException, TeaException, OSError, ValueError):
            raise Unreachable(
                f"This machine gives no credentials of the RAM role {self._role}: see that the console runs on an ECS "
                "instance that has this role.",
                code="no-role",
            ) from None


@lru_cache(maxsize=16)
def credentials_of(role: str) -> RoleCredentials:
    """Return the credentials of a role; they are fetched at the first use and again before they end."""
    return RoleCredentials(role)
