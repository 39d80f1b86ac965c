"""Images as a node's runtime knows them: full names, digests, how long a pull takes, and why one fails."""

from __future__ import annotations

import hashlib
import re

_VALID = re.compile(
    r"^[a-z0-9]([a-z0-9.\-_]*[a-z0-9])?(:\d+)?(/[a-z0-9]+([._\-]+[a-z0-9]+)*)*(:[\w][\w.\-]{0,127})?(@sha256:[0-9a-f]{64})?$"
)
# A tag that nobody pushed, so that a pull can fail at a registry that is there.
MISSING_TAGS = frozenset({"missing", "does-not-exist", "nonexistent"})


def digest(text: str) -> str:
    """Return a digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def full_image(image: str) -> str:
    """Return the image's full name, as a runtime reports it."""
    name = image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"
    host, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in host or ":" in host or host == "localhost" else f"docker.io/{name}"


def pull_seconds(image: str) -> float:
    """Return how long a pull takes; a failing one is told soon."""
    return 1.0 if pull_problem(image) else 1.0 + int(digest(image)[:4], 16) % 40 / 10


def size_bytes(image: str) -> int:
    """Return how large an image is said to be."""
    return 20_000_000 + int(digest(image)[:7], 16)


def refusal(image: str, policy: str, *, present: bool) -> tuple[str, str]:
    """Return the reason and words with which the kubelet does not even try to pull; empty when it does."""
    if not _VALID.match(image):
        return "InvalidImageName", f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}"'
    if policy == "Never" and not present:
        return "ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never'
    return "", ""


def pull_problem(image: str) -> str:
    """Return what the runtime says when a pull fails, empty for an image that can be pulled.

    A host that ends in ``.invalid`` cannot be found; a tag such as ``missing`` is not there.
    """
    name = full_image(image)
    host, _, rest = name.partition("/")
    if host.partition(":")[0].endswith(".invalid"):
        return (
            f'failed to resolve reference "{name}": failed to do request: Head "https://{host}/v2/": dial tcp: lookup '
            f"{host}: no such host"
        )
    if rest.rpartition(":")[2] in MISSING_TAGS:
        return f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": {name}: not found'
    return ""
