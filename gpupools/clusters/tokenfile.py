"""The token of the console's own service account, read from the file that the kubelet keeps fresh."""

from __future__ import annotations

from pathlib import Path

from gpupools.errors import Unreachable


def token_in(path: str) -> str:
    """Read the token that is in its file now. Raises Unreachable when there is none."""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if not token:
        raise Unreachable("The service account's token is not in its file any more.", code="no-token")
    return token
